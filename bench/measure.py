"""Taking measurements side by side, and telling them: one JSON line each, a table at the end."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
# the fields of /proc/PID/stat behind the name: user and system time, its own and of children that it waited for
_TIMES = slice(11, 15)
# a pair of runs that took longer than this, in seconds, is not repeated
PATIENCE = 60.0


class Measurement(NamedTuple):
    """One figure beside another of the same unit, medians of `n` runs each, taken in turns.

    `ratio` says how much better ours is (of times: other / ours, of rates: ours / other), for a `share` ours / other.
    None where there is nothing to compare with. `at_least` and `aim` are what `ratio` should reach, or with a unit of
    MiB or an added time what `ours` should stay under.
    """

    bench: str
    ours: float
    other: float | None
    ratio: float | None
    unit: str
    n: int
    against: str = ""
    at_least: float | None = None
    aim: float | None = None


class Pair(NamedTuple):
    """Medians of two things measured in turns, and how often."""

    ours: float
    other: float | None
    n: int


def in_turns(ours: Callable[[], float], other: Callable[[], float] | None, rounds: int = 3) -> Pair:
    """A B A B …: both see the same machine. Ends early after a pair that took longer than PATIENCE."""
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        begin = time.monotonic()
        mine.append(ours())
        if other is not None:
            theirs.append(other())
        if time.monotonic() - begin > PATIENCE:
            break
    return Pair(statistics.median(mine), statistics.median(theirs) if theirs else None, len(mine))


def rates(bench: str, pair: Pair, unit: str, against: str, at_least: float | None, aim: float | None) -> Measurement:
    """A measurement of rates, of which more is better."""
    ratio = pair.ours / pair.other if pair.other else None
    return Measurement(bench, pair.ours, pair.other, ratio, unit, pair.n, against, at_least, aim)


def times(bench: str, pair: Pair, against: str, at_least: float | None, aim: float | None) -> Measurement:
    """A measurement of seconds, of which fewer are better."""
    ratio = pair.other / pair.ours if pair.other else None
    return Measurement(bench, pair.ours, pair.other, ratio, "s", pair.n, against, at_least, aim)


def tell(measurement: Measurement) -> None:
    """One JSON line."""
    row = {name: _rounded(value) for name, value in measurement._asdict().items()}
    print(json.dumps(row), flush=True)


def say(text: str) -> None:
    """A line for people."""
    print(f"# {text}", flush=True)


def table(measurements: Iterable[Measurement]) -> str:
    """All of them as a Markdown table."""
    lines = [
        "| bench | ours | other | unit | ratio | at least | aim | n | against |",
        "|---|--:|--:|---|--:|--:|--:|--:|---|",
    ]
    for one in measurements:
        cells = [
            one.bench, _shown(one.ours), _shown(one.other), one.unit, _shown(one.ratio), _shown(one.at_least),
            _shown(one.aim), str(one.n), one.against,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100_000:
        return f"{value / 1000:,.0f} k"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def processor_seconds() -> float:
    """What this process and all below it have had of processors so far: a busy machine changes differences of it less
    than those of the clock."""
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = Path("/proc", str(waiting.pop()))
        try:
            total += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[_TIMES]))
            for thread in (process / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except OSError:
            continue  # it has ended; who waited for it has its time
    return total / _TICKS
