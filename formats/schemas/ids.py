"""Message ids: the broker's offset id and the client's unique id (docs/formats.md)."""

from __future__ import annotations

from construct import Bytes, Int16ub, Int32sb, Int64sb, Struct

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
