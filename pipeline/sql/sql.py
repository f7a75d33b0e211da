"""SQL over one store: a statement is understood, held against what is allowed, and planned to read no more than needed.

Spark does not tell a Python source which columns a query needs, and making all of them of every message takes seven
times as long as making two. So a statement is first planned over empty stand-ins of the views, which reads nothing and
finds its mistakes; the plan says which columns it needs. Then it is planned over the store itself, with those columns
read and the others, on which nothing can depend, null.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.pipeline.source.spark_types import view_schema
from rmqctl.pipeline.source.tables import TABLES
from rmqctl.pipeline.splits.splits import WHOLE_FILES, SplitEdgeError
from rmqctl.pipeline.sql.errors import QueryError, query_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_CHANGES = (_PLANS + "Command", _PLANS + "ParsedStatement")
# these change something too, or run a statement that nobody has looked at, without being either
_FURTHER_CHANGES = ("InsertIntoDir", "UnresolvedExecuteImmediate", "Call")
_HARMLESS = frozenset(
    "ExplainCommand ShowTables ShowViews ShowColumns ShowFunctions DescribeRelation DescribeColumn DescribeFunction "
    "DescribeQueryCommand SetCommand ResetCommand CreateViewCommand DropView CreateVariable SetVariable "
    "DropVariable".split()
)
_EXPLAIN = re.compile(r"\s*explain\s+(?:(?:extended|codegen|cost|formatted)\s+)?(?=\S)", re.IGNORECASE)

# the column of each view that costs least, for queries that only count
_CHEAPEST = {"messages": "physical_offset"}


class StoreSql:
    """The views of a store in a session. Views of the same names that the session has are replaced."""

    def __init__(self, session: SparkSession, path: str, options: Mapping[str, str] | None = None) -> None:
        """`options`: of the data source, `config` and `split_size` for example."""
        # a logger of pyspark that prints every error of a query once more, as JSON
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._session = session
        self._path = path
        self._options = dict(options or {})
        self._stand_ins = {view: _stand_in(session, view) for view in TABLES}
        self._names = {tuple(TABLES[view].columns): view for view in TABLES}
        self._show_stand_ins(TABLES)

    def query(self, statement: str) -> DataFrame:
        """The answer to a statement, not computed yet. QueryError, with one sentence, for one that cannot be answered;
        other errors of the family. Only statements that change nothing are allowed."""
        try:
            return self._query(statement)
        except Exception as error:
            said = query_error(error)
            if said is None or said is error:
                raise
            raise said from error

    def _query(self, statement: str) -> DataFrame:
        kind = self._kind_of(statement)
        explained = _EXPLAIN.match(statement) if kind == "ExplainCommand" else None
        if kind is not None and explained is None:
            return self._session.sql(statement)
        needs = self._needs(statement[explained.end() :] if explained is not None else statement)
        try:
            for view, names in needs.items():
                self._real(view, names).createOrReplaceTempView(view)
            return self._session.sql(statement)
        finally:
            self._show_stand_ins(needs)

    def _kind_of(self, statement: str) -> str | None:
        """The command that a statement is, None for a query. QueryError if it may not be run."""
        plan = self._session._jsparkSession.sessionState().sqlParser().parsePlan(statement)
        root = str(plan.getClass().getSimpleName())
        if root in _HARMLESS:
            return root
        for node in _nodes(plan):
            if self._changes(node):
                raise QueryError(
                    "only queries are answered here: this statement would change something",
                    hint="SELECT, EXPLAIN, DESCRIBE, SHOW, SET and CREATE TEMPORARY VIEW are understood",
                )
        return None

    def _changes(self, node: Any) -> bool:
        from py4j.java_gateway import is_instance_of

        gateway = self._session.sparkContext._gateway
        return str(node.getClass().getSimpleName()) in _FURTHER_CHANGES or any(
            is_instance_of(gateway, node, kind) for kind in _CHANGES
        )

    def _needs(self, query: str) -> dict[str, set[str]]:
        """The views that a query reads, and the columns of each that its result depends on."""
        plan = self._session.sql(query)._jdf.queryExecution().optimizedPlan()
        needs: dict[str, set[str]] = {}
        for leaf in _leaves(plan, None):
            view = self._names.get(tuple(str(attribute.name()) for attribute in leaf.columns))
            if view is not None:
                needed = needs.setdefault(view, set())
                needed |= {str(attribute.name()) for attribute in leaf.columns if leaf.is_needed(attribute)}
        return needs

    def _real(self, view: str, needed: set[str]) -> DataFrame:
        """The view over the store, with nulls in the columns that are not needed."""
        from pyspark.sql import functions as spark

        schema = view_schema(view)
        names = [name for name in schema.names if name in needed] or [_CHEAPEST.get(view, schema.names[0])]
        reader = self._session.read.format("rocketmq").schema(view_schema(view, names))
        frame = reader.options(**self._options, view=view).load(self._path)
        return frame.select(
            [
                frame[field.name] if field.name in names else spark.lit(None).cast(field.dataType).alias(field.name)
                for field in schema.fields
            ]
        )

    def _show_stand_ins(self, views: Iterable[str]) -> None:
        for view in views:
            self._stand_ins[view].createOrReplaceTempView(view)

    def answer(self, statement: str) -> pa.Table:
        """The rows of the answer to a statement, in its order; errors as in `query`."""
        try:
            return self.collected(self.query(statement))
        except SplitEdgeError:
            # a message too large to look behind: whole files need no look
            self._options["split_size"] = str(WHOLE_FILES)
            return self.collected(self.query(statement))

    def collected(self, frame: DataFrame) -> pa.Table:
        """The rows of an answer, in its order; errors as in `query`."""
        try:
            return frame.toArrow()
        except Exception as error:
            said = query_error(error)
            if said is None or said is error:
                raise
            raise said from error


def _stand_in(session: SparkSession, view: str) -> DataFrame:
    """The view without rows. Of an RDD: the optimizer would compute with a relation that it knows to be empty."""
    from pyspark.sql import DataFrame

    context: Any = session.sparkContext
    kind: Any = context._jvm.org.apache.spark.sql.types.DataType
    frame = session._jsparkSession.createDataFrame(context._jsc.emptyRDD(), kind.fromJson(view_schema(view).json()))
    return DataFrame(frame, session)


class _Leaf(NamedTuple):
    """A relation of a plan, and the attributes that what stands above it looks at; None: at all."""

    columns: list[Any]
    references: list[Any] | None

    def is_needed(self, attribute: Any) -> bool:
        return self.references is None or any(reference.contains(attribute) for reference in self.references)


def _leaves(plan: Any, above: list[Any] | None) -> Iterator[_Leaf]:
    """The relations of an optimized plan, those of subqueries too. `above`: attributes that a projection, and filters
    below it, look at; None where everything of this plan may be looked at."""
    for subquery in _each(plan.subqueries()):
        yield from _leaves(subquery, None)
    kind = str(plan.nodeName())
    children = list(_each(plan.children()))
    if not children:
        yield _Leaf(list(_each(plan.output())), above)
    for child in children:
        if kind in ("Project", "Aggregate"):
            yield from _leaves(child, [plan.references()])
        elif kind == "Filter" and above is not None:
            yield from _leaves(child, [*above, plan.references()])
        else:
            yield from _leaves(child, None)


def _nodes(plan: Any) -> Iterator[Any]:
    """A plan and all plans in it."""
    yield plan
    for child in (*_each(plan.children()), *_each(plan.innerChildren())):
        # some keep what is no plan in here
        if hasattr(child, "children"):
            yield from _nodes(child)


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (sequence.apply(number) for number in range(sequence.size()))
