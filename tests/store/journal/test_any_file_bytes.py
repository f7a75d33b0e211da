"""Any writes, clearings and a cut of a small file: what they may leave, held against bytes in memory."""

from __future__ import annotations

import hashlib
import itertools
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.store.journal import used as file_bytes
from rmqctl.store.journal.plan import CLEAR, RESIZE, WRITE, Entry, Piece
from rmqctl.store.journal.used import digest_outside, is_as_left, ranges_of, sizes_of
from tests.quick import examples

BLOCK, CHUNK, SECTOR = 16, 37, 8
LETTERS = st.sampled_from((0, 97, 98))
"""Few, so that what was there before and what is written are often the same."""


class Change(NamedTuple):
    """`entries` of a file; `before` and `after` the bytes of the journal; the file's bytes as they were and become."""

    entries: list[Entry]
    before: bytes
    after: bytes
    old: bytes
    new: bytes
    sizes: list[int]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    size = draw(st.integers(0, 100))
    old = bytes(draw(st.lists(LETTERS, min_size=size, max_size=size)))
    path, entries, before, after = Path("file"), [], b"head", b"ahead"
    new, sizes = bytearray(old), [size]
    if draw(st.booleans()):
        cut = draw(st.integers(0, 110))
        entries.append(
            Entry(RESIZE, path, size=size, new_size=cut, before=[Piece(cut, len(before), max(0, size - cut))])
        )
        before += old[cut:]
        new = bytearray(old[:cut].ljust(cut, b"\0"))
        sizes.append(cut)
    for _ in range(draw(st.integers(0 if entries else 1, 4))):
        offset, length = draw(st.integers(0, 110)), draw(st.integers(1, 50))
        pieces = [Piece(offset, len(before), len(old[offset : offset + length]))]
        before += old[offset : offset + length]
        if draw(st.booleans()):
            data = bytes(draw(st.lists(st.sampled_from((97, 98, 99)), min_size=length, max_size=length)))
            entries.append(
                Entry(WRITE, path, size=size, offset=offset, length=length, after_at=len(after), before=pieces)
            )
            after += data
        else:
            data = bytes(length)
            entries.append(Entry(CLEAR, path, size=size, offset=offset, length=length, before=pieces))
        new = new.ljust(offset, b"\0")
        new[offset : offset + length] = data
        sizes.append(len(new))
    return Change(entries, before, after, old, bytes(new), sizes)


def places_of(change: Change) -> dict[int, set[int]]:
    """What may stand at each place that the change touches."""
    found: dict[int, set[int]] = {}
    for entry in change.entries:
        begin, end = entry.offset, entry.offset + entry.length
        if entry.kind == RESIZE:
            begin, end = entry.new_size, max(len(change.old), entry.new_size)
        for place in range(begin, end):
            written = change.after[entry.after_at + place - begin] if entry.kind == WRITE else 0
            found.setdefault(place, {change.old[place] if place < len(change.old) else 0}).add(written)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bytes")


@settings(max_examples=examples(400), deadline=None)
@given(changes(), st.randoms(use_true_random=False))
def test_what_any_change_may_leave(folder: Path, change: Change, lot: random.Random) -> None:
    path, before, after = folder / "file", folder / "before", folder / "after"
    before.write_bytes(change.before)
    after.write_bytes(change.after)
    places = places_of(change)

    def judged(data: bytes) -> tuple[bool, bool]:
        path.write_bytes(data)
        return tuple(  # type: ignore[return-value]  # of two
            is_as_left(path, change.entries, before, after, complete=complete) for complete in (False, True)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_bytes, "CHUNK", CHUNK)
        patch.setattr(file_bytes, "_SECTOR", SECTOR)
        assert judged(change.new) == (True, True)
        inside = [place for place in places if place < len(change.new)]
        old = change.old[: len(change.new)].ljust(len(change.new), b"\0")
        assert judged(old) == (True, all(old[place] == change.new[place] for place in inside))
        mixed = bytearray(change.new)
        for place in inside:
            mixed[place] = lot.choice(sorted(places[place]))
        assert judged(bytes(mixed)) == (True, all(mixed[place] == change.new[place] for place in inside))
        for place in range(len(mixed)):
            if place in (0, len(mixed) - 1) or (place in places) != (place - 1 in places) or place % 23 == 0:
                wrong = bytes(mixed[:place]) + b"?" + bytes(mixed[place + 1 :])
                assert judged(wrong)[0] == (place not in places), place


@settings(max_examples=examples(400), deadline=None)
@given(changes())
def test_what_any_change_leaves_alone(folder: Path, change: Change) -> None:
    places = places_of(change)
    ranges = ranges_of(change.entries)
    assert [place for begin, end in ranges for place in range(begin, end)] == sorted(places)
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(ranges))
    assert all(begin < end for begin, end in ranges)
    assert [size for _, size in sizes_of(change.entries)] == list(_without_repeats(change))
    path = folder / "alone"
    digests = set()
    for data in (change.old, change.new):
        path.write_bytes(data)
        rest = bytes(0 if place in places else byte for place, byte in enumerate(data))
        expected = hashlib.sha256()
        for position in range(0, len(rest), BLOCK):
            block = rest[position : position + BLOCK].rstrip(b"\0")
            if block:
                expected.update(position.to_bytes(8, "big") + block)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_bytes, "_BLOCK", BLOCK)
            assert digest_outside(path, ranges) == expected.hexdigest()
        digests.add(expected.hexdigest())
    assert len(digests) == 1


def _without_repeats(change: Change) -> list[int]:
    """The sizes on the way: that before, and each that an operation makes another one, or sets."""
    found = [change.sizes[0]]
    for entry, size in zip(change.entries, change.sizes[1:], strict=True):
        if entry.kind == RESIZE or size != found[-1]:
            found.append(size)
    return found
