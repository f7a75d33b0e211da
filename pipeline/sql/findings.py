"""The view `findings` by tasks: a source in Python plans apart from Spark, where no tasks can be started; a statement
can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.pipeline.source.fitting import fitted, labelled
from rmqctl.pipeline.source.options import parse_options
from rmqctl.pipeline.source.readers import finding_rows, row_columns
from rmqctl.pipeline.source.spark_types import view_schema
from rmqctl.pipeline.source.tables import TABLES
from rmqctl.pipeline.stores.attaching import absolute
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "findings"


def findings(session: SparkSession, path: str | Sequence[str], **options: str) -> DataFrame:
    """What `rmqctl check` finds in a store, in several or in those of a pattern: the view `findings`, computed at once
    on the executors of a session.

    `options`: of the data source, such as `config` and `storage_options`. Errors as those of `check_with`.
    """
    return findings_by_tasks(session, {**options, "path": absolute(path)})


def findings_by_tasks(session: SparkSession, given: Mapping[str, str]) -> DataFrame:
    """The view, all of its columns, computed at once by a check on the session's executors, store by store.

    `given`: options of the data source. Errors as those of `check_with`.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from rmqctl.pipeline.engine.engine import SparkEngine
    from rmqctl.pipeline.jobs.check import check_with

    options = parse_options({**given, "view": VIEW})
    schema = view_schema(VIEW, options.all_columns)
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    batches = []
    for one in options.stores():
        with StoreFiles(Path(one.path), one.store_config()) as files:
            found = check_with(SparkEngine(session), files)
            for columns in row_columns(VIEW, finding_rows(found), list(TABLES[VIEW].columns)):
                batches.append(fitted(labelled(columns, one.labels, len(columns["code"])), arrow_schema))
    return session.createDataFrame(pa.Table.from_batches(batches, arrow_schema), schema)
