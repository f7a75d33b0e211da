"""The ladder: which rung is taken, what is said about it, and that nothing is needed that may be missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmqctl.store.compiled import available
from rmqctl.store.compiled.notices import notice, tell_notices
from rmqctl.store.log import column_walk as engine
from rmqctl.store.log.column_walk import speed_notice, walk_columns
from rmqctl.store.log.columns import Columns
from rmqctl.store.log.walk import walk
from tests.opened import reader
from tests.processes import run
from tests.store.columns.comparing import assert_same, use_rung

ROOT = Path(__file__).parents[3]
WALK = """
import sys
from pathlib import Path
from rmqctl.store.log.columns import Columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.column_walk import speed_notice
from rmqctl.store.compiled.notices import tell_notices
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
tell_notices(lambda said: print("said:", said))
log = MappedFileQueue([Path(sys.argv[1])], None, Descriptors())
log.load()
print(sum(len(one) for one in walk_columns(log) if isinstance(one, MessageColumns)), speed_notice())
"""


def _run(code: str, environment: dict[str, str]) -> str:
    commitlog = reader("clean").files.log.directories[0]
    ended = run(
        [sys.executable, "-c", code, commitlog],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout


def _messages() -> int:
    return sum(1 for record in walk(reader("clean").files.log) if hasattr(record, "topic"))


def test_what_each_rung_says(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("isal")
    use_rung("isal", monkeypatch)
    assert speed_notice() is None
    use_rung("tables", monkeypatch)
    assert "CRC" in str(speed_notice())
    assert engine.engine().walk_window is not None
    use_rung("plain", monkeypatch)
    assert "RMQCTL_NO_NUMBA" in str(speed_notice())
    assert engine.engine().walk_window is None


def test_store_and_columns_import_no_compiler() -> None:
    heavy = "numba", "llvmlite", "isal", "pyarrow"
    code = f"import sys, store, rmqctl.store.columns; print(sorted(set({heavy}) & set(sys.modules)))"
    assert _run(code, {}) == "[]\n"


def test_without_the_extra() -> None:
    blocked = "import sys\nsys.modules['numba'] = None\nsys.modules['isal'] = None\n"
    out = _run(blocked + WALK, {})
    assert out.startswith("said: whole logs are read slowly because numba")
    assert f"\n{_messages()} whole logs are read slowly because numba" in out
    assert out.count("said:") == 1
    pytest.importorskip("numba")
    out = _run("import sys\nsys.modules['isal'] = None\n" + WALK, {})
    assert "isal is missing" in out


@pytest.mark.thorough
def test_first_compilation_is_announced_and_its_code_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert _run(WALK, environment).startswith("said: compiling")
    assert _run(WALK, environment) == f"{_messages()} None\n"


@pytest.mark.thorough
def test_a_damaged_cache_does_not_matter(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    _run(WALK, environment)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(b"damaged")
    assert f"{_messages()} " in _run(WALK, environment)


@pytest.mark.thorough
def test_a_cache_that_cannot_be_written() -> None:
    pytest.importorskip("numba")
    without = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
"""
    out = _run(without + WALK, {})
    assert f"{_messages()} compiled code cannot be kept" in out


def test_a_compiler_that_fails() -> None:
    pytest.importorskip("numba")
    out = _run(WALK, {"NUMBA_DISABLE_JIT": "1"})
    assert out.startswith("said: whole logs are read slowly because")
    assert f"\n{_messages()} whole logs are read slowly because" in out


def test_wrong_results_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("rmqctl.store.log.column_walk")
    used = engine.engine()
    assert kernels.is_right(used.walk_window, used.crc_function)
    assert not kernels.is_right(lambda *arguments: 1, used.crc_function)
    monkeypatch.setattr(available, "is_crc32", lambda crc: False)
    assert available.isal_crc()[0] is None


def test_each_listener_is_told_once() -> None:
    said: list[str] = []
    other: list[str] = []
    for listener in (said.append, said.append):
        tell_notices(listener)
        notice("slow")
        notice("slow")
    tell_notices(other.append)
    notice("slow")
    tell_notices(None)
    notice("slow")
    assert (said, other) == (["slow"], ["slow"])


def test_nobody_needs_to_listen() -> None:
    tell_notices(print)
    tell_notices(None)
    available.say_compiling("one")
    log = reader("clean").files.log
    assert_same(walk_columns(log, columns=Columns.TOPIC), walk(log))
