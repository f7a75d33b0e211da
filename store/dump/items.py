"""The items of a dump: structures of a file with their fields, offsets, bytes, and what the values mean for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from construct import Struct

from rmqctl.formats.layouts import BLANK_MAGIC, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import Host
from rmqctl.formats.properties import (
    TRANSACTION_NAMES,
    TRANSACTION_NONE,
    compression_name,
    parse_properties,
    transaction_type,
)
from rmqctl.formats.schemas import SYS_FLAG_BITS, explain
from rmqctl.store.files.reading import Descriptors

# Values of a dump: in a form that JSON can hold, and with what they mean for people.

_MAGIC_NAMES = {MESSAGE_MAGIC_V1: "message V1", MESSAGE_MAGIC_V2: "message V2", BLANK_MAGIC: "blank frame"}
_PREVIEW_BYTES = 64


def plain_value(name: str, value: Any) -> Any:
    """`value` as JSON can hold it: hosts as text, texts as text, other bytes as hex."""
    if isinstance(value, Mapping):
        host = _host(value)
        return str(host) if host is not None else {key: plain_value(key, one) for key, one in _members(value)}
    if isinstance(value, bytes):
        if name in ("topic", "properties"):
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return value.hex()
        return value.hex()
    return int(value) if isinstance(value, int) else str(value)


def _members(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, one) for key, one in value.items() if not str(key).startswith("_")]


def _host(value: Mapping[str, Any]) -> Host | None:
    if isinstance(value.get("ip"), bytes) and len(value["ip"]) in (4, 16):
        return Host(bytes(value["ip"]), int(value["port"]))
    return None


def meaning_of(name: str, value: Any, values: Mapping[str, Any]) -> str:
    """What people want to read: times as time, flags by name, texts as text. Not sanitised."""
    if name == "magic_code" and isinstance(value, int):
        return f"0x{value & 0xFFFFFFFF:08X} {_MAGIC_NAMES.get(value, '')}".strip()
    if name.endswith("_timestamp") and isinstance(value, int):
        return f"{value} {time_text(value)}".strip()
    if name == "sys_flag" and isinstance(value, int):
        return f"0x{value:X} {' '.join(flag_names(value))}".strip()
    if name == "properties" and isinstance(value, bytes):
        return _properties(value)
    if name == "body" and isinstance(value, bytes):
        more = f" … {len(value)} bytes" if len(value) > _PREVIEW_BYTES else ""
        packed = compression_name(int(values.get("sys_flag", 0)))
        prefix = f"[{packed}] " if packed else ""
        return prefix + value[:_PREVIEW_BYTES].decode("utf-8", "backslashreplace") + more
    plain = plain_value(name, value)
    if isinstance(plain, dict):
        return " ".join(f"{key}={one}" for key, one in plain.items())
    return str(plain)


def flag_names(sys_flag: int) -> list[str]:
    """Names of the bits and fields that are set in a sysFlag."""
    names = [bit for bit, mask in SYS_FLAG_BITS.items() if sys_flag & mask]
    transaction = transaction_type(sys_flag)
    if transaction != TRANSACTION_NONE:
        names.append(f"transaction={TRANSACTION_NAMES[transaction]}")
    compression = compression_name(sys_flag)
    return names + ([f"compression={compression}"] if compression else [])


def _properties(data: bytes) -> str:
    try:
        return "  ".join(f"{name}={value}" for name, value in parse_properties(data).items())
    except UnicodeDecodeError:
        return data.hex()


def time_text(milliseconds: int) -> str:
    """Return a moment in ms as ISO 8601; empty where it is not a time."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") if milliseconds > 0 else ""


# What a dump is made of: structures of a file with their fields, offsets and bytes.


class DumpField(NamedTuple):
    """A field: `offset` in bytes from the start of the file, `value` ready for JSON, `meaning` for people."""

    name: str
    offset: int
    size: int
    value: Any
    meaning: str
    doc: str


@dataclass(slots=True)
class DumpItem:
    """One structure of a file. `offset` and `size` in bytes of the file; `position` is what its queue calls the place
    (a physical offset, a queue offset, a slot's or an entry's number).

    `damage` says what is wrong with it; `raw` holds its bytes, or the first of them.
    """

    kind: str
    offset: int
    size: int
    position: int | None = None
    fields: list[DumpField] = field(default_factory=list)
    note: str | None = None
    damage: str | None = None
    raw: bytes = b""


class Opened(NamedTuple):
    """A file to dump."""

    path: Path
    size: int
    descriptors: Descriptors

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`."""
        return self.descriptors.read(self.path, position, length) if length > 0 else b""


def explained(kind: str, schema: Struct, data: bytes, offset: int, size: int | None = None) -> DumpItem:
    """A structure at byte `offset` of the file, parsed as far as `data` goes."""
    parsed, reason = explain(schema, data)
    values = {one.name: one.value for one in parsed}
    fields = [
        DumpField(
            one.name,
            offset + one.offset,
            one.size,
            plain_value(one.name, one.value),
            meaning_of(one.name, one.value, values),
            one.doc,
        )
        for one in parsed
    ]
    return DumpItem(kind, offset, len(data) if size is None else size, fields=fields, damage=reason, raw=data)


def empty_items(begin: int, end: int) -> list[DumpItem]:
    """The zeros that end a file, as an item of their own; nothing if there are none."""
    return [DumpItem("empty", begin, end - begin, note="zeros up to the end of the file")] if begin < end else []
