"""The program of docs/spark.md runs as it stands there: from a plain interpreter, with no variable set."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.pipeline.spark.session import find_java, java_home_for_spark
from tests import processes
from tests.goldens import truth
from tests.opened import store_path

DOCUMENT = (Path(__file__).parents[2] / "docs/spark.md").read_text(encoding="utf-8")


@pytest.mark.jvm
@pytest.mark.turns("programs of Spark", 3)
def test_a_plain_program_finds_its_python(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    (program,) = (one for one in blocks if "SparkSession.builder" in one)
    assert program.count('"/data/store"') == 1
    path = tmp_path / "job.py"
    path.write_text(program.replace("/data/store", str(store_path("clean"))), encoding="utf-8")
    # python3 of this PATH is another one, which has neither rmqctl nor anything else
    poor = tmp_path / "bin"
    poor.mkdir()
    (poor / "python3").write_text("#!/bin/sh\nexit 77\n", encoding="utf-8")
    (poor / "python3").chmod(0o755)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "VIRTUAL"))
    }
    environment |= {
        "PATH": f"{poor}{os.pathsep}{os.defpath}",
        "JAVA_HOME": str(java_home_for_spark(find_java(), tmp_path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    shown = processes.run([sys.executable, path], check=True, cwd=tmp_path, env=environment).stdout
    found = {topic: int(count) for topic, count in re.findall(r"^\|(\S+) *\|(\d+) *\|$", shown, re.MULTILINE)}
    assert found == Counter(str(row["topic"]) for row in truth("clean").messages)
