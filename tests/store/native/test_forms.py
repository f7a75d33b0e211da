"""How the two forms of store/native are loaded: never a compiled one of other sources."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from rmqctl.store import compiled, native
from rmqctl.store.native import crc
from tests.opened import reader
from tests.processes import run
from tests.store.native.forms import compiled_form, plain_form

_ROOT = Path(__file__).parents[3]
_SAYS = "from rmqctl.store.native import crc; print(crc.COMPILED, crc.__file__)"


def _says(folder: Path, **environment: str) -> list[str]:
    """What a new process with a copy of the sources says."""
    environment = os.environ | {compiled.COMPILED_IN: ""} | environment
    return run([sys.executable, "-c", _SAYS], cwd=folder, env=environment, check=True).stdout.split()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """store/native and what finds its modules, with what was compiled."""
    home = tmp_path / "rmqctl" / "store"
    shutil.copytree(Path(native.__file__).parent, home / "native", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(compiled.__file__), home)
    (home.parent / "__init__.py").touch()
    (home / "__init__.py").write_text("import rmqctl.store.compiled\n", encoding="utf-8")
    return tmp_path


def test_the_compiled_form_is_taken_where_it_is_of_these_sources(copied: Path) -> None:
    compiled_form("crc")
    assert _says(copied)[0] == "True"


def test_the_environment_asks_for_the_plain_form(copied: Path) -> None:
    is_compiled, file = _says(copied, RMQCTL_PLAIN="1")
    assert (is_compiled, Path(file).name) == ("False", "crc.py")


@pytest.mark.parametrize("changed", ["crc.py", "memory.pxd", "text.py"])
def test_what_was_compiled_of_other_sources_is_left_alone(copied: Path, changed: str) -> None:
    with (copied / "rmqctl/store/native" / changed).open("a") as file:
        file.write("\n# changed\n")
    is_compiled, file_ = _says(copied)
    assert (is_compiled, Path(file_).name) == ("False", "crc.py")


def test_a_compiled_file_is_not_needed(copied: Path) -> None:
    for file in (copied / "rmqctl/store/native").glob("*.so"):
        file.unlink()
    assert _says(copied)[0] == "False"


def test_the_plain_form_stands_beside_the_compiled_one() -> None:
    assert plain_form("crc").COMPILED is False
    assert crc.crc32(b"123456789") == plain_form("crc").crc32(b"123456789") == 0xCBF43926


_WALK = """
import sys
from pathlib import Path
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
log = MappedFileQueue([Path(sys.argv[1])], None, Descriptors())
log.load()
batches = [one for one in walk_columns(log) if isinstance(one, MessageColumns)]
print(sum(map(len, batches)), sum(int(one.key_hash.sum()) for one in batches))
"""


def test_a_log_reads_the_same_without_what_is_compiled_and_without_isal() -> None:
    folder = str(reader("clean").files.log.directories[0])
    found = [
        run(
            [sys.executable, "-c", _WALK, folder, *missing],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(_ROOT), **environment},
            check=True,
        )
        for environment in ({}, {compiled.PLAIN: "1"})
        for missing in ((), ("isal", "pyarrow"))
    ]
    assert [one.stderr for one in found] == [""] * 4
    assert len({one.stdout for one in found}) == 1
    assert int(found[0].stdout.split()[0]) > 100
