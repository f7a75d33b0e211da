"""What a dump is made of: structures of a file with their fields, offsets and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from construct import Struct

from rmqctl.formats.derive import explain
from rmqctl.store.dump.values import meaning_of, plain_value
from rmqctl.store.files.reading import Descriptors


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
