"""Files of the timer: messages with a delivery time of their own wait in them (docs/formats.md)."""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

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
