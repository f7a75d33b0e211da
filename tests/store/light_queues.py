"""A store with a light queue whose offsets run ahead of its places, as a broker of 5.x numbers them."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.message import Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore

CONFIG = StoreConfig(
    enable_lmq=True,
    enable_multi_dispatch=True,
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=6000,
    max_hash_slot_num=50,
    max_index_num=200,
)
LISTED = ("%LMQ%a,%LMQ%a", "%LMQ%a", "%LMQ%a", "%LMQ%a,%LMQ%a", "%LMQ%a")
OFFSETS = ("0,0", "2", "3", "4,4", "6")
"""What a broker writes of them without a start in between (LmqDispatch#updateLmqOffsets): the first one counts on by
two, and takes one place. Places are 0 to 4."""


def runs_ahead(store: Path) -> Path:
    """Make the store; its queue is `%LMQ%a`. Returns the file of the queue."""
    ours = []
    for listed in LISTED:
        with MessageStore.open(store, "rw", CONFIG, create=True) as opened:
            put = opened.put(Message("Light", b"body", properties={"INNER_MULTI_DISPATCH": listed}))
            assert put.physical_offset is not None
            ours.append(opened.message_at(put.physical_offset).properties()["INNER_MULTI_QUEUE_OFFSET"])
    log = store / "commitlog" / f"{0:020d}"
    data, at = bytearray(log.read_bytes()), 0
    for before, after in zip(ours, OFFSETS, strict=True):
        assert len(before) == len(after)
        at = data.index(b"INNER_MULTI_QUEUE_OFFSET\1" + before.encode(), at) + len("INNER_MULTI_QUEUE_OFFSET\1")
        data[at : at + len(after)] = after.encode()
    log.write_bytes(data)
    return store / "consumequeue" / "%LMQ%a" / "0" / f"{0:020d}"
