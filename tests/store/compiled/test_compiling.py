"""Machine code that is kept is taken only as long as everything is as it was that was compiled into it."""

from __future__ import annotations

import ast
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("numba")

from rmqctl.store.compiled import compiling

ROOT = Path(__file__).resolve().parents[3]
KERNELS = sorted(
    ".".join(("rmqctl", *path.relative_to(ROOT).with_suffix("").parts))
    for path in (ROOT / "store").rglob("kernel_*.py")
    if "def make_kernels(" in path.read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, to be changed."""
    folder = tmp_path_factory.mktemp("sources")
    for floor in ("formats", "store"):
        shutil.copytree(ROOT / floor, folder / "rmqctl" / floor, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return folder


@pytest.fixture
def stamp(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    """The stamp of a kernel module, of the sources as they are copied."""
    monkeypatch.setattr(compiling, "_ROOT", copied)

    def stamp_now(module: str) -> int:
        compiling._source.cache_clear()
        return compiling.source_stamp(module)

    yield stamp_now
    compiling._source.cache_clear()


@pytest.mark.parametrize("module", KERNELS)
def test_whatever_a_kernel_is_compiled_from_is_seen_to_change(
    stamp: Callable[[str], int], copied: Path, module: str
) -> None:
    before = stamp(module)
    assert stamp(module) == before
    read = compiling.imported_by(module)
    for name in sorted(read):
        path = copied.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        source = path.read_text(encoding="utf-8")
        path.write_text(source + "\nCHANGED = 1\n", encoding="utf-8")
        assert stamp(module) != before, name
        path.write_text(source, encoding="utf-8")
    assert stamp(module) == before
    other = copied / "rmqctl" / "store" / "message_store.py"
    other.write_text("changed = 1", encoding="utf-8")
    assert stamp(module) == before


@pytest.mark.parametrize("module", KERNELS)
def test_every_import_of_a_kernel_is_followed(module: str) -> None:
    """Python's own parser against the search for imports, one step from every module that is read."""
    read = compiling.imported_by(module)
    for name in read:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        for node in ast.parse(compiling._source(name) or b"").body:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                homes = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
            elif isinstance(node, ast.Import):
                homes = [one.name for one in node.names]
            else:
                continue
            ours = [home for home in homes if home.split(".")[0] == "rmqctl" and _is_module(home)]
            assert set(ours) <= read, (name, ours)


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
