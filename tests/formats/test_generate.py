"""The command that writes what is generated from the schemas, for `make docs`, and asks whether it is due."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.generated import layouts as generate

GENERATED = ("formats/layouts.py", "docs/formats.md")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which nothing is generated yet."""
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    return tmp_path


def test_it_writes_what_the_repository_has(copy: Path) -> None:
    root = Path(generate.__file__).resolve().parents[2]
    assert generate.main([]) == 0
    found = {path.relative_to(copy).as_posix(): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert found == {name: (root / name).read_bytes() for name in GENERATED}


def test_what_is_up_to_date_is_left_alone(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.main([])
    before = {name: (copy / name).stat().st_mtime_ns for name in GENERATED}
    assert (generate.main([]), generate.main(["--check"])) == (0, 0)
    assert {name: (copy / name).stat().st_mtime_ns for name in GENERATED} == before
    assert capsys.readouterr() == ("", "")


def test_a_look_names_what_is_stale_and_writes_nothing(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.main([])
    (copy / "formats" / "layouts.py").write_text("another")
    (copy / "docs" / "formats.md").unlink()
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == "stale, run `make docs`: formats/layouts.py, docs/formats.md\n"
    assert (copy / "formats" / "layouts.py").read_text() == "another"
    assert not (copy / "docs" / "formats.md").exists()


def test_it_is_a_command_that_ends_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make lint` runs it, on the repository itself."""
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    monkeypatch.delitem(sys.modules, "tests.generated.layouts")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(generate.__file__, run_name="__main__")
    assert ended.value.code == 0
