"""How cases are dealt out to shares and processes: each is tried once, and what fails is told with its replay."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.proof.proving import PROOFS, Case, Proof, prove, prove_in_processes

_tried: list[int] = []


def cases(seed: int, count: int) -> Iterator[Case]:
    """Of these the seventh fails."""
    for number in range(count):
        yield f"{seed} {number}", partial(_try, number)


def _try(number: int, place: Path) -> None:
    assert list(place.iterdir()) == []
    (place / "left").touch()
    _tried.append(number)
    assert number != 7, "seven"


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


def test_it_ends_where_too_many_fail(tmp_path: Path) -> None:
    assert prove("counting", 20, 1, tmp_path, most_failures=1).tried == 8


def test_processes_try_all_cases_of_a_share_together(tmp_path: Path) -> None:
    whole = prove("fuzz", 100, 1, tmp_path / "whole")
    shares = [prove_in_processes("fuzz", 100, 1, 2, (first, 2)) for first in range(2)]
    assert [outcome.failures for outcome in (whole, *shares)] == [[], [], []]
    assert sum(outcome.tried for outcome in shares) == whole.tried > 0
    assert abs(shares[0].tried - shares[1].tried) <= 1
