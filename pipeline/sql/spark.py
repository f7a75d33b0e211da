"""SQL over stores: a statement is understood, held against what is allowed, and planned to read no more than needed.

Spark does not tell a Python source which columns a query needs, and making all of them of every message takes seven
times as long as making two. So a statement is first planned over empty stand-ins of the views, which reads nothing and
finds its mistakes; the plan says which columns it needs. Then it is planned over the store itself, with those columns
read and the others, on which nothing can depend, null.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqctl.pipeline.spark.options import parse_options, view_schema
from rmqctl.pipeline.spark.planning import fitted, labelled
from rmqctl.pipeline.spark.readers import finding_rows, row_columns
from rmqctl.pipeline.splits import WHOLE_FILES, SplitEdgeError
from rmqctl.pipeline.sql.stores import MAIN, QueryError, absolute, options_by_schema, query_error
from rmqctl.pipeline.views import CHEAPEST, TABLES
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Spark's logical plans, seen from here: what is in one, and which relations of a plan are needed for what.

# commands that keep the query they are about apart from the plans in them
_ABOUT = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}


class Leaf(NamedTuple):
    """A relation of a plan, and the attributes that the nodes above use; None: all."""

    columns: list[Any]
    references: list[Any] | None

    def is_needed(self, attribute: Any) -> bool:
        """Whether anything looks at an attribute of the relation."""
        return self.references is None or any(reference.contains(attribute) for reference in self.references)


def leaves(plan: Any, above: list[Any] | None = None) -> Iterator[Leaf]:
    """The relations of an optimized plan, those of subqueries too. `above`: attributes that a projection, and filters
    below it, look at; None where everything of this plan may be looked at."""
    for subquery in each(plan.subqueries()):
        yield from leaves(subquery, None)
    kind = str(plan.nodeName())
    children = list(each(plan.children()))
    # a relation that the optimizer knows the rows of is not read
    if not children and kind != "LocalRelation":
        yield Leaf(list(each(plan.output())), above)
    for child in children:
        if kind in ("Project", "Aggregate"):
            yield from leaves(child, [plan.references()])
        elif kind == "Filter" and above is not None:
            yield from leaves(child, [*above, plan.references()])
        else:
            yield from leaves(child, None)


def nodes(plan: Any, parent: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield a plan and all plans in it, each with its parent."""
    yield plan, parent
    if kind_of(plan) in _ABOUT:
        yield from nodes(getattr(plan, _ABOUT[kind_of(plan)])(), plan)
    for child in (*each(plan.children()), *each(plan.innerChildren())):
        # some keep what is no plan in here
        if hasattr(child, "children"):
            yield from nodes(child, plan)


def expressions(plan: Any) -> Iterator[Any]:
    """All expressions in a plan, those of subqueries too."""
    for node, _ in nodes(plan):
        if hasattr(node, "expressions"):
            for expression in each(node.expressions()):
                yield from _within(expression)


def _within(expression: Any) -> Iterator[Any]:
    yield expression
    for child in each(expression.children()):
        yield from _within(child)


def kind_of(node: Any) -> str:
    """The name of a plan's or an expression's class."""
    return str(node.getClass().getSimpleName())


def each(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (sequence.apply(number) for number in range(sequence.size()))


# Names of views in a statement for Spark.
#
# A temporary view of Spark's has no schema. So `b.messages`, of the store that is attached as b, is a view whose name
# has a dot in it, and a statement that names it is given to Spark with that name.

_NAMES = ("UnresolvedRelation", "UnresolvedTableOrView", "UnresolvedView", "UnresolvedTable")
# where no alias may follow
_TABLE = re.compile(r"\btable\s+$", re.IGNORECASE)
_CLAUSE = re.compile(r"\s+(?:tablesample|version|timestamp|system_time|for|with|watermark)\b", re.IGNORECASE)


def session_view(schema: str, view: str) -> str:
    """What a view of a store is called in the session of Spark."""
    return view if schema == MAIN else f"{schema}.{view}"


def with_session_views(statement: str, plan: Any, schemas: Collection[str]) -> str:
    """A statement, parsed as `plan`, with the names of the session for views that it names with a schema."""
    found: dict[int, tuple[int, str]] = {}
    for node, parent in nodes(plan):
        if kind_of(node) not in _NAMES:
            continue
        parts = [str(part).lower() for part in each(node.multipartIdentifier())]
        begin, end = node.origin().startIndex(), node.origin().stopIndex()
        if len(parts) != 2 or parts[0] not in schemas or parts[1] not in TABLES or not begin.isDefined():
            continue
        name = f"`{session_view(*parts)}`"
        is_named = parent is not None and kind_of(parent) == "SubqueryAlias"
        before, behind = statement[: begin.get()], statement[end.get() + 1 :]
        if kind_of(node) == _NAMES[0] and not is_named and not _TABLE.search(before) and not _CLAUSE.match(behind):
            name += f" as {parts[1]}"
        found[begin.get()] = (end.get() + 1, name)
    for begin in sorted(found, reverse=True):
        statement = f"{statement[:begin]}{found[begin][1]}{statement[found[begin][0] :]}"
    return statement


# The view `findings` by tasks: a source in Python plans apart from Spark, where no tasks can be started; a statement
# can.

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

    from rmqctl.pipeline.engine import SparkEngine
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


# Which statements Spark is given: those that ask, and those that make or drop what only the session has.

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_CHANGES = (_PLANS + "Command", _PLANS + "ParsedStatement")
# these change something too, or run a statement that nobody has looked at, without being either
_FURTHER_CHANGES = ("InsertIntoDir", "UnresolvedExecuteImmediate", "Call")
_HARMLESS = frozenset(
    "ExplainCommand ShowTables ShowViews ShowColumns ShowFunctions DescribeRelation DescribeColumn DescribeFunction "
    "DescribeQueryCommand SetCommand ResetCommand CreateViewCommand DropView CreateVariable SetVariable "
    "DropVariable".split()
)
# java_method and reflect, try_reflect
_METHOD_CALLS = frozenset(("CallMethodViaReflection", "TryReflect"))


def harmless_kind(session: SparkSession, plan: Any) -> str | None:
    """The command that a parsed statement is, None for a query. QueryError if it may not be run: nothing was yet."""
    root = kind_of(plan)
    for node, _ in nodes(plan):
        if kind_of(node) == "ScriptTransformation":
            raise _runs_code("TRANSFORM … USING", "a program")
        if root not in _HARMLESS and _changes(session, node):
            raise QueryError(
                "only queries are answered here: this statement would change something",
                hint="SELECT, EXPLAIN, DESCRIBE, SHOW, SET and CREATE TEMPORARY VIEW are understood",
            )
    _require_no_calls(session, plan)
    return root if root in _HARMLESS else None


def _changes(session: SparkSession, node: Any) -> bool:
    from py4j.java_gateway import is_instance_of

    gateway = session.sparkContext._gateway
    return kind_of(node) in _FURTHER_CHANGES or any(is_instance_of(gateway, node, kind) for kind in _CHANGES)


def _require_no_calls(session: SparkSession, plan: Any) -> None:
    """QueryError if the statement calls methods of Java, under any name. Only understood, not carried out: even
    planning a query computes what it can."""
    jvm: Any = session.sparkContext._jvm
    mode = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    analyzed = session._jsparkSession.sessionState().executePlan(plan, mode).analyzed()
    for expression in expressions(analyzed):
        if kind_of(expression) in _METHOD_CALLS:
            raise _runs_code(str(expression.prettyName()), "methods of Java")


def _runs_code(what: str, code: str) -> QueryError:
    return QueryError(
        f"only queries are answered here: {what} would run {code}",
        hint="functions of SQL are understood; `show functions` lists them",
    )


_Made = TypeVar("_Made")

_EXPLAIN = re.compile(r"\s*explain\s+(?:(?:extended|codegen|cost|formatted)\s+)?(?=\S)", re.IGNORECASE)
# rows that the driver can hold twice, and that are no reason to read with many tasks at a time
_FEW = 10_000
# in the metadata of columns: which view they are of
_VIEW = "rmqctl.view"


class _View(NamedTuple):
    """A view of a store: which one, and the options of the data source for it."""

    table: str
    options: dict[str, str]
    columns: tuple[str, ...]


def query(
    session: SparkSession,
    path: str | Sequence[str],
    question: Callable[[DataFrame], DataFrame],
    *,
    view: str = "messages",
    **options: str,
) -> DataFrame:
    """What `question` makes of a view of a store, of several or of those of a pattern, reading only the columns that
    it needs: it is asked about an empty frame first, whose plan says which.

    `options`: of the data source; with `push_filters="true"` its conditions leave out parts of the log, if the view is
    used in one place only: then the answer may be used for one query only. Errors as of `spark.read`.
    """
    given = {**options, "path": absolute(path)}
    parsed = parse_options({**given, "view": view})
    one = _View(view, given, parsed.all_columns)
    plan = question(_stand_in(session, view, one))._jdf.queryExecution().optimizedPlan()
    needed, places = _needs(plan).get(view, set()), _places(plan)[view]
    return question(_real(session, view, one, needed, pushing=parsed.push_filters and places == 1))


class StoreSql:
    """The views of stores in a session. Views of the same names that the session has are replaced."""

    def __init__(
        self,
        session: SparkSession,
        path: str | Sequence[str],
        options: Mapping[str, str] | None = None,
        attached: Mapping[str, str] | None = None,
    ) -> None:
        """`path`: a store, several, or a pattern; `options`: of the data source, `config` and
        `split_size` for example. `attached`: further stores by name; `messages` of one named b is `b.messages`."""
        # a logger of pyspark that prints every error of a query once more, as JSON
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._session = session
        self.read_bodies = False
        """Whether the last statement read the column `body` and not `body_error`."""
        self._views: dict[str, _View] = {}
        for schema, given in options_by_schema(path, options or {}, attached or {}).items():
            for table in TABLES:
                columns = parse_options({**given, "view": table}).all_columns
                self._views[session_view(schema, table)] = _View(table, given, columns)
        self._schemas = {MAIN, *(attached or {})}
        self._stand_ins = {name: _stand_in(session, name, view) for name, view in self._views.items()}
        self._show_stand_ins(self._views)

    def query(self, statement: str) -> DataFrame:
        """The answer to a statement, not computed yet. QueryError, with one sentence, for one that cannot be answered;
        other errors of the family. Only statements that change nothing are allowed.

        What is asked of the DataFrame further on reads all that the statement does: `answer` leaves out more.
        """
        return self._said(lambda: self._query(statement, is_alone=False))

    def _said(self, work: Callable[[], _Made]) -> _Made:
        try:
            return work()
        except Exception as error:
            said = query_error(error)
            if said is None or said is error:
                raise
            raise said from error

    def _query(self, statement: str, *, is_alone: bool) -> DataFrame:
        """`is_alone`: whether nothing else will be asked of the DataFrame."""
        parse = self._session._jsparkSession.sessionState().sqlParser().parsePlan
        statement = with_session_views(statement, parse(statement), self._schemas)
        self.read_bodies = False
        kind = harmless_kind(self._session, parse(statement))
        explained = _EXPLAIN.match(statement) if kind == "ExplainCommand" else None
        asked = statement[explained.end() :] if explained is not None else statement
        if explained is not None:
            # to know what it needs, what is explained is given to Spark, too
            kind = harmless_kind(self._session, parse(asked))
        if kind is not None:
            return self._session.sql(statement)
        plan = self._optimized(asked)
        needs = _needs(plan)
        self.read_bodies = any("body" in columns and "body_error" not in columns for columns in needs.values())
        # Spark plans all places of one relation by the filters of the last: only one that stands alone is given any
        alone = {name for name, places in _places(plan).items() if places == 1 and is_alone}
        made = self._findings(needs) if is_alone and explained is None else {}
        frame = self._planned(statement, needs, alone, made)
        places = _places(frame._jdf.queryExecution().optimizedPlan())
        if any(places[name] > 1 for name in alone):
            frame = self._planned(statement, needs, set(), made)
        return frame

    def _findings(self, names: Iterable[str]) -> dict[str, DataFrame]:
        """Those of the views that are checked for by tasks, and are so now."""
        views = {name: self._views[name] for name in names}
        return {
            name: findings_by_tasks(self._session, view.options) for name, view in views.items() if view.table == VIEW
        }

    def _planned(
        self, statement: str, needs: Mapping[str, set[str]], pushing: Set[str], made: Mapping[str, DataFrame]
    ) -> DataFrame:
        """The answer to a statement over the stores themselves. `pushing`: views that get the filters on them; `made`:
        views that exist already."""
        try:
            for name, columns in needs.items():
                frame = made.get(name)
                if frame is None:
                    frame = _real(self._session, name, self._views[name], columns, pushing=name in pushing)
                frame.createOrReplaceTempView(f"`{name}`")
            return self._session.sql(statement)
        finally:
            self._show_stand_ins(needs)

    def _optimized(self, query: str) -> Any:
        """The plan of a query over the stand-ins."""
        return self._session.sql(query)._jdf.queryExecution().optimizedPlan()

    def _show_stand_ins(self, names: Iterable[str]) -> None:
        for name in names:
            self._stand_ins[name].createOrReplaceTempView(f"`{name}`")

    def answer(self, statement: str) -> pa.Table:
        """The rows of the answer to a statement, in its order; errors as in `query`."""

        def computed() -> pa.Table:
            return self.collected(self._said(lambda: self._query(statement, is_alone=True)))

        try:
            return computed()
        except SplitEdgeError:
            # a message too large to look behind: whole files need no look
            for view in self._views.values():
                view.options["split_size"] = str(WHOLE_FILES)
            return computed()

    def collected(self, frame: DataFrame) -> pa.Table:
        """The rows of an answer, in its order; errors as in `query`."""
        return self._said(lambda: _brief(self._session, frame).toArrow())


def _brief(session: SparkSession, frame: DataFrame) -> DataFrame:
    """An answer that wants any few rows, taken task by task until there are enough; any other one as it is.

    As a table Spark would have them from all tasks (CollectLimitExec#doExecute), and so read some of every split.
    """
    from pyspark.sql import DataFrame

    plan = frame._jdf.queryExecution().executedPlan()
    if plan.nodeName() != "CollectLimit" or not 0 < plan.limit() <= _FEW:
        return frame
    jvm: Any = session._jvm
    # as Spark holds rows: what leaves it, and comes back, has maps in another order
    rows = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(plan.executeCollect())
    relation = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(
        plan.output(), rows, False, jvm.scala.Option.empty()
    )
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, relation), session)


def _needs(plan: Any) -> dict[str, set[str]]:
    """The views that an optimized plan reads, and the columns of each that its result depends on."""
    needs: dict[str, set[str]] = {}
    for leaf in leaves(plan):
        name = _view_of(leaf)
        if name is not None:
            needed = needs.setdefault(name, set())
            needed |= {str(attribute.name()) for attribute in leaf.columns if leaf.is_needed(attribute)}
    return needs


def _places(plan: Any) -> Counter[str]:
    """In how many places an optimized plan reads each view."""
    return Counter(name for name in map(_view_of, leaves(plan)) if name is not None)


def _view_of(leaf: Leaf) -> str | None:
    """Return the name of the view that a relation is, or replaces; None for other relations."""
    metadata = leaf.columns[0].metadata() if leaf.columns else None
    return str(metadata.getString(_VIEW)) if metadata is not None and metadata.contains(_VIEW) else None


def _marked(name: str, table: str, columns: Sequence[str]) -> StructType:
    """Columns of a view that say in a plan whose they are."""
    schema = view_schema(table, columns)
    for field in schema.fields:
        field.metadata = {**(field.metadata or {}), _VIEW: name}
    return schema


def _real(session: SparkSession, name: str, view: _View, needed: set[str], *, pushing: bool) -> DataFrame:
    """The view over the store, with nulls in the columns that are not needed."""
    from pyspark.sql import functions as spark

    names = [column for column in view.columns if column in needed] or [CHEAPEST[view.table]]
    reader = session.read.format("rocketmq").schema(_marked(name, view.table, names))
    frame = reader.options(**{**view.options, "view": view.table, "push_filters": str(pushing)}).load()
    return frame.select(
        [
            frame[field.name] if field.name in names else spark.lit(None).cast(field.dataType).alias(field.name)
            for field in view_schema(view.table, view.columns).fields
        ]
    )


def _stand_in(session: SparkSession, name: str, view: _View) -> DataFrame:
    """The view without rows. Of an RDD: the optimizer would compute with a relation that it knows to be empty."""
    from pyspark.sql import DataFrame

    context: Any = session.sparkContext
    kind: Any = context._jvm.org.apache.spark.sql.types.DataType
    schema = kind.fromJson(_marked(name, view.table, view.columns).json())
    return DataFrame(session._jsparkSession.createDataFrame(context._jsc.emptyRDD(), schema), session)
