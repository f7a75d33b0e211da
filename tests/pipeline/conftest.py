"""A Spark session for all tests of the pipeline: one JVM for the whole run of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rmqctl.pipeline.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session at local[2], as the command line has it. Do not stop it."""
    # by its name the fixture gives its tests the mark; those that ask for it later have to have it
    assert not request.config.getoption("quick"), "mark what starts a JVM: @pytest.mark.jvm"
    with spark_session("local[2]") as session:
        yield session
