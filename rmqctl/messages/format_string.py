"""Messages by a template, in kcat's manner: `%t` and the like are filled in, all else is printed as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.output.sanitise import visible

Unpacked = Callable[[StoredMessage], bytes]
_Field = Callable[[StoredMessage, Unpacked], bytes]


def _number(value: int) -> bytes:
    return str(value).encode()


def _property(message: StoredMessage, name: str) -> bytes:
    return message.properties().get(name, "").encode("utf-8", "surrogateescape")


def _key_length(message: StoredMessage, _: Unpacked) -> bytes:
    return _number(len(_property(message, names.KEYS)) if names.KEYS in message.properties() else -1)


def _headers(message: StoredMessage, _: Unpacked) -> bytes:
    pairs = (f"{name}={value}" for name, value in message.properties().items())
    return ",".join(pairs).encode("utf-8", "surrogateescape")


_TOKENS: dict[str, tuple[str, _Field]] = {
    "t": ("topic", lambda message, _: message.topic.encode("utf-8", "surrogateescape")),
    "q": ("queue", lambda message, _: _number(message.queue_id)),
    "p": ("the same: kcat's partition", lambda message, _: _number(message.queue_id)),
    "o": ("queue offset", lambda message, _: _number(message.queue_offset)),
    "O": ("physical offset", lambda message, _: _number(message.physical_offset)),
    "i": ("message id", lambda message, _: message.message_id.encode()),
    "u": ("unique key", lambda message, _: _property(message, names.UNIQUE_KEY)),
    "k": ("keys", lambda message, _: _property(message, names.KEYS)),
    "K": ("bytes of the keys, -1 without", _key_length),
    "g": ("tag", lambda message, _: _property(message, names.TAGS)),
    "h": ("properties NAME=VALUE,…", _headers),
    "s": ("body, unpacked", lambda message, body: body(message)),
    "S": ("its bytes", lambda message, body: _number(len(body(message)))),
    "R": ("the same as 4 bytes, big-endian", lambda message, body: len(body(message)).to_bytes(4, "big")),
    "T": ("store time in ms", lambda message, _: _number(message.store_timestamp)),
    "B": ("born time in ms", lambda message, _: _number(message.born_timestamp)),
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PART = re.compile(r"%(?P<token>.?)|\\x(?P<hex>[0-9a-fA-F]{1,2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)

TOKENS_HELP = ", ".join(f"%{token} {meaning}" for token, (meaning, _) in _TOKENS.items())
"""What each token stands for."""


class FormatString:
    """A template, understood. Nothing is put behind a message but what the template says."""

    def __init__(self, template: str) -> None:
        """UsageError for a token or an escape that there is not."""
        self._parts: list[bytes | _Field] = [_part(found, template) for found in _PART.finditer(template)]

    def filled(
        self, message: StoredMessage, on_damage: Callable[[CorruptError], None], *, for_terminal: bool = False
    ) -> bytes:
        """The bytes for one message: as they are stored, or `for_terminal` with what a terminal would obey as escapes.

        A body that cannot be unpacked is told to `on_damage` and given as it is stored.
        """
        known: list[bytes] = []

        def body(message: StoredMessage) -> bytes:
            if not known:
                known.append(_unpacked(message, on_damage))
            return known[0]

        return b"".join(
            part if isinstance(part, bytes) else _shown(part(message, body), for_terminal) for part in self._parts
        )


def _shown(value: bytes, for_terminal: bool) -> bytes:
    return visible(value.decode("utf-8", "backslashreplace")).encode() if for_terminal else value


def _unpacked(message: StoredMessage, on_damage: Callable[[CorruptError], None]) -> bytes:
    try:
        return message.plain_body()
    except (CorruptError, UnsupportedError) as error:
        on_damage(
            CorruptError(
                f"the body cannot be unpacked, and is given as it is stored: {error.message}",
                physical_offset=message.physical_offset,
            )
        )
        return message.body


def _part(found: re.Match[str], template: str) -> bytes | _Field:
    if found["text"] is not None:
        return found["text"].encode("utf-8", "surrogateescape")
    if found["hex"] is not None:
        return bytes((int(found["hex"], 16),))
    if found["token"] == "%":
        return b"%"
    if found["token"] in _TOKENS:
        return _TOKENS[found["token"]][1]
    if found["escape"] in _ESCAPES:
        return _ESCAPES[found["escape"]]
    raise UsageError(
        f"{found[0]!r} in the format {template!r} means nothing",
        hint=f"there are {TOKENS_HELP}, %% for %; \\n, \\r, \\t, \\0, \\\\ and \\xNN",
    )
