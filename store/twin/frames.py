"""Rewrite the frames of a log with all text replaced, damaged ones and the bytes between frames included.

Every number that says where something is stays, and so does every fault: a checksum that was wrong is as wrong as
before, and what was no frame becomes none.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import (
    CRC_MASK,
    PROPERTY_CRC_SIZE,
    body_crc,
    frame_crc,
    parse_property_crc,
    property_crc_text,
)
from rmqctl.formats.compression import compress, decompress, is_plain
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.layouts import (
    BATCH_ITEM_HEAD,
    BATCH_ITEM_PROPERTIES_LENGTH,
    BLANK_MAGIC,
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, FrameDamage, FrameHead, Host, decode_message, frame_head
from rmqctl.store.answers.config_offsets import OWN_GROUP_PREFIX, OWN_GROUPS
from rmqctl.store.config.config_files import SYSTEM_TOPICS

# Replace text by text of the same length, by a key that is drawn for one twin and kept nowhere.
#
# A name is replaced letter for letter by a permutation under that key: equal names stay equal, different ones
# different, and `%RETRY%group` still belongs to `group`. Separators and RocketMQ's own names stay.

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
        self._ip = lru_cache(maxsize=1 << 16)(self._ip_of)

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
        return self._ip(ip)

    def _ip_of(self, ip: bytes) -> bytes:
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
        seed = struct.pack(f">BII{len(known)}I", turn, radix, count, *known)
        digest = hashlib.blake2b(seed, key=self._key).digest()
        if count * 4 > len(digest):
            digest = hashlib.shake_256(digest).digest(count * 4)
        least = 0 if known else 1
        return [least + number % (radix - least) for number in struct.unpack_from(f">{count}I", digest)]


_MAGICS = re.compile(b"|".join(re.escape(one.to_bytes(4, "big")) for one in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)))
_SIZE_AND_MAGIC = 8
_BEGUN = 11
"""Bytes at the end of a piece that may be the size and magic code of a frame."""
# names of properties that RocketMQ gives (MessageConst); those of users are replaced
_OWN_PROPERTIES = frozenset(
    b"""KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE DUP_INFO CHECK_IMMUNITY_TIME_IN_SECONDS
    TRAN_PREPARED_QUEUE_OFFSET __transactionId__ TRANSACTION_CHECK_TIMES INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL
    ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME __SHARDINGKEY FORWARD_QUEUE_ID
    REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TRACE_CONTEXT TIMER_DELAY_SEC TIMER_DELIVER_MS
    TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL TIMER_DELAY_MS
    CRC32 __CRC32# DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID ORIGIN_GROUP TRANS_OFFSET TIMER_ROLL_LABEL
    __BORNHOST BORN_TIMESTAMP __PRIORITY__ ORIGIN_QUEUE_ID""".split()
)
# of these, those whose value is a number, or true and false; all others are text, even in digits, as an address is
_OWN_NUMBERS = frozenset(
    b"""WAIT DELAY REAL_QID TRAN_MSG MIN_OFFSET MAX_OFFSET TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME
    TRACE_ON MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE CHECK_IMMUNITY_TIME_IN_SECONDS
    TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES TTL ARRIVE_TIME PUSH_REPLY_TIME POP_CK_OFFSET 1ST_POP_TIME
    FORWARD_QUEUE_ID REDIRECT INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS
    TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DELAY_LEVEL TIMER_DELAY_MS CRC32 TRANS_OFFSET TIMER_ROLL_LABEL
    BORN_TIMESTAMP __PRIORITY__ ORIGIN_QUEUE_ID""".split()
)
_NUMBER = re.compile(rb"[-+]?\d*(?:[, ]+[-+]?\d+)*[, ]*|true|false|null")
_HANDLE, _HANDLE_BROKER = b"POP_CK", 5
_SHORT = 64  # bytes of a body that compressing may make no shorter
_REVIVE = b"rmq_sys_REVIVE_LOG_"
_OPERATIONS = (b"RMQ_SYS_TRANS_OP_HALF_TOPIC", b"RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
_OFFSETS = re.compile(rb"[0-9,]*")
_JSON_VALUE = re.compile(rb'(:\s*")((?:[^"\\]|\\.)*)(")|("(?:[^"\\]|\\.)*"\s*(?=:))|([^"]+)|(")', re.DOTALL)


def rewrite_span(words: Words, data: bytes, *, is_last: bool) -> bytes:
    """Return the twin of the beginning of `data`, which a log has at one place: zeros, a damaged frame or other bytes.

    A damaged frame that fits into its file must be in `data` as a whole. `is_last`: the file ends with `data`.
    """
    zeros = len(data) - len(data.lstrip(b"\0"))
    if zeros == len(data):
        return data if is_last else data[:-_BEGUN]
    if zeros > _SIZE_AND_MAGIC * 2:
        return data[: zeros - 3]  # a size begins with up to three zeros
    found = _MAGICS.search(data, _SIZE_AND_MAGIC + 1)
    end = found.start() - 4 if found is not None else len(data) if is_last else max(len(data) - _BEGUN, _SIZE_AND_MAGIC)
    return _rewrite_damaged(words, data[:end])


def is_whole_frame(data: bytes) -> bool:
    """Return whether `data` is the frame of a message; checksums are not looked at."""
    head = frame_head(data)
    if head is None or not head.is_message or not MINIMUM_FRAME_SIZE <= head.total_size == len(data):
        return False
    try:
        decode_message(data, 0, len(data), None, check_crc=False, unsigned=True)
    except FrameDamage:
        return False
    return True


def _rewrite_damaged(words: Words, data: bytes) -> bytes:
    magic = int.from_bytes(data[4:_SIZE_AND_MAGIC], "big")
    if magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2):
        return rewrite_frame(words, data)
    if magic == BLANK_MAGIC:
        return data[:_SIZE_AND_MAGIC] + words.noise(data[_SIZE_AND_MAGIC:])
    kept = 4 if data[:2] == b"\0\0" else 0  # the size of a frame whose magic code is damaged
    return data[:kept] + words.noise(data[kept:])


def rewrite_frame(words: Words, data: bytes) -> bytes:
    """Return the twin of a frame, whole or damaged: of the bytes from its start to its end or to the next frame."""
    head = frame_head(data)
    if head is None:
        return data[:_SIZE_AND_MAGIC] + words.noise(data[_SIZE_AND_MAGIC:])
    out = bytearray(data)
    layout = FRAME_HEADS[head.sys_flag >> 4 & 3]
    for field, ip in (("born_host_ip", head.born_host_ip), ("store_host_ip", head.store_host_ip)):
        at = layout.offset(field)
        out[at : at + len(ip)] = words.ip(ip)
    body_end = head.size + head.body_length
    length = TOPIC_LENGTH_V2 if head.magic_code == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_V1
    topic_at = body_end + length.size
    if head.body_length < 0 or topic_at > len(data):
        out[head.size :] = words.noise(data[head.size :])
        return bytes(out)
    topic_end = topic_at + int.from_bytes(data[body_end:topic_at], "big")
    properties_at = topic_end + PROPERTIES_LENGTH.size
    properties_end = properties_at + int.from_bytes(data[topic_end:properties_at], "big")
    topic, stored = data[topic_at:topic_end], data[properties_at:properties_end]
    body = data[head.size : body_end]
    new_body = _rewrite_body(words, body, topic, stored, head)
    out[head.size : body_end] = new_body
    out[topic_at:topic_end] = words.text(topic)
    out[properties_at:properties_end] = rewrite_properties(words, stored, topic)
    out[properties_end:] = words.noise(data[properties_end:])
    if head.body_crc and body:  # 0 is what some producers leave
        crc = (head.body_crc ^ body_crc(body) ^ body_crc(new_body)) & 0xFFFFFFFF
        at = layout.offset("body_crc")
        out[at : at + 4] = crc.to_bytes(4, "big")
    expected = parse_property_crc(stored[-PROPERTY_CRC_SIZE:])
    if expected is not None and expected >= 0:
        end = properties_end - PROPERTY_CRC_SIZE
        crc = expected ^ frame_crc(data[:end]) ^ frame_crc(out[:end])
        out[end:properties_end] = property_crc_text(crc & CRC_MASK)
    return _ending_alike(data, out)


def _ending_alike(data: bytes, out: bytearray) -> bytes:
    """Return `out` with the zeros that `data` ends with, and no more: where a torn frame breaks off is what a cut
    counts."""
    end = len(data.rstrip(b"\0"))
    out[end:] = bytes(len(data) - end)
    if end and not out[end - 1]:
        out[end - 1] = 1
    return bytes(out)


def rewrite_properties(words: Words, stored: bytes, topic: bytes) -> bytes:
    """Return the twin of stored properties of a message of `topic`."""
    kept = keeps_tags(topic, stored)
    segments = stored.split(names.PROPERTY_SEPARATOR)
    return names.PROPERTY_SEPARATOR.join(_rewrite_property(words, one, keeps_tags=kept) for one in segments)


def keeps_tags(topic: bytes, stored: bytes) -> bool:
    """Return whether tags are no text of users but say what a record of POP or of a transaction is."""
    return topic.startswith(_REVIVE) or topic in _OPERATIONS or b"REAL_TOPIC\x01" + _REVIVE in stored


def _rewrite_property(words: Words, segment: bytes, *, keeps_tags: bool) -> bytes:
    name, separator, value = segment.partition(names.NAME_SEPARATOR)
    if not separator:
        return words.text(segment)
    if name == b"TAGS" and keeps_tags:
        return segment
    if name == names.CRC32.encode():
        is_whole = value.isdigit() and len(segment) == PROPERTY_CRC_SIZE - 1
        return segment if is_whole else name + separator + words.text(value)
    if name not in _OWN_PROPERTIES:
        return words.text(name) + separator + words.text(value)
    if name == _HANDLE:  # fields of a receipt handle, of which the broker's name is text
        fields = enumerate(value.split(b" "))
        parts = (words.text(one) if at == _HANDLE_BROKER else _number_or_text(words, one) for at, one in fields)
        return name + separator + b" ".join(parts)
    return name + separator + (_number_or_text if name in _OWN_NUMBERS else Words.text)(words, value)


def _number_or_text(words: Words, value: bytes) -> bytes:
    return value if _NUMBER.fullmatch(value) else words.text(value)


def _rewrite_body(words: Words, body: bytes, topic: bytes, stored: bytes, head: FrameHead) -> bytes:
    if topic in _OPERATIONS and _OFFSETS.fullmatch(body):
        return body
    if topic.startswith(_REVIVE) or b"REAL_TOPIC\x01" + _REVIVE in stored:
        return _rewrite_json(words, body)
    kind = names.compression_type(head.sys_flag)
    if kind is not None:
        return _rewrite_compressed(words, body, kind)
    if names.is_inner_batch(head.sys_flag):
        return _rewrite_items(words, body, topic)
    return words.body(body)


def _rewrite_json(words: Words, body: bytes) -> bytes:
    """Return the twin of a record of POP: values that are text are replaced."""

    def replaced(match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return match[1] + words.text(match[2]) + match[3]
        if match[5] is not None:
            return match[5] if _JSON_REST.fullmatch(match[5]) else words.text(match[5])
        return match[0]

    return _JSON_VALUE.sub(replaced, body)


_JSON_REST = re.compile(rb"[-+0-9eE.,:{}\[\]\s]*(?:(?:true|false|null)[-+0-9eE.,:{}\[\]\s]*)*")


def _rewrite_items(words: Words, body: bytes, topic: bytes) -> bytes:
    """Return the twin of a batch: of each message in it, or of the bytes where they are no batch."""
    out, at = bytearray(), 0
    while at < len(body):
        if len(body) - at < BATCH_ITEM_HEAD.size:
            break
        size, _, _, _, length = BATCH_ITEM_HEAD.unpack_from(body, at)
        start = at + BATCH_ITEM_HEAD.size
        properties_at = start + length + BATCH_ITEM_PROPERTIES_LENGTH.size
        if length < 0 or not properties_at <= at + size <= len(body):
            break
        out += body[at:start] + words.body(body[start : start + length]) + body[start + length : properties_at]
        out += rewrite_properties(words, body[properties_at : at + size], topic)
        at += size
    return bytes(out) + words.noise(body[at:])


def _rewrite_compressed(words: Words, body: bytes, kind: int) -> bytes:
    """Return a compressed body of the same size that can be unpacked if `body` can; what comes out is shorter."""
    try:
        plain = decompress(body, kind)
    except (CorruptError, UnsupportedError):
        pass
    else:
        short = compress(words.body(plain), kind) if len(plain) < _SHORT else b""
        return short if len(short) == len(body) else _PACKERS[kind](words, body)
    # whether it begins like a compressed stream is what a check reports
    other = words.body(body)
    if is_plain(other) == is_plain(body):
        return other
    kept = 4 if not is_plain(body) else 0
    return body[:kept] + (b"\x7f" + other[1:] if kept == 0 else other[kept:])


def _stored_zlib(words: Words, body: bytes) -> bytes:
    """Return a zlib stream of `len(body)` bytes: uncompressed blocks, and empty ones where a few bytes are left."""
    room = len(body) - 2 - 4
    blocks, plain = bytearray(), bytearray()
    while room:
        count = min(0xFFFF, room - 5)
        if 0 < room - 5 - count < 5:
            count -= 5
        if count < 0:
            return words.noise(body)
        block = words.body(body[len(plain) : len(plain) + count])
        room -= 5 + count
        blocks += bytes((room == 0,)) + count.to_bytes(2, "little") + (count ^ 0xFFFF).to_bytes(2, "little") + block
        plain += block
    return b"\x78\x01" + bytes(blocks) + zlib.adler32(plain).to_bytes(4, "big")


def _stored_lz4(words: Words, body: bytes) -> bytes:
    """Return an LZ4 frame of `len(body)` bytes with uncompressed blocks of at most 64 KiB."""
    head = bytes.fromhex("04224d18604082")  # blocks of 64 KiB that depend on none before; the last byte checks the rest
    return _blocks(words, body, head, 4, 1 << 16, lambda count, _last: (count | 1 << 31).to_bytes(4, "little"), 4)


def _stored_zstd(words: Words, body: bytes) -> bytes:
    """Return a ZSTD frame of `len(body)` bytes with raw blocks of at most 64 KiB."""
    head = bytes.fromhex("28b52ffd") + b"\x00" + b"\x38"
    return _blocks(words, body, head, 3, 1 << 16, lambda count, last: (count << 3 | last).to_bytes(3, "little"), 0)


def _blocks(
    words: Words,
    body: bytes,
    head: bytes,
    block_head: int,
    largest: int,
    head_of: Callable[[int, bool], bytes],
    tail: int,
) -> bytes:
    room, out = len(body) - len(head) - tail, bytearray(head)
    while room:
        count = min(largest, room - block_head)
        if 0 < room - block_head - count <= block_head:
            count -= block_head + 1
        if count < 0:
            return words.noise(body)
        block = words.body(body[len(out) : len(out) + count])
        room -= block_head + count
        out += head_of(count, room == 0) + block
    return bytes(out) + bytes(tail)


_PACKERS: dict[int, Callable[[Words, bytes], bytes]] = {
    names.COMPRESSION_ZLIB_LEGACY: _stored_zlib,
    names.COMPRESSION_ZLIB: _stored_zlib,
    names.COMPRESSION_LZ4: _stored_lz4,
    names.COMPRESSION_ZSTD: _stored_zstd,
}
