"""Work that somebody waits for: cancelled whenever it may be, with nothing left that still talks to the JVM."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from rmqctl.formats.errors import EngineError
from rmqctl.pipeline.spark_engine import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def enough() -> None:
    raise EngineError("enough")


def test_a_job_that_is_only_about_to_start_is_cancelled_too(spark: SparkSession) -> None:
    context = spark.sparkContext

    def work() -> object:
        time.sleep(1)
        return context.parallelize([600]).map(time.sleep).collect()

    begun = time.monotonic()
    with pytest.raises(EngineError, match="enough"):
        run_job(spark, "late", work, look=enough)
    # of the ten minutes that the job would take
    assert time.monotonic() - begun < 200
    assert context.statusTracker().getActiveJobsIds() == []
    # other work goes on
    assert run_job(spark, "more", lambda: context.parallelize(range(5)).count()) == 5


def test_no_look_is_under_way_when_the_work_is_done(spark: SparkSession) -> None:
    """Whoever stops the session then would make it fail, in a thread that nobody listens to."""
    looking = threading.Event()
    looked: list[bool] = []

    def look() -> None:
        looking.set()
        time.sleep(1)
        looked.append(spark.sparkContext.version == spark.version)

    before = threading.active_count()
    run_job(spark, "short", lambda: looking.wait(120), look=look)
    assert looked == [True]
    deadline = time.monotonic() + 120
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before
