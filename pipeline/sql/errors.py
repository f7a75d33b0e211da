"""What went wrong with a query, as one error of the family: a sentence for people, no stack trace of the JVM."""

from __future__ import annotations

import re
from typing import Any

from rmqctl.formats import errors
from rmqctl.formats.errors import EngineError, RmqctlError, UsageError
from rmqctl.pipeline.splits import SplitEdgeError

_LONGEST = 600
_FAMILY: dict[str, type[RmqctlError]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (SplitEdgeError, *vars(errors).values())
    if isinstance(kind, type) and issubclass(kind, RmqctlError)
}
"""Name of an rmqctl error as a traceback prints it -> its class."""
# the last line of a traceback in a Python worker
_RAISED = re.compile(rf"^({'|'.join(map(re.escape, _FAMILY))}): (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_PLACE = re.compile(r"\(?line (\d+),? pos(?:ition)? (\d+)\)?")
_TOO_LARGE = re.compile(r"Total size of serialized results of .* is bigger than spark\.driver\.maxResultSize")


class QueryError(UsageError):
    """A query that cannot be answered as it is written."""


def query_error(error: BaseException) -> RmqctlError | None:
    """The rmqctl error that represents an exception of Spark; None for an exception that is not Spark's.

    QueryError for what is wrong with the query itself, what a task raised where it was one of the family, EngineError
    for the rest.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if isinstance(error, RmqctlError):
        return error
    if not isinstance(error, PySparkException | Py4JError):
        return None
    text = str(error)
    raised = _raised_by_a_task(text)
    if raised is not None:
        return raised
    if _TOO_LARGE.search(text):
        return EngineError(
            "the result is larger than the driver is allowed to take",
            hint="allow more with --conf spark.driver.maxResultSize=4g, or write messages with `rmqctl export`",
        )
    condition = _condition(error)
    if condition is not None and not _is_failure(condition, text):
        return QueryError(_sentence(text), hint=_hint(condition))
    return EngineError(
        f"Spark could not carry out the query: {_sentence(text)}", hint="RMQCTL_DEBUG=1 shows what it said"
    )


def _raised_by_a_task(text: str) -> RmqctlError | None:
    found = _RAISED.findall(text)
    if not found:
        return None
    name, message = found[-1]
    return _FAMILY[name](message)


def _condition(error: Any) -> str | None:
    """Spark's name for the kind of error; None where it has none, as for a lost executor."""
    try:
        condition = error.getCondition()
    except Exception:  # noqa: BLE001 - it asks the JVM, which may be what is gone
        return None
    return condition if isinstance(condition, str) and condition else None


def _is_failure(condition: str, text: str) -> bool:
    """Whether not the query is at fault but what carries it out."""
    return condition.startswith(("INTERNAL_ERROR", "PYTHON_DATA_SOURCE", "PYTHON_STREAMING")) or "Traceback (" in text


def _hint(condition: str) -> str | None:
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        from rmqctl.pipeline.views import TABLES

        return f"the views of a store are {', '.join(TABLES)}"
    return None


def _sentence(text: str) -> str:
    """The first sentences of what Spark says, on one line, with the place in the query."""
    place = _PLACE.search(text)
    first = text.strip().partition("\n== SQL")[0].partition("\n\tat ")[0]
    # what follows are plans and advice about Spark's settings
    first = re.split(r";\s*(?:line \d+ pos \d+;?)?\s*\n|\n\n|\nSearch path:|\nTo tolerate the error", first)[0]
    first = first.partition(' If necessary set "spark.sql.ansi.enabled"')[0]
    first = _PLACE.sub("", _STATE.sub("", _CONDITION.sub("", first))).rstrip(" ;.\n")
    sentence = " ".join(first.split())[:_LONGEST]
    return sentence + (f" (line {place[1]}, position {int(place[2]) + _first_column(text)})" if place else "")


def _first_column(text: str) -> int:
    """What to add to Spark's positions, so that the first character of a line is number one."""
    return 0 if "== SQL (line" in text else 1
