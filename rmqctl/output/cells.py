"""Values as people read them in a table cell or a listing: sanitised, on one line, with a known width on the screen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rmqctl.formats.wording import lasting_in_short
from rmqctl.output.sanitise import visible
from rmqctl.output.times import format_time

ELLIPSIS = "…"
NOTHING = "-"
SIZES = ("bytes", "size", "bytes_left")
"""What the names of numbers of bytes end with."""
SPAN = "_ms"
"""What the name of a length of time ends with, in ms."""
SPANS = (SPAN, "_delay")
GAP = "  "
_AND_MORE = ELLIPSIS + " and {} more characters: --json has all"
# white space and NULs, which stand for nothing to see: from so many on only their number is told
_LONG_BLANK = 16
_BLANKS = re.compile(rf"[\s\0]{{{_LONG_BLANK},}}")


def width_of(text: str) -> int:
    """Columns that `text` takes on a terminal (wide characters take two, combining ones none)."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """`text` if it fits into `width` columns, else its start and an ellipsis in exactly that many."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + ELLIPSIS


def shortened(text: str, longest: int) -> str:
    """`text` if it has at most `longest` characters, else its start and how many more there are."""
    rest = len(text) - longest
    return text if rest <= 0 else text[:longest] + _AND_MORE.format(rest)


def shown(text: str, longest: int) -> str:
    """`text` sanitised, in about `longest` characters: of long blanks only their number, and of the rest too."""
    parts: list[str] = []
    position = 0
    while position < len(text) and longest > 0:
        blanks = _BLANKS.search(text, position, position + longest + _LONG_BLANK)
        piece = fitting = text[position : blanks.start() if blanks else position + longest]
        while len(visible(fitting)) > longest:
            fitting = fitting[: len(fitting) * longest // len(visible(fitting))]
        parts.append(visible(fitting))
        longest -= len(parts[-1])
        position += len(fitting)
        if len(fitting) < len(piece):
            break
        if blanks is not None:
            end = _BLANKS.match(text, position)
            count = 0 if end is None else len(end[0])
            parts.append(f"{ELLIPSIS}{count} blanks{ELLIPSIS}")
            longest -= len(parts[-1])
            position += count
    rest = len(text) - position
    return "".join(parts) + (_AND_MORE.format(rest) if rest else "")


def cut_start(text: str, width: int) -> str:
    """`text` if it fits into `width` columns, else an ellipsis and its end: what tells one path from another."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[1:]
    return ELLIPSIS + text if width > 0 else ""


def padded(text: str, width: int, *, right: bool) -> str:
    """`text` filled with spaces to `width` columns, on its left if `right` (aligned), never cut."""
    if text.isascii():
        return text.rjust(width) if right else text.ljust(width)
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def cell(value: Any, name: str = "", *, digits: bool = False) -> str:
    """One value as sanitised text on one line; `name` is its column: `*_timestamp` are shown as time, and numbers of
    bytes and lengths of time as people say them, unless `digits` are wanted."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, str):  # first what is asked most often
        return visible(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if not digits and name.endswith(SIZES):
            return human_size(value)
        if not digits and name.endswith(SPANS):
            return lasting_in_short(value)
        return format_time(value) if name.endswith("_timestamp") and value > 0 else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return (
            " ".join(f"{visible(str(key))}={cell(item, str(key), digits=True)}" for key, item in value.items())
            or NOTHING
        )
    if isinstance(value, Sequence):
        return ", ".join(cell(item) for item in value) or NOTHING
    return visible(str(value))


def listed(value: Any, name: str) -> str:
    """A value in a key/value listing: as in a table, with the number kept beside a time, and large sizes said twice."""
    if isinstance(value, int) and not isinstance(value, bool):
        if name.endswith("_timestamp") and value > 0:
            return f"{format_time(value)} ({value})"
        if name.endswith(SPANS):
            return f"{value} ms" if abs(value) < 1000 else f"{value} ms ({lasting_in_short(value)})"
        if name.endswith(SIZES) and abs(value) >= 1024:
            return f"{value} ({human_size(value)})"
    return cell(value, name, digits=True)


def human_size(count: int) -> str:
    """A number of bytes in the largest binary unit that keeps it at or above one: 1536 is `1.5 KiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def csv_value(value: Any) -> Any:
    """A value for a CSV field: numbers and texts as they are, lists and objects as JSON, bytes as hex."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return visible(value, keep_newlines=True)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping | Sequence):
        import json

        return visible(json.dumps(value, ensure_ascii=False, default=str))
    return visible(str(value))
