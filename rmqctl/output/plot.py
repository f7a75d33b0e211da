"""Plots of `--plot`, drawn by plotext as lines of plain text: bars by label, or a line over time.

A label has its number beside it, so a plot can be read where its bars cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from rmqctl.output.table import cell, cut, cut_start, padded, width_of

_MOST_BARS = 40
_HEIGHT = 16
_STEPS = " ▁▂▃▄▅▆▇█"
# for a stream that cannot encode them
_ASCII = str.maketrans("█│┤├┌┐└┘─┬┴…▁▂▃▄▅▆▇", "#|||++++---...::-=+")


def sparkline(values: Sequence[int], encoding: str | None) -> str:
    """Return a bar of one line for each of the values, the largest of them the highest; nothing is a space."""
    most = max(values, default=0)
    return encodable("".join(_STEPS[-(-value * 8 // most) if most else 0] for value in values), encoding)


def encodable(text: str, encoding: str | None) -> str:
    """Return what is drawn as this encoding can have it."""
    try:
        _STEPS.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_ASCII)
    return text


def joined(*names: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that makes a label of these columns of a row, which may lack some."""
    return lambda row: " ".join(cell(row[name], name) for name in names if name in row)


class Plot(NamedTuple):
    """`value`: column that is drawn. `label`: name of a row, raw. `time`, `step`: column of ms since 1970 and the ms
    between two rows, of a line over time; rows that are missing between count as 0."""

    title: str
    value: str
    label: Callable[[Mapping[str, Any]], str]
    time: str | None = None
    step: int = 0
    width: int = 80
    """Columns where the plot goes into a pipe."""

    def lines(self, rows: Sequence[Mapping[str, Any]], width: int, encoding: str | None) -> list[str]:
        """Return the plot of at least one row, at most `width` columns wide. ModuleNotFoundError without plotext."""
        draw = self._bars if self.time is None or len(rows) < 2 else self._line
        return [encodable(line, encoding) for line in (self.title, *(line.rstrip() for line in draw(rows, width)))]

    def _bars(self, rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
        rows = sorted(rows, key=lambda row: -(row[self.value] or 0))
        more, rows = rows[_MOST_BARS:], rows[:_MOST_BARS]
        labels = [_fitted(cell(self.label(row)), width // 2) for row in rows]
        numbers = [cell(row[self.value]) for row in rows]
        widest, longest = max(map(width_of, labels)), max(map(len, numbers))
        ticks = [
            f"{padded(label, widest, right=False)}  {number:>{longest}}"
            for label, number in zip(labels, numbers, strict=True)
        ]
        figure = _figure(width, len(rows))
        places = list(range(len(rows), 0, -1))
        values = [row[self.value] or 0 for row in rows]
        figure.draw(figure.bar(places, values, orientation="horizontal", width=0.01))
        figure.axes(False, axis="x")
        figure.axes(False, axis="y", side="right")
        figure.ruler("x").ticks([], [])
        figure.ruler("x").lim(0, max(*values, 1))
        figure.ruler("y").lim(*((1, len(rows)) if len(rows) > 1 else (0.5, 1.5)))
        figure.ruler("y").ticks(places, ticks)
        lines = _text(figure)
        if more:
            rest = sum(row[self.value] or 0 for row in more)
            lines.append(f"and {len(more)} more: {rest}")
        return lines

    def _line(self, rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
        assert self.time is not None
        values = {row[self.time]: row[self.value] or 0 for row in rows}
        for moment in tuple(values):
            for beside in (moment - self.step, moment + self.step):
                if min(values) < beside < max(values):
                    values.setdefault(beside, 0)
        moments = sorted(values)
        figure = _figure(width, _HEIGHT)
        points = figure.signal(moments, [values[moment] for moment in moments], marker="█").lines()
        figure.draw(points)
        ends = (moments[0], moments[-1])
        figure.ruler("x").ticks(list(ends), [cell(moment, self.time) for moment in ends])
        most = max(*values.values(), 1)
        figure.ruler("y").lim(0, most)
        figure.ruler("y").ticks([0, most], ["0", str(most)])
        return _text(figure)


def _fitted(label: str, width: int) -> str:
    """Cut in the middle: names of topics and groups often differ at their end."""
    if width_of(label) <= width:
        return label
    return cut(label, width - width // 3) + cut_start(label, width // 3 + 1)[1:]


def _figure(width: int, height: int) -> Any:
    plotext = import_module("plotext")
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, height)
    return figure


def _text(figure: Any) -> list[str]:
    text: str = import_module("plotext").uncolorize(figure.build().string())
    return text.splitlines()
