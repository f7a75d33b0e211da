"""The page of `rmqctl report` and its charts: jinja2 templates over the numbers, one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import jinja2
import pygal
from pygal.etree import etree
from pygal.style import Style

from rmqctl.formats.errors import counted, format_time, lasting_in_short
from rmqctl.output.table import (
    cell,
    has_queue_offsets,
    human_size,
    said,
    said_title,
    shown,
    speech,
    title_of,
    visible,
    visible_json,
)
from rmqctl.pipeline.jobs.stats_sql import UNITS
from rmqctl.report.numbers import Numbers
from rmqctl.store.info.counts import KINDS
from rmqctl.store.status import version

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from pygal.graph.graph import Graph


# Charts of `rmqctl report`, drawn by pygal as SVG that the page holds.
#
# pygal, for its SVG is a part of the page: it prints, follows the page's colours in light and dark, is read without
# scripts, and takes 5 to 40 KB a chart. plotly's basic bundle is 1.1 MB of script before the first point, Vega with
# Vega-Lite 0.8 MB; both need scripts, and draw nothing in most mail programs.

# pygal's hook for its plugins is of Python 2's kind, and every import after it would warn
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder) is not pygal.PluginImportFixer]

OTHERS = "all others"
_WIDTH, _HEIGHT, _BAR_HEIGHT = 760, 240, 26
_LONGEST_NAME = 30
_MOST_BARS = 15


class Chart(NamedTuple):
    """`svg`: safe to put into a page; `legend`: names of the series, in the order of their colours; `kind`: a class of
    the page's style."""

    title: str
    svg: str
    legend: Sequence[str] = ()
    kind: str = "many"


def over_time(stats: Numbers, name: str, title: str) -> Chart | None:
    """Return bars of messages or bytes by time, stacked by topic; of delays a line for each. None without any."""
    rows, unit = stats["over_time"], stats["unit"]
    time, is_stacked = f"{unit}_timestamp", name in ("messages", "bytes")
    rows = [row for row in rows if row.get(name) is not None]
    if not rows:
        return None
    first, last = (of(row[time] for row in rows) for of in (min, max))
    moments = range(first, last + 1, UNITS[unit])
    values = {(row["topic"], row[time]): row[name] for row in rows}
    topics = list(dict.fromkeys(row["topic"] for row in sorted(rows, key=lambda row: row["topic"] is None)))
    text: Callable[[Any], str] = human_size if name == "bytes" else (_count if is_stacked else lasting_in_short)
    graph = _graph("StackedBar" if is_stacked else "Line", value_formatter=lambda value: text(int(value or 0)))
    graph.x_labels = [_moment(moment, unit) for moment in moments]
    graph.x_labels_major_count, graph.show_minor_x_labels, graph.truncate_label = 6, False, -1
    for topic in topics:
        empty = 0 if is_stacked else None
        graph.add(_name(topic), [values.get((topic, moment), empty) for moment in moments])
    return Chart(title, _svg(graph), [_name(topic) for topic in topics])


def by_size(rows: Sequence[Numbers], names: Sequence[str], value: str, title: str) -> Chart | None:
    """Return horizontal bars, the largest first; `names` are the columns that name a bar, `value` its length."""
    rows = sorted((row for row in rows if row.get(value)), key=lambda row: -row[value])[:_MOST_BARS]
    if not rows:
        return None
    text = human_size if value.endswith("bytes") else _count
    height = _BAR_HEIGHT * len(rows) + 60
    graph = _graph("HorizontalBar", height=height, value_formatter=lambda number: text(int(number or 0)))
    graph.x_labels = [
        " · ".join(shown(str(row[name]), _LONGEST_NAME) for name in names if row[name] is not None)
        for row in reversed(rows)
    ]
    graph.truncate_label = -1
    graph.add(value, [row[value] for row in reversed(rows)])
    return Chart(title, _svg(graph))


def by_queue(rows: Sequence[Numbers], title: str) -> Chart | None:
    """Return the lag over the queues, stacked by group and topic."""
    owners = list(dict.fromkeys((row["group"], row["topic"]) for row in rows if row["lag"]))[:8]
    if not owners:
        return None
    lags = {(row["group"], row["topic"], row["queue_id"]): row["lag"] or 0 for row in rows}
    queues = sorted({queue for group, topic, queue in lags if (group, topic) in owners and queue is not None})
    graph = _graph("StackedBar", value_formatter=lambda value: _count(int(value or 0)))
    graph.x_labels = [str(queue) for queue in queues]
    graph.x_labels_major_count, graph.show_minor_x_labels = 16, False
    for owner in owners:
        graph.add(_name(" · ".join(owner)), [lags.get((*owner, queue), 0) for queue in queues])
    return Chart(title, _svg(graph), [_name(" · ".join(owner)) for owner in owners])


def by_due_time(delays: Numbers, title: str) -> Chart | None:
    """Return bars of messages by the time at which they are due, stacked by what becomes of them."""
    rows, unit = delays["due"]["rows"], delays["unit"]
    if not rows:
        return None
    time = f"{unit}_timestamp"
    moments = sorted({row[time] for row in rows})
    kinds = list(dict.fromkeys((row["kind"], row["state"]) for row in rows))
    values = {(row["kind"], row["state"], row[time]): row["messages"] for row in rows}
    graph = _graph("StackedBar", value_formatter=lambda value: _count(int(value or 0)))
    graph.x_labels = [_moment(moment, unit) for moment in moments]
    graph.x_labels_major_count, graph.show_minor_x_labels, graph.truncate_label = 6, False, -1
    for kind in kinds:
        graph.add(" ".join(kind), [values.get((*kind, moment), 0) for moment in moments])
    return Chart(title, _svg(graph), [" ".join(kind) for kind in kinds])


def log_map(found: Numbers, versions: Sequence[Numbers], title: str) -> Chart | None:
    """Return the log as a line from its first byte to its last, with what its stretches hold, and below it how far
    queues, index and the log of each broker version reach."""
    if not found["cells"]:
        return None
    kinds = (*KINDS, "expired")
    reaches = [(one["part"], one["first_offset"], one["last_offset"]) for one in found["coverage"]]
    reaches += [(f"broker {row['broker']}", found["begin"], row["end_offset"]) for row in versions]
    height = _BAR_HEIGHT * (len(reaches) + 1) + 60
    graph = _graph("XY", height=height, allow_interruptions=True, show_dots=False, show_y_guides=False)
    top = len(reaches)
    first, last = 0 if found["expired_bytes"] else found["begin"], found["end"]
    graph.x_value_formatter = lambda value: human_size(int(value))
    graph.range, graph.xrange = (-0.5, top + 0.5), (first, last)
    graph.x_labels, graph.truncate_label = [first + (last - first) * part // 4 for part in range(5)], -1
    names = ["commitlog", *(name for name, *_ in reaches)]
    graph.y_labels = [{"label": name, "value": top - place} for place, name in enumerate(names)]
    runs: dict[str, list[tuple[int, int]]] = {kind: [] for kind in kinds}
    if found["expired_bytes"]:
        runs["expired"].append((0, found["expired_bytes"]))
    for square in found["cells"]:
        # one damaged byte has to be seen; of all others what a cell holds most
        kind = "damaged" if square["damaged"] else max(KINDS, key=lambda name: square[name])
        if runs[kind] and runs[kind][-1][1] == square["begin"]:
            runs[kind][-1] = (runs[kind][-1][0], square["end"])
        else:
            runs[kind].append((square["begin"], square["end"]))
    for kind in kinds:
        graph.add(said_title(kind), _segments(runs[kind], top))
    covered = [_segments([(begin, end)], top - 1 - place) for place, (_, begin, end) in enumerate(reaches) if end]
    reaching = said("reaches to")
    graph.add(reaching, [point for segment in covered for point in segment])
    return Chart(title, _svg(graph), [*kinds, reaching], "map")


def _segments(runs: Iterable[tuple[int | None, int]], height: int) -> list[tuple[int, int] | None]:
    return [point for begin, end in runs for point in ((begin or 0, height), (end, height), None)]


def _name(topic: str | None) -> str:
    return said(OTHERS) if topic is None else shown(topic, 2 * _LONGEST_NAME)


def _count(number: int) -> str:
    return f"{number:,}"


def _moment(moment: int, unit: str) -> str:
    day, _, time = format_time(moment).partition("T")
    return day if unit == "day" else f"{day[5:]} {time[:5]}"


def _graph(kind: str, **more: Any) -> Graph:
    # lxml writes other trees, where it happens to be installed
    etree.to_etree()
    options = {
        "width": _WIDTH,
        "height": _HEIGHT,
        "show_legend": False,
        "margin": 6,
        "margin_right": 40,
        "spacing": 6,
        "print_zeroes": False,
    }
    # sizes that the page's style has, for pygal to leave room for labels
    style = Style(label_font_size=14, major_label_font_size=14, value_font_size=12)
    graph = getattr(pygal, kind)(style=style, js=[], css=[], dots_size=2, **{**options, **more})
    graph.y_labels_major_count, graph.show_minor_y_labels = 4, kind not in ("StackedBar", "Line")
    return graph


def _svg(graph: Graph) -> str:
    """Return the chart without pygal's scripts and styles, and what a pointer finds as plain titles."""
    root: Element = graph.render_tree()
    root.attrib.pop("id")
    root.attrib.update({"aria-hidden": "true", "focusable": "false"})
    for parent in list(root.iter()):
        texts: dict[str, str] = {}
        for child in list(parent):
            classes = child.get("class", "").split()
            if child.tag == "desc":
                texts.setdefault(classes[0] if classes else "", child.text or "")
            is_needless = child.tag in ("defs", "desc", "title") or not isinstance(child.tag, str)
            if is_needless or {"tooltip-overlay", "tooltip"} & set(classes):
                parent.remove(child)
        if texts.get("value"):
            label = ": ".join(filter(None, (texts.get("x_label"), texts["value"])))
            ElementTree.SubElement(parent, "title").text = label
    return ElementTree.tostring(root, encoding="unicode")


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
    environment.filters |= {"text": _text, "cell": _cell, "title": _title, "size": human_size, "time": format_time}
    environment.filters["said"] = _said
    other = speech()
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
        counted=counted,
        number_of_stores=counted(len(numbers), "store"),
        language="en" if other is None else other.tag,
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


def _said(text: object) -> str:
    return visible(said(str(text)))


def _title(name: str, among: Sequence[str] = ()) -> str:
    return said_title(title_of(name), of_queues=has_queue_offsets(among))


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
    chart = log_map(found, row["versions"] or [], "What the commitlog holds, and how far the rest reaches")
    sizes = {**{kind: found[kind] for kind in KINDS}, "expired": found["expired_bytes"]}
    held = [{"kind": said_title(kind), "bytes": size} for kind, size in sizes.items()]
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
            over_time(stats, "messages", f"Messages per {unit}, by topic"),
            over_time(stats, "bytes", f"Bytes per {unit}, by topic"),
            over_time(stats, "p99_delay", f"Delay from born to stored, 99 of 100 messages, per {unit}"),
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
    chart = by_size(topics["rows"], ("topic",), "bytes", "Largest topics by bytes in the log") if topics else None
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
            by_size(found["rows"], ("group", "topic"), "lag", "Groups by lag, in messages"),
            by_queue(found["queues"]["rows"], "Lag over the queues"),
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
        else by_due_time(found, f"Messages that wait, by the {found['unit']} in which they are due")
    )
    lists = [("Delay levels and timer", _without(found, "min_offset")), ("Due", (found or {}).get("due", _listed([])))]
    return Section("Delayed messages", (), _given(chart), lists, "No message was ever delayed.")


def _dead_letters(row: Numbers) -> Section:
    found = row["dead_letters"]
    title = "Dead letters by group and topic"
    chart = None if found is None else by_size(found["rows"], ("group", "origin_topic"), "messages", title)
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
