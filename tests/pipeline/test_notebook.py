"""The notebook of the examples runs in Jupyter from its first cell to its last, on a store of a real broker."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.goldens import GoldenStore, tree_state, truth

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")


def _shown(cell: dict[str, Any], kind: str) -> str:
    """Return what Jupyter shows below a cell: text that was printed, or the HTML of its value."""
    outputs = cell["outputs"]
    if kind == "text":
        return "".join("".join(one["text"]) for one in outputs if one.get("name") == "stdout")
    return "".join("".join(one["data"].get("text/html", "")) for one in outputs if "data" in one)


@pytest.mark.jvm
@pytest.mark.turns("programs of Spark", 3)
def test_every_cell_runs(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("broker-real")
    before = tree_state(store)
    text = (processes.ROOT / "examples/notebook.ipynb").read_text(encoding="utf-8")
    assert text.count(r"STORE = \"/data/store\"") == 1
    notebook = tmp_path / "notebook.ipynb"
    notebook.write_text(text.replace("/data/store", str(store)), encoding="utf-8")
    own = {name: str(tmp_path / name) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    execute = "from nbclient.cli import NbClientApp; NbClientApp.launch_instance()"
    command = [sys.executable, "-c", execute, str(notebook), "--output=done", "--timeout=-1"]
    done = processes.run(command, env=os.environ | own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "done.ipynb").read_text(encoding="utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in codes] == list(range(1, len(codes) + 1))
    [opened, checked, predicted, *_] = (_shown(cell, "html") for cell in codes)
    assert str(store) in opened
    assert "<caption>CheckRun</caption>" in checked
    assert "<caption>Prediction</caption>" in predicted
    printed = "".join(_shown(cell, "text") for cell in codes)
    messages = sum(message["topic"] == "Events" for message in truth("broker-real").messages)
    # the batch and the stream have counted alike
    assert len(re.findall(rf"^\|\s*Events\s*\|\s*{messages}\s*\|", printed, re.MULTILINE)) == 2
    assert tree_state(store) == before
