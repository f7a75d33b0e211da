"""A reader says which messages a cleaner has removed from under it: none of them is missing in silence."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import Events, tell_notices
from rmqctl.store.read import select as selection
from rmqctl.store.read.select import Order
from tests import quick
from tests.goldens import GOLDENS, GoldenStore
from tests.store.write.writing import SMALL, message

pytest.importorskip("pyarrow")

COUNT = 900
CLEANED = CleanOptions(at_once=True, batch_maximum=6)
FORCED = CleanOptions(at_once=True, batch_maximum=6, forced_after=0)
Reading = Callable[[MessageStore, Callable[[str], None]], Iterator[int]]
Removing = Callable[[MessageStore], None]


def one_by_one(store: MessageStore, tell: Callable[[str], None]) -> Iterator[int]:
    return (found.physical_offset for found in store.messages(events=Events(note=tell)))


def by_queues(store: MessageStore, tell: Callable[[str], None]) -> Iterator[int]:
    return (found.physical_offset for found in store.messages(order="queue", events=Events(note=tell)))


def in_columns(store: MessageStore, tell: Callable[[str], None]) -> Iterator[int]:
    for batch in store.scan(["physical_offset"], events=Events(note=tell)):
        yield from batch.column(0).to_pylist()


def removed_by_a_cleaner_of_this_process(store: MessageStore) -> None:
    store.clean(CLEANED)
    store.clean(FORCED)


def removed_by_another_process(store: MessageStore) -> None:
    for path in sorted((store.files.root / "commitlog").iterdir())[:6]:
        path.unlink()


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", "rw", SMALL, create=True) as store:
        store.put_many([message(500, queue_id=number % 2) for number in range(COUNT)])
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("read", "remove"),
    [
        (one_by_one, removed_by_a_cleaner_of_this_process),
        (one_by_one, removed_by_another_process),
        # a scan has all files open from its beginning: what another process removes can still be read
        (in_columns, removed_by_a_cleaner_of_this_process),
    ],
)
def test_each_message_is_read_or_its_offset_is_in_a_sentence(filled: Path, read: Reading, remove: Removing) -> None:
    told: list[str] = []
    with MessageStore.open(filled, "r", SMALL) as store:
        offsets = [found.physical_offset for found in store.messages()]
    with MessageStore.open(filled, "r", SMALL) as store:
        records = read(store, told.append)
        seen = [next(records)]
        remove(store)
        seen += records
    missing = sorted(set(offsets) - set(seen))
    spans = [tuple(map(int, re.findall(r"\d+", sentence))) for sentence in told]
    assert missing
    assert all(any(begin <= offset <= end for begin, end in spans) for offset in missing)
    assert not any(begin <= offset <= end for begin, end in spans for offset in seen)


def test_the_compiled_walk_says_it_too(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "PLAIN_BYTES", 1000)
    told: list[str] = []
    with MessageStore.open(filled, "r", SMALL) as store:
        records = one_by_one(store, told.append)
        next(records)
        removed_by_another_process(store)
        assert len(list(records)) < COUNT - 1
    assert len(told) == 1


@pytest.mark.parametrize("plain", [1000, selection.PLAIN_BYTES])
def test_nothing_is_said_of_what_was_not_asked_for(filled: Path, monkeypatch: pytest.MonkeyPatch, plain: int) -> None:
    monkeypatch.setattr(selection, "PLAIN_BYTES", plain)
    for read in (MessageStore.messages, MessageStore.scan):
        told: list[str] = []
        with MessageStore.open(filled, "r", SMALL) as store:
            begin = [found.physical_offset for found in store.messages()][50]
        with MessageStore.open(filled, "r", SMALL) as store:
            for file in store.files.log.files[:2]:
                file.reference.shutdown(10**9)  # on its way out
            for _ in read(store, begin=begin, events=Events(note=told.append)):
                pass
        assert [re.findall(r"\d+", sentence)[0] for sentence in told] == [str(begin)]


def test_in_the_order_of_the_queues(filled: Path) -> None:
    told: list[str] = []
    with MessageStore.open(filled, "r", SMALL) as store:
        records = by_queues(store, told.append)
        next(records)
        removed_by_another_process(store)
        read = 1 + len(list(records))
    spans = [tuple(map(int, re.findall(r"messages (\d+) to (\d+)", sentence)[0])) for sentence in told]
    assert [sentence.partition(" of ")[2] for sentence in told] == [
        f"'TopicA' queue {queue} were removed by a cleaner before they were read" for queue in (0, 1)
    ]
    assert read + sum(end - begin + 1 for begin, end in spans) == COUNT


@pytest.mark.parametrize("order", ["log", "queue"])
@pytest.mark.parametrize("read", [1, 10, 18])
def test_the_last_messages_are_read_or_said(
    filled: Path, monkeypatch: pytest.MonkeyPatch, order: Order, read: int
) -> None:
    """The cleaner comes before the read of that number; reading goes backwards."""
    told: list[str] = []
    plain, reads = os.pread, itertools.count(1)
    with MessageStore.open(filled, "r", SMALL) as store:
        offsets = [found.physical_offset for found in store.messages()]
    with MessageStore.open(filled, "r", SMALL) as store:

        def removing(*arguments: int) -> bytes:
            if next(reads) == read:
                removed_by_another_process(store)
            return plain(*arguments)

        monkeypatch.setattr(os, "pread", removing)
        found = store.last_messages(COUNT, order=order, events=Events(note=told.append))
    assert 0 < len(found) < COUNT
    spans = [tuple(map(int, re.findall(r"(?:offsets|messages) (\d+) to (\d+)", sentence)[0])) for sentence in told]
    if order == "log":
        assert len(told) == 1
        missing = [offset for offset in offsets if spans[0][0] <= offset <= spans[0][1]]
        assert sorted([*missing, *(one.physical_offset for one in found)]) == offsets
    else:
        assert len(found) + sum(end - begin + 1 for begin, end in spans) == COUNT


def test_nobody_listens(filled: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Then the logger says it; a range that ends among what was removed ends the sentence."""
    tell_notices(None)
    with MessageStore.open(filled, "r", SMALL) as store:
        third = store.files.log.files[2].start_offset
        records = store.messages(end=third - 1000)
        next(records)
        removed_by_another_process(store)
        for _ in records:
            pass
        second = store.files.log.file_size
    assert caplog.messages == [
        f"messages of physical offsets {second} to {third - 1001} were removed by a cleaner before they were read"
    ]


@pytest.mark.parametrize("name", quick.goldens_of(GOLDENS, "gap", "first-gone"))
def test_nothing_is_said_of_a_store_that_stays_as_it_is(golden_store: GoldenStore, name: str) -> None:
    told: list[str] = []
    with MessageStore.open(golden_store(name)) as store:
        for begin in (0, 300_000):
            list(store.messages(begin=begin, events=Events(damage=lambda _: None, note=told.append)))
            list(store.scan(["size"], begin, events=Events(damage=lambda _: None, note=told.append)))
    assert told == []
