"""Which statements Spark is given: those that ask, and those that make or drop what only the session has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.pipeline.sql.errors import QueryError
from rmqctl.pipeline.sql.plans import expressions, kind_of, nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """QueryError where the statement calls methods of Java, under whatever name. Only understood, not carried out: even
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
