"""Which tests a change is held against, and in which order: those nearest to it first."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.processes import ROOT
from tests.proof import executed
from tests.proof.changes import Mutant

_FIRST = 12
# how many tests of a near file come before the first one of a file that is a step further away
_STEP = 4
_IMPORT = re.compile(r"^\s*(?:from|import) .*", re.MULTILINE)


def in_turn(mutant: Mutant, room: tuple[str, ...], most_seconds: float) -> Iterator[list[str]]:
    """Which tests are to be tried together, one lot after the other: mostly those of the first are enough.

    Files take turns: first those that import what is changed, then those that begin with one of `room`. Of each file
    the cheapest comes first, because what it does not notice the next one seldom does. No more than take
    `most_seconds` of processor time, and as many seconds of what has more parameters.
    """
    candidates = running_tests(mutant)
    if not candidates:  # done when its module is imported, or compiled, or never
        candidates = list(dict.fromkeys([*executed.known_to_run(mutant.path), *executed.known_below(room)]))
    if not candidates:
        yield list(room)
        return
    turn: Counter[str] = Counter()
    places = {}
    for test in candidates:
        file = test.partition("::")[0]
        turn[file] += 1
        places[test] = turn[file] + _STEP * _steps(file, mutant, room)
    ordered = list(_within(most_seconds, sorted(candidates, key=places.__getitem__)))
    if ordered:
        yield ordered[:_FIRST]
    # the rest; and with their other parameters those that have some, as many as need `most_seconds` once more
    names = list(dict.fromkeys(test.partition("[")[0] for test in ordered if "[" in test))
    again = names
    if not math.isinf(most_seconds):
        others = [test for name in names for test in executed.with_parameters(name) if test not in ordered]
        again = list(_within(most_seconds, others))
    if ordered[_FIRST:] or again:
        yield [*ordered[_FIRST:], *again]


def running_tests(mutant: Mutant) -> list[str]:
    """The tests that run the statement that is changed, the cheapest first; none where that is not known."""
    source = (ROOT / mutant.path).read_bytes()
    begin, end = (source.count(b"\n", 0, place) + 1 for place in (mutant.begin, mutant.end))
    first = max(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and node.lineno <= begin <= (node.end_lineno or begin)
    )
    return executed.known_to_run(mutant.path, first, end)


def _steps(file: str, mutant: Mutant, room: tuple[str, ...]) -> int:
    """How far a file of tests is from what is changed: it has its name or imports it, is of its room, or neither."""
    path = Path(mutant.path)
    name = path.parent.name if path.stem == "__init__" else path.stem
    return 0 if Path(file).stem == f"test_{name}" or name in _imported(file) else 1 if file.startswith(room) else 2


@functools.cache
def _imported(file: str) -> frozenset[str]:
    """Every word of the imports in a file of tests."""
    return frozenset(
        itertools.chain.from_iterable(re.findall(r"\w+", one) for one in _IMPORT.findall((ROOT / file).read_text()))
    )


def _within(most_seconds: float, tests: list[str]) -> Iterator[str]:
    """Those of the tests that fit into what is left by the ones before them."""
    for test in tests:
        needed = executed.seconds_of([test], 0)
        if needed <= most_seconds:
            most_seconds -= needed
            yield test
