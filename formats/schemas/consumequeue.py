"""Units of the consumequeue, its ext file and the batch consumequeue (docs/formats.md)."""

from __future__ import annotations

from construct import Bytes, Int16sb, Int32sb, Int64sb, Struct, this

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
