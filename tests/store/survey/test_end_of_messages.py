"""The end of a log that somebody writes to: never inside of a message, never behind one that is half there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.message import StoredMessage
from rmqctl.store.log import survey as tail
from rmqctl.store.log.survey import end_of_messages
from rmqctl.store.log.walk import Blank, walk
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.logs import blank, changed, frame, frames, log_of

SIZE = 8192


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if not name.startswith("log-gone")))
@pytest.mark.parametrize("window", [300, 4 * 1024 * 1024])
def test_goldens_end_behind_their_last_message(name: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = reader(name).files.log
    monkeypatch.setattr(tail, "_LAST_RECORDS", window)
    good = [record for record in walk(log) if isinstance(record, StoredMessage | Blank)]
    if not log.files:
        assert end_of_messages(log, 0) == 0
        return
    wanted = max((record.end for record in good), default=0)
    begun = [file.start_offset for file in log.files if any(file.read(0, file.size))]
    assert end_of_messages(log, 0) == max(wanted, *begun[-1:], 0)


@settings(deadline=None)
@given(st.data())
def test_a_torn_message_is_left_for_later(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """However far the writer has come: with or without a body, with or without properties."""
    bodies = data.draw(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
    properties = data.draw(st.sampled_from([{}, {"KEYS": "a"}, {"KEYS": "a", "TAGS": "b", "UNIQ_KEY": "0" * 32}]))
    made: list[bytes] = []
    for number, body in enumerate(bodies):
        offset = sum(map(len, made))
        made.append(frame(offset, body, queue_offset=number, topic="Orders", properties=properties))
    whole, last = b"".join(made[:-1]), made[-1]
    torn = last[: data.draw(st.integers(0, len(last)))]
    log = log_of(tmp_path_factory.mktemp("log"), (whole + torn).ljust(SIZE, b"\0"))
    is_there = torn.ljust(len(last), b"\0") == last
    assert end_of_messages(log, 0, lambda _: None) == len(whole) + (len(last) if is_there else 0)


def test_a_message_that_is_still_changing_is_left_for_later(tmp_path: Path) -> None:
    """A head of which a part is missing has no checksum that would tell."""
    made = frames([b"a", b"b"])
    whole = b"".join(made).ljust(SIZE, b"\0")
    headless = changed(whole, len(made[0]) + 56, bytes(8))
    log = log_of(tmp_path / "log", headless)
    path = log.files[0].path

    def go_on(_: float) -> None:
        path.write_bytes(whole)

    assert end_of_messages(log, 0, go_on) == len(made[0])
    assert end_of_messages(log, 0) == len(made[0]) + len(made[1])


def test_damage_with_messages_behind_it_is_passed(tmp_path: Path) -> None:
    made = frames([b"first body", b"second body", b"third body"])
    data = changed(b"".join(made), len(made[0]) + len(made[1]) - 30, b"\xff\xff").ljust(SIZE, b"\0")
    log = log_of(tmp_path / "log", data)
    assert end_of_messages(log, 0) == sum(map(len, made))
    assert end_of_messages(log, len(made[0])) == sum(map(len, made))


def test_a_full_file_ends_where_the_next_one_will_begin(tmp_path: Path) -> None:
    made = b"".join(frames([b"a", b"b"]))
    log = log_of(tmp_path / "log", made + blank(SIZE - len(made)))
    assert end_of_messages(log, 0) == SIZE
    assert end_of_messages(log, SIZE) == SIZE


def test_everything_before_the_last_file_with_data_is_final(tmp_path: Path) -> None:
    """A broker makes the next file, and the one after it, long before their first messages (allocateMappedFile)."""
    made = frames([b"a", b"b"])
    half = b"".join(made)[:-3].ljust(SIZE, b"\0")
    log = log_of(tmp_path / "ahead", half, bytes(SIZE), bytes(SIZE))
    assert end_of_messages(log, 0) == len(made[0])
    assert end_of_messages(log, SIZE) == SIZE
    next_one = frame(SIZE, b"c").ljust(SIZE, b"\0")
    log = log_of(tmp_path / "begun", half, next_one, bytes(SIZE))
    assert end_of_messages(log, 0) == SIZE + len(frame(SIZE, b"c"))


def test_there_is_never_a_step_back(tmp_path: Path) -> None:
    made = b"".join(frames([b"a", b"b"]))
    log = log_of(tmp_path / "log", made.ljust(SIZE, b"\0"))
    for begin in (len(made), len(made) + 1, SIZE - 1, SIZE, 10 * SIZE):
        assert end_of_messages(log, begin) == begin
    assert end_of_messages(log_of(tmp_path / "none", bytes(SIZE)), 0) == 0
