"""The tests are tested: small changes of the product, one at a time, each of which some test must notice.

A change that no test notices is a test that is missing, unless it is among `harmless`.
`python -m tests.proof.mutation ROOM…` tries some changes of each room by lot, names those that nothing notices, and
ends with a table; with --names those of a file, one to a line.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.processes import ROOT
from tests.proof import executed, nearest
from tests.proof.changes import Mutant, build, line_of, mutants_of
from tests.proof.proving import Case
from tests.proof.trying import Trier

ROOMS: dict[str, tuple[str, ...]] = {
    "formats": ("tests/formats",),
    "store/files": ("tests/store/files", "tests/store/journal"),
    "store/log": (
        *("tests/store/commitlog", "tests/store/columns", "tests/store/survey"),
        *("tests/store/write", "tests/store/recover", "tests/proof/test_crash.py"),
    ),
    "store/read": ("tests/store/read",),
    "store/write": ("tests/store/write", "tests/proof/test_crash.py"),
    "store/journal": ("tests/store/journal", "tests/proof/test_crash.py"),
    "store/recover": ("tests/store/recover", "tests/proof/test_crash.py"),
    "store/repair": ("tests/store/repair",),
    "store/clean": ("tests/store/clean", "tests/rmqctl/change/test_clean.py", "tests/proof/test_crash.py"),
    "store/queues": ("tests/store/queues", "tests/store/write", "tests/proof/test_crash.py"),
    "store/index": ("tests/store/index", "tests/store/write", "tests/proof/test_crash.py"),
}
"""Where changes are made, and which tests are of the same room."""

_ONCE_SURVIVED = Path(__file__).with_name("once_survived.txt")
_HARMLESS = Path(__file__).with_name("harmless.txt")
# a change that makes tests use more processor time than this and three times what they did use has been noticed
_LEAST_SECONDS = 15.0
_UNKNOWN_SECONDS = 200.0
_TRIER = Trier()


class Harmless(NamedTuple):
    """The line that is changed, without its indentation, and why the change costs nobody anything."""

    line: str
    why: str


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` changes of functions in `ROOMS`, by lot: up to half of them are those that once survived."""
    lot = random.Random(seed)
    once = list(once_survived())
    found = [mutant for room in ROOMS for mutant in mutants_of(room)]
    chosen = lot.sample(once, min(count // 2, len(once)))
    chosen += lot.sample(found, min(count - len(chosen), len(found)))
    for mutant in chosen:
        yield mutant.name, functools.partial(_try, mutant)


def once_survived() -> Iterator[Mutant]:
    """The changes of `once_survived.txt`; AssertionError for a text that is not in its source exactly once."""
    for name, lines in _paragraphs(_ONCE_SURVIVED):
        old, new = ("\n".join(line[2:] for line in lines if line.startswith(sign)).encode() for sign in "-+")
        path = name.partition(":")[0]
        source = (ROOT / path).read_bytes()
        assert source.count(old) == 1, f"{name}: found {source.count(old)} times"
        yield Mutant(path, name, source.index(old), source.index(old) + len(old), new)


@functools.cache
def harmless() -> dict[str, Harmless]:
    """The changes of `harmless.txt`, by name."""
    return {name: Harmless(line, " ".join(why)) for name, (line, *why) in _paragraphs(_HARMLESS)}


def is_harmless(mutant: Mutant) -> bool:
    """Whether it is known to cost nobody anything, in the line that was judged."""
    known = harmless().get(mutant.name)
    return known is not None and known.line == line_of(mutant)


def _paragraphs(path: Path) -> Iterator[tuple[str, list[str]]]:
    for paragraph in path.read_text().rstrip("\n").split("\n\n")[1:]:
        name, *lines = paragraph.split("\n")
        yield name, lines


def room_of(path: str) -> str:
    """The one of `ROOMS` that a source belongs to."""
    return max((room for room in ROOMS if path.startswith(f"{room}/")), key=len)


def _try(mutant: Mutant, folder: Path) -> None:
    is_noticed = noticed(mutant, folder) is not None
    assert is_noticed or is_harmless(mutant), "no test notices it"
    assert not is_noticed or not is_harmless(mutant), "it is called harmless, and a test notices it"


def noticed(mutant: Mutant, folder: Path, most_seconds: float = math.inf, *, is_sure: bool = True) -> str | None:
    """What fails first once the product is changed so, below the empty `folder`; None if nothing does.

    Tried are the nearest tests (`nearest`), as many as need `most_seconds` of processor time without the change. To be
    sure, a test that fails has to fail by itself too, and to pass in such a folder without the change.
    """
    build(mutant, folder)
    for some in nearest.in_turn(mutant, ROOMS[room_of(mutant.path)], most_seconds):
        left = some
        while left:
            failed = _TRIER.first_failure(folder, [*left, "--quick"], _limit(left))
            if failed is None:
                break
            name = failed.partition(" ")[2].partition(" - ")[0]
            asked = next((test for test in left if test in (name, name.partition("[")[0])), None)
            if asked is None:  # ended by a signal, or a module of tests that cannot be imported
                return failed
            if not is_sure:
                return failed
            is_by_itself = name == left[0] or _TRIER.first_failure(folder, [name, "--quick"], _limit([name]))
            if is_by_itself and not failing_anyway(name):
                return failed
            left = left[left.index(asked) + 1 :]
    return None


@functools.cache
def failing_anyway(*tests: str) -> str | None:
    """Which of the tests fails in a copy of the project that is not changed at all."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-unchanged-") as folder:
        build(Mutant("formats/__init__.py", "nothing", 0, 0, b""), Path(folder))
        return _TRIER.first_failure(Path(folder), [*tests, "--quick"], _limit(list(tests)))


def _limit(tests: list[str]) -> float:
    return executed.seconds_of(tests, _UNKNOWN_SECONDS) * 3 + _LEAST_SECONDS


def main() -> int:
    """Try changes by lot, or those of a file; 1 if one is not noticed and not harmless."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], help="all without")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30, help="how many changes of each room")
    parser.add_argument("--seconds", type=float, default=math.inf, help="processor time of the tests of one change")
    parser.add_argument("--names", type=Path, help="a file with names of changes, to be tried instead")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {room: Counter() for room in given.rooms or ROOMS}
    names = given.names.read_text().splitlines() if given.names else None
    failed: set[str] = set()
    for room, count in counts.items():
        found = list(mutants_of(room))
        if names is not None:
            found = [mutant for mutant in found if mutant.name in names]
        else:
            found = random.Random(given.seed).sample(found, min(given.count, len(found)))
        for mutant in found:
            begun = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="rmqctl-change-") as folder:
                by = noticed(mutant, Path(folder), given.seconds, is_sure=False)
            if by is None and is_harmless(mutant):
                by = "harmless"
            elif by is not None and "::" in by:
                failed.add(by.partition(" ")[2].partition(" - ")[0])
            count["tried"] += 1
            count["left" if by is None else "harmless" if by == "harmless" else "noticed"] += 1
            print(f"{mutant.name} | {by or 'NOT NOTICED'} | {time.monotonic() - begun:.1f} s", flush=True)
    print("| of | tried | noticed | harmless | left |\n|---|--:|--:|--:|--:|")
    for room, count in counts.items():
        print("|", " | ".join([room, *(str(count[what]) for what in ("tried", "noticed", "harmless", "left"))]), "|")
    by_itself = failing_anyway(*sorted(failed)) if failed else None
    if by_itself is not None:
        print(f"fails without any change: {by_itself}")
    return 1 if by_itself is not None or any(count["left"] for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
