"""What the extras sql, report and fast promise holds without the extra spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.goldens import GoldenStore
from tests.processes import run

WITHOUT = "import sys; sys.modules['pyspark'] = None; from rmqctl.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    "words",
    [
        "sql -s STORE select(count(*))from(messages)",
        "sql -s STORE select(count(*))from(topics)",
        "stats -s STORE",
        "stats -s STORE --by hour",
        "diff STORE STORE",
        "export -s STORE NEW/all.parquet",
        "report STORE -o NEW/report.html",
    ],
)
def test_verbs_that_need_duckdb_need_no_spark(words: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    command = words.replace("STORE", str(golden_store("clean"))).replace("NEW", str(tmp_path))
    ended = run([sys.executable, "-c", WITHOUT, *command.split()])
    assert (ended.returncode, "spark" in ended.stderr) == (0, False), ended.stderr
