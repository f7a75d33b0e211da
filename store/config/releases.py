"""What differs between the versions of RocketMQ that are known: one table, with a column for each version.

Users: predict, check, recover, repair, append, clean, `serve` and the clients.
"""

from __future__ import annotations

from typing import NamedTuple

# in the order of Java's HashSet, which remarks show
_TYPES_5_0 = ("UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL")
_TYPES_5_4 = ("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL")

FASTJSON2 = "fastjson2"
_TABLES_4 = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json")
_TABLES_5 = (
    "topics.json",
    "topicQueueMapping.json",
    "consumerOffset.json",
    "subscriptionGroup.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
)


class Release(NamedTuple):
    """One version. `number`: its MQVersion, part of every header.

    On the wire. `message_types`: values of the topic attribute message.type; none before 5.0 had attributes.
    `has_recall`: timed messages can be taken back by a handle (5.3.1). `has_tag_queries`: QUERY_MESSAGE asks for tags
    too, for which the index has entries (5.4). `has_lite_topics`: topics may expire by lite.topic.expiration (5.5).
    `recalls_by_key`: a recall names a message by its key alone, before 5.4 by its topic, too. `shows_number`:
    brokerStatus has brokerVersion (not in 5.5). `longest_group`: most characters of a group's name.
    `async_sends`: asynchronous sends of a producer at a time, where it bounds them.

    Its configuration. `parser`: of JSON, the version of fastjson 1, or fastjson2. `tables`: files that are loaded
    before the store (BrokerController#initializeMetadata). `deletes_bad_tables`: a file that cannot be loaded is
    deleted, before the backup is looked at.

    What it writes: `has_tag_queries` says it of the index, too. `keeps_logics_offset`: the checkpoint has a sixth long,
    logicsPhysicalOffset (5.5).

    Its start. `tidies_listing`: an empty last file is deleted and directories among the files are passed over; else
    both have a wrong length. `reads_v2`: frames of topics over 127 characters. `knows_batches`: queues of 46-byte
    units. `index_counts`: a failure to load the index is one of the store. `starts_by_queues`: after a clean stop the
    file that holds the queues' end is the first one read, else the third from the end. `starts_by_frames`: the first
    file read is found by its first frame, CRC included, after a crash by the checkpoint's logicsPhysicalOffset, and is
    one of the newest commitLogRecoverMaxNum. `dispatches_clean`: messages past the queues' end that are read after a
    clean stop are dispatched. `cuts_by_dispatched`: queues are cut to the log's end where what was dispatched by then
    reaches it, which it nearly always does; else where they did before. `catches_up`: once started, the store
    dispatches from the queues' end on, bodies unchecked; else from its own end, which is nothing. `compares_room`: a
    frame that is larger than the rest of its file ends the log, even with a valid magic code. `trusts_filler`: the
    minimum of a queue is searched from the one it had on. `writes_abort`: its process id goes into the abort file,
    which 4.9.8 only makes. `makes_rocksdb_store`: the store gets `rocksdbstore/`, whether it is used or not (5.4).
    `combines_queues`: rocksdbCQDoubleWriteEnable has one queue store of two, files and a RocksDB (5.5).
    `reads_wheel_snapshots`: the timer wheel is read from its newest snapshot, if timerWheelSnapshotFlush says so (5.4).
    """

    name: str
    number: int
    message_types: tuple[str, ...] = _TYPES_5_0
    parser: str = "1.2.83"
    tables: tuple[str, ...] = _TABLES_5
    has_recall: bool = True
    has_tag_queries: bool = True
    has_lite_topics: bool = False
    recalls_by_key: bool = False
    shows_number: bool = True
    longest_group: int = 255
    async_sends: int = 10_000
    deletes_bad_tables: bool = False
    tidies_listing: bool = True
    reads_v2: bool = True
    knows_batches: bool = True
    index_counts: bool = True
    starts_by_queues: bool = True
    starts_by_frames: bool = False
    dispatches_clean: bool = True
    cuts_by_dispatched: bool = False
    catches_up: bool = False
    compares_room: bool = True
    trusts_filler: bool = True
    writes_abort: bool = True
    makes_rocksdb_store: bool = False
    keeps_logics_offset: bool = False
    combines_queues: bool = False
    reads_wheel_snapshots: bool = False

    @property
    def is_of_4(self) -> bool:
        """Whether the version is older than 5.0."""
        return not self.message_types

    @property
    def text(self) -> str:
        """The version as brokers write it, such as V5_3_3."""
        return f"V{self.name.replace('.', '_')}"


_V4 = Release(
    "4.9.8",
    409,
    message_types=(),
    parser="1.2.69",
    tables=_TABLES_4,
    has_recall=False,
    has_tag_queries=False,
    tidies_listing=False,
    reads_v2=False,
    knows_batches=False,
    index_counts=False,
    starts_by_queues=False,
    dispatches_clean=False,
    catches_up=True,
    compares_room=False,
    trusts_filler=False,
    writes_abort=False,
)
_V5_3 = Release("5.3.3", 479, has_tag_queries=False)
_V5_5 = Release(
    "5.5.0",
    513,
    message_types=_TYPES_5_4,
    parser=FASTJSON2,
    has_lite_topics=True,
    recalls_by_key=True,
    shows_number=False,
    longest_group=120,
    async_sends=1024,
    deletes_bad_tables=True,
    starts_by_frames=True,
    cuts_by_dispatched=True,
    makes_rocksdb_store=True,
    keeps_logics_offset=True,
    combines_queues=True,
    reads_wheel_snapshots=True,
)

RELEASES = {_V4.name: _V4, _V5_3.name: _V5_3, _V5_5.name: _V5_5}
"""By name, the oldest first."""
VERSIONS = tuple(RELEASES)
DEFAULT_RELEASE = _V5_3


def release_shown(*, has_rocksdb_store: bool) -> Release:
    """Return the version by whose rules a store is written that says no more than whether `rocksdbstore/` is there: the
    newest that does, or does not, make one in every store."""
    return next(one for one in reversed(RELEASES.values()) if one.makes_rocksdb_store is has_rocksdb_store)
