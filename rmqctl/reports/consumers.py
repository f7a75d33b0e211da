"""The printed whereabouts of messages: a sentence and a line for each piece of evidence."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.messages.json import EVENTS, record_fields
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import tell_answer
from rmqctl.output.table import said, speech, visible, width_of
from rmqctl.output.times import now_ms
from rmqctl.store.answers.config_offsets import is_own_group
from rmqctl.store.answers.steps import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from rmqctl.formats.message import StoredMessage
    from rmqctl.network.clients.tracing import TraceBean, TraceRecord
    from rmqctl.output.outcome import AnswerRow
    from rmqctl.output.output import Output
    from rmqctl.store.answers.steps import Step, Whereabouts
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.options import Events


_COLUMNS = (
    "asked",
    "found_by",
    "state",
    "sentence",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "msg_id",
    "unique_key",
    "keys",
    "tags",
    "store_timestamp",
)
_NARROWEST = 40
# of the longest stage, and two spaces
_INDENT = 10


def tell_whereabouts(output: Output, found: Sequence[Whereabouts], damaged: int, *, is_uncertain: bool = False) -> int:
    """Print them, and return the exit code. `damaged`: the number of damaged places; `is_uncertain`: a part of the
    store that counts was not read, or lags behind the log."""
    if output.format == "table":
        if found and found[0].msg_id is not None:
            output.talk(f"found by {found[0].found_by}")
        for number, one in enumerate(found):
            if number:
                output.text("")
            width = max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize
            for line in whereabouts_lines(one, width):
                output.text(line)
    else:
        output.rows(_COLUMNS, map(whereabouts_json, found))
    # of a copy in tiered storage the offset id is not known
    is_there = any(one.msg_id is not None or one.state is Verdict.STORED for one in found)
    is_unknown = is_uncertain and any(one.state is Verdict.UNKNOWN for one in found)
    if not is_there and (damaged or is_unknown):
        return exit_codes.DAMAGE_IN_THE_WAY
    is_certain = not damaged and not is_uncertain
    return exit_codes.OK if is_there and is_certain else exit_codes.DAMAGE_OR_NOTHING


def whereabouts_json(one: Whereabouts) -> dict[str, Any]:
    """A message's whereabouts with its groups and evidence as objects."""
    groups = [group._asdict() for group in one.groups]
    return {**one._asdict(), "groups": groups, "evidence": [step._asdict() for step in one.evidence]}


def whereabouts_lines(one: Whereabouts, width: int) -> list[str]:
    """Return the sentence about a message and its evidence as sanitised lines of `width` columns."""
    head = [said(one.sentence)]
    if one.msg_id is not None:
        known = {"id": one.msg_id, "unique key": one.unique_key, "keys": one.keys, "tags": one.tags}
        head += [f"{name}: {value}" for name, value in known.items() if value]
    return [line for text in head for line in _wrapped(text, width, 2 * (text is not head[0]))] + [
        line for step in one.evidence if not _is_said(one, step) for line in _step_lines(step, width)
    ]


def _is_said(one: Whereabouts, step: Step) -> bool:
    """Whether the sentence about a message that is not there says the step already."""
    return one.msg_id is None and step.group is None and step.detail in one.sentence


def _step_lines(step: Step, width: int) -> list[str]:
    return _wrapped(f"{step.stage:<{_INDENT - 2}}{said(step.detail)}", width, 2, _INDENT)


def _wrapped(text: str, width: int, indent: int, hanging: int | None = None) -> list[str]:
    begin = " " * indent
    rest = begin if hanging is None else " " * hanging
    shown = visible(text)
    if width_of(begin + shown) <= width:
        return [begin + shown]
    if (other := speech()) is not None:
        return other.wrapped(shown, width, rest, begin)
    return textwrap.wrap(
        shown, width, initial_indent=begin, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


# Rows of `rmqctl groups`: which groups are wanted, and the queues of a group and topic as one row.

TOPIC_COLUMNS = ("group", "topic", "queues", "lag", "lag_ms", "state", "detail")
LIVE_TOPIC_COLUMNS = ("group", "topic", "queues", "lag", "in_flight", "clients", "state", "detail")
CAUGHT_UP, BEHIND = "caught-up", "behind"
_GRAVEST = ("damaged", "unknown", "past-end", "before-beginning", BEHIND, CAUGHT_UP)
"""States as they count for several queues, the gravest first; one that is not listed comes before all of these."""

_Row = dict[str, Any]


class WantedGroups(NamedTuple):
    """Which rows are wanted: names or patterns of a group and a topic, None for all."""

    group: str | None = None
    topic: str | None = None
    only_behind: bool = False
    system: bool = True

    def chosen(self, rows: Iterable[_Row], hidden: set[str]) -> Iterator[_Row]:
        """Yield the wanted rows of queues; names of system groups that are left out are added to `hidden`."""
        for row in rows:
            if not _matches(row["group"], self.group) or not _matches(row["topic"], self.topic):
                continue
            if not self.system and self.group is None and is_own_group(row["group"]):
                hidden.add(row["group"])
            elif not self.only_behind or row["state"] != CAUGHT_UP:
                yield row


def exact(name: str | None) -> str | None:
    """Return a name to look for; None for a pattern, which all rows have to be held against."""
    return None if name is None or is_pattern(name) else name


def is_pattern(name: str) -> bool:
    """Return whether it is a glob."""
    return any(character in name for character in "*?[")


def _matches(name: str | None, wanted: str | None) -> bool:
    if wanted is None or name == wanted:
        return True
    return name is not None and is_pattern(wanted) and fnmatchcase(name, wanted)


def by_topic(rows: Iterable[_Row]) -> list[_Row]:
    """Return one row for each group and topic, the largest lag first.

    `queues` counts the queues, `lag` sums what is known of them, `lag_ms` is that of the latest queue, and
    `first_unread_timestamp` of the oldest unread message. `state` and `detail` are those of the queue in the gravest
    state.
    """
    found: dict[tuple[Any, ...], list[_Row]] = {}
    for row in rows:
        found.setdefault((row["group"], row["topic"], bool(row.get("is_broadcast"))), []).append(row)
    return sorted(map(_joined, found.values()), key=_by_lag)


def _by_lag(row: _Row) -> tuple[int, int, str, str]:
    return -(row["lag"] or 0), _rank(row["state"]), row["group"], row["topic"] or ""


def _joined(rows: list[_Row]) -> _Row:
    worst = min(rows, key=lambda row: _rank(row["state"]))
    states = sum(row["state"] == worst["state"] for row in rows)
    detail = worst["detail"] or ""
    if detail and len(rows) > 1:
        detail = f"{states} of {len(rows)} queues, as queue {worst['queue_id']}: {detail}"
    queues = sum(row["queue_id"] is not None for row in rows)
    joined = {"group": worst["group"], "topic": worst["topic"], "queues": queues}
    for name in ("lag", "in_flight"):
        known = [row[name] for row in rows if row.get(name) is not None]
        joined[name] = sum(known) if known else None
    for name in ("lag_ms", "clients"):
        joined[name] = max((row[name] for row in rows if row.get(name) is not None), default=None)
    unread = (row["first_unread_timestamp"] for row in rows if row.get("first_unread_timestamp") is not None)
    joined["first_unread_timestamp"] = min(unread, default=None)
    return {**joined, "state": worst["state"], "detail": detail}


def _rank(state: str) -> int:
    return _GRAVEST.index(state) if state in _GRAVEST else -1


# Message traces as rows: what clients did with a message, in plain words.

TRACE_COLUMNS = (
    "trace_timestamp", "event", "group", "client", "result", "cost_ms", "retry_times", "message_id", "keys", "topic",
)  # fmt: skip
DROPPABLE_TRACE_COLUMNS = ("keys", "topic", "retry_times", "message_id", "cost_ms")


def trace_rows(messages: Sequence[StoredMessage], key: str) -> tuple[list[dict[str, Any]], list[CorruptError]]:
    """Return a row for each record of a message with the id or key, the earliest first, and the trace messages that
    cannot be decoded."""
    from rmqctl.network.clients.tracing import decode

    rows: list[dict[str, Any]] = []
    damaged: list[CorruptError] = []
    groups: dict[str, str] = {}
    for message in messages:
        try:
            records = decode(message.plain_body())
        except CorruptError as error:
            damaged.append(CorruptError(f"message at offset {message.physical_offset}: {error.message}"))
            continue
        groups |= {one.request_id: one.group for one in records if one.request_id and one.group is not None}
        rows += [_row(one, message) for one in records if _is_about(one.beans[0], key)]
    for row in rows:
        # clients before 4.9 do not name the group at the end of a consumption
        row["group"] = row["group"] or groups.get(row["request_id"] or "")
    order = list(EVENTS.values())
    rows.sort(key=lambda row: (row["trace_timestamp"] or 0, order.index(row["event"])))
    return rows, damaged


def _is_about(bean: TraceBean, key: str) -> bool:
    return key == bean.message_id or key in bean.message_id.split(",") or key in (bean.keys or "").split(" ")


def _row(record: TraceRecord, message: StoredMessage) -> dict[str, Any]:
    fields = record_fields(record)
    first = {name: fields.pop(name) for name in ("trace_timestamp", "event", "group")}
    client = str(message.born_host).rpartition(":")[0]
    return {**first, "client": client, **fields, "physical_offset": message.physical_offset}


_GROUP_COLUMNS = (
    "group", "topic", "way", "in_flight", "overdue", "acknowledged", "lost", "first_visible_timestamp",
    "again_at_restart", "retry_topic", "retries", "detail",
)  # fmt: skip
_DROPPABLE = ("detail", "acknowledged", "retry_topic", "lost", "way")
_MESSAGE_COLUMNS = (
    "group", "topic", "queue_id", "queue_offset", "state", "popped_timestamp", "visible_timestamp", "attempt",
    "next_topic", "again_at_restart", "record", "detail",
)  # fmt: skip
_DROPPABLE_OF_MESSAGES = ("detail", "record", "popped_timestamp", "next_topic", "again_at_restart")


def tell_popped(opened: MessageStore, output: Output, wanted: WantedGroups) -> int:
    """Print groups that consume by POP, or each message of one that is named; return the exit code."""
    is_one = wanted.group is not None and not is_pattern(wanted.group)
    columns, droppable = (_MESSAGE_COLUMNS, _DROPPABLE_OF_MESSAGES) if is_one else (_GROUP_COLUMNS, _DROPPABLE)
    hidden: set[str] = set()

    def ask(events: Events) -> Iterator[dict[str, Any]]:
        state = opened.pop(now=now_ms(), events=events)
        group, topic = exact(wanted.group), exact(wanted.topic)
        found: Iterable[AnswerRow] = state.groups()
        if is_one:
            found = state.messages(lambda owner, of: group == owner and topic in (None, of))
        yield from wanted.chosen((row._asdict() for row in found), hidden)

    hint = "`rmqctl groups` shows the offsets of all groups"
    nothing = NotFoundError("no message is in flight by POP", hint=hint)
    return tell_answer(output, columns, ask, nothing, droppable)
