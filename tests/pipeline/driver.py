"""A driver in a process of its own, for tests of a cluster: a process can have one Spark at a time.

`python -m tests.pipeline.driver JOB STORE TARGET MASTER SPLIT_SIZE [NAME=VALUE]…`: JOB is rebuild or export; without
Spark MASTER is "processes".
"""

from __future__ import annotations

import sys
from pathlib import Path

from rmqctl.pipeline.engine import Engine, LocalEngine, SparkEngine
from rmqctl.pipeline.jobs.export import export_with
from rmqctl.pipeline.jobs.rebuild import rebuild_with
from rmqctl.pipeline.spark.session import parse_conf, spark_session
from rmqctl.store.export.export import Target
from rmqctl.store.store_files import StoreFiles

ROOT = Path(__file__).parents[2]


def run(job: str, store: Path, target: Path, engine: Engine, split_size: int) -> None:
    """Do the job."""
    with StoreFiles(store) as files:
        if job == "rebuild":
            rebuild_with(engine, files, split_size=split_size)
        else:
            export_with(engine, files, Target(target, "parquet", partition=True), split_size=split_size)


def main(job: str, store: str, target: str, master: str, split_size: str, *settings: str) -> None:
    """Do what the command line says."""
    if master == "processes":
        run(job, Path(store), Path(target), LocalEngine(2, alone_for=0), int(split_size))
        return
    conf = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.executorEnv.PYTHONPATH": str(ROOT)}
    with spark_session(master, {**conf, **parse_conf(settings)}) as session:
        run(job, Path(store), Path(target), SparkEngine(session), int(split_size))


if __name__ == "__main__":
    main(*sys.argv[1:])
