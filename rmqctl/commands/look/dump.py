"""`rmqctl dump`: any store file, field by field, with byte offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import limit_option, output_options
from rmqctl.flags.types import OFFSET
from rmqctl.formats.errors import UnsupportedError, counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import said

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.dump.items import DumpField, DumpItem

_ROW = 16
_TEXTS = ("config", "text")
_HEX_WIDTH = 3 * _ROW - 1


@click.command(
    epilog="""\b
Examples:
  rmqctl dump store/commitlog/00000000000000000000 -n 3
  rmqctl dump store/commitlog/00000000001073741824 --at 4660 --hex
  rmqctl dump store/consumequeue/Orders/0/00000000000000000000 --json
  rmqctl dump store/timerwheel --hex      bytes of a file that is only recognised
  rmqctl dump ~/.rocketmq_offsets/10.0.0.7@DEFAULT/GROUP/offsets.json

Exit code 1: damage was shown."""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--hex", "with_hex", is_flag=True, help="Print the bytes of each field too.")
@click.option("--at", type=OFFSET, default=0, metavar="BYTE", help="Start at this byte of the file.")
@limit_option.but(help="Stop after N structures.")
@output_options
def dump(output: Output, file: Path, with_hex: bool, at: int, limit: int | None) -> int:
    """Show any file of a store, field by field, with byte offsets.

    The file type is detected from its path, else its content. Commitlog files are shown frame after frame, damaged
    spans as far as they can be parsed; queues unit by unit; index files with header, slots in use and entries.

    offsets.json of a broadcasting consumer is shown queue by queue. Of a damaged one the offsets before the damage are
    shown, and what the client does with the backup offsets.json.bak at its next start.
    """
    from rmqctl.store.files.remote import as_written
    from rmqctl.store.message_store import MessageStore

    try:
        kind, items = MessageStore.dump(file, at=at)
    except UnsupportedError:
        if not with_hex:
            raise
        kind, items = MessageStore.dump(file, at=at, raw=True)
    name = as_written(file)
    damaged = 0

    def told() -> Iterator[DumpItem]:
        nonlocal damaged
        for item in itertools.islice(items, limit):
            damaged += item.damage is not None
            yield item

    if output.format == "table":
        output.text(f"{name}: {kind.value}")
        for item in told():
            _print(output, item, with_hex)
    else:
        columns = ("offset", "kind", "size", "position", "note", "damage", "fields")
        output.rows(columns, (_json(name, item, with_hex) for item in told()))
    return exit_codes.DAMAGE_OR_NOTHING if damaged else exit_codes.OK


def _json(file: str, item: DumpItem, with_hex: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "file": file,
        "kind": item.kind,
        "offset": item.offset,
        "size": item.size,
        "position": item.position,
        "note": item.note,
        "damage": item.damage,
        "fields": [
            {"name": one.name, "offset": one.offset, "size": one.size, "value": _json_value(one.value)}
            for one in item.fields
        ],
    }
    if with_hex:
        row["hex"] = item.raw.hex()
    return row


def _json_value(value: Any) -> Any:
    """Bare integer keys of config files become texts, as JSON wants them."""
    if isinstance(value, dict):
        return {str(key): _json_value(one) for key, one in value.items()}
    return [_json_value(one) for one in value] if isinstance(value, list) else value


def _offset_line(item: DumpItem) -> str:
    """One queue of a broadcasting consumer in one line, without names that the file or its path does not hold."""
    values = {one.name: one.value for one in item.fields}
    group = f"{values['group']} in " if values["group"] is not None else ""
    broker = f" of {values['broker_name']}" if values["broker_name"] is not None else ""
    topic = values["topic"] if values["topic"] is not None else "a queue without a topic,"
    return f"{item.offset:>10}  {group}{topic} queue {values['queue_id']}{broker}: offset {values['offset']}"


def _print(output: Output, item: DumpItem, with_hex: bool) -> None:
    from rmqctl.output.output import print_paragraph

    position = f" ({item.position})" if item.position is not None else ""
    what = f"{item.kind}{position}"
    note = item.note if item.damage is None else ""
    if item.kind == "client offset" and not with_hex:
        output.text(_offset_line(item))
        return
    output.text("")
    head = said(f"{what}, {counted(item.size, 'byte')}: {note}" if note else f"{what}, {counted(item.size, 'byte')}")
    output.text(f"{item.offset:>10}  {head}")
    if item.damage is not None:
        damaged = said(f"DAMAGED: {item.damage}")
        output.text(f"{'':>10}  {damaged}")
        if item.note:
            print_paragraph(output, f"{'':>10}  {item.note}", " " * 12)
    name_width = max((len(one.name) for one in item.fields), default=0)
    for one in item.fields:
        if with_hex:
            _print_bytes(output, item, one.offset, one.size, _labelled(item, one))
        elif item.kind in _TEXTS:
            # only here newlines are the file's own lines; elsewhere they would let a topic forge some
            output.text(one.meaning.replace("\t", "  ").rstrip("\n"), keep_newlines=True)
        else:
            output.text(f"{one.offset:>10}  {one.size:>5}  {one.name:<{name_width}}  {one.meaning}")
    if with_hex:
        shown = item.fields[-1].offset + item.fields[-1].size if item.fields else item.offset
        rest = item.offset + len(item.raw) - shown
        if rest > 0:
            _print_bytes(output, item, shown, rest, "" if item.kind == "bytes" else "not parsed")


def _labelled(item: DumpItem, field: DumpField) -> str:
    return "" if item.kind in _TEXTS else f"{field.name} = {field.meaning}"


def _print_bytes(output: Output, item: DumpItem, offset: int, size: int, label: str) -> None:
    """Bytes [offset, offset + size) of the file, sixteen a line, the label beside the first."""
    data = item.raw[offset - item.offset : offset - item.offset + size]
    for start in range(0, max(len(data), 1), _ROW):
        part = data[start : start + _ROW]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        line = f"{offset + start:>10}  {part.hex(' '):<{_HEX_WIDTH}}  {text:<{_ROW}}"
        output.text(f"{line}  {label}".rstrip() if start == 0 else line.rstrip())
