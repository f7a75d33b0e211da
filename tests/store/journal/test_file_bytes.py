"""Which bytes of a file a change leaves alone, and which sizes the file may have on the way."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqctl.store.journal.plan import CLEAR, CREATE, RESIZE, WRITE, Entry, Piece
from rmqctl.store.journal.used import digest_outside, is_as_left, sizes_of

BLOCK = 1 << 16


def test_the_digest_of_what_is_left_alone_is_always_the_same(tmp_path: Path) -> None:
    """It stands in journals that an earlier version has written: each block of 64 KiB, without the zeros at its end,
    behind its position in 8 bytes."""
    path = tmp_path / "file"
    path.write_bytes(b"one" + bytes(BLOCK - 3) + bytes(BLOCK) + b"three" + bytes(100))
    first, third = (0).to_bytes(8, "big") + b"one", (2 * BLOCK).to_bytes(8, "big") + b"three"
    assert digest_outside(path, []) == hashlib.sha256(first + third).hexdigest()
    changed = (2 * BLOCK).to_bytes(8, "big") + b"th\0\0e"
    assert digest_outside(path, [(0, BLOCK), (2 * BLOCK + 2, 2 * BLOCK + 4)]) == hashlib.sha256(changed).hexdigest()


def test_sizes_on_the_way(tmp_path: Path) -> None:
    """A write behind the end may have come to any part of itself; what lies within the file changes no size."""
    path = tmp_path / "file"
    entries = [
        Entry(WRITE, path, size=100, offset=10, length=90),
        Entry(WRITE, path, size=100, offset=90, length=30),
        Entry(CLEAR, path, size=100, offset=120, length=5),
        Entry(RESIZE, path, size=100, new_size=50),
    ]
    assert sizes_of(entries) == [(100, 100), (100, 120), (120, 125), (50, 50)]
    assert sizes_of([Entry(CREATE, path, new_size=7)]) == [(0, 0), (7, 7)]


OLD = b"o" * 3000
# two writes, the second over the end of the first, and a stretch that is cleared
DONE = OLD[:100] + b"A" * 900 + b"B" * 600 + OLD[1600:2000] + bytes(500) + OLD[2500:]


@pytest.mark.parametrize(
    ("found", "is_half", "is_whole"),
    [
        (OLD, True, False),
        (DONE, True, True),
        (DONE[:700] + OLD[700:], True, False),
        (OLD[:100] + b"A" * 1000 + OLD[1100:], True, False),
        (OLD[:1500] + DONE[1500:], True, False),
        (DONE[:2499], True, True),  # a file that was cut off before
        (DONE[:150] + b"?" + DONE[151:], False, False),
        (DONE[:1599] + b"?" + DONE[1600:], False, False),
        (OLD[:2499] + b"?" + OLD[2500:], False, False),
        (b"?" + OLD[1:99] + b"?" + DONE[100:2500] + b"?" * 500, True, True),  # all of it is none of the change's
    ],
)
def test_what_a_change_may_leave(tmp_path: Path, found: bytes, is_half: bool, is_whole: bool) -> None:
    path, before, after = tmp_path / "file", tmp_path / "before", tmp_path / "after"
    before.write_bytes(b"head" + OLD[:1000] + OLD[:600] + OLD[:500])
    after.write_bytes(b"ahead" + b"A" * 1000 + b"B" * 600)
    entries = [
        Entry(WRITE, path, size=3000, offset=100, length=1000, after_at=5, before=[Piece(100, 4, 1000)]),
        Entry(WRITE, path, size=3000, offset=1000, length=600, after_at=1005, before=[Piece(1000, 1004, 600)]),
        Entry(CLEAR, path, size=3000, offset=2000, length=500, before=[Piece(2000, 1604, 500)]),
    ]
    path.write_bytes(found)
    assert is_as_left(path, entries, before, after, complete=False) == is_half
    assert is_as_left(path, entries, before, after, complete=True) == is_whole


def test_what_is_written_last_counts(tmp_path: Path) -> None:
    """Whichever of two writes begins first in the file."""
    path, before, after = tmp_path / "file", tmp_path / "before", tmp_path / "after"
    before.write_bytes(OLD)
    after.write_bytes(b"B" * 600 + b"A" * 1000)
    entries = [
        Entry(WRITE, path, size=3000, offset=1000, length=600, after_at=0, before=[Piece(1000, 1000, 600)]),
        Entry(WRITE, path, size=3000, offset=100, length=1000, after_at=600, before=[Piece(100, 100, 1000)]),
    ]
    path.write_bytes(OLD[:100] + b"A" * 1000 + b"B" * 500 + OLD[1600:])
    assert is_as_left(path, entries, before, after, complete=True)
    path.write_bytes(DONE)
    assert not is_as_left(path, entries, before, after, complete=True)
