"""`python -m tests.proof.covered`: how much of the product tests run, by room, as `make coverage` has recorded it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

from tests.processes import ROOT

LEAST = 0.95
"""Of all lines and branches."""

WHOLE = ("formats", "store/journal", "store/recover", "store/repair")
"""Rooms of which every line and branch is run: what they do cannot be tried on somebody's only copy."""


class Covered(NamedTuple):
    """Lines and branches of a source: how many there are, which are not run (branches as `from->to`)."""

    lines: int
    branches: int
    lines_left: list[int]
    branches_left: list[str]

    @property
    def left(self) -> int:
        """How many are not run."""
        return len(self.lines_left) + len(self.branches_left)

    @property
    def all(self) -> int:
        """How many there are."""
        return self.lines + self.branches


def covered(recorded: Coverage) -> dict[str, Covered]:
    """By the path of the source, below the root."""
    found = {}
    # a distribution that a test has built and run stands elsewhere
    for file in sorted(file for file in recorded.get_data().measured_files() if Path(file).is_relative_to(ROOT)):
        analysis = recorded._analyze(file)
        left = [f"{begin}->{end}" for begin, ends in analysis.missing_branch_arcs().items() for end in ends]
        numbers = analysis.numbers
        path = Path(file).relative_to(ROOT).as_posix()
        found[path] = Covered(numbers.n_statements, numbers.n_branches, sorted(analysis.missing), left)
    return found


def room_of(path: str) -> str:
    """The room of a source: two folders, or one."""
    return "/".join(Path(path).parent.parts[:2]) or path


def table(found: dict[str, Covered]) -> Iterator[str]:
    """Lines and branches by room, as a table of Markdown."""
    rooms: dict[str, list[Covered]] = defaultdict(list)
    for path, one in found.items():
        rooms[room_of(path)].append(one)
    rooms["all"] = list(found.values())
    yield "| of | lines | branches | not run | run |"
    yield "|---|--:|--:|--:|--:|"
    for room, ones in rooms.items():
        total, left = sum(one.all for one in ones), sum(one.left for one in ones)
        share = 100 * (total - left) / max(total, 1)
        lines, branches = sum(one.lines for one in ones), sum(one.branches for one in ones)
        yield f"| {room} | {lines:,} | {branches:,} | {left:,} | {share:.1f} % |"


def missing(found: dict[str, Covered]) -> Iterator[str]:
    """What is less than it should be, one sentence each."""
    total, left = sum(one.all for one in found.values()), sum(one.left for one in found.values())
    if total - left < LEAST * total:
        yield f"{100 * (total - left) / total:.1f} % of all lines and branches are run, {100 * LEAST:.0f} % should be"
    for path, one in found.items():
        if one.left and any(path.startswith(f"{room}/") for room in WHOLE):
            yield f"{path}: not run: {', '.join([*map(str, one.lines_left), *one.branches_left])}"


def main() -> int:
    """Print both; 1 where something is missing."""
    recorded = Coverage()
    recorded.combine(keep=True)
    found = covered(recorded)
    print("\n".join(table(found)))
    wrong = list(missing(found))
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
