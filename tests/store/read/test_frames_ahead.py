"""Neighbours read together are what each is by itself: the same bytes, messages, statuses and damage."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.properties import parse_properties
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native import good_frames
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.read import get
from rmqctl.store.read.filter import TagFilter
from rmqctl.store.read.frames import frame_at, frames_ahead, usual_frames, usual_matches
from rmqctl.store.read.get import GetResult, get_messages
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.native.forms import plain_form
from tests.store.read.reads import reads_of
from tests.store.write.writing import SMALL, message

# without queues nothing is read through them
WHOLE = [name for name in GOLDENS if not name.startswith("multi") and "cq-lost" not in name and name != "rocksdb"]


@pytest.mark.parametrize("name", goldens_of(WHOLE, "torn-zero"))
def test_damage_is_told_as_of_each_by_itself(
    golden_store: GoldenStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreFiles(golden_store(name)) as files:
        reader = StoreReader(files)
        views = [reader.view(queue) for queue in files.queues.all()]
        starts = [(view, offset) for view in views for offset in range(0, view.queue.max_offset, 29)]
        at_once = [get_messages(view, offset, frames=True) for view, offset in starts]
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, good_frames.__name__, plain_form("good_frames"))
            plainly = [get_messages(view, offset, frames=True) for view, offset in starts]
        monkeypatch.setattr(get, "usual_frames", lambda *_: None)
        together = [get_messages(view, offset, frames=True) for view, offset in starts]
        monkeypatch.setattr(get, "frames_ahead", lambda log, places: itertools.repeat(None, len(places)))
        alone = [get_messages(view, offset, frames=True) for view, offset in starts]
        assert starts
        for one, *others in zip(alone, at_once, plainly, together, strict=True):
            assert [_told(other) for other in others] == [_told(one)] * 3


def _told(result: GetResult) -> tuple[object, ...]:
    damaged = [(unit.queue_offset, unit.physical_offset, str(unit.error)) for unit in result.damaged]
    numbers = result.status, result.next_offset, result.min_offset, result.max_offset
    return (*numbers, result.messages, b"".join(result.frames), damaged)


def test_any_bit_of_a_frame_and_of_its_unit_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames at once are what each is by itself, whatever byte of the second is another one."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        places = [store.put(message(20, properties={"KEYS": "ä", "TAGS": "t"})).physical_offset or 0 for _ in range(4)]
    with StoreFiles(tmp_path / "s") as files:
        (queue,) = files.queues.all()
        view = StoreReader(files).view(queue)
        frames = [frame_at(files.log, place)[0] for place in places]
        whole = get_messages(view, 0, frames=True)
        assert whole.frames == [b"".join(frames)]
        assert usual_frames(queue, files.log, 0, 32, 1 << 20) == (b"".join(frames), 4)
        assert usual_frames(queue, files.log, 1, 2, 1 << 20) == (frames[1] + frames[2], 2)
        assert usual_frames(queue, files.log, 0, 4, len(frames[0]) + len(frames[1])) == (frames[0] + frames[1], 2)
        assert usual_frames(queue, files.log, 0, 4, 1) == (frames[0], 1)
        # up to the end of the queue, wherever it begins
        for begin in range(4):
            assert usual_frames(queue, files.log, begin, 32, 1 << 20) == (b"".join(frames[begin:]), 4 - begin)
        (log,) = (tmp_path / "s" / "commitlog").iterdir()
        (units,) = (tmp_path / "s" / "consumequeue" / "TopicA" / "0").iterdir()
        changed = 0
        for path, begin, end in ((log, places[1], places[2]), (units, 20, 32)):
            for position in range(begin, end):
                with _flipped(path, position, 1 << position % 8):
                    at_once = _told(get_messages(view, 0, frames=True))
                    with monkeypatch.context() as patch:
                        patch.setattr(get, "usual_frames", lambda *_: None)
                        assert at_once == _told(get_messages(view, 0, frames=True)), (path, position)
                    changed += at_once != _told(whole)
        assert changed == places[2] - places[1] + 12


@pytest.mark.parametrize("name", ["longtopic", "innerbatch"])
def test_queues_that_are_not_usual_are_left_to_who_looks_at_each_message(name: str) -> None:
    """Of a topic whose length takes two bytes, and of batches."""
    log = reader(name).files.log
    queues = [queue for queue in reader(name).queues() if len(queue.topic) > 127 or not isinstance(queue, ConsumeQueue)]
    assert queues
    for queue in queues:
        assert usual_frames(queue, log, 0, 32, 1 << 20) is None
        assert usual_matches(queue, log, 0, 800, 32, 1 << 20, TagFilter("t")) is None


def test_usual_are_the_longest_topic_of_one_byte_and_any_tag(tmp_path: Path) -> None:
    """Also a tag whose hash is below zero."""
    assert java_hash("delivered") < 0
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for _ in range(3):
            store.put(message(20, topic="T" * 127, properties={"TAGS": "delivered"}))
    with StoreFiles(tmp_path / "s") as files:
        (queue,) = files.queues.all()
        frames = [frame_at(files.log, unit.physical_offset)[0] for unit in queue.units(0)]
        assert usual_frames(queue, files.log, 0, 32, 1 << 20) == (b"".join(frames), 3)
        assert usual_matches(queue, files.log, 0, 800, 32, 1 << 20, TagFilter("delivered")) == (frames, 3)


@contextlib.contextmanager
def _flipped(path: Path, position: int, bits: int) -> Iterator[None]:
    """With these bits of a byte the other way round."""
    before = path.read_bytes()[position]
    try:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(bytes([before ^ bits]))
        yield
    finally:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(bytes([before]))


@pytest.mark.parametrize("name", goldens_of(WHOLE, "torn-zero", "cqext"))
def test_what_tags_let_through_is_the_same_one_by_one(
    golden_store: GoldenStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreFiles(golden_store(name)) as files:
        reader = StoreReader(files)
        views = [reader.view(queue) for queue in files.queues.all()]
        asked = [
            (view, offset, limit, TagFilter(tags), 2000 if limit == 5 else 1 << 20)
            for view in views
            for offset in range(0, view.queue.max_offset, 61)
            for tags, limit in (("TagC", 32), ("TagB || 标签1", 5), ("nobody's", 1))
        ]
        at_once = [get_messages(*one, frames=True) for one in asked]
        monkeypatch.setattr(get, "usual_matches", lambda *_: None)
        for one, result in zip(asked, at_once, strict=True):
            assert _told(result) == _told(get_messages(*one, frames=True)), (one[0].queue.topic, *one[1:3])
    assert asked


def test_any_bit_is_looked_at_where_tags_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for tag in ("t", "u", "t", "t"):
            store.put(message(20, properties={"KEYS": "ä", "TAGS": tag}))
    with StoreFiles(tmp_path / "s") as files:
        (queue,) = files.queues.all()
        view, tags = StoreReader(files).view(queue), TagFilter("t")
        whole = get_messages(view, 0, message_filter=tags, frames=True)
        assert usual_matches(queue, files.log, 0, 800, 32, 1 << 20, tags) == (whole.frames, 4)
        assert usual_matches(queue, files.log, 0, 800, 1, 1 << 20, tags) == (whole.frames[:1], 1)
        assert usual_matches(queue, files.log, 0, 2, 32, 1 << 20, tags) == (whole.frames[:1], 2)
        assert usual_matches(queue, files.log, 0, 800, 32, len(whole.frames[0]), tags) == (whole.frames[:1], 1)
        # the second message, which is passed over, has the size of the others
        assert usual_matches(queue, files.log, 0, 800, 32, 2 * len(whole.frames[0]), tags) == (whole.frames[:2], 3)
        assert usual_matches(queue, files.log, 1, 1, 32, 1 << 20, tags) == ([], 2)
        (log,) = (tmp_path / "s" / "commitlog").iterdir()
        (units,) = (tmp_path / "s" / "consumequeue" / "TopicA" / "0").iterdir()
        third, size = next(iter(queue.units(2, 3)))[1:3]
        for path, begin, end in ((log, third, third + size), (units, 20, 60)):
            for position in range(begin, end):
                with _flipped(path, position, 1 << position % 8):
                    at_once = _told(get_messages(view, 0, message_filter=tags, frames=True))
                    with monkeypatch.context() as patch:
                        patch.setattr(get, "usual_matches", lambda *_: None)
                        assert at_once == _told(get_messages(view, 0, message_filter=tags, frames=True)), (
                            path,
                            position,
                        )


SEGMENTS = st.lists(st.sampled_from([b"TAGS", b"XTAGS", b"KEYS", b"a", b"b", "ä".encode(), b"\x01", b"\x02", b"\x02"]))


@given(SEGMENTS.map(b"".join), st.sampled_from(["a", "a || b", "ä || aa", "TAGS", "*"]))
@example(b"XTAGS\x01a\x02", "a")
@example(b"KEYS\x01b\x02TAGS\x01a", "a")
@example(b"TAGS\x01a\x02TAGS\x01b\x02", "a")
@example(b"KEYS\x01TAGS\x01a\x02", "a")
def test_tags_of_stored_properties(properties: bytes, expression: str) -> None:
    tags = TagFilter(expression)
    assert tags.matches_stored(properties) == tags.matches(parse_properties(properties).get("TAGS"))


def test_few_reads_give_many_frames(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreFiles(golden_store("clean")) as files:
        queue = max(files.queues.all(), key=lambda one: one.max_offset)
        places = [(unit.physical_offset, unit.size) for unit in queue.units(0, 32)]
        expected = [frame_at(files.log, *place) for place in places]
        read = reads_of(files.descriptors, monkeypatch)
        assert list(frames_ahead(files.log, places)) == expected
        assert len(read) <= 3
        # sizes that are not those of the frames, and places where none begins, are left to who looks at each
        first, size = places[0]
        wrong = [(first, size + 1), (first, size), (first + 1, size), (-1, 0), (1 << 60, 100), (first, 4)]
        assert [found is not None for found in frames_ahead(files.log, wrong)] == [False, True, *[False] * 4]
