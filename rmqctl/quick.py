"""The short way: a plain `rmqctl query` by id or physical offset is understood without click.

Importing click takes longer than the whole lookup. Only the flags below are known here, each given once and with a
plain value; everything else, every mistake included, is left to click. A test holds that what is understood here is
exactly what click would have made of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rmqctl.finding import Question, find_and_show
from rmqctl.opening import STORE_VARIABLE, locate_store
from rmqctl.output.output import Output

COMPLETION_VARIABLE = "_RMQCTL_COMPLETE"
_VERB = "query"
_JSON = "--json"
_WITH_VALUE = {
    "-s": "store",
    "--store": "store",
    "-i": "message_id",
    "--id": "message_id",
    "-o": "offset",
    "--offset": "offset",
    "-t": "topic",
    "--topic": "topic",
}
# digits of the largest 64-bit integer, less one
_LONGEST_OFFSET = 18


class Short(NamedTuple):
    """A command line that was understood."""

    store: str | None
    wanted: Question
    as_json: bool


def understood(arguments: list[str]) -> Short | None:
    """The meaning of a plain `query`; None for whatever else it is."""
    if arguments[:1] != [_VERB] or os.environ.get(COMPLETION_VARIABLE):
        return None
    given: dict[str, str] = {}
    as_json = False
    rest = iter(arguments[1:])
    for flag in rest:
        if flag == _JSON:
            as_json = True
            continue
        name = _WITH_VALUE.get(flag)
        value = next(rest, "")
        # what is not ASCII may be no text at all, which click tells
        if name is None or name in given or not value or value.startswith("-") or not value.isascii():
            return None
        if name == "topic" and any(character in value for character in "*?["):
            return None  # a pattern, which only a search by key takes
        given[name] = value
    wanted = _wanted(given.get("message_id"), given.get("offset"), given.get("topic"))
    if wanted is None:
        return None
    return Short(given.get("store") or os.environ.get(STORE_VARIABLE) or None, wanted, as_json)


def _wanted(message_id: str | None, offset: str | None, topic: str | None) -> Question | None:
    if offset is None:
        return None if message_id is None else Question(message_id=message_id, topic=topic)
    if message_id is not None or topic is not None:
        return None
    is_plain = offset.isascii() and offset.isdigit() and len(offset) <= _LONGEST_OFFSET
    return Question(offset=int(offset)) if is_plain else None


def run(short: Short) -> int:
    """Do it, and return the exit code."""
    output = Output(short.as_json)
    code = find_and_show(locate_store(None if short.store is None else Path(short.store), None), output, short.wanted)
    output.flush()
    return code
