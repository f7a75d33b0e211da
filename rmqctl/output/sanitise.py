r"""Law 7: text from a store, made visible before it meets a terminal.

Topics, keys, tags, bodies and error texts may hold anything: escape sequences that repaint the screen, bidi controls
that turn a line around, characters of no width that hide a difference. Every such code point becomes its escape
(`\x1b`, `\u202e`, `\U000e0041`); everything that shows as itself stays.
"""

from __future__ import annotations

import functools
import re

from rmqctl.formats.wording import told

# Unicode categories Cc, Cf, Cs, Co, Zl and Zp, the noncharacters, and what Unicode calls default-ignorable (Hangul
# fillers, variation selectors, tags): all that has no glyph of its own or acts on its neighbours. A test compares
# this with the interpreter's own Unicode tables.
UNSAFE_RANGES = (
    (0x0000, 0x001F),
    (0x007F, 0x009F),
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x0600, 0x0605),
    (0x061C, 0x061C),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xD800, 0xF8FF),
    (0xFDD0, 0xFDEF),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0x10000, 0xE0000, 0x10000)),
    (0xE0000, 0xE0FFF),
    (0xEFFFE, 0x10FFFF),
)


def _character_class(ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


@functools.cache
def _unsafe(keep_newlines: bool = False) -> re.Pattern[str]:
    """One unsafe character. Compiled when the first text needs it: plain ASCII never does."""
    spared = "(?!\n)" if keep_newlines else ""
    return re.compile(f"{spared}[{_character_class(UNSAFE_RANGES)}]")


_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escape_for_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def visible(text: str, *, keep_newlines: bool = False) -> str:
    """`text` with every code point that a terminal would obey or hide written as an escape.

    Newline and tab are escaped too; `keep_newlines` keeps the newlines (texts of several lines that are ours). A store
    on a server is told by its address.
    """
    text = told(text)
    if text.isascii() and text.isprintable():
        return text
    return _unsafe(keep_newlines).sub(_escape, text)


def visible_json(document: str) -> str:
    r"""A JSON document (as json.dumps writes it, on one line) with the same code points as `\uXXXX` inside its strings.

    It means exactly what it meant before: outside of strings none of them occurs.
    """
    document = told(document)
    if document.isascii() and document.isprintable():
        return document
    return _unsafe().sub(_escape_for_json, document)
