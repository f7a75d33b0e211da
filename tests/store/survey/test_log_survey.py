"""Where the valid log ends and where recovery begins to look, on goldens and on small damaged logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.survey import LogSurvey, files_with_data, new_survey, start_after_clean_stop, start_after_crash
from rmqctl.store.log.walk import Damage, Empty
from rmqctl.store.store_files import Checkpoint
from tests.goldens import truth
from tests.opened import reader
from tests.store.logs import blank, changed, frame, frames, log_of, opened
from tests.store.survey.plain_survey import survey_log

FILE = 262144


def _survey(log: MappedFileQueue, start: int = 0, *, tolerant: bool = False) -> tuple[LogSurvey, list[StoredMessage]]:
    survey = new_survey(log, start, tolerant=tolerant)
    messages: list[StoredMessage] = []
    survey_log(survey, log, messages.append)
    return survey, messages


# (messages, end, messages behind it) when all of the log counts, as the truths and their bases have it
ENDS = {
    "clean": (2500, 2135612, 0),
    "v4-clean": (2500, 2134705, 0),
    "crash": (2500, 2135612, 0),
    "crash-now": (1500, 1310000, 0),
    "features": (468, 393477, 0),
    "multipath": (1500, 1310000, 0),
    "first-gone": (1885, 2135612, 0),
    "prealloc-last": (2500, 2135612, 0),
    "torn-zero": (2499, 2135296, 0),
    "v4-torn-garbage": (2499, 2134390, 0),
    "tail-garbage-clean": (2500, 2135612, 0),
    "short-last": (2500, 2135612, 0),
    "crc-flip-last": (2474, 2106230, 25),
    "v4-crc-flip-last": (2475, 2105616, 24),
    "log-gone": (0, 0, 0),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_of_goldens(name: str) -> None:
    survey, messages = _survey(reader(name).files.log)
    assert (survey.messages, survey.end_offset, survey.behind_messages) == ENDS[name]
    assert len(messages) == survey.messages
    assert survey.has_damage_inside == (survey.behind_messages > 0)
    assert survey.tolerated == []
    if messages:
        assert survey.last_message_offset == messages[-1].physical_offset
        assert survey.last_store_timestamp == messages[-1].store_timestamp
        assert messages[-1].end == survey.end_offset
    if truth(name).summary["load"] and name not in ("log-gone", "tail-garbage-clean"):
        assert survey.end_offset == truth(name).summary["maxPhy"]


@pytest.mark.parametrize(
    ("name", "offset", "lost"), [("crc-flip-old", 402516, 1), ("crc-flip-third", 1695806, 1), ("gap", 1048576, 304)]
)
def test_damage_is_passed_over_where_a_broker_does_not_look(name: str, offset: int, lost: int) -> None:
    log = reader(name).files.log
    for options in ({"start": 2097152}, {"start": 0, "tolerant": True}):
        survey, messages = _survey(log, **options)  # type: ignore[arg-type]  # the options are named
        assert (survey.messages, survey.end_offset) == (2500 - lost, 2135612)
        [span] = survey.tolerated
        assert span.physical_offset == offset
        assert survey.is_in_damage(offset)
        assert survey.is_in_damage(span.end - 1)
        assert not survey.is_in_damage(span.end)
        assert not survey.is_in_damage(offset - 1)
        assert len(messages) == 2500 - lost
    survey, _ = _survey(log, 0)
    assert (survey.end_offset, survey.messages + survey.behind_messages) == (offset, 2500 - lost)
    assert isinstance(survey.stop, Damage)


ONE, TWO, THREE = frames([b"one" * 20, b"two" * 20, b"three" * 20])
AT, NEXT = len(ONE), len(ONE) + len(TWO)
END = NEXT + len(THREE)


def test_a_torn_tail_is_no_damage_inside(tmp_path: Path) -> None:
    for tail in (b"garbage" * 9, THREE[:50], bytes(40) + b"x", b""):
        for tolerant in (False, True):
            log = log_of(tmp_path / f"{len(tail)}{tolerant}", ONE + TWO + tail.ljust(500, b"\0"))
            survey, _ = _survey(log, tolerant=tolerant)
            assert (survey.messages, survey.end_offset, survey.behind_messages) == (2, NEXT, 0)
            assert survey.tolerated == []
            assert survey.stop is not None
            assert survey.stop.physical_offset == NEXT


def test_good_messages_behind_damage_are_counted(tmp_path: Path) -> None:
    log = log_of(tmp_path, ONE + changed(TWO, 90, b"?") + THREE)
    survey, _ = _survey(log)
    assert (survey.messages, survey.end_offset, survey.behind_messages, survey.behind_bytes) == (1, AT, 1, len(THREE))
    assert survey.has_damage_inside


def test_zeros_in_a_file_before_the_last(tmp_path: Path) -> None:
    """A file that ends in zeros with messages in the next one: what stood there is gone."""
    size = END + 30
    log = log_of(tmp_path, ONE.ljust(size, b"\0"), frame(size, b"next").ljust(size, b"\0"))
    survey, _ = _survey(log)
    assert (survey.end_offset, survey.behind_messages) == (AT, 1)
    assert isinstance(survey.stop, Empty)
    for options in ({"start": size}, {"start": 0, "tolerant": True}):
        survey, messages = _survey(log, **options)  # type: ignore[arg-type]  # as above
        assert [message.physical_offset for message in messages] == [0, size]
        assert [(span.physical_offset, span.end) for span in survey.tolerated] == [(AT, size)]


def test_a_log_that_ends_with_its_file(tmp_path: Path) -> None:
    survey, _ = _survey(log_of(tmp_path / "a", ONE + TWO + THREE))
    assert (survey.end_offset, survey.stop) == (END, None)
    survey, _ = _survey(log_of(tmp_path / "b", ONE + TWO + THREE + blank(30)))
    assert (survey.end_offset, survey.last_message_offset, survey.stop) == (END + 30, NEXT, None)


def test_a_log_of_zeros(tmp_path: Path) -> None:
    survey, _ = _survey(log_of(tmp_path, bytes(500), first=1000))
    assert (survey.messages, survey.end_offset) == (0, 1000)


# --- where recovery begins --------------------------------------------------------------------------------------------


def test_start_after_a_clean_stop() -> None:
    assert start_after_clean_stop(reader("clean").files.log) == 6 * FILE
    # a file of zeros behind the log does not count as one of the three
    assert start_after_clean_stop(reader("prealloc-last").files.log) == 6 * FILE
    assert len(files_with_data(reader("prealloc-last").files.log)) == 9
    assert start_after_clean_stop(reader("features").files.log) == 0
    assert start_after_clean_stop(reader("log-gone").files.log) == 0


def test_start_after_a_clean_stop_of_a_log_without_messages(tmp_path: Path) -> None:
    # everything before it has expired
    assert start_after_clean_stop(log_of(tmp_path, bytes(500), first=1000)) == 1000


# notes of RocketMQ's own start files on these stores
@pytest.mark.parametrize(
    ("name", "start"),
    [("crash", 1048576), ("crc-flip-old-abort", 1048576), ("crash-now", 0), ("checkpoint-lost-abort", 0),
     ("checkpoint-future", 2097152), ("v4-checkpoint-lost-abort", 0)],
)  # fmt: skip
def test_start_after_a_crash(name: str, start: int) -> None:
    files = reader(name).files
    assert start_after_crash(files.log, files.checkpoint()) == start


def test_start_is_the_newest_file_that_the_checkpoint_covers(tmp_path: Path) -> None:
    size = 500
    pages = [frame(number * size, store_timestamp=10_000 * (number + 1)).ljust(size, b"\0") for number in range(4)]
    log = log_of(tmp_path, *pages)
    starts = {
        stamp: start_after_crash(log, Checkpoint(stamp, stamp)) // size
        for stamp in (0, 12_999, 13_000, 22_999, 23_000, 33_000, 43_000, 10**15)
    }
    assert starts == {0: 0, 12_999: 0, 13_000: 0, 22_999: 0, 23_000: 1, 33_000: 2, 43_000: 3, 10**15: 3}
    assert start_after_crash(log, Checkpoint(43_000, 23_000)) // size == 1
    assert start_after_crash(log, None) == 0


def test_files_that_do_not_begin_with_a_message_are_no_start(tmp_path: Path) -> None:
    size = 500
    covered = Checkpoint(10**15, 10**15)
    first = frame(0, store_timestamp=10_000).ljust(size, b"\0")
    for number, last in enumerate((bytes(size), b"g" * size, frame(size, store_timestamp=0).ljust(size, b"\0"))):
        assert start_after_crash(log_of(tmp_path / str(number), first, last), covered) == 0


def test_of_an_empty_log_everything_is_at_its_beginning(tmp_path: Path) -> None:
    log = opened(tmp_path / "none")
    assert (start_after_clean_stop(log), start_after_crash(log, Checkpoint(5, 5))) == (0, 0)
    assert (new_survey(log, 7).end_offset, new_survey(log, 7).start_offset) == (0, 7)
    assert new_survey(log_of(tmp_path / "later", bytes(500), first=1000), 0).end_offset == 1000


def test_files_that_are_checked_before_a_given_end(tmp_path: Path) -> None:
    """The last three with something in their first eight bytes that begin before it."""
    size = 500
    pages = [frame(number * size).ljust(size, b"\0") for number in range(5)]
    log = log_of(tmp_path, *pages, bytes(size), (bytes(8) + b"x").ljust(size, b"\0"))
    assert [file.start_offset // size for file in files_with_data(log)] == [0, 1, 2, 3, 4]
    assert start_after_clean_stop(log) == 2 * size
    starts = [start_after_clean_stop(log, end) // size for end in (1, size, size + 1, 4 * size, 4 * size + 1, 9 * size)]
    assert starts == [0, 0, 0, 1, 2, 2]
    # of the whole log where nothing lies before the end
    assert start_after_clean_stop(log, 0) == 0
    rest = log_of(tmp_path / "rest", bytes(size), frame(3 * size).ljust(size, b"\0"), first=2 * size)
    assert start_after_clean_stop(rest, 2 * size) == 2 * size
