"""The index made and compared in columns, held against the plain form of both."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER
from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.store.compare import index as index_compare
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry
from rmqctl.store.index.index_service import IndexService, index_file_name, index_file_name_after
from rmqctl.store.log.implied import Run
from rmqctl.store.recover import index as index_build
from rmqctl.store.recover.index import IndexBuilder, IndexRecovery, OnRun, TagRule
from tests.quick import examples
from tests.store.logs import frame
from tests.store.recover.mend.plain_index import IndexMend

INT = st.integers(-(1 << 31), (1 << 31) - 1)
GEOMETRY = Geometry(7, 12)
CONFIG = StoreConfig(max_hash_slot_num=GEOMETRY.slots, max_index_num=GEOMETRY.entries)
MOMENT = 1_700_000_000_000


# --- making -----------------------------------------------------------------------------------------------------------

TIMES = st.one_of(st.integers(MOMENT, MOMENT + 10_000), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-5, 5))
# the keys of each message, and its time
MESSAGES = st.lists(st.tuples(st.lists(st.sampled_from("abcdefgh"), max_size=4), TIMES), max_size=25)


def _messages(made: list[tuple[list[str], int]], begin: int = 0) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    for keys, moment in made:
        data = frame(begin, queue_offset=0, properties={"KEYS": " ".join(keys)}, store_timestamp=moment)
        messages.append(decode_message(data, 0, len(data), begin))
        begin += len(data)
    return messages


def _run(messages: list[StoredMessage]) -> Run:
    run = Run(messages[0].physical_offset, messages[-1].end, len(messages), 0, 0)
    found = [
        (key_hash(message.topic, key), message.physical_offset, message.store_timestamp)
        for message in messages
        for key in dict.fromkeys(message.properties().get("KEYS", "").split())
    ]
    run.key_hashes = np.array([entry[0] for entry in found], np.int32)
    run.key_offsets = np.array([entry[1] for entry in found], np.int64)
    run.key_timestamps = np.array([entry[2] for entry in found], np.int64)
    run.key_is_tag = np.zeros(len(found), np.bool_)
    return run


def _runs(messages: list[StoredMessage], length: int) -> list[Run]:
    return [_run(messages[at : at + length]) for at in range(0, len(messages), length)]


def _plain(directory: Path, messages: list[StoredMessage], descriptors: Descriptors) -> IndexMend:
    service = IndexService(directory, CONFIG, descriptors)
    service.load()
    mend = IndexMend(service, descriptors)
    for message in messages:
        mend.add(message)
    return mend


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*")}


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=MESSAGES, length=st.integers(1, 9))
def test_files_at_once_and_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[tuple[list[str], int]],
    length: int,
) -> None:
    folder = tmp_path_factory.mktemp("index")
    messages = _messages(made)
    (folder / "plain").mkdir()
    (folder / "built").mkdir()
    descriptors = Descriptors()
    plain = _plain(folder / "none", messages, descriptors)
    expected = [path.name for path in plain.stage(folder / "plain", GEOMETRY)]
    counted = IndexBuilder(GEOMETRY, None)
    builder = IndexBuilder(GEOMETRY, lambda: folder / "built")
    for run in _runs(messages, length):
        builder.add(run.key_hashes, run.key_offsets, run.key_timestamps)
        counted.add(run.key_hashes, run.key_offsets, run.key_timestamps)
    assert [path.name for path in builder.finish()] == expected
    assert counted.finish() == []
    assert _contents(folder / "built") == _contents(folder / "plain")
    for one in (builder, counted):
        assert one.file_count == plain.file_count(GEOMETRY) == len(expected)
        assert one.full_file_end_timestamp == plain.full_file_end_timestamp(GEOMETRY)
    descriptors.close()


def test_slots_that_are_not_used_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "_SLOT_PIECE", 1024)
    builder = IndexBuilder(Geometry(1_000_000, 1000), lambda: tmp_path)
    [run] = _runs(_messages([(["a"], MOMENT)]), 5)
    builder.add(run.key_hashes, run.key_offsets, run.key_timestamps)
    [path] = builder.finish()
    assert path.stat().st_blocks * 512 < 100_000
    assert path.stat().st_size == Geometry(1_000_000, 1000).file_size


@given(TIMES, st.one_of(st.just(""), TIMES.map(lambda time: index_file_name(abs(time) % (1 << 47)))))
def test_names_are_names_of_index_files(moment: int, before: str) -> None:
    name = index_file_name_after(moment, before)
    assert name > before
    assert len(name) == 17
    assert name.isdigit()
    if MOMENT <= moment < MOMENT * 2 and index_file_name(moment) > before:
        assert name == index_file_name(moment)


def test_names_of_files_made_in_the_same_moment_follow_one_another() -> None:
    first = index_file_name_after(MOMENT, "")
    assert index_file_name_after(MOMENT, first) == index_file_name(MOMENT + 1)
    # a file of a time that cannot be: the next one is still found at once
    assert index_file_name_after(MOMENT, "99990101000000000") == "99990101000000001"


# --- comparing --------------------------------------------------------------------------------------------------------

Change = Callable[[bytearray, int], None]


def _drop_last(data: bytearray, choice: int) -> None:
    count = struct.unpack_from(">i", data, 36)[0]
    if count > 1:
        struct.pack_into(">i", data, 36, count - 1)


def _flip(data: bytearray, choice: int) -> None:
    used = GEOMETRY.entry_position(struct.unpack_from(">i", data, 36)[0])
    data[INDEX_HEADER.size + choice % (used - INDEX_HEADER.size)] ^= 1 << choice % 8


def _cut(data: bytearray, choice: int) -> None:
    del data[GEOMETRY.entry_position(1) + choice % (INDEX_ENTRY.size * 8) :]


CHANGES: tuple[Change, ...] = (lambda data, choice: None, _drop_last, _flip, _cut)


def _write_index(folder: Path, entries: list[StoredMessage]) -> None:
    """Index files that RocketMQ would have written for these messages, in the order given, repeats included."""
    folder.mkdir()
    service = IndexService(folder, CONFIG, Descriptors())
    for message in entries:
        for key in message.properties().get("KEYS", "").split():
            service.put(message.topic, key, message.physical_offset, message.store_timestamp)
    service.close()


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    made=st.lists(st.tuples(st.lists(st.sampled_from("abcdef"), max_size=4), st.just(MOMENT)), min_size=1, max_size=20),
    repeats=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3)), max_size=2),
    gone=st.integers(0, 4),
    missing=st.one_of(st.none(), st.integers(0, 19)),
    change=st.tuples(st.sampled_from(CHANGES), st.integers(0, 1 << 16)),
    length=st.integers(1, 9),
    window=st.sampled_from([1, 3, 1 << 18]),
    staged=st.booleans(),
)
def test_verdicts_in_columns_and_plain(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[tuple[list[str], int]],
    repeats: list[tuple[int, int, int]],
    gone: int,
    missing: int | None,
    change: tuple[Change, int],
    length: int,
    window: int,
    staged: bool,
) -> None:
    folder = tmp_path_factory.mktemp("index")
    messages = _messages(made, 500)
    indexed = list(messages)
    for at, begin, count in repeats:  # as a broker does that dispatches again after a crash
        indexed[at:at] = messages[begin : begin + count]
    if missing is not None and missing < len(messages):
        indexed = [message for message in indexed if message is not messages[missing]]
    _write_index(folder / "index", indexed)
    for path in sorted((folder / "index").iterdir())[-1:]:
        data = bytearray(path.read_bytes())
        change[0](data, change[1])
        path.write_bytes(data)
    implied = messages[gone:]
    first = implied[0].physical_offset if implied else 1 << 40

    def is_gone(offset: int) -> bool:
        return offset < first

    descriptors = Descriptors()
    plain = _plain(folder / "index", implied, descriptors)
    expected = plain.is_intact(is_gone)
    (folder / "plain").mkdir()
    names = [] if expected or not staged else [path.name for path in plain.stage(folder / "plain", GEOMETRY)]
    service = IndexService(folder / "index", CONFIG, descriptors)
    service.load()
    (folder / "staged").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_compare, "_WINDOW", window)
        directory = (lambda: folder / "staged") if staged else None
        recovery = IndexRecovery(service, descriptors, is_gone, directory, True, TagRule(False))
        runs = _runs(implied, length)
        for run in runs:
            recovery.add(run)

        def read_again(on_run: OnRun) -> None:
            for run in runs:
                on_run(run)

        found = recovery.finish(read_again)
    recovery.close()
    assert found == expected
    assert [path.name for path in recovery.staged] == names
    assert _contents(folder / "staged") == _contents(folder / "plain")
    assert len(recovery.names) == plain.file_count(GEOMETRY)
    descriptors.close()


def test_an_index_that_nobody_wants_is_left_alone(tmp_path: Path) -> None:
    descriptors = Descriptors()
    service = IndexService(tmp_path / "index", CONFIG, descriptors)
    recovery = IndexRecovery(service, descriptors, lambda offset: False, lambda: tmp_path, False, TagRule(False))
    [run] = _runs(_messages([(["a"], MOMENT)]), 5)
    recovery.add(run)
    assert recovery.finish(lambda on_run: None)
    assert (recovery.staged, len(recovery.names)) == ([], 1)
    assert list(tmp_path.iterdir()) == []
