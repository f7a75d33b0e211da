"""Regular expressions over messages, and the literal text that a match must contain."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import StoredMessage

if TYPE_CHECKING:
    from rmqctl.store.columns.batch import Flags, MessageColumns

_SHORTEST_LITERAL = 3
"""Bytes of a literal that is worth a search of its own: a shorter one is found in nearly every message."""
_TOKEN = re.compile(r"\\.|\{\d*,?\d*\}|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
"""An escape, a counted quantifier, a class, or one character."""
_SPECIAL = ".^$+*?()[]{}|"
_NUMERIC_ESCAPE = re.compile(r"\\[xuUN0-9]")
_SPLIT = re.compile("[=\x01\x02]")


class Grep:
    """A regular expression (Python's) that is searched for in bodies and properties.

    `literals`: UTF-8 texts of which every message that matches contains at least one as stored, unless its body is
    compressed; () where the expression guarantees none.
    `unsearched`: why bodies of messages that do not match could not be unpacked, by physical offset.
    """

    def __init__(self, expression: str) -> None:
        """Raises: UsageError for an invalid regular expression."""
        self.expression = expression
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                self._pattern = re.compile(expression)
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(
                f"{expression!r} is not a regular expression: {error}",
                hint="for a text as it is put \\ before . * + ? ( [",
            ) from error
        self.literals = required_literals(expression)
        self.unsearched: dict[int, str] = {}

    def matches(self, message: StoredMessage) -> bool:
        """Return whether it is found in the body, unpacked, or in a property, which is searched as `NAME=VALUE`.

        Bytes that are not UTF-8 stand for themselves. A body that cannot be unpacked is searched as it is stored.
        """
        search = self._pattern.search
        if any(search(f"{name}={value}") is not None for name, value in message.properties().items()):
            return True
        try:
            body, why = message.plain_body(), ""
        except (CorruptError, UnsupportedError) as error:
            body, why = message.body, error.message
        is_found = search(body.decode("utf-8", "surrogateescape")) is not None
        if why and body and not is_found:
            self.unsearched[message.physical_offset] = why
        return is_found

    def unsearched_errors(self) -> Iterator[CorruptError]:
        """Yield once what to report of bodies that may hold a match, because they could not be unpacked."""
        found, self.unsearched = self.unsearched, {}
        for offset, why in sorted(found.items()):
            yield CorruptError(f"the body was not searched, because it does not unpack: {why}", physical_offset=offset)


def required_literals(expression: str) -> tuple[bytes, ...]:
    """Return literals in UTF-8, of which each match of `expression` contains at least one; () if none are certain.

    Only what is plain at the top level counts: groups, classes, escapes and whatever a quantifier makes optional
    interrupt a literal. An expression with flags or numeric escapes guarantees none. A property is stored without the
    `=` that a match sees, so a literal never spans one.
    """
    if "(?" in expression or _NUMERIC_ESCAPE.search(expression):
        return ()
    found: list[bytes] = []
    for runs in _alternatives(expression):
        pieces = (piece.encode("utf-8", "surrogateescape") for run in runs for piece in _SPLIT.split(run))
        longest = max(pieces, key=len, default=b"")
        if len(longest) < _SHORTEST_LITERAL:
            return ()
        found.append(longest)
    return tuple(dict.fromkeys(found))


def _alternatives(expression: str) -> list[list[str]]:
    """Return for each part between `|` at the top level its runs of characters that stand for themselves."""
    alternatives = [[""]]
    depth = 0
    for token in _TOKEN.findall(expression):
        runs = alternatives[-1]
        if token in ("(", ")"):
            depth += 1 if token == "(" else -1
            runs.append("")
        elif depth:
            continue
        elif token == "|":
            alternatives.append([""])
        elif token in ("*", "?") or (token[0] == "{" and len(token) > 1):
            runs[-1] = runs[-1][:-1]
            runs.append("")
        elif _stands_for_itself(token):
            runs[-1] += token[-1]
        else:
            runs.append("")
    return alternatives


def _stands_for_itself(token: str) -> bool:
    if len(token) == 1:
        return token not in _SPECIAL
    return token[0] == "\\" and not token[1].isalnum()


def rows_with(batch: MessageColumns, literals: tuple[bytes, ...]) -> Flags:
    """Return for each row whether its body or properties as stored contain one of `literals`, or its body is
    compressed. The batch needs HEAD and BYTES."""
    import numpy as np

    found: Flags = (batch.sys_flag & SYS_FLAG_COMPRESSED) != 0
    if not batch.rows or batch.window is None:
        return found
    # bodies precede properties in a frame, and frames ascend
    begins, ends = batch.body_position, batch.property_position + batch.property_length
    first = int(begins[0])
    data = batch.window[first : int(ends[-1])].tobytes()
    begins, ends = begins - first, ends - first
    for literal in literals:
        place = data.find(literal)
        while place >= 0:
            row = int(np.searchsorted(begins, place, "right")) - 1
            if place + len(literal) <= ends[row]:
                found[row] = True
                place = int(ends[row])
            else:  # in the head of the next frame
                place += 1
            place = data.find(literal, place)
    return found
