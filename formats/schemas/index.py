"""The key index file: header, hash slots and entries (docs/formats.md)."""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

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
