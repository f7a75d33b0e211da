"""Layouts as construct schemas, and what is derived from them (docs/formats.md)."""

from __future__ import annotations

from typing import Any, NamedTuple

from construct import (
    Bytes,
    ConstructError,
    Container,
    FlagsEnum,
    GreedyBytes,
    GreedyRange,
    IfThenElse,
    Int8sb,
    Int8ub,
    Int16sb,
    Int16ub,
    Int16ul,
    Int32sb,
    Int32ub,
    Int32ul,
    Int64sb,
    Int64ul,
    NullTerminated,
    Padding,
    Struct,
    this,
)

MESSAGE_MAGIC_V1 = 0xDAA320A7
MESSAGE_MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194

# MessageSysFlag: single bits; the transaction type is a two-bit field and the compression type a three-bit one.
SYS_FLAG_BITS = {
    "compressed": 0x1,
    "multi_tags": 0x2,
    "born_host_v6": 0x10,
    "store_host_v6": 0x20,
    "need_unwrap": 0x40,
    "inner_batch": 0x80,
}
TRANSACTION_MASK = 0xC
COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x7 << COMPRESSION_SHIFT
sys_flag = FlagsEnum(Int32ub, **SYS_FLAG_BITS)

host_v4 = Struct(
    "ip" / Bytes(4) * "IPv4 address",
    "port" / Int32sb * "port",
)
host_v6 = Struct(
    "ip" / Bytes(16) * "IPv6 address",
    "port" / Int32sb * "port",
)

message_frame = Struct(
    "total_size" / Int32sb * "bytes of the whole frame, this field included",
    "magic_code" / Int32ub * "0xDAA320A7 (V1) or 0xDAA320AB (V2, two-byte topic length)",
    "body_crc" / Int32sb * "crc32 of the stored body & 0x7FFFFFFF; 0 for no body",
    "queue_id" / Int32sb * "queue of the topic",
    "flag" / Int32sb * "the producer's own flag",
    "queue_offset" / Int64sb * "slot in the consumequeue; 0 for prepared and rolled back messages",
    "physical_offset" / Int64sb * "offset of this frame in the commitlog",
    "sys_flag" / Int32sb * "bits: compressed, transaction type, IPv6 hosts, inner batch, compression type",
    "born_timestamp" / Int64sb * "ms, the producer's clock",
    "born_host" / IfThenElse(this.sys_flag & SYS_FLAG_BITS["born_host_v6"], host_v6, host_v4) * "producer",
    "store_timestamp" / Int64sb * "ms, the broker's clock inside the put lock",
    "store_host" / IfThenElse(this.sys_flag & SYS_FLAG_BITS["store_host_v6"], host_v6, host_v4) * "broker",
    "reconsume_times" / Int32sb * "how often consumption was retried",
    "prepared_transaction_offset" / Int64sb * "physical offset of the half message of a transaction",
    "body_length" / Int32sb * "bytes of the stored body",
    "body" / Bytes(this.body_length) * "the body as stored, possibly compressed",
    "topic_length" / IfThenElse(this.magic_code == MESSAGE_MAGIC_V2, Int16sb, Int8sb) * "bytes of the topic, signed",
    "topic" / Bytes(this.topic_length) * "topic, UTF-8",
    "properties_length" / Int16sb * "bytes of the property string, signed",
    "properties" / Bytes(this.properties_length) * "name 0x01 value 0x02 ..., UTF-8",
)

_UNSIGNED = {
    "topic_length": "topic_length"
    / IfThenElse(this.magic_code == MESSAGE_MAGIC_V2, Int16ub, Int8ub)
    * "bytes of the topic, read without a sign",
    "properties_length": "properties_length" / Int16ub * "bytes of the property string, read without a sign",
}
overflowed_frame = Struct(*(_UNSIGNED.get(part.name, part) for part in message_frame.subcons))

blank_frame = Struct(
    "total_size" / Int32sb * "bytes left in the file, this frame included",
    "magic_code" / Int32ub * "0xCBD43194; what follows up to the file's end is not defined",
)

batch_item = Struct(
    "item_size" / Int32sb * "bytes of the item, this field included",
    "magic_code" / Int32sb * "always 0",
    "body_crc" / Int32sb * "always 0",
    "flag" / Int32sb * "the producer's own flag",
    "body_length" / Int32sb * "bytes of the body",
    "body" / Bytes(this.body_length) * "body of one inner message",
    "properties_length" / Int16sb * "bytes of the property string",
    "properties" / Bytes(this.properties_length) * "name 0x01 value 0x02 ..., UTF-8",
)


# Units of the consumequeue, its ext file and the batch consumequeue (docs/formats.md).

consumequeue_unit = Struct(
    "physical_offset" / Int64sb * "commitlog offset of the message; 0 in a placeholder",
    "size" / Int32sb * "bytes of the frame; 0x7FFFFFFF in a placeholder, 0 where nothing was written",
    "tags_code" / Int64sb * "hash of the tag, delivery time of a delayed message, or address of an ext unit",
)

consumequeue_ext_unit = Struct(
    "size" / Int16sb * "bytes of the unit, this field included; -1 ends the file, 0 ends the data",
    "tags_code" / Int64sb * "hash of the tag",
    "store_timestamp" / Int64sb * "ms",
    "bit_map_size" / Int16sb * "bytes of the filter bit map",
    "bit_map" / Bytes(this.bit_map_size) * "bloom filter hits of SQL92 subscriptions",
)

batch_consumequeue_unit = Struct(
    "physical_offset" / Int64sb * "commitlog offset of the batch",
    "size" / Int32sb * "bytes of the frame",
    "tags_code" / Int64sb * "hash of the tag",
    "store_timestamp" / Int64sb * "ms",
    "base_queue_offset" / Int64sb * "queue offset of the first inner message",
    "batch_size" / Int16sb * "number of inner messages",
    "compacted_offset" / Int32sb * "-1 when unused",
    "reserved" / Int32sb * "0",
)


# Message ids: the broker's offset id and the client's unique id (docs/formats.md).

offset_message_id_v4 = Struct(
    "ip" / Bytes(4) * "store host",
    "port" / Int32sb * "store port",
    "physical_offset" / Int64sb * "commitlog offset",
)
offset_message_id_v6 = Struct(
    "ip" / Bytes(16) * "store host",
    "port" / Int32sb * "store port",
    "physical_offset" / Int64sb * "commitlog offset",
)
unique_id_v4 = Struct(
    "ip" / Bytes(4) * "client address",
    "process_id" / Int16ub * "low 16 bits of the client's process id",
    "class_loader_hash" / Int32sb * "hash of the client's class loader",
    "time_difference" / Int32sb * "ms since the start of the month, client's local time",
    "counter" / Int16ub * "wraps at 65536",
)
unique_id_v6 = Struct(
    "ip" / Bytes(16) * "client address",
    "process_id" / Int16ub * "low 16 bits of the client's process id",
    "class_loader_hash" / Int32sb * "hash of the client's class loader",
    "time_difference" / Int32sb * "ms since the start of the month, client's local time",
    "counter" / Int16ub * "wraps at 65536",
)


# Files of the timer: messages with a delivery time of their own wait in them (docs/formats.md).

TIMER_CHECKPOINT_SIZE = 4096

timer_checkpoint = Struct(
    "last_read_time_ms" / Int64sb * "what is due before this time has been delivered",
    "last_timer_log_flush_pos" / Int64sb * "flushed end of the timer log",
    "last_timer_queue_offset" / Int64sb * "messages of the timer's queue before it are in the timer log",
    "master_timer_queue_offset" / Int64sb * "the same of a slave's master; where the timer goes on if it is smaller",
    "state_version" / Int64sb * "data version",
    "timestamp" / Int64sb * "ms, data version",
    "counter" / Int64sb * "data version",
)

TIMER_WHEEL_SLOTS = 1_209_600

timer_wheel_slot = Struct(
    "time" / Int64sb * "time of the slot in units of timerPrecisionMs; the slot's index is this modulo 1209600",
    "first_pos" / Int64sb * "position in the timer log of the first unit of the slot",
    "last_pos" / Int64sb * "position of the last one, from which `previous_pos` leads to the others",
    "num" / Int32sb * "messages: one more for each unit, one less for each that takes another message back",
    "magic" / Int32sb * "bits as in a unit of the timer log",
)

timer_log_unit = Struct(
    "size" / Int32sb * "52",
    "previous_pos" / Int64sb * "position of the unit before in the same slot of the wheel, -1 without one",
    "magic" / Int32sb * "bits: 1 always, 2 to be stored again for a later slot, 4 takes another message back",
    "write_time" / Int64sb * "ms",
    "delay" / Int32sb * "ms from write_time to the time at which it is due",
    "physical_offset" / Int64sb * "of the message in the commitlog",
    "message_size" / Int32sb * "bytes",
    "topic_hash" / Int32sb * "String.hashCode of the topic to deliver to",
    "reserved" / Int64sb * "0",
)


# The key index file: header, hash slots and entries (docs/formats.md).

index_header = Struct(
    "begin_timestamp" / Int64sb * "ms, store time of the first message",
    "end_timestamp" / Int64sb * "ms, store time of the last message",
    "begin_physical_offset" / Int64sb * "commitlog offset of the first message",
    "end_physical_offset" / Int64sb * "commitlog offset of the last message",
    "hash_slot_count" / Int32sb * "slots in use",
    "index_count" / Int32sb * "number of the next entry: starts at 1, entry 0 is never used",
)

index_slot = Struct("entry" / Int32sb * "number of the newest entry of this slot's chain, 0 for none")

index_entry = Struct(
    "key_hash" / Int32sb * "absolute Java hash of topic#key",
    "physical_offset" / Int64sb * "commitlog offset of the message",
    "time_difference" / Int32sb * "seconds since the header's begin_timestamp",
    "previous_entry" / Int32sb * "next older entry of the same slot, 0 for none",
)


# The key index in tiered storage: header, slots, and the items of a slot together (IndexStoreFile). Before it is
# uploaded, its slots and items are chained as in an index of the store; item 0 is not used.

TIERED_INDEX_MAGIC = 0xBCC50285
TIERED_INDEX_OPEN = 0xBCC50289

tiered_index_header = Struct(
    "magic_code" / Int32ub * "0xBCC50285 (full); 0xBCC50289 while it is written",
    "begin_timestamp" / Int64sb * "ms, when the index was begun",
    "end_timestamp" / Int64sb * "ms, the greatest store time",
    "slot_count" / Int32sb * "slots in use",
    "item_count" / Int32sb * "items",
)

tiered_index_slot = Struct(
    "position" / Int32sb * "byte of its first item in the segment",
    "size" / Int32sb * "bytes of its items, 0 for none",
)

tiered_index_item = Struct(
    "key_hash" / Int32sb * "absolute Java hash of topic#key",
    "topic_id" / Int32sb * "number of the topic in topicMetadataTable",
    "queue_id" / Int32sb * "queue of the topic",
    "segment_offset" / Int64sb * "offset in the COMMIT_LOG of the queue",
    "size" / Int32sb * "bytes of the frame",
    "time_difference" / Int32sb * "seconds since the header's begin_timestamp, may be negative",
)

local_tiered_index_slot = Struct(
    "item" / Int32sb * "number of the newest item of this slot's chain, 0 for none",
    "unused" / Int32sb * "0",
)

local_tiered_index_item = Struct(
    *tiered_index_item.subcons,
    "previous_item" / Int32sb * "next older item of the same slot, 0 for none",
)


# The property string of a message and the frame checksum that can end it (docs/formats.md).

# a name ends at 0x01, a value at 0x02; brokers of 4.9 to 5.1 leave out the very last 0x02
property_entry = Struct(
    "name" / NullTerminated(GreedyBytes, term=b"\x01") * "UTF-8, ends at 0x01",
    "value" / NullTerminated(GreedyBytes, term=b"\x02", require=False) * "UTF-8, ends at 0x02 or with the string",
)

property_string = GreedyRange(property_entry)

property_crc = Struct(
    "name" / Bytes(8) * "the name `__CRC32#`",
    "name_separator" / Bytes(1) * "0x01",
    "digits" / Bytes(10) * "crc32 of the frame before this & 0x7FFFFFFF: decimal, least significant digit first",
    "property_separator" / Bytes(1) * "0x02",
)


# The checkpoint file: longs at the head of a 4096 byte page (docs/formats.md).

CHECKPOINT_SIZE = 4096

checkpoint_values = Struct(
    "physic_msg_timestamp" / Int64sb * "ms, store time of the last flushed commitlog message",
    "logics_msg_timestamp" / Int64sb * "ms, store time of the last dispatched consumequeue message",
    "index_msg_timestamp" / Int64sb * "ms, end of the last full and flushed index file",
    "master_flushed_offset" / Int64sb * "since 5.0: flushed offset of the master",
    "confirm_physical_offset" / Int64sb * "since 5.1: start of the last valid message after recovery",
    "logics_physical_offset"
    / Int64sb
    * "since 5.5: start of the last message whose queue unit is on disk; 0 in a file of an older version",
)

checkpoint = Struct(
    "values" / checkpoint_values,
    "rest" / Padding(CHECKPOINT_SIZE - checkpoint_values.sizeof()) * "zeros",
)


# DLedger (io.openmessaging.storage.dledger): what is before each message of its log, and its index.

DLEDGER_MAGIC = 1

dledger_entry_head = Struct(
    "magic_code" / Int32sb * "1; -1 and the bytes left end a file",
    "size" / Int32sb * "bytes of head and body",
    "entry_index" / Int64sb * "number of the entry in the log, from 0",
    "term" / Int64sb * "term of the leader that wrote the entry",
    "pos" / Int64sb * "offset of the entry in the log; the frame begins 48 bytes later",
    "channel" / Int32sb * "0",
    "chain_crc" / Int32sb * "0",
    "body_crc" / Int32sb * "0: only the frame's own CRC covers the message",
    "body_size" / Int32sb * "bytes of the frame; 0 for an entry without a message",
)

dledger_index_unit = Struct(
    "magic_code" / Int32sb * "1",
    "pos" / Int64sb * "offset of the entry in the log",
    "size" / Int32sb * "bytes of the entry",
    "entry_index" / Int64sb * "number of the entry, and of the unit",
    "term" / Int64sb * "term of the entry",
)


# RocksDB: the log framing, the head of a batch in a write-ahead log, and the ends of blocks and tables. All of them
# little-endian.

rocksdb_record = Struct(
    "checksum" / Int32ul * "masked CRC-32C of type and data; little-endian, as everything here",
    "size" / Int16ul * "bytes of data, all within one block of 32 KiB",
    "type" / Int8ub * "1 whole, 2 first, 3 middle, 4 last part; 5 to 8 the same with the log's number in front",
)

rocksdb_batch = Struct(
    "sequence" / Int64ul * "sequence number of the first entry",
    "count" / Int32ul * "number of entries",
)

rocksdb_block_trailer = Struct(
    "compression" / Int8ub * "0 none, 4 LZ4, 7 ZSTD, the latter two with the plain size as a varint in front",
    "checksum" / Int32ul * "of the data as stored and the compression, by the type in the footer",
)

rocksdb_footer = Struct(
    "checksum_type" / Int8ub * "0 none, 1 CRC-32C, 2 xxHash32, 3 xxHash64, 4 XXH3",
    "handles" / Bytes(40) * "metaindex and index: offset and size each, varints, padded with zeros",
    "format_version" / Int32ul * "5",
    "magic" / Int64ul * "0x88E241B785F4CFF7",
)

# What RocketMQ puts into RocksDB (RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable), big-endian as elsewhere.

rocksdb_queue_unit = Struct(
    "physical_offset" / Int64sb * "commitlog offset of the message",
    "size" / Int32sb * "bytes of its frame",
    "tags_code" / Int64sb * "hash of the tag, or the delivery time of a delayed message",
    "store_timestamp" / Int64sb * "ms, store time of the message",
)

rocksdb_queue_end = Struct(
    "physical_offset" / Int64sb * "commitlog offset of the queue's last, or first, message",
    "queue_offset" / Int64sb * "its slot in the queue",
)

rocksdb_timer = Struct(
    "size" / Int32sb * "bytes of the frame",
    "physical_offset" / Int64sb * "commitlog offset of the message",
)

rocksdb_transaction = Struct(
    "checks" / Int32sb * "how often producers were asked",
    "size" / Int32sb * "bytes of the frame of the half message",
)


class ParsedField(NamedTuple):
    """One field as found in bytes: `offset` and `size` in bytes from the start of the structure."""

    name: str
    offset: int
    size: int
    value: Any
    doc: str


def explain(schema: Struct, data: bytes) -> tuple[list[ParsedField], str | None]:
    """Parse `data` field by field. Returns what could be read and, where it broke off, construct's reason.

    For forensic output only: it is slow, and unlike `Struct.parse` keeps what was read before the damage.
    """
    import io

    stream = io.BytesIO(data)
    context = Container(_params=Container(), _parsing=True, _building=False, _sizing=False)
    context._root = context
    found: list[ParsedField] = []
    for member in schema.subcons:
        start = stream.tell()
        try:
            value = member._parsereport(stream, context, "")
        except (ConstructError, OverflowError, MemoryError) as error:
            reason = str(error).strip().splitlines()[-1] if str(error) else type(error).__name__
            return found, f"{member.name}: {reason}"
        context[member.name] = value
        found.append(
            ParsedField(member.name, start, stream.tell() - start, value, str(getattr(member, "docs", "") or ""))
        )
    return found, None
