"""The walk in several threads: the same records in the same order, guesses put right, and an end when asked."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.message import Reason
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log.column_walk import Request, walk_columns
from rmqctl.store.log.columns import ColumnRecord, MessageColumns, TopicIds
from rmqctl.store.log.parallel import check_log, pieces, walk_parallel
from rmqctl.store.log.walk import Blank, Damage, Empty, walk
from rmqctl.store.native.tables import Columns
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.columns.comparing import FORMS, assert_same, use_form
from tests.store.columns.test_columns_of_damage import frame
from tests.store.logs import log_of


def _log(name: str) -> MappedFileQueue:
    return reader(name).files.log


def _together(log: MappedFileQueue, piece: int, threads: int = 2, end: int | None = None) -> list[ColumnRecord]:
    return [
        record
        for part in walk_parallel(log, list, end=end, threads=threads, columns=Columns.ALL, piece=piece)
        for record in part
    ]


@pytest.mark.parametrize("piece", [5000, 70_000, 1 << 26])
@pytest.mark.parametrize(
    "name", ["clean", "features", "gap", "short-middle", "crc-flip-third", "torn-zero", "log-gone"]
)
def test_same_records(name: str, piece: int) -> None:
    assert_same(_together(_log(name), piece), walk(_log(name)))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_rungs_and_threads(form: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    assert_same(_together(_log("gap"), 20_000, threads), walk(_log("gap")))


def test_an_end() -> None:
    whole = list(walk(_log("gap")))
    for record in whole[::151]:
        expected = [one for one in whole if one.physical_offset < record.physical_offset]
        assert_same(_together(_log("gap"), 30_000, end=record.physical_offset), expected)


def test_guesses_that_are_wrong(tmp_path: Path) -> None:
    """A frame inside a body, right for its place, is where a piece begins: the walk before it passes it by."""
    inner = frame(1104, b"decoy")
    outer = frame(0, b"." * 1016 + inner + b"." * 900)
    log = log_of(tmp_path, outer + frame(len(outer), b"after") + bytes(100))
    request = Request(log, TopicIds(), Columns.ALL, 0, None, None, 1 << 20, 100)
    assert [piece.begin for piece in pieces(request, 0, 1000)][1] == 1104
    assert_same(_together(log, 1000), walk(log))


def test_damage_over_the_edges_of_pieces(tmp_path: Path) -> None:
    frames = b""
    while len(frames) < 20_000:
        frames += frame(len(frames), b"x" * 50)
    for begin, end in ((500, 9000), (3000, 3001), (900, 1100), (0, 15_000)):
        broken = frames[:begin] + b"\xee" * (end - begin) + frames[end:]
        log = log_of(tmp_path / f"{begin}-{end}", broken)
        for piece in (1000, 4000):
            assert_same(_together(log, piece), walk(log))


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_check(name: str) -> None:
    passed: list[int] = []
    check = check_log(_log(name), progress=passed.append)
    records = list(walk(_log(name)))
    assert check.others == [record for record in records if isinstance(record, Blank | Empty | Damage)]
    assert check.messages == len(records) - len(check.others)
    assert check.message_bytes == sum(one.end - one.physical_offset for one in records if one not in check.others)
    zeros = sum(one.end - one.physical_offset for one in records if isinstance(one, Empty))
    assert sum(passed) == sum(file.size for file in _log(name).files) - zeros


def test_errors_of_the_work_and_of_files_reach_the_caller(tmp_path: Path) -> None:
    def fail(records: Iterator[ColumnRecord]) -> None:
        raise ArithmeticError("of the work")

    with pytest.raises(ArithmeticError, match="of the work"):
        list(walk_parallel(_log("clean"), fail))
    log = log_of(tmp_path, frame(0), frame(len(frame(0))))
    gone = log.files[1]
    gone.path.unlink()
    # the last one is no cleaner's work: it is missing
    [other] = check_log(log).others
    assert isinstance(other, Damage)
    assert (other.reason, other.file) == (Reason.GAP, str(gone.path))


def test_the_work_need_not_take_all_records() -> None:
    def first(records: Iterator[ColumnRecord]) -> int:
        record = next(records)
        return record.begin if isinstance(record, MessageColumns) else record.physical_offset

    starts = list(walk_parallel(_log("clean"), first, piece=30_000))
    assert len(starts) > 10
    assert starts == sorted(set(starts))


def _many_megabytes(folder: Path) -> MappedFileQueue:
    data = bytearray()
    while len(data) < 8_000_000:
        data += frame(len(data), b"z" * 50_000)
    return log_of(folder, bytes(data))


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupt_ends_it_soon(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    log = _many_megabytes(tmp_path)
    windows = 0

    def slow(records: Iterator[ColumnRecord]) -> None:
        nonlocal windows
        for _ in records:
            windows += 1
            time.sleep(0.05)

    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(walk_parallel(log, slow, columns=Columns.BYTES, window=60_000, rows=1))
    timer.join()
    # of more than a hundred
    assert windows < 50
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("walk")]


def test_a_caller_that_stops_leaves_no_threads(tmp_path: Path) -> None:
    log = _many_megabytes(tmp_path)
    results = walk_parallel(log, list, piece=100_000)
    next(results)
    del results
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("walk")]
    assert sum(len(one) for one in walk_columns(log) if isinstance(one, MessageColumns)) > 100


def test_a_file_that_is_one_hole_is_cut_into_few_pieces(tmp_path: Path) -> None:
    """A sparse file may say that it has a terabyte: nothing looks for frames in its holes."""
    path = tmp_path / ("0" * 20)
    path.write_bytes(frame(0, b"one"))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    log = MappedFileQueue([tmp_path], None, Descriptors())
    log.load()
    began = time.process_time()
    found = check_log(log)
    assert (found.messages, len(found.others)) == (1, 1)
    assert time.process_time() - began < 20
