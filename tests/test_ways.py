"""How much of the code a job passes through: what a reader opens to follow it, and how often control passes on."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from rmqctl.store.native import is_compiled
from tests.opened import store_path
from tests.processes import run

# as measured, and a tenth more of the crossings; of a pull one module more
_MOST = {
    "append -s STORE -t TopicTest --body x": (61, 2_950),
    "recover -s STORE --yes": (65, 10_900),
    "query -s STORE -t TopicTest -k nokey": (41, 600),
    "where -s STORE TopicTest 0 0": (59, 2_300),
    "pull STORE": (18, 200),
}


@pytest.mark.skipif(not is_compiled(), reason="as plain Python the inner loops are ways, too")
@pytest.mark.parametrize("job", _MOST)
def test_a_job_passes_through_few_modules(job: str, tmp_path: Path) -> None:
    store = shutil.copytree(store_path("crash" if job.startswith("recover") else "clean"), tmp_path / "store")
    arguments = [str(store) if word == "STORE" else word for word in job.split()]
    done = run([sys.executable, "-m", "tests.ways", *arguments])
    (line,) = (line for line in done.stderr.splitlines() if line.startswith('{"modules"'))
    found = json.loads(line)
    modules, crossings = _MOST[job]
    assert 10 < found["modules"] <= modules, found
    assert found["crossings"] <= crossings, found
