"""Replace text by text of the same length, by a key that is drawn for one twin and kept nowhere.

A name is replaced letter for letter by a permutation under that key: equal names stay equal, different ones different,
and `%RETRY%group` still belongs to `group`. Separators and RocketMQ's own names stay.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import lru_cache

from rmqctl.formats.hosts import Host
from rmqctl.store.answers.config_offsets import OWN_GROUP_PREFIX, OWN_GROUPS
from rmqctl.store.config.config_files import SYSTEM_TOPICS

NAME_PREFIXES = ("%RETRY%", "%DLQ%", "%LMQ%", "rmq_sys_REVIVE_LOG_", "rmq_sys_SYNC_BROKER_MEMBER_")
"""What follows is the name of a group, a light queue, a cluster or a broker."""
_ROUNDS = 6
# characters that are exchanged for others of the same kind, which take the same number of bytes in UTF-8
_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HEX = "0123456789ABCDEF"
_WIDE = ((0x0400, 0x100), (0x4E00, 0x5000), (0x20000, 0xA000))
_OWN_NAMES = "|".join(re.escape(name) for name in sorted({*SYSTEM_TOPICS, *OWN_GROUPS}, key=len, reverse=True))
_PIECE = re.compile(
    rf"(?P<own>(?<![A-Za-z0-9_-])(?:{'|'.join(NAME_PREFIXES)}|(?:{_OWN_NAMES}|{OWN_GROUP_PREFIX}[A-Z_]+|rmq_sys_[a-z_]+)"
    r"(?![A-Za-z0-9_-]))|_REPLY_TOPIC(?![A-Za-z0-9_-]))"
    r"|(?P<id>(?<![0-9A-Za-z])(?:[0-9A-F]{56}|[0-9A-F]{32})(?![0-9A-Za-z]))"
    r"|(?P<digits>[0-9]+)|(?P<letters>[A-Za-z]+)"
    r"|(?P<two>[\x80-\u07ff]+)|(?P<three>[\u0800-\ud7ff\ue000-\uffff]+)|(?P<four>[\U00010000-\U0010ffff]+)"
    r"|(?P<none>[\udc80-\udcff]+)"
)
_PRINTABLE = bytes((_LETTERS + _DIGITS + "-+").encode() * 4)
_NO_ZERO = bytes(max(1, byte) for byte in range(256))
_LARGEST_PORT, _LARGEST_OFFSET = 1 << 16, 1 << 48


class Words:
    """The replacements of one twin."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._piece = lru_cache(maxsize=1 << 16)(self._piece_of)

    def text(self, data: bytes) -> bytes:
        """Return `data` with all that is not a separator or a name of RocketMQ's own replaced; of the same length."""
        text = data.decode("utf-8", "surrogateescape")
        return _PIECE.sub(lambda match: self._piece(str(match.lastgroup), match[0]), text).encode(
            "utf-8", "surrogateescape"
        )

    def name(self, name: str) -> str:
        """Return the replacement of the name of a topic, a group or a file."""
        return self.text(name.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def _piece_of(self, kind: str, piece: str) -> str:
        if kind == "own":
            return piece
        if kind == "id":
            return self._message_id(piece)
        if kind in ("digits", "letters"):
            return self._exchanged(piece, _DIGITS if kind == "digits" else _LETTERS)
        if kind == "none":  # bytes that are no UTF-8 stay so
            return "\udcff" * len(piece)
        base, count = _WIDE[("two", "three", "four").index(kind)]
        values = self._permuted([ord(one) % count for one in piece], count)
        return "".join(chr(base + value) for value in values)

    def _exchanged(self, piece: str, alphabet: str) -> str:
        values = self._permuted([alphabet.index(one) for one in piece], len(alphabet))
        return "".join(alphabet[value] for value in values)

    def _message_id(self, piece: str) -> str:
        """Return an id: a broker's has a host in it and an offset, which stays; a client's is random hex then."""
        data = bytes.fromhex(piece)
        ip, port, offset = data[:-12], data[-12:-8], data[-8:]
        if int.from_bytes(port, "big") < _LARGEST_PORT and int.from_bytes(offset, "big") < _LARGEST_OFFSET:
            return (self.ip(ip) + port + offset).hex().upper()
        return self._exchanged(piece, _HEX)

    def ip(self, ip: bytes) -> bytes:
        """Return the replacement of an address; an IPv4 address in the dress of IPv6 stays one, and 0.0.0.0 stays."""
        if not any(ip):
            return ip
        own = Host(ip, 0).as_written.ip
        return ip[: -len(own)] + bytes(self._permuted(list(own), 256))

    def number(self, value: int, bits: int) -> int:
        """Return the replacement of an unknown hash: an unsigned number of `bits`, which are even."""
        half = bits // 2
        high, low = self._permuted([value >> half, value & (1 << half) - 1], 1 << half)
        return high << half | low

    def noise(self, data: bytes) -> bytes:
        """Return other bytes than `data`, zeros where there are zeros. Equal data become equal."""
        if not any(data):
            return data
        noise = self._stream(data).translate(_NO_ZERO)
        if 0 not in data:
            return noise
        return bytes(other if byte else 0 for byte, other in zip(data, noise, strict=True))

    def body(self, data: bytes) -> bytes:
        """Return the replacement of a body: printable ASCII for UTF-8, else bytes."""
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            return self._stream(data)
        return self._stream(data).translate(_PRINTABLE)

    def _stream(self, data: bytes) -> bytes:
        seed = hashlib.blake2b(data, key=self._key).digest()
        return hashlib.shake_256(seed).digest(len(data))

    def _permuted(self, values: list[int], radix: int) -> list[int]:
        """Return other digits of the same number and radix: a Feistel network, so no two texts become one.

        The one digit of the shortest is only shifted, by at least one.
        """
        middle = len(values) // 2
        left, right = values[:middle], values[middle:]
        for turn in range(_ROUNDS):
            moved = self._shifts(turn, left, len(right), radix)
            left, right = [(one + shift) % radix for one, shift in zip(right, moved, strict=True)], left
        return [*left, *right]

    def _shifts(self, turn: int, known: list[int], count: int, radix: int) -> list[int]:
        if not known and turn:
            return [0] * count
        seed = bytes((turn,)) + radix.to_bytes(4, "big") + b"".join(one.to_bytes(4, "big") for one in known)
        digest = hashlib.blake2b(seed + count.to_bytes(4, "big"), key=self._key).digest()
        if count * 4 > len(digest):
            digest = hashlib.shake_256(digest).digest(count * 4)
        least = 0 if known else 1
        return [least + int.from_bytes(digest[4 * at : 4 * at + 4], "big") % (radix - least) for at in range(count)]
