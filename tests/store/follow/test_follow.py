"""A log that grows: each message once, whatever its writer does meanwhile. Nothing here waits: the clock is ours."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, NotAStoreError, RefusedError
from rmqctl.store import Criteria, Message, MessageStore, StoreConfig
from rmqctl.store.files.layout import file_name
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.read.follow import LogFollower, follow
from rmqctl.store.store_files import StoreFiles
from tests.pipeline.growing import FILE_SIZE, Writer
from tests.store.logs import blank, frame

SMALL = StoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=100, max_index_num=400)


class Following:
    """A follower of a store, with what it said and a clock that goes on when it waits."""

    def __init__(self, store: Path, criteria: Criteria | None = None, begin: int = 0) -> None:
        self.files = StoreFiles(store)
        self.damage: list[CorruptError] = []
        self.told: list[str] = []
        self.now = 0.0
        events = Events(damage=self.damage.append, note=self.told.append)
        self.follower = LogFollower(self.files.log, criteria or Criteria(), begin, events, lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def new(self) -> list[int]:
        """Physical offsets of all that has come."""
        found: list[int] = []
        while (messages := self.follower.new(self.wait)) is not None:
            found += [message.physical_offset for message in messages]
        return found


def open_files() -> list[str]:
    """What this process has open."""
    names = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(os.readlink(one))
    return names


def ahead(store: Path, start: int) -> Path:
    path = store / "commitlog" / file_name(start)
    path.write_bytes(bytes(FILE_SIZE))
    return path


def test_each_message_once_over_rolls_and_files_made_ahead(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    following = Following(tmp_path)
    assert following.new() == []  # no file yet
    following.told.clear()
    seen: list[int] = []
    for _ in range(40):
        writer.put_many(7)
        ahead(tmp_path, writer.position - writer.position % FILE_SIZE + FILE_SIZE)
        seen += following.new()
    assert seen == writer.offsets
    assert writer.position > 2 * FILE_SIZE
    assert (following.damage, following.told, following.new()) == ([], [], [])


def test_what_is_half_written_is_left_for_later(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put_many(3)
    following = Following(tmp_path)
    path = writer.folder / file_name(0)
    whole = path.read_bytes()
    for end in range(writer.offsets[2] + 1, writer.position - 1, 3):
        path.write_bytes(whole[:end].ljust(FILE_SIZE, b"\0"))
        assert following.new() == (writer.offsets[:2] if end == writer.offsets[2] + 1 else [])
    path.write_bytes(whole)
    assert following.new() == writer.offsets[2:]


def test_a_frame_that_still_changes_is_left_for_later(tmp_path: Path) -> None:
    """No checksum covers a head; a part of it that comes a moment later must not be missed."""
    writer = Writer(tmp_path)
    writer.put_many(2)
    path = writer.folder / file_name(0)
    whole = path.read_bytes()
    at = writer.offsets[1] + 56  # the store timestamp
    path.write_bytes(whole[:at] + bytes(8) + whole[at + 8 :])
    following = Following(tmp_path)
    followed: list[int] = []

    def go_on(_: float) -> None:
        path.write_bytes(whole)

    messages = following.follower.new(go_on)
    followed += [message.physical_offset for message in messages or []]
    assert followed == writer.offsets[:1]
    assert following.new() == writer.offsets[1:]


def test_a_clean_before_and_behind_the_place(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put_many(60)
    following = Following(tmp_path)
    assert following.new() == writer.offsets
    writer.put_many(10)
    writer.clean(writer.position - writer.position % FILE_SIZE)
    assert following.new() == writer.offsets[60:]
    assert following.told == []  # it had been read
    before = following.follower.position
    writer.put_many(200)
    begin = writer.position - writer.position % FILE_SIZE
    writer.clean(begin)
    assert following.new() == [offset for offset in writer.offsets if offset >= begin]
    assert following.told == [f"offsets {before} to {begin} were removed before they were read"]


def test_a_restarted_broker_makes_its_files_ahead_anew(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put_many(3)
    made_ahead = ahead(tmp_path, FILE_SIZE)
    following = Following(tmp_path)
    assert following.new() == writer.offsets
    assert not any(following.files.log.read(FILE_SIZE, 8))  # and has it open
    made_ahead.unlink()
    made_ahead.write_bytes(bytes(FILE_SIZE))
    count = len(writer.offsets)
    while writer.position < FILE_SIZE + 1000:
        writer.put()
    assert following.new() == writer.offsets[count:]


def test_a_writer_can_start_meanwhile(tmp_path: Path) -> None:
    """It refuses a store of which somebody has files open, and whoever follows is there for long."""
    with MessageStore.open(tmp_path, "rw", create=True, config=SMALL) as store:
        store.put(Message("T", b"one"))
    following = Following(tmp_path)
    assert len(following.new()) == 1
    assert not any(name.startswith(str(tmp_path)) for name in open_files())
    with MessageStore.open(tmp_path, "rw", config=SMALL) as store:
        store.put(Message("T", b"two"))
        assert len(following.new()) == 1


def test_a_log_that_was_cut_back_goes_on_where_it_parted(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put_many(2000)
    following = Following(tmp_path)
    assert following.new() == writer.offsets
    for back in (3, 700):
        kept = writer.offsets[-back]
        writer.cut(kept)
        count = len(writer.offsets)
        assert following.new() == []
        writer.put_many(5)
        assert following.new() == writer.offsets[count:]
        assert f"the same up to {kept}" in following.told[-1]


def test_another_log_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put_many(5)
    following = Following(tmp_path)
    assert following.new() == writer.offsets
    writer.cut(0)
    other = Writer(tmp_path, clock=1_800_000_000_000)
    other.put_many(2)
    assert following.new() == other.offsets
    assert "another log" in following.told[0]


def test_damage_with_messages_behind_it_is_told_once_and_passed(tmp_path: Path) -> None:
    frames = [frame(0, b"a" * 50)]
    frames.append(frame(len(frames[0]), b"b" * 50))
    frames.append(frame(len(frames[0]) + len(frames[1]), b"c" * 50))
    path = tmp_path / "commitlog" / file_name(0)
    path.parent.mkdir()
    broken = bytearray(frames[1])
    broken[100] ^= 1
    path.write_bytes((frames[0] + broken).ljust(4096, b"\0"))
    following = Following(tmp_path)
    assert following.new() == [0]
    following.wait(10)
    assert following.new() == []
    assert following.damage == []  # perhaps its writer was killed, and will put another one there
    path.write_bytes((frames[0] + broken + frames[2]).ljust(4096, b"\0"))
    following.wait(10)
    assert following.new() == [len(frames[0]) + len(frames[1])]
    assert [error.physical_offset for error in following.damage] == [len(frames[0])]


def test_zeros_before_a_later_file_are_passed(tmp_path: Path) -> None:
    """As a broker leaves them that was killed before it filled a file's end."""
    first = frame(0, b"a")
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / file_name(0)).write_bytes(first.ljust(4096, b"\0"))
    following = Following(tmp_path)
    assert following.new() == [0]
    (folder / file_name(4096)).write_bytes(frame(4096, b"b") + blank(4096 - len(frame(4096, b"b"))))
    assert following.new() == [4096]
    assert following.follower.position == 8192


def test_only_what_is_meant(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    data = b""
    for topic in ("Orders", "Bills", "rmq_sys_x", "OrdersToo"):
        data += frame(len(data), b"body", topic=topic)
    (folder / file_name(0)).write_bytes(data.ljust(4096, b"\0"))
    criteria = Criteria(TopicFilter(["Orders*"]))
    assert len(Following(tmp_path, criteria).new()) == 2
    assert len(Following(tmp_path, Criteria(TopicFilter(system_topics=False))).new()) == 3


def test_from_now_on_by_the_library(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put_many(4)

    def write(_: float) -> None:
        if len(writer.offsets) < 6:
            writer.put_many(2)

    with MessageStore.open(tmp_path) as store:
        messages = follow(store.reader.telling(UNHEARD), Criteria(), None, write)
        assert [message.physical_offset for message in next(messages)] == writer.offsets[4:6]
        assert [message.physical_offset for message in next(store.follow(begin=writer.offsets[2]))] == writer.offsets[
            2:
        ]


def test_a_store_that_goes_away_is_said(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store")
    writer.put_many(2)
    following = Following(tmp_path / "store")
    following.new()
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(NotAStoreError, match="the commitlog is gone"):
        following.new()


def test_a_log_without_files_is_waited_for_and_that_is_told_once(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    (tmp_path / "consumequeue").mkdir()
    following = Following(tmp_path)
    assert (following.new(), following.new()) == ([], [])
    (line,) = following.told
    assert line == f"the commitlog {folder} is not there: waiting until a broker begins a log there"
    following.told.clear()
    writer = Writer(tmp_path)
    writer.put_many(3)
    assert (following.new(), following.told) == (writer.offsets, [])
    for path in folder.iterdir():
        path.unlink()
    assert (following.new(), following.new()) == ([], [])
    (line,) = following.told
    assert line.startswith(
        f"the commitlog {folder} has no file: waiting until there are files again; it was read up to "
    )


def test_nobody_follows_what_this_process_writes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "new", "rw", create=True) as store, pytest.raises(RefusedError):
        store.follow()
