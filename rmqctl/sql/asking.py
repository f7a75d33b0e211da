"""Who answers statements: DuckDB in this process, or Spark; with progress, and Ctrl-C ends what is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from rmqctl.output.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rmqctl.store.read.selection import OnDamage

_BODIES = (
    "bodies that do not unpack are read as stored; `select count(*) from messages where body_error is not null` "
    "counts them"
)

Ask = Callable[[str], "pa.Table"]
"""Takes a statement and gives the rows of its answer; raises errors of the family."""


@contextlib.contextmanager
def asking_here(
    path: str, options: Mapping[str, str], attached: Mapping[str, str], on_damage: OnDamage
) -> Iterator[Ask]:
    """Asks the store at `path`, or several by a pattern, in this process. `options` of the data source; `attached`:
    further stores by name; errors as `embedded_sql`. `on_damage` is told bodies that a statement read as stored."""
    from rmqctl.pipeline.embedded.embedded_sql import embedded_sql

    with embedded_sql(path, options, attached=attached) as views:

        def ask(statement: str) -> pa.Table:
            with progress("querying", None, "bytes") as bar:
                table = views.answer(statement, bar.advance)
            for error in views.unread_bodies():
                on_damage(error)
            return table

        yield ask


def asking_spark(
    session: SparkSession,
    path: str,
    options: Mapping[str, str],
    attached: Mapping[str, str],
    tell: Callable[[str], None],
) -> Ask:
    """Asks them in a session of Spark. `tell` gets a note where a statement reads bodies: only the logs of its tasks
    know which do not unpack."""
    from rmqctl.pipeline.engine.spark_job import run_job
    from rmqctl.pipeline.sql.sql import StoreSql
    from rmqctl.store.uninterrupted import uninterrupted

    with uninterrupted():
        views = StoreSql(session, path, options, attached)

    def ask(statement: str) -> pa.Table:
        with progress("querying", None, "tasks") as bar:
            table = run_job(session, "rmqctl sql", lambda: views.answer(statement), bar.advance)
        if views.read_bodies:
            tell(f"note: {_BODIES}")
        return table

    return ask
