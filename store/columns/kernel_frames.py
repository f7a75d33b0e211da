"""The kernels that write frames of ordinary messages from columns. Plain twin: `formats.message.frame_bytes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from formats.checksums import CRC_MASK
from formats.layouts import FRAME_HEAD_44, MESSAGE_MAGIC_V1, PROPERTIES_LENGTH
from store.columns.compiling import inner, kernel
from store.columns.frame_columns import Frame, Span
from store.columns.kernel_memory import crc_by_address

_AT = {name: offset for name, _, offset, _ in FRAME_HEAD_44.fields}
_MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT = _AT["magic_code"], _AT["body_crc"], _AT["queue_id"], _AT["flag"]
_QUEUE_OFFSET_AT, _PHYSICAL_AT, _SYS_FLAG_AT = _AT["queue_offset"], _AT["physical_offset"], _AT["sys_flag"]
_BORN_AT, _BORN_HOST_AT, _STORED_AT = _AT["born_timestamp"], _AT["born_host_ip"], _AT["store_timestamp"]
_STORE_HOST_AT, _RECONSUMED_AT = _AT["store_host_ip"], _AT["reconsume_times"]
_PREPARED_AT, _BODY_LENGTH_AT = _AT["prepared_transaction_offset"], _AT["body_length"]
_HEAD, _PROPERTIES_LENGTH = FRAME_HEAD_44.size, PROPERTIES_LENGTH.size
_MAGIC = MESSAGE_MAGIC_V1
_SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG = int(Frame.SIZE), int(Frame.QUEUE_ID), int(Frame.FLAG), int(Frame.SYS_FLAG)
_QUEUE_OFFSET, _BORN, _BORN_HOST = int(Frame.QUEUE_OFFSET), int(Frame.BORN_TIMESTAMP), int(Frame.BORN_HOST)
_RECONSUMED, _PREPARED, _TOPIC = int(Frame.RECONSUME_TIMES), int(Frame.PREPARED), int(Frame.TOPIC)
_STORED, _STORE_HOST = int(Frame.STORE_TIMESTAMP), int(Frame.STORE_HOST)
_BODY, _PROPERTIES = int(Span.BODY), int(Span.PROPERTIES)

_Store = Callable[[int, int], None]
_raw_memcpy: Any = cast(Any, cgutils).raw_memcpy


def _store(bits: int) -> _Store:
    """Big-endian, of the low bits of a value."""

    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            low = builder.trunc(arguments[1], kind) if bits < 64 else arguments[1]
            builder.store(builder.bswap(low), builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return cast(_Store, intrinsic(store))


_set_short, _set_int, _set_long = _store(16), _store(32), _store(64)


def _copy(typing_context: Any, target: Any, source: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        places = [builder.inttoptr(argument, byte) for argument in arguments[:2]]
        _raw_memcpy(builder, places[0], places[1], arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


copy_bytes = cast(Callable[[int, int, int], None], intrinsic(_copy))
"""copy_bytes(target, source, length): addresses of bytes that do not overlap."""


@inner
def _write_frames(
    target: int, physical_offset: int, crc_function: int, columns: Any, hosts: Any,
    starts: Any, ends: Any, bodies: int, properties: int, topics: int, topic_places: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """Frames of rows [begin, end) one behind the other from address `target` on, all but their first eight bytes.

    `columns`: by `Frame`; `starts` and `ends`: by `Span`, bytes from `bodies` and `properties`, addresses like
    `topics`, where `topic_places` has begin and end of each topic's field. `hosts`: packed, by their numbers.
    """
    at = target
    for row in range(begin, end):
        body = bodies + starts[_BODY, row]
        length = ends[_BODY, row] - starts[_BODY, row]
        crc = crc_by_address(crc_function, body, length) & CRC_MASK if length else 0
        _set_int(at + _CRC_AT, crc)
        _set_int(at + _QUEUE_ID_AT, columns[_QUEUE_ID, row])
        _set_int(at + _FLAG_AT, columns[_FLAG, row])
        _set_long(at + _QUEUE_OFFSET_AT, columns[_QUEUE_OFFSET, row])
        _set_long(at + _PHYSICAL_AT, physical_offset + at - target)
        _set_int(at + _SYS_FLAG_AT, columns[_SYS_FLAG, row])
        _set_long(at + _BORN_AT, columns[_BORN, row])
        _set_long(at + _BORN_HOST_AT, hosts[columns[_BORN_HOST, row]])
        _set_long(at + _STORED_AT, columns[_STORED, row])
        _set_long(at + _STORE_HOST_AT, hosts[columns[_STORE_HOST, row]])
        _set_int(at + _RECONSUMED_AT, columns[_RECONSUMED, row])
        _set_long(at + _PREPARED_AT, columns[_PREPARED, row])
        _set_int(at + _BODY_LENGTH_AT, length)
        place = at + _HEAD
        copy_bytes(place, body, length)
        place += length
        topic = columns[_TOPIC, row]
        length = topic_places[topic + 1] - topic_places[topic]
        copy_bytes(place, topics + topic_places[topic], length)
        place += length
        length = ends[_PROPERTIES, row] - starts[_PROPERTIES, row]
        _set_short(place, length)
        copy_bytes(place + _PROPERTIES_LENGTH, properties + starts[_PROPERTIES, row], length)
        at += columns[_SIZE, row]


@inner
def _write_first_bytes(target: int, columns: Any, begin: int, end: int) -> None:
    """Size and magic number of the same frames: the moment in which somebody else sees them, each of them whole."""
    at = target
    for row in range(begin, end):
        _set_int(at + _MAGIC_AT, _MAGIC)
        _set_int(at, columns[_SIZE, row])
        at += columns[_SIZE, row]


def make_frame_kernels(stamp: int) -> tuple[Any, Any]:
    """`write_frames` and `write_first_bytes`; `stamp` is `compiling.source_stamp()`. Both return it."""

    @kernel
    def write_frames(
        target: int, physical_offset: int, crc_function: int, columns: Any, hosts: Any,
        starts: Any, ends: Any, bodies: int, properties: int, topics: int, topic_places: Any, begin: int, end: int,
    ) -> int:  # fmt: skip
        _write_frames(
            target, physical_offset, crc_function, columns, hosts,
            starts, ends, bodies, properties, topics, topic_places, begin, end,
        )  # fmt: skip
        return stamp

    @kernel
    def write_first_bytes(target: int, columns: Any, begin: int, end: int) -> int:
        _write_first_bytes(target, columns, begin, end)
        return stamp

    return write_frames, write_first_bytes
