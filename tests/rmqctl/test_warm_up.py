"""What is compiled is compiled before it is needed: by an installation, or beside the first command that needs some."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from rmqctl import warm_up
from tests import processes


def test_every_module_of_kernels_is_known() -> None:
    modules = {
        ".".join(("rmqctl", *path.relative_to(processes.ROOT).with_suffix("").parts))
        for path in processes.ROOT.glob("store/**/kernel_*.py")
        if "def make_kernels(" in path.read_text(encoding="utf-8")
    }
    assert modules == set(warm_up._KERNELS)


@pytest.mark.thorough
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor compiles one after the other")
def test_a_first_command_has_the_rest_compiled_beside_it(tmp_path: Path) -> None:
    cache, lines = tmp_path / "cache", tmp_path / "in.jsonl"
    lines.write_text('{"topic":"T","body":"%s"}\n' % ("x" * 100) * 60_000, encoding="ascii")
    command: list[str | Path] = [sys.executable, "-m", "rmqctl", "append", "-s", tmp_path / "store", "--create"]
    command += ["--from", lines]
    ended = processes.run(command, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, check=True)
    assert ended.stderr.count("compiling the fast path") == 1
    wanted = {module.rpartition(".")[2] for module in warm_up._KERNELS}
    limit, kept = time.monotonic() + processes.LIMIT, set[str]()
    while kept != wanted and time.monotonic() < limit:
        time.sleep(0.2)
        kept = {path.name.partition(".")[0] for path in cache.rglob("*.nbc")}
    assert kept == wanted
