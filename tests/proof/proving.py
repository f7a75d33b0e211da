"""Runs the cases of a proof and says which failed and how each is run again."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import NamedTuple

from tests import quick
from tests.processes import start

Case = tuple[str, Callable[[Path], object]]
"""Its name, unique and the same for the same seed, and what it does below an empty folder; AssertionError if that is
not as promised, any other error is a failure too."""

Cases = Callable[[int, int], Iterator[Case]]
"""What a module of a proof calls `cases`: takes the seed and about how many are wanted."""


class Proof(NamedTuple):
    """A kind of proof: the module with its `cases`, how many CI tries (0 for none) and how many `make proof`; what they
    promise."""

    module: str
    in_ci: int
    in_proof: int
    promise: str


class Outcome(NamedTuple):
    """What came of a proof: how many cases were tried, in how many seconds (of all processes together), and what is
    said of each that failed."""

    tried: int
    seconds: float
    failures: list[str]


_QUICK_SHARE = 100
# so that what is lost with a proof that is stopped is some minutes of it
_KEPT_PIECES = 24
# seconds after which a proof hangs
_LONGEST = 2 * 86_400.0

PROOFS: dict[str, Proof] = {
    "crash": Proof(
        "tests.proof.crash.cases",
        300,
        50_000,
        "after a power cut at any moment what was acknowledged is there, and a change is wholly done or undone",
    ),
    "disk-errors": Proof(
        "tests.proof.disk_errors", 150, 10_000, "an error of the disk is told, loses nothing, and leaves a way out"
    ),
    "kills": Proof("tests.proof.kills", 120, 5_000, "a kill at any change of a file loses nothing acknowledged"),
    "flipped-bytes": Proof(
        "tests.proof.flipped_bytes", 2_000, 655_360, "check reports every changed byte that anything covers"
    ),
    "model": Proof("tests.proof.model", 60, 5_000, "a store driven at random holds what a list in memory holds"),
    "fuzz": Proof("tests.proof.fuzz", 10_000, 6_000_000, "whatever is read, nothing but an error of ours comes out"),
    "guided": Proof("tests.proof.guided", 6, 600, "the same, of what is led into code that nothing has run before"),
    "real-broker": Proof(
        "tests.proof.real_broker.cases",
        10,
        300,
        "ours and real brokers see the same in one store, in turns, and after damage what was predicted and recovered",
    ),
    "serve-kills": Proof(
        "tests.proof.serve_kills", 10, 200, "serve killed in mid-load: nothing acknowledged is lost, delayed or half"
    ),
    "scale": Proof("tests.proof.scale", 300, 100_000, "looking costs what there is, not what files could hold"),
    "load": Proof(
        "tests.proof.load", 6, 600, "eight writers, four readers, a cleaner, a second process: no wrong byte"
    ),
    "mutation": Proof("tests.proof.mutation", 0, 200, "a small change of the product is noticed by some test"),
}
"""By name, as docs/durability.md has them."""


def prove(
    name: str,
    count: int,
    seed: int,
    folder: Path,
    *,
    only: str | None = None,
    most_failures: int = 5,
    share: tuple[int, int] = (0, 1),
) -> Outcome:
    """Try the cases of a proof below `folder`, one after the other; `only` the one of this name. `share`: from which
    case on, from 0, every how manieth is tried."""
    cases: Cases = importlib.import_module(PROOFS[name].module).cases
    begun = time.monotonic()
    tried = 0
    failures: list[str] = []
    for case, work in itertools.islice(cases(seed, count), share[0], None, share[1]):
        if only is not None and case != only:
            continue
        place = folder / f"{tried}"
        place.mkdir(parents=True)
        tried += 1
        try:
            work(place)
        except Exception as error:
            told = _cut(f"{type(error).__name__}: {error}")
            failures.append(f"{case}: {told}\n  again: {replay(name, seed, count, case)}")
            if only is not None:
                raise
        finally:
            try:
                place.rmdir()  # most leave nothing, and some take less time than a look for what they left
            except OSError:
                shutil.rmtree(place)
        if len(failures) >= most_failures:
            break
    return Outcome(tried, time.monotonic() - begun, failures)


def _cut(told: str) -> str:
    """What an error says, its middle left out where it is long: what was seen comes first, the steps to it last."""
    return told if len(told) <= 4000 else f"{told[:1500]} … {told[-2500:]}"


def prove_in_processes(
    name: str,
    count: int,
    seed: int,
    processes: int,
    share: tuple[int, int] = (0, 1),
    kept: Path | None = None,
) -> Outcome:
    """Like `prove`, the cases of this share dealt out to so many processes, whose seconds are added up.

    With a file `kept` they are dealt out in more pieces. Each in which nothing failed is noted there when it is done,
    and not done again by whoever calls with the same file, seed and count: a proof that was stopped goes on.
    """
    first, every = share
    pieces = processes if kept is None else _KEPT_PIECES
    shares = [f"{first + number * every + 1}/{pieces * every}" for number in range(pieces)]
    done = {} if kept is None else _noted(kept, name, count, seed)
    waiting = deque(share for share in shares if share not in done)
    command = [sys.executable, "-m", "tests.proof", name, "--seed", f"{seed}", "--count", f"{count}", "--as-json"]
    running: dict[int, tuple[subprocess.Popen[str], str]] = {}
    while waiting or running:
        while waiting and len(running) < processes:
            piece = waiting.popleft()
            process = start([*command, "--share", piece], seconds=_LONGEST, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            running[process.stdout.fileno()] = process, piece
        for speaking in connection.wait(running):
            assert isinstance(speaking, int)
            process, piece = running.pop(speaking)
            done[piece] = _said(process, piece)
            if kept is not None and not done[piece].failures:
                with kept.open("a", encoding="utf-8") as file:
                    # the line before may have been cut short
                    file.write("\n" + json.dumps([name, count, seed, piece, done[piece]._asdict()]))
    outcomes = [done[piece] for piece in shares]
    failures = [failure for one in outcomes for failure in one.failures]
    return Outcome(sum(one.tried for one in outcomes), sum(one.seconds for one in outcomes), failures)


def _said(process: subprocess.Popen[str], piece: str) -> Outcome:
    """What a process says of its share, once it has ended."""
    text = process.communicate()[0]
    if process.returncode:
        return Outcome(0, 0.0, [f"share {piece}: its process ended with {process.returncode}"])
    return Outcome(**json.loads(text))


def _noted(kept: Path, name: str, count: int, seed: int) -> dict[str, Outcome]:
    """What is noted of the pieces of a proof, by share; a line that was cut short is none."""
    found = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        with contextlib.suppress(ValueError):
            *what, piece, outcome = json.loads(line)
            if what == [name, count, seed]:
                found[piece] = Outcome(**outcome)
    return found


def assert_proved(name: str, folder: Path, seed: int = 1) -> None:
    """As many cases as a full run tries, a share of them in the quick run, and a drawn one in CI; their seed is always
    the same."""
    count = max(2, PROOFS[name].in_ci // (_QUICK_SHARE if quick.is_quick else 1))
    cases: Cases = importlib.import_module(PROOFS[name].module).cases
    drawn = quick.drawn_slice(name, sum(1 for _ in cases(seed, count)))
    outcome = prove(name, count, seed, folder, share=(drawn.start, drawn.step))
    assert outcome.tried
    assert not outcome.failures, "\n".join(outcome.failures)


def replay(name: str, seed: int, count: int, case: str) -> str:
    """The command that runs one case again."""
    return f"python -m tests.proof {name} --seed {seed} --count {count} --only '{case}'"


def table(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """What was run and found, as a table of Markdown."""
    yield "| proof | promise | cases | seconds | failed |"
    yield "|---|---|--:|--:|--:|"
    for name, outcome in outcomes.items():
        failed = len(outcome.failures)
        yield f"| {name} | {PROOFS[name].promise} | {outcome.tried:,} | {outcome.seconds:,.0f} | {failed} |"
