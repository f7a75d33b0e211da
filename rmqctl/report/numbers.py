"""Numbers of `rmqctl report`: one object for each store, its parts as the other verbs print them with --json.

Nothing is computed here that a verb has: lists are cut to what a page can show, with the number of rows left out.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.diagnosis import IN_USE, NextStart, diagnose, next_start, predicted_versions
from rmqctl.formats.errors import CorruptError, RmqctlError
from rmqctl.opening import StoreLocation, log_bytes, open_store
from rmqctl.output.table import shortened
from rmqctl.pipeline.jobs.stats_sql import UNITS
from rmqctl.reports.check_report import SEVERITIES, finding_row
from rmqctl.reports.consumers import WantedGroups, by_topic
from rmqctl.store.files.reading import listed
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.store.check.catalogue import Finding
    from rmqctl.store.message_store import MessageStore

Numbers = dict[str, Any]

MOST_ROWS = 100
"""Topics, groups and dead letters that are listed."""
MOST_BUCKETS = 120
"""Minutes, hours or days of a chart over time."""
DRAWN_TOPICS = 8
"""Topics with a series of their own in charts over time; the others are one."""
_QUEUES_OF = 10
_MOST_QUEUES = 160
_OF_A_CODE, _MOST_FINDINGS = 5, 150
_SAMPLES, _BODY = 10, 500
_MOST_GROUPED = 200_000
_MANY_TOPICS, _ALONE_BYTES = 1000, 4 << 30
_TIME_COLUMNS = ("messages", "bytes", "median_delay", "p99_delay", "longest_delay")
_TOPIC_COLUMNS = (
    "topic", "messages", "bytes", "average_size", "median_delay", "p99_delay", "longest_delay", "missing_offsets",
    "repeated_offsets", "clock_jumps", "first_store_timestamp", "last_store_timestamp",
)  # fmt: skip
_VERSION_COLUMNS = (
    "broker", "sentence", "why", "start_file", "start_offset", "end_offset", "end_reason", "messages_lost",
    "bytes_lost", "messages_unqueued", "index_entries_lost", "dropped", "added", "misplaced", "deleted",
    "messages_stuck", "messages_repeated", "timer_reset", "recovery",
)  # fmt: skip
_SETTINGS = (
    "broker_role", "flush_disk_type", "file_reserved_time", "delete_when", "disk_max_used_space_ratio",
    "disk_space_clean_forcibly_ratio", "disk_space_warning_level_ratio", "broker_permission", "max_message_size",
    "mapped_file_size_commit_log", "mapped_file_size_consume_queue", "store_type", "message_delay_level",
    "timer_wheel_enable", "message_index_enable", "check_crc_on_recover", "duplication_enable",
    "transient_store_pool_enable", "enable_controller_mode", "enable_dleger_commit_log",
)  # fmt: skip


class ReportScope(NamedTuple):
    """How much is looked at. `now` in ms; `quick`: not the log; `bodies`: samples of dead letters have theirs."""

    now: int
    quick: bool = False
    bodies: bool = False


def cut(rows: Sequence[Numbers], most: int = MOST_ROWS) -> Numbers:
    """Return a list as far as it is shown: `rows`, and the number `more` of those left out."""
    return {"rows": list(rows[:most]), "more": max(0, len(rows) - most)}


class Parts:
    """Parts of one report: one that cannot be read is named in `not_read`, and the others are read all the same."""

    def __init__(self) -> None:
        self.not_read: list[Numbers] = []

    def read(self, part: str, look: Callable[[Events], Any]) -> Any:
        """Return what `look` finds; None where it cannot be read. Damage that it passes is noted."""
        damages: list[CorruptError] = []
        try:
            found = look(Events(damage=damages.append))
        except RmqctlError as error:
            self.not_read.append({"part": part, "problem": str(error)})
            return None
        if damages:
            self.not_read.append({"part": part, "problem": f"{len(damages)} damaged: {damages[0]}"})
        return found


def numbers_of(store: StoreLocation, wanted: ReportScope) -> Numbers:
    """Return the numbers of one store. NotAStoreError, UnreadableError where it cannot be opened or checked."""
    findings = _Findings(store)
    parts = Parts()
    with open_store(store) as opened, _beside(opened, store, wanted) as (others, starts):
        findings.root = opened.files.root
        predicted = None if starts is None else lambda: starts().next
        found = diagnose(opened, store, quick=wanted.quick, heard=findings.take, predicted=predicted)
        row: Numbers = {"path": str(opened.files.root), "is_well": found.is_well, **found.record}
        # said again, with the other versions, below
        del row["predict"]
        start, is_open = found.start, row["info"]["locked"]
        row["details"] = findings.row()
        if is_open:
            row["versions"] = None
        elif starts is None:
            row["versions"] = parts.read("predict", lambda _: _versions(opened, start))
        else:
            row["versions"] = starts().versions
            parts.not_read += starts().not_read
        if start.walked is not None:
            start.walked.clear()
        read = others()
    return {**row, **read, "not_read": parts.not_read + read["not_read"]}


class _Starts(NamedTuple):
    """The next start, those of all versions, and what could not be read of them."""

    next: NextStart
    versions: list[Numbers] | None = None
    not_read: Sequence[Numbers] = ()


@contextlib.contextmanager
def _beside(
    opened: MessageStore, store: StoreLocation, wanted: ReportScope
) -> Iterator[tuple[Callable[[], Numbers], Callable[[], _Starts] | None]]:
    """Give what returns the parts that need no diagnosis, and the starts, None to predict them here. Each of both takes
    as long as the check of a store with many topics, in Python's own loops: other processes do it meanwhile."""
    topics = len(listed(opened.files.layout.consumequeue))
    is_large = opened.files.log.max_offset - opened.files.log.min_offset > _ALONE_BYTES
    if topics < _MANY_TOPICS or is_large or len(os.sched_getaffinity(0)) == 1:
        yield lambda: _read_others(opened, wanted, shows=True), None
        return
    from rmqctl.pipeline.engine import beside

    with beside(functools.partial(_opened_others, store), wanted) as others, beside(_opened_starts, store) as starts:
        yield (
            functools.partial(_waited, "counting", others),
            functools.cache(functools.partial(_waited, "predicting", starts)),
        )


def _waited(doing: str, found: Callable[[], Any]) -> Any:
    from rmqctl.output.terminal import progress

    with progress(doing):
        return found()


def _opened_starts(store: StoreLocation) -> _Starts:
    with open_store(store, lambda _: None) as opened:
        if opened.files.lock_holder() is not None:
            return _Starts(NextStart(None, IN_USE))
        parts, start = Parts(), next_start(opened)
        versions = parts.read("predict", lambda _: _versions(opened, start))
        return _Starts(start._replace(walked=None), versions, parts.not_read)


def _opened_others(store: StoreLocation, wanted: ReportScope) -> Numbers:
    with open_store(store, lambda _: None) as opened:
        return _read_others(opened, wanted, shows=False)


def _read_others(opened: MessageStore, wanted: ReportScope, *, shows: bool) -> Numbers:
    """Read them. `shows`: with progress."""
    parts, row = Parts(), Numbers()
    usage = parts.read("du", lambda events: opened.disk_usage(quick=wanted.quick, events=events).row())
    row["usage"] = None if usage is None else {**usage, "topics": cut(usage["topics"])}
    names = len(usage["topics"]) if usage else 0
    row["stats"] = None if wanted.quick else parts.read("stats", lambda _: _stats(opened, wanted.now, names, shows))
    row["groups"] = parts.read("groups", lambda events: _groups(opened, events))
    row["pop"] = parts.read("groups --pop", lambda events: _pop(opened, wanted.now, events))
    row["delays"] = parts.read("delays", lambda events: _delays(opened, wanted.now, events))
    row["dead_letters"] = parts.read("dlq", lambda events: _dead_letters(opened, events, bodies=wanted.bodies))
    row["clean"] = parts.read("clean", lambda _: _forecast(opened, wanted.now))
    return {**row, "settings": _settings(opened), "not_read": parts.not_read}


def unread(store: StoreLocation, error: RmqctlError) -> Numbers:
    """Return what the page says of a store that cannot be opened or checked."""
    nothing = ("info", "check", "versions", "usage", "stats", "groups", "pop", "delays", "dead_letters", "clean")
    return {
        "path": str(store.path),
        "is_well": False,
        "state": "unreadable",
        "sentence": str(error),
        "next": None,
        **dict.fromkeys((*nothing, "broker")),
        "not_predicted": "the store cannot be read",
        "findings": [],
        "details": cut([]),
        "settings": [],
        "not_read": [],
    }


class _Findings:
    """The first findings of each code, as rows of `rmqctl check --json`."""

    def __init__(self, store: StoreLocation) -> None:
        self.root = store.path
        self._config_path = store.config_path
        self._counts: Counter[str] = Counter()
        self._kept: list[Numbers] = []

    def take(self, finding: Finding) -> None:
        """Note one."""
        self._counts[finding.code] += 1
        if self._counts[finding.code] <= _OF_A_CODE:
            self._kept.append(finding_row(finding, self.root, self._config_path))

    def row(self) -> Numbers:
        """Return those that are shown, the worst first."""
        rows = sorted(self._kept, key=lambda row: SEVERITIES.index(row["severity"]))[:_MOST_FINDINGS]
        return {"rows": rows, "more": self._counts.total() - len(rows)}


def _versions(opened: MessageStore, known: NextStart) -> list[Numbers]:
    rows = predicted_versions(opened, known)
    return [
        {name: row.get(name) for name in _VERSION_COLUMNS} | {"warnings": cut(row["warnings"], _OF_A_CODE)}
        for row in rows
    ]


def _stats(opened: MessageStore, now: int, topics: int, shows: bool) -> Numbers:
    """Count as `rmqctl stats --by topic,UNIT --no-duplicates` does, in one pass."""
    from rmqctl.output.terminal import progress
    from rmqctl.pipeline.views import require_duckdb

    require_duckdb("counting")
    from rmqctl.pipeline.engine import LocalEngine
    from rmqctl.pipeline.jobs.stats import StatsRequest, dimensions_of, group_rows, stats, stats_summary

    unit = _unit(opened, topics)
    request = StatsRequest(dimensions_of(["topic", unit]), now=now, duplicates=False)
    bar = progress("counting", log_bytes(opened.files), "bytes") if shows else contextlib.nullcontext()
    with contextlib.closing(LocalEngine()) as engine, bar as shown:
        found = stats(engine, opened.files, request, events=Events() if shown is None else Events(shown.advance))
    if found.total is None:
        return {"unit": unit, "topics": cut([]), "over_time": [], "outside": 0}
    summary = stats_summary(found, opened.files.log)
    by_size = [{name: row.get(name) for name in _TOPIC_COLUMNS} for row in summary["topics"]]
    drawn = {row["topic"] for row in by_size[:DRAWN_TOPICS]}
    time = f"{unit}_timestamp"
    rows = group_rows(found)
    first, last = _window(rows, time, UNITS[unit])
    inside = [row for row in rows if first <= row[time] <= last]
    over_time = [
        {name: row[name] for name in ("topic", time, *_TIME_COLUMNS)} for row in inside if row["topic"] in drawn
    ]
    others: dict[int, Numbers] = {}
    for row in inside:
        if row["topic"] not in drawn:
            joined = others.setdefault(row[time], {"topic": None, time: row[time], "messages": 0, "bytes": 0})
            joined["messages"] += row["messages"]
            joined["bytes"] += row["bytes"]
    return {
        "unit": unit,
        **{name: summary[name] for name in ("messages", "bytes", "median_delay", "p99_delay", "longest_delay")},
        "queue_offsets": {name: summary["queue_offsets"][name] for name in ("queues", "missing", "repeated")},
        "clock": {name: summary["clock"][name] for name in ("jumps", "in_future")},
        "topics": cut(by_size),
        "over_time": [*over_time, *others.values()],
        "outside": sum(row["messages"] for row in rows) - sum(row["messages"] for row in inside),
    }


def _unit(opened: MessageStore, topics: int) -> str:
    """Return the finest unit that gives no more rows than a chart and this machine's memory take."""
    from rmqctl.store.log.survey import look_at_tail
    from rmqctl.store.read.frames import store_time_at

    log = opened.files.log
    first = store_time_at(log, log.files[0].start_offset) if log.files else None
    last = look_at_tail(log).largest_store_timestamp
    span = max(0, last - first) if first is not None and last > 0 else UNITS["day"] * MOST_BUCKETS
    for name, unit in UNITS.items():
        buckets = span // unit + 1
        if buckets <= MOST_BUCKETS and buckets * topics <= _MOST_GROUPED:
            return name
    return "day"


def _window(rows: Iterable[Numbers], time: str, unit: int) -> tuple[int, int]:
    """Return the first and last moment of the MOST_BUCKETS units that hold the most messages: damaged or wrong clocks
    put single messages anywhere."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts[row[time]] += row["messages"]
    times = sorted(counts)
    best, window, held, begin = -1, (0, 0), 0, 0
    for moment in times:
        held += counts[moment]
        while moment - times[begin] >= unit * MOST_BUCKETS:
            held -= counts[times[begin]]
            begin += 1
        if held > best:
            best, window = held, (times[begin], moment)
    return window


def _groups(opened: MessageStore, events: Events) -> Numbers:
    hidden: set[str] = set()
    rows = list(WantedGroups(system=False).chosen((row._asdict() for row in opened.groups(events=events)), hidden))
    by_group = by_topic(rows)
    most = {(row["group"], row["topic"]) for row in by_group[:_QUEUES_OF] if row["lag"]}
    queues = [row for row in rows if (row["group"], row["topic"]) in most]
    lags = sum(row["lag"] or 0 for row in by_group)
    return {**cut(by_group), "queues": cut(queues, _MOST_QUEUES), "lag": lags, "hidden": len(hidden)}


def _pop(opened: MessageStore, now: int, events: Events) -> Numbers:
    rows = [row._asdict() for row in opened.pop(now=now, events=events).groups()]
    return cut(list(WantedGroups(system=False).chosen(rows, set())))


def _delays(opened: MessageStore, now: int, events: Events) -> Numbers:
    """Levels and the timer, and what waits by the unit of time in which it is due."""
    levels = [row._asdict() for row in opened.delays(now=now, events=events)]
    counts: Counter[tuple[int, str, str]] = Counter()
    if any(row["pending"] for row in levels):
        for one in opened.due(now=now, events=events):
            minute = one.due_timestamp // UNITS["minute"] * UNITS["minute"]
            counts[minute, one.kind, one.state] += 1
    span = max((at for at, *_ in counts), default=0) - min((at for at, *_ in counts), default=0)
    unit = next((name for name, size in UNITS.items() if span // size < MOST_BUCKETS), "day")
    by_unit: Counter[tuple[int, str, str]] = Counter()
    for (at, kind, state), count in counts.items():
        by_unit[at // UNITS[unit] * UNITS[unit], kind, state] += count
    due = [
        {f"{unit}_timestamp": at, "kind": kind, "state": state, "messages": count}
        for (at, kind, state), count in sorted(by_unit.items())
    ]
    return {**cut(levels), "unit": unit, "due": cut(due, MOST_BUCKETS * 2), "waiting": counts.total()}


def _dead_letters(opened: MessageStore, events: Events, *, bodies: bool) -> Numbers:
    """Dead letters by group, topic and what is known of the reason: a broker keeps no exception of a consumer."""
    names = ("group", "origin_topic", "state", "attempts", "detail")
    found: dict[tuple[Any, ...], Numbers] = {}
    samples: list[Numbers] = []
    for letter in opened.dead_letters(events=events):
        key = tuple(getattr(letter, name) for name in names)
        last = letter.last_attempt_timestamp
        row = found.setdefault(
            key, {**dict(zip(names, key, strict=True)), "messages": 0, "last_attempt_timestamp": last}
        )
        row["messages"] += 1
        row["last_attempt_timestamp"] = max(filter(None, (last, row["last_attempt_timestamp"])), default=None)
        if row["messages"] == 1 and len(samples) < _SAMPLES:
            samples.append(letter._asdict())
    if bodies:
        for sample in samples:
            sample["body"] = _body(opened, sample["physical_offset"])
    rows = sorted(found.values(), key=lambda row: -row["messages"])
    return {**cut(rows), "messages": sum(row["messages"] for row in rows), "samples": samples}


def _body(opened: MessageStore, physical_offset: int | None) -> str | None:
    if physical_offset is None:
        return None
    try:
        body = opened.message_at(physical_offset).plain_body()
    except RmqctlError as error:
        return f"({error.message})"
    return shortened(body.decode("utf-8", "replace"), _BODY)


def _forecast(opened: MessageStore, now: int) -> Numbers:
    found = opened.forecast_clean(now=now)
    files = [
        {**one._asdict(), "path": str(one.path.relative_to(opened.files.root))}
        for one in found.files
        if one.kind == "commitlog" and one.path.is_relative_to(opened.files.root)
    ]
    return {
        "bytes_per_day": found.bytes_per_day,
        "levels": [level._asdict() for level in found.levels],
        "files": cut(files),
        "notes": found.notes,
    }


def _settings(opened: MessageStore) -> list[Numbers]:
    """Settings that decide what a broker does here, by RocketMQ's names, and RocketMQ's own values."""
    from rmqctl.store.config.config import StoreConfig

    own = StoreConfig()
    return [
        {
            "setting": "".join(part if not number else part.title() for number, part in enumerate(name.split("_"))),
            "value": getattr(opened.files.config, name),
            "default": getattr(own, name),
        }
        for name in _SETTINGS
    ]
