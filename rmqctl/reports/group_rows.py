"""Rows of `rmqctl groups`: which groups are wanted, and the queues of a group and topic as one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from rmqctl.store.answers.config_offsets import is_own_group

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

    `queues` counts the queues, `lag` sums what is known of them, `lag_ms` is that of the latest queue. `state` and
    `detail` are those of the queue in the gravest state.
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
    return {**joined, "state": worst["state"], "detail": detail}


def _rank(state: str) -> int:
    return _GRAVEST.index(state) if state in _GRAVEST else -1
