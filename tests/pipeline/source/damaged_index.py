"""Ways in which an index file of the golden stores, with 500 slots, may be damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path


def _turn_a_byte(rng: random.Random, index: Path) -> None:
    data = bytearray(index.read_bytes())
    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    index.write_bytes(data)


def _zero(rng: random.Random, index: Path) -> None:
    data = bytearray(index.read_bytes())
    at = rng.randrange(40, len(data))
    end = min(len(data), at + rng.choice([4, 20, 4096]))
    data[at:end] = bytes(end - at)
    index.write_bytes(data)


def _zero_all_slots(rng: random.Random, index: Path) -> None:
    data = bytearray(index.read_bytes())
    data[40 : 40 + 4 * 500] = bytes(4 * 500)
    index.write_bytes(data)


def _shift(rng: random.Random, index: Path) -> None:
    data = index.read_bytes()
    at = 40 + 4 * 500 + 20 * rng.randrange(1, 1000)
    index.write_bytes(data[:at] + data[at + 20 :] + bytes(20))


def _cut(rng: random.Random, index: Path) -> None:
    index.write_bytes(index.read_bytes()[: rng.randrange(40, index.stat().st_size)])


def _lag(rng: random.Random, index: Path) -> None:
    """As it was when it had some entries less: the header does not count them, and their slots are stale or not."""
    data = bytearray(index.read_bytes())
    count = int.from_bytes(data[36:40], "big") - rng.randrange(1, 900)
    entry = 40 + 4 * 500 + 20 * (count - 1)
    data[24:32] = data[entry + 4 : entry + 12]
    data[36:40] = count.to_bytes(4, "big")
    index.write_bytes(data)


def _remove(rng: random.Random, index: Path) -> None:
    index.unlink()


def _remove_all(rng: random.Random, index: Path) -> None:
    shutil.rmtree(index.parent)


def _take_anothers(rng: random.Random, index: Path) -> None:
    index.write_bytes(rng.choice(sorted(index.parent.iterdir())).read_bytes())


DAMAGES: list[Callable[[random.Random, Path], None]] = [
    _turn_a_byte, _turn_a_byte, _zero, _zero_all_slots, _shift, _cut, _lag, _remove, _remove_all, _take_anothers,
]  # fmt: skip


def damaged_anew(index: Path, beside: Path, seeds: int) -> Iterator[tuple[random.Random, str]]:
    """One file of an index damaged in one way after the other, each time from what it was, which is kept `beside`: by
    what the chance of each is decided, and what was done to it."""
    shutil.copytree(index, beside)
    for seed in range(seeds):
        rng = random.Random(seed)
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(beside, index)
        damage = rng.choice(DAMAGES)
        damage(rng, rng.choice(sorted(index.iterdir())))
        yield rng, f"seed {seed}, {damage.__name__}"
