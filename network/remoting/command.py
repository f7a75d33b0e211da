"""One remoting command, and its header as bytes in both forms that RocketMQ has. No I/O (RemotingCommand)."""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from rmqctl.formats.errors import CorruptError

VERSION = 479
"""MQVersion of 5.3.3, which is what our answers say of themselves."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
LARGEST_HEADER = 1024 * 1024
"""Far above any header of RocketMQ, whose largest part is 32,767 bytes of properties."""

# LanguageCode, by its numbers
_LANGUAGES = "JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS".split()
_KNOWN_LANGUAGES = frozenset(_LANGUAGES)
_OTHER_LANGUAGE = "OTHER"
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_BINARY_HEAD = struct.Struct(">hbhiii")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_TEXT_ONLY = frozenset({str})
# as fastjson writes it, and as orjson does, which takes a fraction of the time and refuses half a surrogate pair
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class SerializeType(enum.IntEnum):
    """In which form a header is written; the upper byte of the frame's second word."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(NamedTuple):
    """A request or a response. `fields`: the header's extFields, texts by name. `opaque` ties an answer to its request.

    `remark` is a response's text for people; `version` that of the sender (MQVersion).
    """

    code: int
    fields: Mapping[str, str] = {}
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: str = "JAVA"
    version: int = VERSION

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & ONEWAY_FLAG)


def decode_command(header: bytes, serialize_type: int, body: bytes) -> RemotingCommand:
    """The command of a frame's header and body; CorruptError for a header that is none."""
    if len(header) > LARGEST_HEADER:
        raise CorruptError(f"a header of {len(header)} bytes is larger than any of RocketMQ")
    if serialize_type == SerializeType.JSON:
        return _from_json(header, body)
    if serialize_type == SerializeType.ROCKETMQ:
        return _from_binary(header, body)
    raise CorruptError(f"serialize type {serialize_type} does not exist in RocketMQ")


def encode_header(command: RemotingCommand) -> bytes:
    """The header as JSON: keys in fastjson's order, empty ones left out."""
    code, fields, _, remark, opaque, flag, language, version = command
    content: dict[str, Any] = {"code": code}
    if fields:
        content["extFields"] = fields if type(fields) is dict else dict(fields)
    content["flag"], content["language"], content["opaque"] = flag, language, opaque
    if remark is not None:
        content["remark"] = remark
    content["serializeTypeCurrentRPC"], content["version"] = "JSON", version
    try:
        return orjson.dumps(content)
    except orjson.JSONEncodeError:
        return _to_json(content).encode("utf-8", "backslashreplace")


def _from_json(header: bytes, body: bytes) -> RemotingCommand:
    content = _json_content(header)
    fields = content.get("extFields") or {}
    if not isinstance(fields, dict):
        raise CorruptError("extFields of the header is no JSON object")
    if not _TEXT_ONLY.issuperset(map(type, fields.values())):
        # what fastjson makes of other values for a map of strings; Python has integers of any size
        fields = {
            name: value if isinstance(value, str) else _to_json(value)
            for name, value in json.loads(header)["extFields"].items()
            if value is not None
        }
    language, remark = content.get("language"), content.get("remark")
    return RemotingCommand(
        _integer(content, "code", None),
        fields,
        body,
        remark if remark is None or isinstance(remark, str) else None,
        _integer(content, "opaque", 0),
        _integer(content, "flag", 0),
        language if isinstance(language, str) and language in _KNOWN_LANGUAGES else _OTHER_LANGUAGE,
        _integer(content, "version", 0),
    )


def _json_content(header: bytes) -> dict[str, Any]:
    """The object of a header; what orjson does not take Python may."""
    try:
        try:
            content = orjson.loads(header)
        except orjson.JSONDecodeError:
            content = json.loads(header)
    except RecursionError as error:
        raise CorruptError("the header is nested too deeply") from error
    except ValueError as error:
        raise CorruptError(f"the header is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise CorruptError("the header is no JSON object")
    return content


def _integer(content: dict[str, Any], name: str, default: int | None) -> int:
    value = content.get(name, default)
    if type(value) is int and _INT_MIN <= value <= _INT_MAX:
        return value
    raise CorruptError(f"{name} of the header is no 32-bit integer")


def _from_binary(header: bytes, body: bytes) -> RemotingCommand:
    """RocketMQSerializable#rocketMQProtocolDecode; every length is held against what is left."""
    if len(header) < _BINARY_HEAD.size:
        raise CorruptError(f"a binary header of {len(header)} bytes is shorter than any")
    code, language, version, opaque, flag, remark_length = _BINARY_HEAD.unpack_from(header)
    remark, position = _binary_text(header, _BINARY_HEAD.size, remark_length, "remark")
    if len(header) - position < _INT32.size:
        raise CorruptError("the binary header ends before its fields")
    (fields_length,) = _INT32.unpack_from(header, position)
    position += _INT32.size
    if not 0 <= fields_length <= len(header) - position:
        raise CorruptError(
            f"fields of {fields_length} bytes do not fit into the {len(header) - position} that are left"
        )
    # cut here, once: what follows the fields is none of them
    end = position + fields_length
    fields = _binary_fields(header[:end], position, end)
    known = _LANGUAGES[language] if 0 <= language < len(_LANGUAGES) else _OTHER_LANGUAGE
    return RemotingCommand(code, fields, body, remark or None, opaque, flag, known, version)


def _binary_fields(header: bytes, position: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    while position < end:
        if end - position < _INT16.size:
            raise CorruptError("the binary header ends inside a field")
        (length,) = _INT16.unpack_from(header, position)
        name, position = _binary_text(header, position + _INT16.size, length, "field name")
        if end - position < _INT32.size:
            raise CorruptError("the binary header ends inside a field")
        (length,) = _INT32.unpack_from(header, position)
        value, position = _binary_text(header, position + _INT32.size, length, "field value")
        if name and value:
            # of no bytes is null in Java
            fields[name] = value
    return fields


def _binary_text(header: bytes, position: int, length: int, what: str) -> tuple[str, int]:
    """The text of `length` bytes and where it ends."""
    left = len(header) - position
    if not 0 <= length <= left:
        raise CorruptError(f"a {what} of {length} bytes does not fit into the {left} that are left")
    try:
        return header[position : position + length].decode("utf-8"), position + length
    except UnicodeDecodeError as error:
        raise CorruptError(f"a {what} of the header is not UTF-8") from error
