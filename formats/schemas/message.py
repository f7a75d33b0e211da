"""The commitlog frame, its end-of-file filler, hosts and batch items (docs/formats.md)."""

from __future__ import annotations

from construct import (
    Bytes,
    FlagsEnum,
    IfThenElse,
    Int8sb,
    Int8ub,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
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
