"""Single frames: found wherever they lie in a file, and what exactly is said of places where none begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.layouts import BLANK_MAGIC, FRAME_HEAD_44
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, decode_message
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.walk import Blank, Damage, Empty
from rmqctl.store.read.frames import (
    MessageRemovedError,
    end_of_near,
    explain_absence,
    frame_at,
    frames_ahead,
    message_at,
    span_of,
    store_time_at,
)
from tests.store.logs import blank, changed, damages, frame, log_of, opened
from tests.store.read.reads import reads_of

TIME = 1_700_000_000_000


def _two_files(folder: Path) -> tuple[MappedFileQueue, list[int], list[bytes]]:
    """Two files of four frames each, filled up to their end; with where the frames begin."""
    size = 4 * len(frame(0)) + 50
    data, starts, made = [], list[int](), list[bytes]()
    for first in (0, size):
        for _ in range(4):
            starts.append(first + sum(map(len, made[len(made) // 4 * 4 :])))
            made.append(frame(starts[-1], queue_offset=len(made)))
        data.append(b"".join(made[-4:]) + blank(50))
    return log_of(folder, *data), starts, made


@pytest.mark.parametrize("size", [0, 1, 91, 5000, 1 << 30, -1])
def test_a_frame_is_found_whatever_is_said_of_its_size(tmp_path: Path, size: int) -> None:
    """In each file of the log, also where it is larger than what is read at first, and the last thing in its file."""
    bodies = [b"", b"b" * 20_000, b"small", b"c" * 9_000]
    data: list[list[bytes]] = [[], []]
    file_size = sum(len(frame(0, body)) for body in bodies)
    for number in range(2):
        for body in bodies:
            data[number].append(frame(number * file_size + sum(map(len, data[number])), body))
    log = log_of(tmp_path, *map(b"".join, data))
    for number, file in enumerate(data):
        place = number * file_size
        for one in file:
            assert frame_at(log, place, size) == (one, decode_message(one, 0, len(one), place))
            assert message_at(log, place, size).body == one[88 : 88 + len(one) - 91 - 1]
            place += len(one)


def test_damage_is_told_with_its_place_and_how_to_see_it(tmp_path: Path) -> None:
    log, starts, _ = _two_files(tmp_path)
    path = log.files[1].path
    position = starts[5] - log.files[1].start_offset
    path.write_bytes(changed(path.read_bytes(), position + 90, b"\xff"))
    with pytest.raises(CorruptError, match="no good message starts here: ") as caught:
        frame_at(log, starts[5])
    error = caught.value
    assert (error.file, error.physical_offset) == (str(path), starts[5])
    assert error.hint == f"`rmqctl dump {path} --at {position}` shows the bytes"
    explained = explain_absence(log, starts[5])
    assert isinstance(explained, CorruptError)
    assert f"it is in damaged bytes {starts[5]} to {starts[6]}: " in explained.message
    assert (explained.file, explained.physical_offset) == (str(path), starts[5])
    assert explained.hint == f"`rmqctl dump {path} --at {position}` shows them"


def test_why_there_is_no_message(tmp_path: Path) -> None:
    log, starts, made = _two_files(tmp_path)
    for number, start in enumerate(starts):
        for place in (start + 1, start + len(made[number]) - 1):
            error = explain_absence(log, place)
            assert isinstance(error, NotFoundError)
            assert error.message == f"it is inside the message of {len(made[0])} bytes that starts at {start}"
            assert error.hint == f"`rmqctl query -o {start}` shows that message"
            assert (error.file, error.physical_offset) == (str(log.find(place).path), place)  # type: ignore[union-attr]
    for begin, end in ((starts[3] + len(made[3]), starts[4]), (starts[7] + len(made[7]), log.max_offset)):
        for place in (begin, end - 1):
            error = explain_absence(log, place)
            assert isinstance(error, NotFoundError)
            assert error.message == f"it is in the blank frame at the end of its file, which starts at {begin}"
            assert error.hint == f"the next message starts at {end}"
    error = explain_absence(log, log.max_offset)
    assert error.message == f"it is past the commitlog, whose last file ends at {log.max_offset}"
    assert (type(error), error.physical_offset) == (NotFoundError, log.max_offset)
    assert explain_absence(log, -1).message == "physical offsets begin at 0"


def test_where_nothing_was_written(tmp_path: Path) -> None:
    one = frame(0)
    log = log_of(tmp_path, one + bytes(500))
    for place in (len(one), len(one) + 499):
        error = explain_absence(log, place)
        assert type(error) is NotFoundError
        assert error.message == f"nothing was written there: the file's messages end at {len(one)}"


def test_outside_of_the_log(tmp_path: Path) -> None:
    size = 600
    files = [frame(first).ljust(size, b"\0") for first in (size, 2 * size, 3 * size, 4 * size)]
    log = log_of(tmp_path, *files, first=size)
    log.files[2].path.unlink()
    # opened anew without its third file, and with a last one that is cut short
    last = log.files[3].path
    last.write_bytes(last.read_bytes()[:400])
    log = log_of(tmp_path, first=size, file_size=size)
    told = {
        place: explain_absence(log, place)
        for place in (0, size - 1, 3 * size, 4 * size - 1, 4 * size + 400, 5 * size - 1, 5 * size)
    }
    assert [type(error) for error in told.values()] == [NotFoundError] * 2 + [CorruptError] * 4 + [NotFoundError]
    for place in (0, size - 1):
        expected = f"it is before the commitlog, which begins at {size}: the message has expired"
        assert told[place].message == expected
    for place in (3 * size, 4 * size - 1):
        assert told[place].message == "the commitlog file that held it is missing"
        assert told[place].file == str(tmp_path)
        assert "backup" in (told[place].hint or "")
    for place in (4 * size + 400, 5 * size - 1):
        assert told[place].message == "the file is cut short: it has 400 bytes of 600"
        assert told[place].file == str(last)
    assert told[5 * size].message == f"it is past the commitlog, whose last file ends at {4 * size + 400}"
    assert explain_absence(log, -1).message == "physical offsets begin at 0"
    for place, error in told.items():
        assert error.physical_offset == place
        with pytest.raises(type(error)) as caught:
            message_at(log, place)
        assert str(caught.value) == str(error)


def test_a_log_without_files(tmp_path: Path) -> None:
    log = log_of(tmp_path, file_size=100)
    for place in (0, 100):
        assert explain_absence(log, place).message == "the store has no commitlog file"
        assert explain_absence(log, place).physical_offset == place


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_of_no_bytes_is_damaged_and_not_absent(tmp_path: Path, number: int) -> None:
    size = 400
    emptied = log_of(tmp_path, *[frame(0).ljust(size, b"\0")] * 3, first=size).files[number].path
    emptied.write_bytes(b"")
    log, start = log_of(tmp_path, first=size, file_size=size), int(emptied.name)
    for place in (start, start + size - 1):
        error = explain_absence(log, place)
        assert type(error) is CorruptError
        assert (error.message, error.file) == ("the commitlog file there has no bytes", str(emptied))
    for place in (start - 1, start + size):
        assert explain_absence(log, place).message != "the commitlog file there has no bytes"


def test_a_log_of_files_of_no_bytes_alone_is_damaged(tmp_path: Path) -> None:
    (tmp_path / f"{400:020}").write_bytes(b"")
    log = opened(tmp_path)
    assert type(explain_absence(log, 399)) is NotFoundError
    assert [type(explain_absence(log, place)) for place in (400, 401, 1 << 40)] == [CorruptError] * 3


def test_what_a_cleaner_took_away_meanwhile_is_told_so(tmp_path: Path) -> None:
    log, starts, _ = _two_files(tmp_path)
    path = log.files[0].path
    path.unlink()
    for place in (0, starts[3]):
        with pytest.raises(MessageRemovedError) as caught:
            frame_at(log, place)
        begin = log.files[-1].start_offset
        expected = f"it was removed meanwhile with its commitlog file: the log begins at {begin} now"
        assert caught.value.message == expected
        assert caught.value.physical_offset == place
        assert type(explain_absence(log, place)) is MessageRemovedError
    assert explain_absence(log, -1).message == "physical offsets begin at 0"
    assert message_at(log, starts[4]).physical_offset == starts[4]


def test_a_log_whose_only_file_is_gone_is_not_called_cut_short(tmp_path: Path) -> None:
    log = log_of(tmp_path, frame(0).ljust(500, b"\0"))
    log.files[0].path.unlink()
    for place in (0, 499):
        with pytest.raises(CorruptError, match="the commitlog file that held it is missing") as caught:
            frame_at(log, place)
        assert (caught.value.file, caught.value.physical_offset) == (str(tmp_path), place)


def test_near_frames_are_read_at_once_in_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, starts, made = _two_files(tmp_path)
    places = [(start, len(one)) for start, one in zip(starts, made, strict=True)]
    expected = [frame_at(log, *place) for place in places]
    read = reads_of(log.descriptors, monkeypatch)
    assert list(frames_ahead(log, places)) == expected
    assert [length for _, length in read] == [4 * len(made[0]) + 50, 4 * len(made[0])]
    # what a later one is read with does not depend on where it lies in its file
    assert list(frames_ahead(log, places[5:])) == expected[5:]
    assert list(frames_ahead(log, places[::-1])) == expected[::-1]
    assert list(frames_ahead(log, [places[0], places[0], places[2]])) == [expected[0], expected[0], expected[2]]


def test_what_is_otherwise_than_expected_keeps_no_neighbour_from_being_read(tmp_path: Path) -> None:
    log, starts, made = _two_files(tmp_path)
    size = len(made[0])
    path = log.files[0].path
    path.write_bytes(changed(path.read_bytes(), starts[1] + 90, b"\xff"))
    good = frame_at(log, starts[2], size)
    for wrong in ((starts[1], size), (starts[2], size + 1), (starts[2], size - 1), (starts[2] + 1, size),
                  (starts[2], 0), (starts[2], -5), (starts[2], 43), (starts[2], 1 << 30), (starts[3] + size, 50),
                  (log.max_offset, size), (log.max_offset - 8, size), (1 << 60, size), (-1, 0),
                  (-200, size)):  # fmt: skip
        assert list(frames_ahead(log, [wrong, (starts[2], size), wrong])) == [None, good, None], wrong


def test_how_far_one_read_reaches() -> None:
    near, most = 16 * 1024, 256 * 1024
    assert end_of_near([(0, 10), (10, 10), (20, 5)], 0) == 25
    assert end_of_near([(0, 10), (10, 10), (20, 5)], 2) == 25
    assert end_of_near([(100, 10), (109, 10)], 0) == 110, "they overlap"
    assert [end_of_near([(0, 10), (10 + gap, 10)], 0) for gap in (near, near + 1)] == [20 + near, 10]
    assert [end_of_near([(9, 10), (19, size)], 0) for size in (most - 10, most - 9)] == [9 + most, 19]
    # one that is larger is read whole all the same
    assert end_of_near([(0, 2 * most), (2 * most, 5)], 0) == 2 * most


def test_the_store_time_is_that_of_a_head_that_stands_where_it_says(tmp_path: Path) -> None:
    smallest = frame(0, b"", store_timestamp=5)
    assert len(smallest) == MINIMUM_FRAME_SIZE
    size = len(smallest)
    second = frame(size, store_timestamp=7)
    begin = FRAME_HEAD_44.offset("physical_offset")
    misplaced = changed(frame(size + len(second)), begin, (size + len(second) + 1).to_bytes(8, "big"))
    too_small = changed(frame(size + len(second) + len(misplaced)), 0, (MINIMUM_FRAME_SIZE - 1).to_bytes(4, "big"))
    third = size + len(second) + len(misplaced) + len(too_small)
    no_message = changed(frame(third), 4, BLANK_MAGIC.to_bytes(4, "big"))
    parts = [smallest, second, misplaced, too_small, no_message]
    log = log_of(tmp_path, b"".join(parts).ljust(third + 300, b"\0"))
    assert [store_time_at(log, sum(map(len, parts[:number]))) for number in range(5)] == [5, 7, None, None, None]
    # a body that is damaged has its time
    path = log.files[0].path
    path.write_bytes(changed(path.read_bytes(), size + 88, b"\xff"))
    assert store_time_at(log, size) == 7
    assert [store_time_at(log, place) for place in (-1, 1, third + 200, third + 290, 1 << 40)] == [None] * 5


def test_the_span_of_a_record(tmp_path: Path) -> None:
    assert span_of(Blank(100, 28)) == (100, 128)
    assert span_of(Empty(100, 500)) == (100, 500)
    data = frame(0)
    assert span_of(decode_message(data, 0, len(data), 0)) == (0, len(data))
    [damage] = damages(log_of(tmp_path, changed(data, 90, b"\xff")))
    assert isinstance(damage, Damage)
    assert span_of(damage) == (0, len(data))
