"""What stretches without a good record are: inside the log, its torn tail, or behind its end."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.implied import Digest, Run, walk_runs
from rmqctl.store.log.survey import Settled, Settling, Stale, look_at_tail
from rmqctl.store.log.walk import Damage, Empty
from tests.store.logs import blank, changed, frame, frames, log_of

ONE, TWO, THREE = frames([b"one" * 20, b"two" * 20, b"three" * 20])
AT, NEXT = len(ONE), len(ONE) + len(TWO)
END = NEXT + len(THREE)
ROOM = 1000


def settled(log: MappedFileQueue) -> tuple[int, list[Settled]]:
    """The end of the valid log, and all that was settled on the way, what is empty left out."""
    settling = Settling(log, look_at_tail(log), lambda _: None)
    found: list[Settled | None] = []
    for record in walk_runs(log, Digest(())):
        if isinstance(record, Run):
            found.append(settling.pass_run(record))
        else:
            settling.pass_other(record)
    found.append(settling.finish())
    return settling.valid_end, [one for one in found if one is not None and one != Settled([], [], [])]


def test_a_sound_log_ends_behind_its_last_message(tmp_path: Path) -> None:
    assert settled(log_of(tmp_path, (ONE + TWO + THREE).ljust(ROOM, b"\0"))) == (END, [])


def test_damage_with_messages_behind_it_lies_inside(tmp_path: Path) -> None:
    end, [found] = settled(log_of(tmp_path, (ONE + changed(TWO, 90, b"?") + THREE).ljust(ROOM, b"\0")))
    assert end == END
    assert [(span.physical_offset, span.end) for span in found.inside] == [(AT, NEXT)]
    assert found.damaged == found.inside
    assert (found.torn, found.stale) == (None, [])


def test_damages_one_behind_the_other_are_told_one_by_one(tmp_path: Path) -> None:
    four = frame(END, b"four")
    bad = ONE + changed(TWO, 90, b"?") + changed(THREE, 90, b"?")
    end, [found] = settled(log_of(tmp_path, (bad + four).ljust(ROOM, b"\0")))
    assert end == END + len(four)
    assert [(span.physical_offset, span.end) for span in found.inside] == [(AT, NEXT), (NEXT, END)]
    assert found.damaged == found.inside


def test_zeros_that_end_damage_belong_to_it(tmp_path: Path) -> None:
    bad = (ONE + changed(TWO, 90, b"?")).ljust(ROOM, b"\0")
    end, [found] = settled(log_of(tmp_path, bad, frame(ROOM, b"next").ljust(ROOM, b"\0")))
    assert end == ROOM + len(frame(ROOM, b"next"))
    [inside] = found.inside
    assert isinstance(inside, Damage)
    assert inside.physical_offset == AT
    assert all(isinstance(span, Damage) for span in found.damaged)
    assert (found.damaged[0].physical_offset, found.damaged[-1].end) == (AT, ROOM)


def test_zeros_alone_are_told_as_zeros(tmp_path: Path) -> None:
    _, [found] = settled(log_of(tmp_path, ONE.ljust(ROOM, b"\0"), frame(ROOM, b"next").ljust(ROOM, b"\0")))
    assert found.inside == [Empty(AT, ROOM)]
    assert [(span.physical_offset, span.end) for span in found.damaged] == [(AT, ROOM)]


def test_a_look_at_the_end_may_begin_within_a_message(tmp_path: Path) -> None:
    """What is left of it is no damage, and of more damage than one stretch the first is told."""
    sound = look_at_tail(log_of(tmp_path / "sound", (ONE + TWO + THREE).ljust(ROOM, b"\0")), len(TWO + THREE) + 20)
    assert (sound.begin, sound.end, sound.messages, sound.damage, sound.inside) == (AT, END, 2, None, [])
    torn = (ONE + changed(TWO, 90, b"?") + changed(THREE, 90, b"?")).ljust(ROOM, b"\0")
    found = look_at_tail(log_of(tmp_path / "torn", torn))
    assert found.damage is not None
    assert (found.end, found.damage.physical_offset, found.inside) == (AT, AT, [])


def test_a_log_without_messages_has_no_times(tmp_path: Path) -> None:
    found = look_at_tail(log_of(tmp_path, bytes(ROOM)))
    assert (found.begin, found.end, found.messages) == (0, 0, 0)
    assert (found.last_store_timestamp, found.largest_store_timestamp, found.timestamp_before_damage) == (0, 0, 0)


def test_damage_at_the_end_is_one_torn_tail(tmp_path: Path) -> None:
    torn = ONE + changed(TWO, 90, b"?") + changed(THREE, 90, b"?")
    end, [found] = settled(log_of(tmp_path, torn.ljust(ROOM, b"\0")))
    assert (end, found.inside, found.stale) == (AT, [], [])
    assert found.torn is not None
    assert (found.torn.physical_offset, found.torn.end, found.torn_frames) == (AT, END, 2)
    assert found.damaged == [found.torn]


def test_a_log_does_not_go_on_behind_damage_that_nothing_follows(tmp_path: Path) -> None:
    """What fills the rest of the file is no message: the next one belongs where the damage begins."""
    torn = ONE + changed(TWO, 90, b"?")
    settling = Settling(log := log_of(tmp_path, torn + blank(ROOM - len(torn))), look_at_tail(log), lambda _: None)
    for record in walk_runs(log, Digest(())):
        if isinstance(record, Run):
            settling.pass_run(record)
        else:
            settling.pass_other(record)
    assert settling.valid_end == AT


def test_what_is_older_than_the_log_before_it_was_left_by_a_truncation(tmp_path: Path) -> None:
    newer = frame(0, b"one" * 20, store_timestamp=1_700_000_005_000)
    older = frame(NEXT, b"three" * 20, store_timestamp=1_700_000_001_000)
    end, [found] = settled(log_of(tmp_path, (newer + changed(TWO, 90, b"?") + older).ljust(ROOM, b"\0")))
    assert end == AT
    assert found.stale == [Stale(NEXT, END, 1)]
    assert found.torn is not None
    assert (found.torn.physical_offset, found.torn.end) == (AT, NEXT)
    # the same with a newer message behind all: then the log goes on there
    newest = frame(END, b"four", store_timestamp=1_700_000_009_000)
    end, [found] = settled(
        log_of(tmp_path / "on", (newer + changed(TWO, 90, b"?") + older + newest).ljust(ROOM, b"\0"))
    )
    assert end == END + len(newest)
    assert (found.torn, found.stale) == (None, [])


def test_a_frame_that_is_just_being_written_is_no_damage(tmp_path: Path) -> None:
    whole = (ONE + TWO).ljust(ROOM, b"\0")
    log = log_of(tmp_path, (ONE + changed(TWO, 90, b"?")).ljust(ROOM, b"\0"))
    [path] = tmp_path.iterdir()

    def wrote_on(_: float) -> None:
        path.write_bytes(whole)

    settling = Settling(log, look_at_tail(log), wrote_on)
    for record in walk_runs(log, Digest(())):
        if isinstance(record, Run):
            settling.pass_run(record)
        else:
            settling.pass_other(record)
    assert settling.finish() == Settled([], [], [])
    assert settling.is_live


def test_all_that_was_left_over_is_told_as_one(tmp_path: Path) -> None:
    newer = frame(0, b"one" * 20, store_timestamp=1_700_000_005_000)
    bad = changed(TWO, 90, b"?")
    older = frame(NEXT, b"three" * 20, store_timestamp=1_700_000_001_000)
    worse = changed(frame(END, b"four"), 90, b"?")
    oldest = frame(END + len(worse), b"five", store_timestamp=1_700_000_000_000)
    end, [found] = settled(log_of(tmp_path, (newer + bad + older + worse + oldest).ljust(ROOM, b"\0")))
    assert (end, found.inside) == (AT, [])
    assert found.stale == [Stale(NEXT, END + len(worse) + len(oldest), 2)]
    assert found.torn is not None
    assert (found.torn.physical_offset, found.torn.end, found.torn_frames) == (AT, END + len(worse), 2)
    # of the same time as what precedes the damage it is no older log's
    same = frame(NEXT, b"three" * 20, store_timestamp=1_700_000_005_000)
    end, [found] = settled(log_of(tmp_path / "same", (newer + bad + same).ljust(ROOM, b"\0")))
    assert (end, found.stale, found.torn) == (END, [], None)


def test_messages_are_left_over_only_in_the_file_in_which_the_log_ends(tmp_path: Path) -> None:
    newer = frame(0, b"one" * 20, store_timestamp=1_700_000_005_000)
    older = frame(NEXT, b"three" * 20, store_timestamp=1_700_000_001_000)
    bad = changed(TWO, 90, b"?")
    oldest = frame(ROOM, b"last", store_timestamp=1_700_000_000_000).ljust(ROOM, b"\0")
    # from the first byte of that file on
    end, [found] = settled(log_of(tmp_path / "first", (newer + bad).ljust(ROOM, b"\0"), oldest))
    assert end == AT
    assert [(stale.begin, stale.messages) for stale in found.stale] == [(ROOM, 1)]
    # a run of the file before it is none: the damage lies inside, and the zeros behind that run, too
    whole = (newer + bad + older).ljust(ROOM, b"\0")
    log = log_of(tmp_path / "before", whole, oldest)
    end, (first, second) = settled(log)
    assert end == END
    assert [(span.physical_offset, span.end) for span in first.inside] == [(AT, NEXT)]
    assert (first.stale, [stale.begin for stale in second.stale]) == ([], [ROOM])
