"""The page of `rmqctl report`: jinja2 templates over the numbers, one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import jinja2

from rmqctl.formats.errors import counted, format_time
from rmqctl.output.table import cell, human_size, title_of, visible, visible_json
from rmqctl.report import charts
from rmqctl.report.charts import Chart
from rmqctl.report.numbers import Numbers
from rmqctl.store.info.counts import KINDS
from rmqctl.store.status import version

STORE_KINDS = {"healthy": "good", "in-use": "good", "unpredicted": "doubtful"}
"""States and how the page shows them; all others are bad."""


class Section(NamedTuple):
    """A chapter about a store. `lists`: captions and lists of rows, a table each; `empty`: what to say without any."""

    title: str
    text: Sequence[str]
    charts: Sequence[Chart]
    lists: Sequence[tuple[str, Numbers]]
    empty: str


def render(numbers: Sequence[Numbers], now: int, *, notes: Sequence[str]) -> bytes:
    """Return the page. `numbers`: of each store, see numbers.py; `notes`: what was left out or replaced in them."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"text": _text, "cell": _cell, "title": title_of, "size": human_size, "time": format_time}
    style = _resource("page.css")
    block = json.dumps({"now": now, "stores": numbers}, default=_plain, ensure_ascii=False, allow_nan=False)
    # a data block: `<` ends it, and is written otherwise
    block = visible_json(block).replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
    text = environment.get_template("page.html").render(
        stores=[{"row": row, "kind": kind_of(row), "sections": list(_sections(row))} for row in numbers],
        now=now,
        notes=notes,
        version=version(),
        style=style,
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        numbers=block,
        columns=_columns,
    )
    return text.encode("utf-8", "backslashreplace")


def kind_of(row: Numbers) -> str:
    """Return how the page shows a store: good, doubtful or bad."""
    kind = STORE_KINDS.get(row["state"], "bad")
    return "doubtful" if kind == "good" and not row["is_well"] else kind


def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _plain(value: object) -> object:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _cell(value: object, name: str = "") -> str:
    return f"{value:.1%}" if name == "share" and isinstance(value, float) else cell(value, name)


def _text(value: object) -> str:
    return visible(str(value))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Return the columns that say anything, and whether they hold numbers."""
    names = dict.fromkeys(name for row in rows for name in row)
    shown = [name for name in names if any(row.get(name) not in (None, "", [], {}) for row in rows)]
    return {name: any(_is_number(row.get(name)) for row in rows) for name in shown}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(rows: Iterable[Numbers], more: int = 0) -> Numbers:
    return {"rows": list(rows), "more": more}


def _without(found: Numbers | None, *names: str) -> Numbers:
    rows = [] if found is None else found["rows"]
    return _listed(
        ({name: row[name] for name in row if name not in names} for row in rows), (found or {}).get("more", 0)
    )


def _given(*drawn: Chart | None) -> list[Chart]:
    return [one for one in drawn if one is not None]


def _sections(row: Numbers) -> Iterable[Section]:
    """Yield the chapters about a store in the order in which they are wanted on call; none of one that is not read."""
    if row["info"] is None:
        return
    yield _findings(row)
    yield _map(row)
    yield _start(row)
    yield from _messages(row)
    yield _groups(row)
    yield _delays(row)
    yield _dead_letters(row)
    yield _disk(row)
    yield Section(
        "Configuration that matters", ["A value that differs from RocketMQ's own is from broker.conf."], (),
        [("Settings", _listed({**one, "value": cell(one["value"], one["setting"])} for one in row["settings"]))],
        "no setting is known",
    )  # fmt: skip
    if row["not_read"]:
        yield Section("Not read, or damaged", (), (), [("Parts", _listed(row["not_read"]))], "")


def _findings(row: Numbers) -> Section:
    places = _without(row["details"], "severity", "bytes", "messages", "expected", "found", "queue_id")
    lists = [("By code, with the command that fixes it", _listed(row["findings"])), ("Where", places)]
    return Section("Findings", (), (), lists, "The check found nothing.")


def _map(row: Numbers) -> Section:
    found = (row["usage"] or {}).get("map")
    if found is None:
        return Section("Store map", (), (), (), "The log was not read.")
    chart = charts.log_map(found, row["versions"] or [], "What the commitlog holds, and how far the rest reaches")
    held = [{"kind": kind, "bytes": found[kind]} for kind in KINDS]
    held.append({"kind": "expired", "bytes": found["expired_bytes"]})
    reaches = _listed(found["coverage"])
    lists = [("Bytes of the commitlog", _listed(held)), ("First and last message that is led to", reaches)]
    parts = [*row["usage"]["parts"], row["usage"]["total"]]
    lists += [
        ("Files", _listed(parts)),
        ("Commitlog files and when they go", (row["clean"] or {}).get("files", _listed([]))),
    ]
    return Section("Store map", (), _given(chart), lists, "There is no commitlog.")


def _start(row: Numbers) -> Section:
    if row["versions"] is None:
        why = row["not_predicted"] or "it could not be predicted"
        return Section("Next start of a broker", (), (), (), f"Not predicted: {why}.")
    # a version that loses nothing has a row of zeros
    idle = [name for name in row["versions"][0] if not any(one[name] for one in row["versions"])]
    versions = _without(
        _listed(row["versions"]), "recovery", "warnings", "start_file", "start_offset", "end_reason", *idle
    )
    warnings = [
        {"broker": one["broker"], "warning": warning} for one in row["versions"] for warning in one["warnings"]["rows"]
    ]
    lists = [("Prediction by version", versions), ("What else happens", _listed(warnings))]
    return Section("Next start of a broker", (), (), lists, "")


def _messages(row: Numbers) -> Iterable[Section]:
    stats = row["stats"]
    if stats is not None:
        unit = stats["unit"]
        drawn = _given(
            charts.over_time(stats, "messages", f"Messages per {unit}, by topic"),
            charts.over_time(stats, "bytes", f"Bytes per {unit}, by topic"),
            charts.over_time(stats, "p99_delay", f"Delay from born to stored, 99 of 100 messages, per {unit}"),
        )
        text = []
        if "queue_offsets" in stats:
            gaps, jumps = stats["queue_offsets"], stats["clock"]["jumps"]
            text = [
                f"{gaps['missing']:,} queue offsets are missing and {gaps['repeated']:,} repeated in "
                f"{counted(gaps['queues'], 'queue')}. The broker's clock went back {counted(jumps, 'time')}."
            ]
        if stats["outside"]:
            text.append(f"{stats['outside']:,} messages were stored outside of the time that is shown.")
        lists = [
            (f"Messages by topic and {unit}", _listed(stats["over_time"])),
            ("Gaps and delays by topic", stats["topics"]),
        ]
        yield Section("Messages over time", text, drawn, lists, "There are no messages.")
    usage = row["usage"]
    topics = (usage or {}).get("topics")
    chart = (
        charts.by_size(topics["rows"], ("topic",), "bytes", "Largest topics by bytes in the log") if topics else None
    )
    lists = [("Topics by size", topics or _listed([]))]
    yield Section("Topics", (), _given(chart), lists, "There are no topics.")


def _groups(row: Numbers) -> Section:
    found = row["groups"]
    text, drawn = [], []
    if found is not None:
        text = [
            f"{counted(found['lag'], 'message')} unread in all groups.",
            f"{counted(found['hidden'], 'group')} of brokers and tools not shown.",
        ]
        drawn = _given(
            charts.by_size(found["rows"], ("group", "topic"), "lag", "Groups by lag, in messages"),
            charts.by_queue(found["queues"]["rows"], "Lag over the queues"),
        )
    queues = _without(found["queues"], "min_offset", "tags", "tagged_lag", "is_broadcast") if found else _listed([])
    lists = [("Groups", found or _listed([])), ("Queues of the groups with the largest lag", queues)]
    lists.append(("In flight by POP", row["pop"] or _listed([])))
    return Section("Consumer groups", text, drawn, lists, "There are no consumer groups.")


def _delays(row: Numbers) -> Section:
    found = row["delays"]
    chart = (
        None
        if found is None
        else charts.by_due_time(found, f"Messages that wait, by the {found['unit']} in which they are due")
    )
    lists = [("Delay levels and timer", _without(found, "min_offset")), ("Due", (found or {}).get("due", _listed([])))]
    return Section("Delayed messages", (), _given(chart), lists, "No message was ever delayed.")


def _dead_letters(row: Numbers) -> Section:
    found = row["dead_letters"]
    title = "Dead letters by group and topic"
    chart = None if found is None else charts.by_size(found["rows"], ("group", "origin_topic"), "messages", title)
    text = (
        ["A broker keeps how often a message was tried, not the error of the consumer."]
        if found and found["rows"]
        else []
    )
    samples = _listed((found or {}).get("samples", []))
    lists = [
        ("By group and what is known of the reason", found or _listed([])),
        ("One of each", _without(samples, "origin_id")),
    ]
    return Section("Dead letters", text, _given(chart), lists, "No group has given up a message.")


def _disk(row: Numbers) -> Section:
    found, writes = row["clean"], row["info"]["writes"]
    text = [writes["sentence"], *writes["warnings"], *(found["notes"] if found else ())]
    if found and found["bytes_per_day"] is not None:
        text.append(f"The commitlog grows by {human_size(found['bytes_per_day'])} a day.")
    return Section("Disk", text, (), [("Levels", _listed(found["levels"] if found else []))], "")
