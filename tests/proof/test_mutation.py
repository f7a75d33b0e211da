"""Changes of the product are made as their names say, and one that a test notices is told from one that none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof import mutation
from tests.proof.mutation import Mutant, build, mutants_in, mutants_of

_SOURCE = b'''"""What it is."""
LEAST = 3


def work(count: int = 4, *, is_told: bool = False) -> int:
    """Do it 5 times."""
    if not is_told and count < 6:
        raise ValueError("\xc3\xbc")
    tell(count)
    return max(reversed([count - 1]))
'''


def changed(mutant: Mutant) -> bytes:
    return _SOURCE[: mutant.begin] + mutant.new + _SOURCE[mutant.end :]


def test_what_is_changed() -> None:
    found = {mutant.name.removeprefix("a.py work: "): changed(mutant) for mutant in mutants_in("a.py", _SOURCE)}
    assert list(found) == [
        "'and' -> 'or' #1",
        "'not' -> '' #1",
        "'<' -> '<=' #1",
        "'6' -> '7' #1",
        "'raise ValueError(\"ü\")' -> 'pass' #1",
        "'tell(count)' -> 'pass' #1",
        "'reversed' -> 'list' #1",
        "'-' -> '+' #1",
        "'1' -> '2' #1",
    ]
    assert b"if not is_told or count < 6:" in found["'and' -> 'or' #1"]
    assert b"        pass\n    tell" in found["'raise ValueError(\"ü\")' -> 'pass' #1"]
    assert found["'reversed' -> 'list' #1"].endswith(b"max(list([count - 1]))\n")


def test_names_say_which() -> None:
    names = [mutant.name for room in mutation.ROOMS for mutant in mutants_of(room)]
    assert len(names) == len(set(names))
    assert len(names) > 4000
    assert set(mutation.HARMLESS) <= set(names)


@pytest.mark.thorough
def test_a_change_that_no_test_notices_is_told(tmp_path: Path) -> None:
    noticed = next(one for one in mutants_of("formats") if one.name == "formats/hosts.py Host.is_v6: '==' -> '!=' #1")
    for tests, is_noticed in (("tests/formats/test_hosts.py", True), ("tests/formats/test_hashing.py", False)):
        folder = tmp_path / str(is_noticed)
        folder.mkdir()
        assert mutation.noticed(noticed, (tests,), folder) == is_noticed


def test_only_the_changed_file_is_another(tmp_path: Path) -> None:
    mutant = next(mutants_of("store/journal"))
    build(mutant, tmp_path)
    assert (tmp_path / "rmqctl" / mutant.path).read_bytes() != (mutation.ROOT / mutant.path).read_bytes()
    others = [path for path in (tmp_path / mutant.path).parent.iterdir() if path.name != Path(mutant.path).name]
    assert others
    assert all(path.is_symlink() for path in others)
