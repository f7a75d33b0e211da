"""Splits of any size have the records of the serial walk: on goldens, on damage, between decoys."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.pipeline import splits
from rmqctl.pipeline.splits import (
    WHOLE_FILES,
    Split,
    SplitEdgeError,
    first_record,
    open_split,
    plan_splits,
    split_columns,
    split_runs,
)
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import reading as zeros
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log import resync
from rmqctl.store.log import search as frame_search
from rmqctl.store.log.columns import ColumnRecord, MessageColumns
from rmqctl.store.log.implied import Digest, Run
from rmqctl.store.log.walk import walk
from rmqctl.store.store_files import StoreFiles
from tests.formats.frames import frame_of
from tests.goldens import GOLDENS
from tests.opened import store_path
from tests.quick import examples, goldens_of
from tests.store.columns.comparing import FORMS, use_form
from tests.store.columns.test_columns_of_damage import DAMAGES, STRANGE, _damaged, _frames
from tests.store.logs import STORE_HOST, blank, frames, log_of

Record = tuple[object, ...]
# lengths of which parts of small logs are looked through, as large logs are by default
SPANS = [1, 90, 700]
WITH_LOGS = [name for name in GOLDENS if "log-gone" not in name and name != "multipath"]


def plain(files: StoreFiles) -> list[Record]:
    return [
        ("message", record.physical_offset, record.total_size, record.topic, record.queue_offset)
        if isinstance(record, StoredMessage)
        else (type(record).__name__, *record)
        for record in walk(files.log)
    ]


def rows(record: ColumnRecord) -> list[Record]:
    if not isinstance(record, MessageColumns):
        return [(type(record).__name__, *record)]
    topics = [record.topic(row) for row in range(record.rows)]
    columns = (record.physical_offset.tolist(), record.size.tolist(), topics, record.queue_offset.tolist())
    return [("message", *row) for row in zip(*columns, strict=True)]


def in_splits(files: StoreFiles, planned: list[Split]) -> list[Record]:
    found: list[Record] = []
    for split in planned:
        with open_split(split) as opened:
            here = [row for record in split_columns(opened, split, window=2000, rows=50) for row in rows(record)]
        assert all(split.begin <= int(str(row[1])) < split.end for row in here)
        found += here
    return found


@pytest.mark.parametrize("name", goldens_of(WITH_LOGS))
def test_goldens_in_splits_of_any_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreFiles(store_path(name)) as files:
        expected = plain(files)
        length = files.log.max_offset - files.log.min_offset
        for size, span in ((WHOLE_FILES, 90), (length // 7 + 1, 90), (length // 60 + 1, 1), (length // 25 + 1, 5000)):
            monkeypatch.setattr(resync, "_FIRST_SPAN", span)
            assert in_splits(files, plan_splits(files, size)) == expected


@pytest.mark.parametrize("name", ["clean", "gap", "first-gone"])
def test_a_task_opens_what_it_reads_and_lists_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreFiles(store_path(name)) as files:
        expected = plain(files)
        planned = plan_splits(files, 50_000)
        assert all(split.file_size == files.log.file_size for split in planned)
        # the file that it reads, and its neighbours
        assert max(len(split.files) for split in planned) <= 3

        def refuse(_: object) -> None:
            raise AssertionError("a directory of the commitlog is listed")

        monkeypatch.setattr(MappedFileQueue, "load", refuse)
        assert in_splits(files, planned) == expected


def test_splits_cover_the_log_once(tmp_path: Path) -> None:
    with StoreFiles(store_path("gap")) as files:
        for size in (WHOLE_FILES, 5000, 1 << 30):
            planned = plan_splits(files, size)
            assert all(one.end == two.begin for one, two in itertools.pairwise(planned))
            assert planned[0].begin == files.log.min_offset
            assert planned[-1].end >= files.log.max_offset
        middle = plan_splits(files, 5000, 12_345, 23_456)
        assert (middle[0].begin, middle[-1].end) == (12_345, 23_456)
        assert plan_splits(files, 5000, 23_456, 23_456) == []


def store_of(folder: Path, *data: bytes, file_size: int | None = None) -> StoreFiles:
    """A store with a commitlog of these files."""
    log_of(folder / "commitlog", *data, file_size=file_size)
    return StoreFiles(folder, StoreConfig(mapped_file_size_commit_log=file_size))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=st.lists(STRANGE, min_size=1, max_size=8),
    with_crc=st.booleans(),
    damages=DAMAGES,
    size=st.integers(1, 400),
    span=st.sampled_from(SPANS),
    form=st.sampled_from(sorted(FORMS)),
)
def test_strange_and_damaged_logs_in_splits_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[Message],
    with_crc: bool,
    damages: list[tuple[float, str, int]],
    size: int,
    span: int,
    form: str,
) -> None:
    data = _damaged(bytearray(b"".join(_frames(messages, 0, with_crc))), damages) or b"x"
    with store_of(tmp_path_factory.mktemp("store"), data) as files, pytest.MonkeyPatch.context() as patch:
        patch.setattr(resync, "_FIRST_SPAN", span)
        use_form(form, patch)
        assert in_splits(files, plan_splits(files, size)) == plain(files)


def frame(physical_offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    message = Message("T", body, sys_flag=sys_flag)
    return frame_of(message, STORE_HOST, physical_offset=physical_offset)


def with_decoys(begin: int, decoys: int) -> bytes:
    """A frame at `begin` of which the body is frames, right in every respect, and a head that claims all behind it."""
    body_at = begin + len(frame(begin, b"")) - len(b"T") - 3
    inner = b""
    for number in range(decoys):
        inner += b"." * number + frame(body_at + len(inner) + number, b"decoy %d" % number)
    claims = bytearray(frame(body_at + len(inner), b"claims"))
    claims[0:4] = (100_000).to_bytes(4, "big")
    return frame(begin, inner + bytes(claims) + b"end")


@pytest.mark.parametrize("damaged", ["whole", "body", "size", "magic", "offset"])
def test_decoys_inside_bodies(tmp_path: Path, damaged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray()
    for number in range(30):
        if number % 3 == 1:
            at = len(data)
            data += with_decoys(at, 4)
            place = {"body": len(data) - at - 8, "size": 1, "magic": 5, "offset": 32}.get(damaged)
            if place is not None and number % 2:
                data[at + place] ^= 0x55
        else:
            data += frame(len(data), b"x" * (7 * number))
    with store_of(tmp_path, bytes(data) + bytes(100)) as files:
        expected = plain(files)
        assert any(row[0] == "Damage" for row in expected) == (damaged != "whole")
        for size, span in itertools.product((40, 301, 2222), SPANS):
            monkeypatch.setattr(resync, "_FIRST_SPAN", span)
            assert in_splits(files, plan_splits(files, size)) == expected


def test_gaps_short_files_blanks_and_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_FIRST_SPAN", 1)
    size = 1000
    first, second = frame(0, b"1" * 200), frame(size, b"2" * 300)
    third = frame(3 * size, b"3" * 300)
    fourth = frame(4 * size, b"4" * 100) + bytes(40)
    fourth += frame(4 * size + len(fourth), b"5")
    with store_of(
        tmp_path,
        first + blank(size - len(first)),
        second,
        b"",
        third.ljust(size, b"\0"),
        fourth + b"tail",
        file_size=size,
    ) as files:
        expected = plain(files)
        assert {row[0] for row in expected} >= {"message", "Blank", "Damage", "Empty"}
        for split_size in (1, 17, 100, 333, size, WHOLE_FILES):
            assert in_splits(files, plan_splits(files, split_size)) == expected


def test_the_empty_end_of_the_log_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []

    def end_of_nonzero(descriptors: Descriptors, path: Path, begin: int, end: int) -> int:
        looked.append(path)
        return zeros.end_of_nonzero(descriptors, path, begin, end)

    monkeypatch.setattr(frame_search, "end_of_nonzero", end_of_nonzero)
    size = 1 << 20
    data = b"".join(frames([b"x" * 5000] * 40))
    with store_of(tmp_path, data.ljust(size, b"\0"), bytes(size), file_size=size) as files:
        expected = plain(files)
        looked.clear()
        planned = plan_splits(files, 50_000)
        assert in_splits(files, planned) == expected
        assert looked == [file.path for file in files.log.files]
        assert [split.begin for split in planned if split.begin > len(data)] == [size]
        assert planned[-1].end == 2 * size
        # a writer goes on meanwhile: what was planned has its messages, too
        more = frame(len(data), b"y" * 3000) + frame(len(data) + len(frame(0, b"y" * 3000)), b"z" * 100_000)
        with files.log.files[0].path.open("r+b") as opened:
            opened.seek(len(data))
            opened.write(more)
        assert in_splits(files, planned) == plain(files) != expected


def test_first_record_is_that_of_the_serial_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_FIRST_SPAN", 1)
    data = frame(0, b"one") + with_decoys(len(frame(0, b"one")), 3)
    data += frame(len(data), b"last")
    with store_of(tmp_path, data) as files:
        starts = [int(str(row[1])) for row in plain(files)] + [len(data)]
        for offset in range(len(data)):
            assert first_record(files, offset) == min(start for start in starts if start >= offset)


def test_a_frame_too_large_to_look_back_over_is_not_cut_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "_FIRST_SPAN", 1)
    for module in (resync, splits):
        monkeypatch.setattr(module, "LOOK_BACK", 200)
    data = frame(0, b"one")
    at = len(data)
    data += with_decoys(at, 9)
    end = len(data)
    data += frame(end, b"last")
    with store_of(tmp_path, data) as files:
        with pytest.raises(SplitEdgeError) as caught:
            in_splits(files, [Split(str(tmp_path), files.config, 0, end - 300)])
        assert (caught.value.physical_offset, caught.value.file) == (at, str(files.log.files[0].path))
        assert in_splits(files, plan_splits(files, WHOLE_FILES)) == plain(files)


def test_runs_of_splits_are_those_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_FIRST_SPAN", 90)
    with StoreFiles(store_path("features")) as files:
        planned = plan_splits(files, 3000)
        assert len(planned) > 10
        levels = files.config.delay_levels()
        units: list[tuple[str, int, int, bytes]] = []
        special = messages = 0
        keys: list[int] = []
        for split in planned:
            for run in split_runs(files, split, Digest(levels)):
                if isinstance(run, Run):
                    messages += run.messages
                    special += len(run.special)
                    keys += run.key_hashes.tolist()
                    for queue in run.queues:
                        for slot, unit in zip(queue.slots.tolist(), queue.units, strict=True):
                            units.append((queue.topic, queue.queue_id, slot, unit.tobytes()))
        runs = [run for run in split_runs(files, _all(files), Digest(levels)) if isinstance(run, Run)]
        assert messages == sum(run.messages for run in runs)
        assert special == sum(len(run.special) for run in runs)
        assert keys == [one for run in runs for one in run.key_hashes.tolist()]
        expected = [
            (queue.topic, queue.queue_id, slot, unit.tobytes())
            for run in runs
            for queue in run.queues
            for slot, unit in zip(queue.slots.tolist(), queue.units, strict=True)
        ]
        assert sorted(units) == sorted(expected)


def _all(files: StoreFiles) -> Split:
    return Split(str(files.root), files.config, 0, files.log.max_offset)
