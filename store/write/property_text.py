"""Writes the properties of ordinary messages: functions made once for each set of names (see encode_properties).

Messages have few properties and many messages the same ones. For each number of them there is an f-string, which takes
a quarter of the time of a loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rmqctl.formats import properties as names

# what makes a message take the slow path
UNUSUAL_PROPERTIES = frozenset(
    (
        names.DELAY,
        *names.TIMER_PROPERTIES,
        names.INNER_NUM,
        names.INNER_MULTI_DISPATCH,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.CRC32,
    )
)

STORED_UNUSUAL = "(?:^|\x02)(?:{})\x01".format("|".join(map(re.escape, sorted(UNUSUAL_PROPERTIES))))
"""Matches stored properties that one of these names is, or may be, among: for Python's `re` and for Arrow's RE2."""
_search_unusual = re.compile(STORED_UNUSUAL.encode("ascii")).search

Writer = Callable[[Mapping[str, str]], str | None]
"""The property string of properties with certain names; None if a value holds a separator. TypeError for a value that
is no text."""


def property_template(property_names: tuple[str, ...]) -> str | None:
    """The property string with `%s` for the values; None if the names need more than that."""
    for name in property_names:
        if type(name) is not str or name in UNUSUAL_PROPERTIES or name.startswith(names.TRANSIENT_PREFIX):
            return None
        if "\x01" in name or "\x02" in name:
            return None
    return "".join(name.replace("%", "%%") + "\x01%s\x02" for name in property_names)


def joined_alike(property_names: tuple[str, ...], values: list[str]) -> str:
    """The property strings of many messages one behind the other, which all have these names (see
    `property_template`). `values`: those of all messages. TypeError for a value that is no text."""
    pieces = [""] * (2 * len(values))
    # a property begins with the separator that ends the one before it
    pieces[::2] = [f"\x02{name}\x01" for name in property_names] * (len(values) // len(property_names))
    pieces[1::2] = values
    pieces[0] = pieces[0][1:]
    pieces.append("\x02")
    return "".join(pieces)


def usual_stored(stored: object) -> bytes | None:
    """`stored`, if these are the bytes of properties which go to the log as they are; None for any others."""
    if type(stored) is not bytes or _search_unusual(stored):
        return None
    try:
        stored.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return stored


def property_writer(property_names: tuple[str, ...]) -> Writer | None:
    """The writer for these names; None if they need more than that."""
    template = property_template(property_names)
    if template is None:
        return None
    heads = [name + "\x01" for name in property_names]
    if len(heads) in _WRITERS:
        return _WRITERS[len(heads)](*heads)

    def write(properties: Mapping[str, str]) -> str | None:
        values = tuple(properties.values())
        return None if "\x02" in "".join(values) else template % values

    return write


def _one(a: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        (s,) = properties.values()
        return None if "\x02" in s else f"{a}{s}\x02"

    return write


def _two(a: str, b: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        s, t = properties.values()
        return None if "\x02" in s or "\x02" in t else f"{a}{s}\x02{b}{t}\x02"

    return write


def _three(a: str, b: str, c: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        s, t, u = properties.values()
        return None if "\x02" in s or "\x02" in t or "\x02" in u else f"{a}{s}\x02{b}{t}\x02{c}{u}\x02"

    return write


def _four(a: str, b: str, c: str, d: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        s, t, u, v = properties.values()
        if "\x02" in s or "\x02" in t or "\x02" in u or "\x02" in v:
            return None
        return f"{a}{s}\x02{b}{t}\x02{c}{u}\x02{d}{v}\x02"

    return write


_WRITERS: dict[int, Callable[..., Writer]] = {1: _one, 2: _two, 3: _three, 4: _four}
