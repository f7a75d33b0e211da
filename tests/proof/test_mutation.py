"""Changes of the product are made as their names say, and one that a test notices is told from one that none does."""

from __future__ import annotations

import ast
import hashlib
import math
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.proof import executed, mutation, nearest
from tests.proof.changes import Mutant, build, line_of, mutants_in, mutants_of

_SOURCE = b'''"""What it is."""
LEAST = 3


def work(count: int = 4, *, is_told: bool = False) -> int:
    """Do it 5 times."""
    if not is_told and count < 6:
        raise ValueError("\xc3\xbc")
    try:
        tell(least=count > 2)
    except OSError:
        tell(count)
    return max(reversed([one - 1 for one in range(count) if not one]))
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
        "'tell(least=count > 2)' -> 'pass' #1",
        "'>' -> '>=' #1",
        "'2' -> '3' #1",
        "'tell(count)' -> 'pass' #1",
        "'reversed' -> 'list' #1",
        "'-' -> '+' #1",
        "'1' -> '2' #1",
        "'not' -> '' #2",
    ]
    assert b"if not is_told or count < 6:" in found["'and' -> 'or' #1"]
    assert b"        pass\n    try" in found["'raise ValueError(\"ü\")' -> 'pass' #1"]
    assert found["'reversed' -> 'list' #1"].endswith(b"max(list([one - 1 for one in range(count) if not one]))\n")


def test_names_say_which() -> None:
    names = [mutant.name for room in mutation.ROOMS for mutant in mutants_of(room)]
    assert len(names) == len(set(names))
    assert len(names) > 4000


def test_what_is_harmless_is_still_what_was_judged() -> None:
    """A change that was called so is there, in the line that somebody read, and a reason is given."""
    there = {mutant.name: mutant for room in mutation.ROOMS for mutant in mutants_of(room)}
    assert len(mutation.harmless()) > 10
    for name, (line, why) in mutation.harmless().items():
        assert line_of(there[name]) == line, name
        assert len(why.split()) > 4, name


def test_what_once_survived_is_still_there_to_be_changed() -> None:
    found = list(mutation.once_survived())
    assert len(found) > 100
    assert len({mutant.name for mutant in found}) == len(found)
    for mutant in found:
        source = (ROOT / mutant.path).read_bytes()
        ast.parse(source[: mutant.begin] + mutant.new + source[mutant.end :])


def test_the_nearest_tests_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that run the line, nearest file first; those of the room where the source is another than was recorded."""
    path = "formats/message.py"
    mutant = next(one for one in mutants_of("formats") if one.name.startswith(f"{path} Host.is_v6"))
    line = str((ROOT / path).read_bytes().count(b"\n", 0, mutant.begin) + 1)
    far, costly, cheap, near, gone = running = [
        "tests/store/test_config.py::test_a_file_that_is_not_there",
        "tests/formats/test_hosts.py::test_round_trip",
        "tests/formats/test_hosts.py::test_what_is_no_host[x]",
        "tests/formats/test_errors.py::test_names",
        "tests/formats/test_hosts.py::test_that_was_removed",
    ]
    monkeypatch.setattr(executed, "_is_there", lambda test: test != gone)
    seconds = dict(zip(running, (0.1, 3, 0.2, 0.1, 0.1), strict=True))
    other, slow = (cheap.replace("[x]", f"[{parameter}]") for parameter in "yz")
    seconds |= {slow: 7, other: 0.9}
    digest = hashlib.sha256((ROOT / path).read_bytes()).hexdigest()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def lots(recorded: str, most_seconds: float) -> list[list[str]]:
        executed._write(executed._Record(seconds, {path: recorded}, {path: {line: running}}))
        executed._recorded.cache_clear()
        return list(nearest.in_turn(mutant, ("tests/formats",), most_seconds))

    try:
        again = [cheap.partition("[")[0]]
        assert lots(digest, math.inf) == [[cheap, costly, near, far], again]
        assert lots(digest, 1) == [[cheap, near, far], [other]]
        assert lots(digest, 9) == [[cheap, costly, near, far], [other, slow]]
        assert lots("another", 1) == [[cheap, near], [other]]
        assert nearest.running_tests(mutant) == []
        seconds.clear()
        running.clear()
        assert lots("another", 1) == [["tests/formats"]]
    finally:
        executed._recorded.cache_clear()


@pytest.mark.thorough
def test_a_change_that_no_test_notices_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "in_turn", lambda _, tests, __: [list(tests)])
    noticed = next(one for one in mutants_of("formats") if one.name == "formats/message.py Host.is_v6: '==' -> '!=' #1")
    for tests, is_noticed in (("tests/formats/test_hosts.py", True), ("tests/formats/test_hashing.py", False)):
        folder = tmp_path / str(is_noticed)
        folder.mkdir()
        monkeypatch.setitem(mutation.ROOMS, "formats", (tests,))
        assert (mutation.noticed(noticed, folder) is not None) == is_noticed


@pytest.mark.thorough
def test_a_change_by_which_no_test_can_be_imported_is_noticed(tmp_path: Path) -> None:
    build(Mutant("formats/message.py", "nothing can be imported", 0, 0, b"import nothing_of_this_name\n"), tmp_path)
    for tests in (["tests/formats/test_hosts.py"], ["tests/formats/test_hosts.py::test_both_ways"]):
        found = mutation._TRIER.first_failure(tmp_path, [*tests, "--quick"], 60)
        assert found is not None
        assert found.startswith("ERROR tests/formats/test_hosts.py")
    with pytest.raises(AssertionError, match="not found"):
        mutation._TRIER.first_failure(tmp_path, ["tests/formats/test_wording.py::test_of_no_such_name"], 60)


def test_only_the_changed_file_is_another(tmp_path: Path) -> None:
    mutant = next(mutants_of("store/journal"))
    build(mutant, tmp_path)
    assert (tmp_path / mutant.path).read_bytes() != (ROOT / mutant.path).read_bytes()
    others = [path for path in (tmp_path / mutant.path).parent.iterdir() if path.name != Path(mutant.path).name]
    assert others
    assert all(path.is_symlink() for path in others)
