"""How cases are dealt out to shares and processes: each is tried once, and what fails is told with its replay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import processes
from tests.proof.proving import PROOFS, Case, Outcome, Proof, prove, prove_in_processes

_tried: list[int] = []
_said = "seven"


def cases(seed: int, count: int) -> Iterator[Case]:
    """Of these the seventh fails."""
    for number in range(count):
        yield f"{seed} {number}", partial(_try, number)


def _try(number: int, place: Path) -> None:
    assert list(place.iterdir()) == []
    (place / "left").touch()
    _tried.append(number)
    assert number != 7, _said


@pytest.fixture(autouse=True)
def _counting(monkeypatch: pytest.MonkeyPatch) -> None:
    _tried.clear()
    monkeypatch.setitem(PROOFS, "counting", Proof(__name__, 1, 1, "counts"))
    assert sys.modules[__name__].cases is cases


def test_shares_try_each_case_once(tmp_path: Path) -> None:
    outcomes = [prove("counting", 20, 1, tmp_path / f"{first}", share=(first, 3)) for first in range(3)]
    assert [outcome.tried for outcome in outcomes] == [7, 7, 6]
    assert sorted(_tried) == list(range(20))


def test_what_fails_is_told_with_the_command_that_tries_it_again(tmp_path: Path) -> None:
    failures = prove("counting", 20, 5, tmp_path).failures
    assert failures == [
        "5 7: AssertionError: seven\nassert 7 != 7\n"
        "  again: python -m tests.proof counting --seed 5 --count 20 --only '5 7'"
    ]
    assert sorted(_tried) == list(range(20))  # it goes on
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AssertionError, match="seven"):
        prove("counting", 20, 5, tmp_path, only="5 7")
    assert _tried[20:] == [7]


def test_a_long_error_keeps_its_beginning_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_said", f"first {'-' * 100_000} last")
    (failure,) = prove("counting", 20, 5, tmp_path).failures
    assert len(failure) < 5000
    assert "first -" in failure
    assert "- last" in failure


def test_it_ends_where_too_many_fail(tmp_path: Path) -> None:
    assert prove("counting", 20, 1, tmp_path, most_failures=1).tried == 8


def test_processes_try_all_cases_of_a_share_together(tmp_path: Path) -> None:
    whole = prove("fuzz", 100, 1, tmp_path / "whole")
    shares = [prove_in_processes("fuzz", 100, 1, 2, (first, 2)) for first in range(2)]
    assert [outcome.failures for outcome in (whole, *shares)] == [[], [], []]
    assert sum(outcome.tried for outcome in shares) == whole.tried > 0
    assert abs(shares[0].tried - shares[1].tried) <= 1


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of which shares processes were asked, each of which says that it tried one case for each letter of its share."""
    shares = []

    def start(command: list[str], **options: object) -> subprocess.Popen[str]:
        shares.append(command[command.index("--share") + 1])
        program = 'import sys; print(\'{"tried": %d, "seconds": 1.0, "failures": []}\' % len(sys.argv[1]))'
        return processes.start([sys.executable, "-S", "-c", program, shares[-1]], **options)  # type: ignore[arg-type]

    monkeypatch.setattr("tests.proof.proving.start", start)
    return shares


def test_a_proof_that_was_stopped_goes_on_where_it_was(tmp_path: Path, told: list[str]) -> None:
    kept = tmp_path / "kept"
    whole = prove_in_processes("counting", 100, 1, 2, (1, 2), kept)
    assert told == [f"{2 * number + 2}/48" for number in range(24)]
    assert whole == (sum(map(len, told)), 24.0, [])
    lines = kept.read_text().splitlines()[1:]
    assert len(lines) == 24
    told.clear()
    assert prove_in_processes("counting", 100, 1, 3, (1, 2), kept) == whole
    assert told == []
    # as if it had been stopped within a line, and what follows were of another proof, count and seed
    others = [lines[1].replace(*change) for change in (("counting", "fuzz"), ("100", "10"), (" 1,", " 2,"))]
    kept.write_text("\n".join([lines[0], *others, *lines[2:], lines[1][:30]]))
    assert prove_in_processes("counting", 100, 1, 2, (1, 2), kept) == whole
    assert told == [json.loads(lines[1])[3]]
    assert prove_in_processes("counting", 100, 1, 2, (1, 2), kept) == whole
    assert len(told) == 1


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ('print(\'{"tried": 3, "seconds": 1.5, "failures": ["one"]}\')', (6, 3.0, ["one"] * 2)),
        ("raise SystemExit(3)", (0, 0.0, [f"share {share}/4: its process ended with 3" for share in (2, 4)])),
    ],
)
def test_what_failed_is_tried_again(
    program: str, expected: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setattr("tests.proof.proving._KEPT_PIECES", 2)
    monkeypatch.setattr(
        "tests.proof.proving.start",
        lambda _, **options: processes.start([sys.executable, "-S", "-c", program], **options),
    )
    for _ in range(2):
        assert prove_in_processes("counting", 24, 1, 2, (1, 2), kept) == expected
        assert not kept.exists()
