"""What DuckDB says about a query, as one error of the family: a sentence for people, and the place in the query."""

from __future__ import annotations

import re

from rmqctl.formats.errors import EngineError, RmqctlError
from rmqctl.pipeline.source.tables import TABLES
from rmqctl.pipeline.sql.errors import QueryError

_LONGEST = 600
_KIND = re.compile(r"^([A-Z][\w ]*?) Error: ")
# the line with the mistake, and a mark below it
_PLACE = re.compile(r"^(LINE (\d+): )(.*)\n( *)\^", re.MULTILINE)
_MEMORY = "Out of Memory"
_OTHERS_FAULT = ("IO", "INTERNAL", "FATAL", "HTTP", "Serialization")
_ADVICE = re.compile(r"\. Use TRY\(|\. You might need to|, or SET |\n+Possible solutions|\nSTACK|\n+Stack Trace")
_DIALECT = "SQL is DuckDB's here, and Spark's with --master: docs/sql.md has what differs"


def said_of(error: Exception) -> RmqctlError:
    """The error that an exception of DuckDB stands for: QueryError for a mistake in the query, else EngineError."""
    text = str(error)
    match = _KIND.match(text)
    kind = match[1] if match is not None else ""
    if kind == _MEMORY:
        return EngineError(
            "the query needs more memory than it may take",
            hint="let it look at less, or give it to Spark: --master 'local[*]'",
        )
    sentence = _sentence(text[match.end() :] if match is not None else text)
    if not kind or kind in _OTHERS_FAULT:
        return EngineError(
            f"DuckDB could not carry out the query: {sentence}", hint="RMQCTL_DEBUG=1 shows what it said"
        )
    return QueryError(sentence, hint=_hint(kind, sentence))


def _hint(kind: str, sentence: str) -> str | None:
    if sentence.startswith("Table with name"):
        return f"the views of a store are {', '.join(TABLES)}"
    if kind == "Parser" or "Function with name" in sentence:
        return _DIALECT
    return None


def _sentence(text: str) -> str:
    """What it says, on one line, with the place in the query where that is known."""
    place = _PLACE.search(text)
    said = _ADVICE.split(text[: place.start()] if place is not None else text)[0]
    sentence = " ".join(said.split()).rstrip(" .!")[:_LONGEST]
    # the beginning of a long line is left out there
    if place is None or place[3].startswith("..."):
        return sentence
    return f"{sentence} (line {place[2]}, position {len(place[4]) - len(place[1]) + 1})"
