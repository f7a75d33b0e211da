"""A Spark program on YARN with a packed environment, as docs/spark.md says: its driver here, and in the cluster."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from rmqctl.pipeline.spark.session import find_java, java_home_for_spark
from tests.anyday.at_a_date import shifted_by
from tests.goldens import truth
from tests.interop.store_servers import yarn
from tests.opened import store_path
from tests.processes import ROOT, run

pytestmark = [pytest.mark.interop, pytest.mark.jvm]

_SECONDS = 400.0
_SPARK = Path(pyspark.__file__).parent
_JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.read.format("rocketmq").load(sys.argv[1])
with open(sys.argv[2], "w") as out:
    print(sys.executable, file=out)
    for topic, count in frame.groupBy("topic").count().collect():
        print(count, topic, file=out)
spark.stop()
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a packed environment, env.tar.gz, and the same unpacked, as a driver here needs it. Pure Python:
    what is compiled is looked at elsewhere."""
    folder = tmp_path_factory.mktemp("packed")

    def done(*command: str | Path) -> None:
        run(command, seconds=_SECONDS, check=True)

    wheel = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    done("env", "RMQCTL_BUILD=plain", *wheel)
    done(sys.executable, "-m", "venv", folder / "venv")
    (made,) = folder.glob("*.whl")
    install = (folder / "venv/bin/python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
    done(*install, f"{made}[fast]", "venv-pack==0.2.0")
    done(folder / "venv/bin/venv-pack", "-q", "-p", folder / "venv", "-o", folder / "env.tar.gz")
    (folder / "env").mkdir()
    done("tar", "-xf", folder / "env.tar.gz", "-C", folder / "env")
    (folder / "job.py").write_text(_JOB, encoding="utf-8")
    return folder


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.skipif(shifted_by() != 0, reason="containers of YARN start without the variables that set a clock")
def test_a_program_on_yarn(packed: Path, tmp_path: Path, mode: str) -> None:
    java_home = java_home_for_spark(find_java(), tmp_path)
    with yarn(tmp_path / "hadoop", java_home) as configuration:
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        environment |= {
            "HADOOP_CONF_DIR": str(configuration), "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(_SPARK), "PYSPARK_PYTHON": "./env/bin/python",
        }  # fmt: skip
        if mode == "client":
            environment["PYSPARK_DRIVER_PYTHON"] = str(packed / "env/bin/python")
        settings = {
            # not half a gigabyte copied into the cluster for each program
            "spark.yarn.jars": f"local:{_SPARK}/jars/*",
            "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
            "spark.yarn.am.memory": "256m",
            "spark.ui.enabled": "false",
        }
        command: list[str | Path] = [_SPARK / "bin/spark-submit", "--master", "yarn", "--deploy-mode", mode]
        command += ["--archives", "env.tar.gz#env", "--num-executors", "1"]
        command += ["--driver-memory", "512m", "--executor-memory", "512m"]
        command += [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
        found = tmp_path / "found"
        done = run([*command, "job.py", store_path("clean"), found], cwd=packed, env=environment, seconds=_SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
    python, *rows = found.read_text().splitlines()
    inside = tmp_path / "hadoop" if mode == "cluster" else packed
    assert Path(python).is_relative_to(inside)
    counts = {topic: int(count) for count, _, topic in (row.partition(" ") for row in rows)}
    assert counts == Counter(str(row["topic"]) for row in truth("clean").messages)
