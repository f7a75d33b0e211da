"""A message as lines: its fields, then the body as text, JSON, hexadecimal or protobuf."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.browse.rows import RowColumn, ScreenRow
from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError, UsageError
from rmqctl.messages.json import message_listing
from rmqctl.output.table import listed, padded, said, said_title, speech, visible, width_of

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage

FORMS = ("text", "json", "hex", "protobuf")
_HEX_WIDTH = 16
_MOST_TEXT = 1 << 20
# shown as the body, or beside the number of ms
_LEFT_OUT = frozenset({"body", "body_base64", "store_time", "born_time"})


class Protobuf:
    """Reads bodies by a descriptor set (`protoc --include_imports --descriptor_set_out FILE`)."""

    def __init__(self, path: Path, name: str | None) -> None:
        """`name`: the message type, needed where the set has several. UsageError, UnreadableError."""
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError

        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
            pool = descriptor_pool.DescriptorPool()
            for file in files.file:
                pool.Add(file)
            own = files.file[-1] if files.file else None
            known = [f"{own.package}.{one.name}".lstrip(".") for one in own.message_type] if own else []
            if name is None and len(known) != 1:
                listed_names = ", ".join(map(visible, known[:20])) or "no message type"
                raise UsageError(f"{path} has {listed_names}", hint="choose one with --proto-type NAME")
            self._new = message_factory.GetMessageClass(pool.FindMessageTypeByName(name or known[0]))
        except OSError as error:
            raise UnreadableError(f"cannot be read: {error.strerror}", file=path) from error
        except (DecodeError, TypeError) as error:
            raise UsageError(f"{path} is not a descriptor set: {error}", hint="protoc --descriptor_set_out") from error
        except KeyError as error:
            raise UsageError(f"{path} has no message type {visible(str(name))}") from error

    def text(self, body: bytes) -> str:
        """Return a body as JSON, field by field; why it is not one where it cannot be read."""
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        try:
            found: Any = self._new.FromString(body)
            return str(json_format.MessageToJson(found, preserving_proto_field_name=True, ensure_ascii=False))
        except (DecodeError, json_format.Error, ValueError, RecursionError) as error:
            return f"(not a {self._new.DESCRIPTOR.full_name}: {error})"


class MessageText:
    """The lines of a message. Hexadecimal is written as it is shown, so that a body may be of any size."""

    columns: Sequence[RowColumn] = (RowColumn(""),)

    def __init__(self, message: StoredMessage, protobuf: Protobuf | None, width: int) -> None:
        self.protobuf = protobuf
        self.width = max(width, 20)
        record = message_listing(message)
        record = {
            name: value for name, value in record.items() if value not in (None, "", []) and name not in _LEFT_OUT
        }
        titles = {name: name if speech() is None else said_title(name.replace("_", " ")) for name in record}
        longest = max(map(width_of, titles.values()))
        self._fields = [
            line
            for name, value in record.items()
            for line in self._wrapped(
                f"{padded(titles[name], longest, right=False)}  {listed(value, name)}", longest + 2
            )
        ]
        try:
            self.body = message.plain_body()
        except (CorruptError, UnsupportedError):  # `body_error` says why
            self.body = bytes(message.body)
        self.show(self._probable_form())

    def _probable_form(self) -> str:
        if self.protobuf is not None:
            return "protobuf"
        try:
            text = self.body[:_MOST_TEXT].decode("utf-8", "strict" if len(self.body) <= _MOST_TEXT else "ignore")
        except UnicodeDecodeError:
            return "hex"
        return "json" if text.lstrip()[:1] in ("{", "[") else "text"

    def show(self, form: str) -> None:
        """Show the body in one of FORMS."""
        self.form = form
        self._lines = [*self._fields, "", said(f"body, {len(self.body)} bytes, as {form}:")]
        if form != "hex":
            if len(self.body) > _MOST_TEXT:
                self._lines.append(said(f"(the first {_MOST_TEXT} bytes; hex shows all)"))
            self._lines += [part for line in self._text().split("\n") for part in self._wrapped(line, 0)]

    def next_form(self) -> None:
        """Show the body in the next form."""
        known = FORMS if self.protobuf is not None else FORMS[:-1]
        self.show(known[(known.index(self.form) + 1) % len(known)])

    def _text(self) -> str:
        if self.form == "protobuf" and self.protobuf is not None:
            return self.protobuf.text(self.body)[:_MOST_TEXT]
        text = self.body[:_MOST_TEXT].decode("utf-8", "backslashreplace")
        if self.form == "json":
            try:
                return json.dumps(json.loads(text), indent=2, ensure_ascii=False)[: 4 * _MOST_TEXT]
            except (ValueError, RecursionError) as error:
                return f"(not JSON: {error})\n{text}"
        return text

    def _wrapped(self, line: str, indent: int) -> list[str]:
        shown = visible(line)
        if len(shown) <= self.width:
            return [shown]
        rest, step = shown[self.width :], self.width - indent
        if step < 1:
            rest, step, indent = shown[self.width :], self.width, 0
        return [shown[: self.width], *(" " * indent + rest[at : at + step] for at in range(0, len(rest), step))]

    @property
    def body_line(self) -> int:
        """Number of the line that the body begins with."""
        return len(self._fields) + 1

    @property
    def count(self) -> int:
        """Number of lines."""
        return len(self._lines) + (-(-len(self.body) // _HEX_WIDTH) if self.form == "hex" else 0)

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        """Return lines as rows."""
        return [ScreenRow((self._line(number),)) for number in range(begin, begin + count)]

    def _line(self, number: int) -> str:
        if number < len(self._lines):
            return self._lines[number]
        at = (number - len(self._lines)) * _HEX_WIDTH
        piece = self.body[at : at + _HEX_WIDTH]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
        return f"{at:08x}  {piece.hex(' '):<{3 * _HEX_WIDTH - 1}}  {text}"
