"""One remoting command, and its header as bytes in both forms that RocketMQ has. No I/O (RemotingCommand)."""

from __future__ import annotations

import enum
import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from rmqctl.formats.config_json import parse_config_json
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
    """Decode the command of a frame's header and body; CorruptError for an invalid header."""
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


# Codes of requests and responses, by RocketMQ's own names (RequestCode, ResponseCode).


class RequestCode(enum.IntEnum):
    """What is asked for: the requests that are served, and those that a broker sends to its clients."""

    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    GET_KV_CONFIG = 101
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    GET_CONSUME_STATS = 208
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    GET_BROKER_CONSUME_STATS = 317
    GET_NAMESRV_CONFIG = 319
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    EXCHANGE_BROKER_HA_INFO = 906
    GET_BROKER_HA_STATUS = 907
    SEND_MESSAGE = 10
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_BROKER_CONFIG = 25
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    CHECK_TRANSACTION_STATE = 39
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    DELETE_SUBSCRIPTIONGROUP = 207
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    PUT_KV_CONFIG = 100
    DELETE_KV_CONFIG = 102
    WIPE_WRITE_PERM_OF_BROKER = 205
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    QUERY_CORRECTION_OFFSET = 308
    CLEAN_UNUSED_TOPIC = 316
    UPDATE_NAMESRV_CONFIG = 318
    RESUME_CHECK_HALF_MESSAGE = 323
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355
    RECALL_MESSAGE = 370
    UPDATE_AND_CREATE_STATIC_TOPIC = 513
    NOTIFY_MIN_BROKER_ID_CHANGE = 905
    RESET_MASTER_FLUSH_OFFSET = 908
    GET_BROKER_EPOCH_CACHE = 1007
    NOTIFY_BROKER_ROLE_CHANGED = 1008
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002
    GET_COLD_DATA_FLOW_CTR_INFO = 2003
    SET_COMMITLOG_READ_MODE = 2004
    SWITCH_TIMER_ENGINE = 5001
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    POP_MESSAGE = 200_050
    ACK_MESSAGE = 200_051
    PEEK_MESSAGE = 200_052
    CHANGE_MESSAGE_INVISIBLETIME = 200_053
    NOTIFICATION = 200_054
    POLLING_INFO = 200_055
    POP_ROLLBACK = 200_056
    BATCH_ACK_MESSAGE = 200_151


class ResponseCode(enum.IntEnum):
    """How it ended."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    ILLEGAL_OPERATION = 604


# Bodies as fastjson 1.2 writes and reads them: beans in alphabetical order, maps whose keys are numbers or objects.

_STRING = r'"(?:[^"\\]++|\\.)*+"'
# a string is matched first, so that what stands in it is never taken for a key
_OBJECT_KEY = re.compile(
    rf'{_STRING}|(?P<before>[{{,]\s*+)(?P<key>\{{(?:[^"{{}}]++|{_STRING})*+\}})(?=\s*+:)', re.DOTALL
)


class MessageQueue(NamedTuple):
    """A queue of a topic on a broker; as a key of a map it is written as an object, which plain JSON does not know."""

    broker_name: str
    queue_id: int
    topic: str


def bean(**properties: Any) -> dict[str, Any]:
    """A Java object as fastjson writes it: properties in alphabetical order, nulls left out."""
    return {name: properties[name] for name in sorted(properties) if properties[name] is not None}


def fastjson(value: Any) -> bytes:
    """`value` as a body: no spaces, UTF-8, int keys bare and MessageQueue keys as objects."""
    return _text(value).encode("utf-8", "backslashreplace")


def json_answer(content: Any) -> RemotingCommand:
    """Return a successful answer with `content` as its body."""
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def parse_body(body: bytes) -> dict[str, Any]:
    """The object of a body; keys that are objects become texts of them (see `queue_of_key`). CorruptError where it is
    none, or nested absurdly."""

    def quoted(match: re.Match[str]) -> str:
        key = match.group("key")
        return match.group(0) if key is None else match.group("before") + json.dumps(key, ensure_ascii=False)

    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError("the body is not UTF-8") from error
    try:
        content = parse_config_json(text)
    except CorruptError:
        # few bodies have such keys
        content = parse_config_json(_OBJECT_KEY.sub(quoted, text))
    if not isinstance(content, dict):
        raise CorruptError("the body is no JSON object")
    return content


def queue_of_key(key: Any) -> MessageQueue | None:
    """The queue that a key of a parsed body names; None for another key."""
    try:
        content = parse_config_json(key) if isinstance(key, str) else None
    except CorruptError:
        return None
    if not isinstance(content, dict):
        return None
    return MessageQueue(text_of(content, "brokerName"), integer_of(content, "queueId"), text_of(content, "topic"))


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list of a body, without other values; empty for a value that is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(content: Mapping[str, Any], name: str) -> str:
    """Return a text of a parsed body; empty without one."""
    value = content.get(name)
    return value if isinstance(value, str) else ""


def integer_of(content: Mapping[str, Any], name: str, default: int = 0) -> int:
    """An integer of a parsed body."""
    value = content.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _text(value: Any) -> str:
    if isinstance(value, MessageQueue):
        return _text(bean(brokerName=value.broker_name, queueId=value.queue_id, topic=value.topic))
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{_text(one)}" for key, one in value.items()) + "}"
    if not isinstance(value, str) and isinstance(value, Iterable):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _key(key: Any) -> str:
    if isinstance(key, MessageQueue | int):
        return _text(key)
    return json.dumps(str(key), ensure_ascii=False)


# Remoting frames: cutting a stream of bytes into commands, and commands as bytes. No I/O (NettyDecoder,
# NettyEncoder).
#
# int32 total length      of all that follows int32 serialize type << 24 | header length header, body

LARGEST_FRAME = 16 * 1024 * 1024
"""Bytes of a frame with its first word (com.rocketmq.remoting.frameMaxLength)."""

_WORD = struct.Struct(">I")
_WORDS = struct.Struct(">II")
_HEADER_LENGTH_MASK = 0xFFFFFF
_TLS_HANDSHAKE = b"\x16\x03"


class FrameDecoder:
    """Takes what a connection brings in and gives the commands in it, one by one.

    At most one frame is kept; nothing is kept of one that is larger than it may be.
    """

    def __init__(self, largest_frame: int = LARGEST_FRAME) -> None:
        self._largest_frame = largest_frame
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> None:
        """Take more bytes; nothing is kept of what they lie in."""
        self._buffer += data

    def next_command(self) -> RemotingCommand | None:
        """The next whole command, None until more bytes come. CorruptError: the connection is of no more use."""
        buffer = self._buffer
        available = len(buffer)
        if available < _WORDS.size:
            if available >= _WORD.size:
                self._check(*_WORD.unpack_from(buffer))
            return None
        length, kind = _WORDS.unpack_from(buffer)
        self._check(length)
        end = _WORD.size + length
        if available < end:
            return None
        body_at = _WORDS.size + (kind & _HEADER_LENGTH_MASK)
        if body_at > end:
            raise CorruptError(
                f"a header of {kind & _HEADER_LENGTH_MASK} bytes does not fit into its frame of {length}"
            )
        body = bytes(buffer[body_at:end]) if body_at < end else b""
        command = decode_command(bytes(buffer[_WORDS.size : body_at]), kind >> 24, body)
        if end == available:
            buffer.clear()
        else:
            del buffer[:end]
        return command

    def _check(self, length: int) -> None:
        """CorruptError for a length that no frame has, or none that is taken."""
        if _WORD.size <= length <= self._largest_frame - _WORD.size:
            return
        if length < _WORD.size:
            raise CorruptError(f"a frame of {length} bytes is too short for the length of its header")
        if self._buffer.startswith(_TLS_HANDSHAKE):
            raise CorruptError("the client speaks TLS, which is not offered here")
        raise CorruptError(f"a frame of {length} bytes is larger than the {self._largest_frame} that are allowed")


def encode_frame(command: RemotingCommand) -> bytes:
    """The frame of a command, its header as JSON. CorruptError for one that no peer would take."""
    return encode_head(command) + command.body


def encode_head(command: RemotingCommand) -> bytes:
    """Return what a frame begins with, up to the command's body. CorruptError for one that no peer would take."""
    header = encode_header(command)
    length = _WORD.size + len(header) + len(command.body)
    if length + _WORD.size > LARGEST_FRAME or len(header) > _HEADER_LENGTH_MASK:
        raise CorruptError(f"an answer of {length} bytes is larger than a frame may be ({LARGEST_FRAME})")
    return _WORDS.pack(length, SerializeType.JSON << 24 | len(header)) + header
