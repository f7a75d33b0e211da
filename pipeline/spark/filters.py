"""Filters that Spark hands over, as comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import datasource as spark

from rmqctl.pipeline.wanted import Comparison


def comparisons(filters: Iterable[spark.Filter]) -> Iterator[Comparison]:
    """Those of the filters that compare a column with constants; all of them have to hold."""
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) != 1:
            continue
        if isinstance(one, spark.In):
            yield Comparison(column[0], "in", tuple(one.value))
        elif isinstance(one, spark.EqualTo | spark.EqualNullSafe):
            yield Comparison(column[0], "=", (one.value,))
        elif isinstance(one, spark.GreaterThan | spark.GreaterThanOrEqual):
            yield Comparison(column[0], ">", (one.value,))
        elif isinstance(one, spark.LessThan | spark.LessThanOrEqual):
            yield Comparison(column[0], "<", (one.value,))
