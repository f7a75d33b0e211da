"""The checkpoint file: longs at the head of a 4096 byte page (docs/formats.md)."""

from __future__ import annotations

from construct import Int64sb, Padding, Struct

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
