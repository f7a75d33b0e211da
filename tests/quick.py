"""What the quick run and the run of CI take and what they leave to the full one: the one place that chooses.

`pytest --quick` (what `make test` runs) leaves out every test with one of the marks of LEFT_OUT. `pytest --draw SEED`
(`make test-ci`) takes every test, but of the many parameters of one test that the quick run leaves out a drawn third.
Without a flag, everything runs. A test of many parameters names them through `goldens_of`, `sample`, `every` or
`shares`, which give the mark `thorough` to what is beyond the chosen ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from typing import Any

import pytest

LEFT_OUT = {
    "thorough": "more of what the quick run has a sample of; make test-all runs them",
    "jvm": "starts a Spark session or another JVM; make test-all runs them",
    "interop": "the real RocketMQ; make interop runs them",
}
"""Mark of a test that the quick run leaves out -> why, and what runs it."""
DRAWN = ("thorough", "jvm")
"""Marks of tests whose parameters are drawn."""
DRAWN_SHARE = 3
"""One of so many parameters is drawn."""

GOLDENS = ("clean", "v4-clean", "features", "crash", "crc-flip-third", "gap")
"""Whole stores of both lines, every kind of message, a killed broker, damage in the middle, a file that is missing."""


_SHARE = 4
is_quick = False
"""Whether this is the quick run; set before any test is collected."""


def examples(count: int) -> int:
    """How many examples hypothesis tries for a property: all in a full run, a quarter of them in a quick one."""
    return count // _SHARE if is_quick else count


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


def drawn(names: Iterable[str], seed: str) -> set[str]:
    """Return the ids of tests that a run with `seed` takes: a third, but at least one, of the parameters of a test with
    as many parameters or more; all of the others. The same seed draws the same tests in every process."""
    by_test: dict[str, list[str]] = {}
    for name in names:
        by_test.setdefault(name.partition("[")[0], []).append(name)
    taken: set[str] = set()
    for several in by_test.values():
        lots = {name: zlib.crc32(f"{seed} {name}".encode()) for name in several}
        first = min(several, key=lots.__getitem__)
        few = len(several) < DRAWN_SHARE
        taken.update(name for name in several if few or name == first or lots[name] % DRAWN_SHARE == 0)
    return taken
