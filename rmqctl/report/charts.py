"""Charts of `rmqctl report`, drawn by pygal as SVG that the page holds.

pygal, for its SVG is a part of the page: it prints, follows the page's colours in light and dark, is read without
scripts, and takes 5 to 40 KB a chart. plotly's basic bundle is 1.1 MB of script before the first point, Vega with
Vega-Lite 0.8 MB; both need scripts, and draw nothing in most mail programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import pygal
from pygal.etree import etree
from pygal.style import Style

from rmqctl.formats.errors import format_time, lasting_in_short
from rmqctl.output.table import human_size, shown
from rmqctl.pipeline.jobs.stats_sql import UNITS
from rmqctl.report.numbers import Numbers
from rmqctl.store.info.counts import KINDS

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from pygal.graph.graph import Graph

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
    graph.x_labels = [" · ".join(shown(str(row[name]), _LONGEST_NAME) for name in names) for row in reversed(rows)]
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
    for cell in found["cells"]:
        # one damaged byte has to be seen; of all others what a cell holds most
        kind = "damaged" if cell["damaged"] else max(KINDS, key=lambda name: cell[name])
        if runs[kind] and runs[kind][-1][1] == cell["begin"]:
            runs[kind][-1] = (runs[kind][-1][0], cell["end"])
        else:
            runs[kind].append((cell["begin"], cell["end"]))
    for kind in kinds:
        graph.add(kind, _segments(runs[kind], top))
    covered = [_segments([(begin, end)], top - 1 - place) for place, (_, begin, end) in enumerate(reaches) if end]
    graph.add("reaches to", [point for segment in covered for point in segment])
    return Chart(title, _svg(graph), [*kinds, "reaches to"], "map")


def _segments(runs: Iterable[tuple[int | None, int]], height: int) -> list[tuple[int, int] | None]:
    return [point for begin, end in runs for point in ((begin or 0, height), (end, height), None)]


def _name(topic: str | None) -> str:
    return OTHERS if topic is None else shown(topic, 2 * _LONGEST_NAME)


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
