"""What the quick run takes, and that it says what it leaves out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests import goldens, quick
from tests.processes import run
from tests.quick import every, goldens_of, sample, shares


def taken(parameters: list[Any]) -> list[Any]:
    """The values of those parameters that the quick run takes."""
    plain = [one if hasattr(one, "marks") else pytest.param(one) for one in parameters]
    return [one.values[0] for one in plain if not any(mark.name == "thorough" for mark in one.marks)]


def test_the_goldens_of_the_quick_run() -> None:
    assert set(quick.GOLDENS) < set(goldens.GOLDENS)
    assert taken(goldens_of(goldens.GOLDENS)) == sorted(quick.GOLDENS)
    assert len(goldens_of(goldens.GOLDENS)) == len(goldens.GOLDENS)
    assert taken(goldens_of(["lmq", "gap", "crash"])) == ["gap", "crash"]
    assert taken(goldens_of(["lmq", "gap", "torn-zero"], "torn-zero", "cq-lost")) == ["gap", "torn-zero"]
    assert taken(goldens_of(["lmq", "propcrc"])) == ["lmq"]


def test_samples() -> None:
    assert taken(sample([700, 5000], [5000])) == [5000]
    with pytest.raises(ValueError, match="700"):
        sample([5000], [700])
    assert taken(every(3, range(8))) == [0, 3, 6]
    assert len(every(3, range(8))) == 8


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shares_are_everything_once(count: int) -> None:
    places = list(range(1, 24))
    assert sorted(place for one in shares(count) for place in places[one.values[0]]) == places
    assert [places[share] for share in taken(shares(count))] == [places[::count]]


def test_a_twelfth_of_the_parameters_is_drawn_another_one_for_another_seed() -> None:
    many = [f"a.py::test_of_goldens[{number}]" for number in range(400)]
    few = ["a.py::test_alone", "a.py::test_of_two[x]", "a.py::test_of_two[y]"]
    taken = quick.drawn([*many, *few], "1")
    assert taken == quick.drawn(reversed([*many, *few]), "1")
    assert "a.py::test_alone" in taken
    assert taken & set(few[1:])
    assert 18 < len(taken & set(many)) < 52
    assert taken != quick.drawn([*many, *few], "2")
    assert all(quick.drawn(many[:3], str(seed)) for seed in range(50))
    assert sum(len(quick.drawn(few, str(seed), ["a.py::test_of_two"])) == 1 for seed in range(50)) > 35
    assert set(many + few) == set().union(*(quick.drawn([*many, *few], str(seed)) for seed in range(240)))


@pytest.mark.parametrize("every", [1, 2, 3, 9])
def test_each_has_its_turn(every: int) -> None:
    turns = [quick.whose_turn({"group": (every, "abcde"), "other": (2, "x")}, str(seed)) for seed in range(60)]
    assert set().union(*turns) == set("abcdex")
    assert {len(taken - {"x"}) for taken in turns} <= {5 // every, -(-5 // every), 1}
    assert all("x" in taken for taken in turns)


_TURNS = """
import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.turns("files", 2)]


@pytest.mark.parametrize("one", [1])
def test_it(one): ...
"""


def test_files_and_tests_take_turns(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(_TURNS)
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest", "-q"]
    command.append(tmp_path)
    ended = [run([*command, "--draw", f"{seed}"]).stdout for seed in range(4)]
    assert all("1 passed" in text and "1 thorough: more of what" in text for text in ended), ended
    assert "1 passed" not in run(command).stdout


def test_a_twelfth_of_the_cases_is_drawn_and_all_are_taken_without_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "is_quick", False)
    monkeypatch.setattr(quick, "seed", None)
    cases = list(range(100))
    assert (cases[quick.drawn_slice("fuzz", len(cases))], quick.examples(100)) == (cases, 100)
    found: set[int] = set()
    for seed in range(100):
        monkeypatch.setattr(quick, "seed", str(seed))
        drawn = cases[quick.drawn_slice("fuzz", len(cases))]
        assert (len(drawn) in (8, 9), quick.examples(100)) == (True, 50)
        found.update(drawn)
    assert found == set(cases)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_of_few_cases_at_least_one_is_drawn(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        monkeypatch.setattr(quick, "seed", str(number))
        assert list(range(count))[quick.drawn_slice("real-broker", count)]


@pytest.mark.parametrize(
    "flags",
    sample(
        [["--quick"], ["-m", "not interop"], ["--quick", "-n", "1"], ["-m", "not interop", "--draw", "7"]],
        [["--quick", "-n", "1"]],
    ),
    ids=" ".join,
)
def test_nothing_is_left_out_in_silence(flags: list[str]) -> None:
    told = ["-p", "no:cacheprovider", "-q", "tests/interop/test_cleaned.py", "tests/formats/test_hashing.py"]
    ended = run([sys.executable, "-m", "pytest", *told, *flags])
    assert ended.returncode == 0, ended.stdout
    assert "2 tests were left out" in ended.stdout
    assert "     2 interop: the real RocketMQ; make interop runs them" in ended.stdout
