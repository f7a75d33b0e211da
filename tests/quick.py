"""What the quick run and the run of CI take and what they leave to the full one: the one place that chooses.

`pytest --quick` (what `make test` runs) leaves out every test with one of the marks of LEFT_OUT. `pytest --draw SEED`
(`make test-ci`) takes every test, but of the parameters of one test that the quick run leaves out a drawn twelfth, and
of the cases of a proof, too. Tests with the mark `turns(GROUP, N)` take turns: a run draws one in N of them.
Without a flag, everything runs. A test of many parameters names them through `goldens_of`, `sample`, `every` or
`shares`, which give the mark `thorough` to what is beyond the chosen ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

LEFT_OUT = {
    "thorough": "more of what the quick run has a sample of; make test-all runs them",
    "jvm": "starts a Spark session or another JVM; make test-all runs them",
    "interop": "the real RocketMQ; make interop runs them",
}
"""Mark of a test that the quick run leaves out -> why, and what runs it."""
DRAWN = ("thorough", "jvm", "interop")
"""Marks of tests whose parameters are drawn."""
DRAWN_SHARE = 12
"""One of so many parameters is drawn."""

GOLDENS = ("clean", "v4-clean", "features", "crash", "crc-flip-third", "gap")
"""Whole stores of both lines, every kind of message, a killed broker, damage in the middle, a file that is missing."""


_SHARE = 4
is_quick = False
"""Whether this is the quick run; set before any test is collected."""
seed: str | None = None
"""What a run of CI draws by; None in a run that draws nothing. Set before any test is collected."""


def examples(count: int) -> int:
    """How many examples hypothesis tries for a property: all in a full run, half of them where a run draws, and a
    quarter in a quick run. They are others each time."""
    return count // (_SHARE if is_quick else 2 if seed is not None else 1)


def drawn_slice(name: str, count: int) -> slice:
    """Return what a run takes of `count` cases that one test has: all of them, or where a run draws a twelfth, at least
    one."""
    if seed is None:
        return slice(0, None, 1)
    every = max(1, min(DRAWN_SHARE, count))
    return slice(zlib.crc32(f"{seed} {name}".encode()) % every, None, every)


def goldens_of(names: Iterable[str], *more: str) -> list[Any]:
    """Parameters for a test of many golden stores: the quick run takes those of GOLDENS and `more`, else the first."""
    given = list(names)
    chosen = {*GOLDENS, *more} & set(given) or set(given[:1])
    return sample(given, chosen)


def sample(values: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """Parameters of which the quick run takes `chosen` alone; ValueError if one of these is not among `values`."""
    given = list(values)
    unknown = [value for value in chosen if value not in given]
    if unknown:
        raise ValueError(f"not among the parameters: {unknown}")
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.thorough) for value in given]


def every(step: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of which the quick run takes the first and then every `step`th."""
    given = list(values)
    return [
        pytest.param(value, marks=pytest.mark.thorough) if place % step else value for place, value in enumerate(given)
    ]


def shares(count: int) -> list[Any]:
    """Parameters that are slices, `points[share]`: each takes every `count`th, the quick run has the first alone."""
    return [
        pytest.param(
            slice(first, None, count), marks=pytest.mark.thorough if first else (), id=f"{first + 1}-of-{count}"
        )
        for first in range(count)
    ]


def drawn(names: Iterable[str], seed: str, sampled: Collection[str] = ()) -> set[str]:
    """Return the ids of tests that a run with `seed` takes: a twelfth of the parameters of a test, but at least one
    unless it is one of `sampled`, of which the quick run has some. The same seed draws the same in every process."""
    by_test: dict[str, list[str]] = {}
    for name in names:
        by_test.setdefault(test_of(name), []).append(name)
    taken: set[str] = set()
    for test, several in by_test.items():
        lots = {name: zlib.crc32(f"{seed} {name}".encode()) for name in several}
        first = None if test in sampled else min(several, key=lots.__getitem__)
        taken.update(name for name in several if name == first or lots[name] % DRAWN_SHARE == 0)
    return taken


def test_of(name: str) -> str:
    """Return the id of a test without its parameters."""
    return name.partition("[")[0]


def whose_turn(groups: Mapping[str, tuple[int, Collection[str]]], seed: str) -> set[str]:
    """Return which members a run with `seed` takes of each group: one in so many, and each has its turn."""
    taken: set[str] = set()
    for group, (number, members) in groups.items():
        step = min(number, len(members))
        taken.update(sorted(members)[zlib.crc32(f"{seed} {group}".encode()) % step :: step])
    return taken
