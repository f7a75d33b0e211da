"""How a log ends by its last bytes alone, with damage, left-over messages and a writer at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.message import Reason
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log import survey as tail_module
from rmqctl.store.log.survey import Tail, end_of_messages, last_begun, look_at_tail, may_lack_bytes, settled_end
from rmqctl.store.log.walk import Blank
from tests.store.logs import blank, changed, frame, log_of, opened

SIZE = 8192
BAD = b"\xff" * 50
"""Damage that is no frame's."""


def timed(times: list[int | None], begin: int = 0) -> tuple[bytes, list[int]]:
    """Messages of these store times, None for damage; and where each of them ends."""
    data, ends = b"", []
    for time in times:
        data += BAD if time is None else frame(begin + len(data), b"body", store_timestamp=time)
        ends.append(begin + len(data))
    return data, ends


def a_log(folder: Path, times: list[int | None], first: int = 0) -> tuple[MappedFileQueue, list[int]]:
    data, ends = timed(times, first)
    return log_of(folder, data.ljust(SIZE, b"\0"), first=first), ends


def test_a_log_without_messages_ends_where_it_begins(tmp_path: Path) -> None:
    assert look_at_tail(opened(tmp_path / "none")) == Tail(0, 0)
    for first in (0, 3 * SIZE):
        log = log_of(tmp_path / str(first), bytes(SIZE), bytes(SIZE), first=first)
        assert look_at_tail(log) == Tail(first, first)
        assert (settled_end(log), last_begun(log)) == (first, None)


@pytest.mark.parametrize("first", [0, 3 * SIZE])
def test_a_sound_end(tmp_path: Path, first: int) -> None:
    log, ends = a_log(tmp_path, [5, 9, 7], first)
    assert look_at_tail(log) == Tail(first, ends[-1], 3, 7, 9)
    assert look_at_tail(log).valid_end == ends[-1]
    # a frame ends in two zeros, which do not tell where it ends; of a window without a beginning a larger one is taken
    size = ends[0] - first
    for window in (size - 2, size, 2 * size - 3):
        assert look_at_tail(log, window) == Tail(ends[1], ends[2], 1, 7, 7), window
    for window in (2 * size - 2, 3 * size - 3):
        assert look_at_tail(log, window) == Tail(ends[0], ends[2], 2, 7, 9), window
    for window in (1, size - 3, 3 * size - 2):
        assert look_at_tail(log, window) == Tail(first, ends[2], 3, 7, 9), window


def test_a_blank_frame_is_part_of_the_log_and_has_no_time(tmp_path: Path) -> None:
    data, ends = timed([5])
    log = log_of(tmp_path, data + blank(SIZE - len(data)), bytes(SIZE))
    assert look_at_tail(log) == Tail(0, SIZE, 1, 5, 5)
    assert ends[-1] < SIZE
    # what another file holds before is not looked at
    data, ends = timed([6, 8], SIZE)
    log = log_of(tmp_path / "two", timed([5, None])[0].ljust(SIZE, b"\0"), data.ljust(SIZE, b"\0"), bytes(SIZE))
    assert look_at_tail(log) == Tail(SIZE, ends[-1], 2, 8, 8)


def test_damage_at_the_end_and_before_it(tmp_path: Path) -> None:
    log, ends = a_log(tmp_path / "torn", [5, 6, None])
    found = look_at_tail(log)
    assert found.damage is not None
    assert (found.damage.physical_offset, found.damage.end) == (ends[1], ends[2])
    assert (found.end, found.valid_end, found.inside, found.timestamp_before_damage) == (ends[1], ends[1], [], 0)
    log, ends = a_log(tmp_path / "inside", [5, None, 6, 7, None, 8])
    found = look_at_tail(log)
    assert [(one.physical_offset, one.end) for one in found.inside] == [(ends[0], ends[1]), (ends[3], ends[4])]
    # the time is that before the first of them
    assert (found.damage, found.timestamp_before_damage, found.messages) == (None, 5, 4)
    assert (found.is_stale_behind_damage, found.valid_end) == (False, ends[-1])


@pytest.mark.parametrize(("behind", "is_stale"), [(4, True), (5, False), (6, False)])
def test_what_was_stored_before_what_precedes_the_damage_is_left_over(
    tmp_path: Path, behind: int, is_stale: bool
) -> None:
    log, ends = a_log(tmp_path, [5, None, behind])
    found = look_at_tail(log)
    assert found.is_stale_behind_damage == is_stale
    assert found.valid_end == (ends[0] if is_stale else ends[-1])
    # without damage times may go back: a clock was set
    log, ends = a_log(tmp_path / "sound", [5, behind])
    assert look_at_tail(log).valid_end == ends[-1]


def test_of_two_damages_at_the_end_the_first_counts_and_a_file_that_is_cut_is_none(tmp_path: Path) -> None:
    data, ends = timed([5, 6])
    bad = frame(ends[-1], b"body")
    two = changed(bad, 8, b"????") + changed(frame(ends[-1] + len(bad), b"body"), 8, b"????")
    found = look_at_tail(log_of(tmp_path / "two", (data + two).ljust(SIZE, b"\0")))
    assert found.damage is not None
    assert (found.damage.reason, found.damage.physical_offset) == (Reason.BODY_CRC, ends[-1])
    found = look_at_tail(log_of(tmp_path / "cut", data, file_size=SIZE))
    assert (found.damage, found.end) == (None, ends[-1])


def writing(path: Path, *contents: bytes) -> tuple[Callable[[float], None], list[float]]:
    """A pause in which a writer goes on: what the file holds after each; and the pauses that there were."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        if len(pauses) < len(contents):
            path.write_bytes(contents[len(pauses)].ljust(SIZE, b"\0"))
        pauses.append(seconds)

    return pause, pauses


def test_the_end_that_a_live_log_is_judged_by(tmp_path: Path) -> None:
    data, ends = timed([5, 6, 7])
    torn = data[: ends[1]] + data[ends[1] :][:60]
    log = log_of(tmp_path, data.ljust(SIZE, b"\0"))
    path = log.files[0].path
    pause, pauses = writing(path)
    assert (settled_end(log, pause), pauses) == (ends[2], [])
    # a frame that is half there and then whole
    path.write_bytes(torn.ljust(SIZE, b"\0"))
    pause, pauses = writing(path, torn, data)
    assert (settled_end(log, pause), len(pauses)) == (ends[2], 2)
    # the writer goes on: the next frame is half there, this one is whole
    path.write_bytes((data[: ends[0]] + data[ends[0] :][:60]).ljust(SIZE, b"\0"))
    pause, pauses = writing(path, torn)
    assert (settled_end(log, pause), len(pauses)) == (ends[1], 1)
    # nobody goes on: it is damage, and before the end
    path.write_bytes(torn.ljust(SIZE, b"\0"))
    pause, pauses = writing(path)
    assert settled_end(log, pause) == ends[2]
    assert (len(pauses), set(pauses)) == (tail_module._TRIES, {tail_module._PAUSE_S})


def test_the_last_file_that_was_begun(tmp_path: Path) -> None:
    """By its first bytes; a file of which the first ones are lost was begun, too."""
    data = frame(SIZE).ljust(SIZE, b"\0")
    for number, second in enumerate((data, changed(data, 0, bytes(8)), b"\1".ljust(SIZE, b"\0"), bytes(9) + b"x")):
        log = log_of(tmp_path / str(number), frame(0).ljust(SIZE, b"\0"), second.ljust(SIZE, b"\0"), bytes(SIZE))
        assert last_begun(log) is log.files[1]


def test_messages_that_may_not_be_whole(tmp_path: Path) -> None:
    """The last one counts as soon as it does not end in zeros where it should not, and stays what it is."""
    for topic, properties, is_whole in (("T", {}, True), ("T", {"TAGS": "a"}, True), ("T\0", {}, False)):
        data = frame(0, topic=topic, properties=properties)
        log = log_of(tmp_path / f"{topic!r}{len(properties)}", data.ljust(SIZE, b"\0"))
        pauses: list[float] = []
        assert end_of_messages(log, 0, pauses.append) == (len(data) if is_whole else 0)
        assert pauses == [tail_module.SETTLES_IN]
    assert not may_lack_bytes(Blank(0, 8))
