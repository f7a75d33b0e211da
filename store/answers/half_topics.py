"""Where transactions stand in a store: the topics, the properties of half messages, and what ends one."""

from __future__ import annotations

from rmqctl.formats.hashing import parse_long

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
"""Whose offsets of the two topics say how far the transactions are looked through."""
PRODUCER_GROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


def ended_offsets(body: bytes) -> list[int]:
    """Queue offsets of half messages that an op message ends; what Long.parseLong refuses is left out.

    (TransactionalMessageServiceImpl#fillOpRemoveMap)
    """
    read = (parse_long(part) for part in body.decode("utf-8", "replace").split(","))
    return [offset for offset in read if offset is not None and offset >= 0]
