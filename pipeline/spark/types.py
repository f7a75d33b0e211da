"""The columns of a view as Spark's own schema. Needs no session: planners have none."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as spark

from rmqctl.pipeline.views import STORE_COLUMNS, TABLES

_TYPES: dict[str, spark.DataType] = {
    "string": spark.StringType(),
    "int": spark.IntegerType(),
    "bigint": spark.LongType(),
    "boolean": spark.BooleanType(),
    "timestamp": spark.TimestampType(),
    "binary": spark.BinaryType(),
    "array<string>": spark.ArrayType(spark.StringType()),
    "map<string,string>": spark.MapType(spark.StringType(), spark.StringType()),
}


def view_schema(view: str, names: Sequence[str] | None = None) -> spark.StructType:
    """Columns of a view and of its store, None: all of the view; each with its meaning as its comment."""
    columns = {**TABLES[view].columns, **STORE_COLUMNS}
    return spark.StructType(
        [
            spark.StructField(name, _TYPES[columns[name].kind], True, {"comment": columns[name].about})
            for name in (names if names is not None else TABLES[view].columns)
        ]
    )
