"""A server, killed in the middle of its work with kill -9: nothing acknowledged is lost, nor what was to come later."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

from tests.network.killing import kill_in_mid_load
from tests.proof.proving import Case

_TWICE_OF = 3


def cases(seed: int, count: int) -> Iterator[Case]:
    """Each is a new store, and one kill, or, of one case in three, another one after the recovery."""
    for number in range(count):
        kills = 2 if number % _TWICE_OF == _TWICE_OF - 1 else 1
        yield f"{number}-kills-{kills}", functools.partial(_killed, f"{seed}-{number}", kills)


def _killed(chance: str, kills: int, folder: Path) -> None:
    sent = kill_in_mid_load(folder, kills, random.Random(chance))
    # what was never sent could not be lost
    assert sent["Plain"], sent
