"""Properties files as java.util.Properties#load reads them: the grammar of a broker.conf."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
# a key ends at the first separator that no backslash stands before
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*+", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*+[=:]?[ \t\f]*+")
_ESCAPE = re.compile(r"\\(?:u(?P<code>.{0,4})|(?P<other>.))", re.DOTALL)
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def java_properties(data: bytes) -> dict[str, str]:
    """Keys and values of a properties file; of a key that is there twice the last value counts.

    Bytes are read as Latin-1, as Java does. ValueError for an escape that ends the loading in Java.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None  # it matches the empty text
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key.group())] = _unescaped(line[separator.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, blank ones and what they begin with; one that a backslash continues is joined."""
    lines = iter(_LINE_END.split(text))
    for line in lines:
        stripped = line.lstrip(_BLANK)
        if not stripped or stripped[0] in "#!":
            continue
        parts = [stripped]
        while (len(parts[-1]) - len(parts[-1].rstrip("\\"))) % 2:
            parts[-1] = parts[-1][:-1]
            parts.append(next(lines, "").lstrip(_BLANK))
        yield "".join(parts)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_replaced, text)


def _replaced(escape: re.Match[str]) -> str:
    code = escape["code"]
    if code is None:
        return _CONTROLS.get(escape["other"], escape["other"])
    if not _HEX.fullmatch(code):
        raise ValueError("Malformed \\uxxxx encoding.")
    return chr(int(code, 16))
