"""A Spark session for all tests of the pipeline: one JVM for the whole run of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session at local[2], as the command line has it. Do not stop it."""
    with spark_session("local[2]") as session:
        yield session
