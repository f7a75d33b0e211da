"""The notebook of the docs runs from its first cell to its last, on a store of a real broker."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.goldens import GoldenStore, tree_state, truth


@pytest.mark.jvm
def test_every_cell_runs(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("broker-real")
    before = tree_state(store)
    cells = json.loads((processes.ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert code.count('STORE = "/data/store"') == 1
    program = tmp_path / "cells.py"
    program.write_text(code.replace("/data/store", str(store)), encoding="utf-8")
    shown = processes.run([sys.executable, program], check=True, cwd=tmp_path).stdout
    messages = sum(message["topic"] == "Events" for message in truth("broker-real").messages)
    # the batch and the stream have counted alike
    assert len(re.findall(rf"^\|\s*Events\s*\|\s*{messages}\s*\|", shown, re.MULTILINE)) == 2
    assert tree_state(store) == before
