"""Report what another version of RocketMQ does with the formats that a store holds, before an upgrade or downgrade.

Each rule looks for something in the store that a version reads otherwise than the versions that write it (spec of the
formats: docs/formats.md). A store without such a thing has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError, UsageError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.store.config.config_database import databases
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.epoch_file import EPOCH_FILE
from rmqctl.store.config.releases import RELEASES, VERSIONS, Release
from rmqctl.store.files.layout import is_database
from rmqctl.store.files.reading import exists, has_entries
from rmqctl.store.index.index_service import has_tag_entries, holds_rocksdb_data
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.options import UNHEARD
from rmqctl.store.predict.broker_log import RecoveryStart
from rmqctl.store.predict.surroundings import start_of_config
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_beside_files, has_rocksdb_queues
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import Checkpoint, StoreFiles, unread_copies
from rmqctl.store.timer.pending import PendingTimer, pending_messages
from rmqctl.store.timer.recovered import recover_timer

REFUSED, LOST, CHANGED, UNUSED = "refused", "lost", "changed", "unused"
_REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
_ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
_PROPERTY_CRC = "__CRC32#"
# the length of a topic is one signed byte in frames of version 1
_LONGEST_V1_TOPIC = 127
_TYPES_SINCE_5_4 = ("PRIORITY", "LITE")


class VersionDifference(NamedTuple):
    """Something in the store that a version treats otherwise.

    `effect`: `refused` the broker does not start, `lost` clients or the broker miss something that is stored,
    `changed` the broker behaves otherwise, `unused` it stays on the disk unread. `things`: how many are concerned, None
    where that is not counted.
    """

    effect: str
    part: str
    detail: str
    things: int | None = None

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def is_harmful(self) -> bool:
        """Return whether the version does not start or misses something."""
        return self.effect in (REFUSED, LOST)


def differences(files: StoreFiles, version: str) -> list[VersionDifference]:
    """Return what `version` does otherwise with the content of this store, harm first. Nothing is changed.

    Raises: UsageError for an unknown version; UnreadableError.
    """
    release = RELEASES.get(version)
    if release is None:
        raise UsageError(f"version {version!r} is not known", hint=f"known are {', '.join(RELEASES)}")
    store = _Store(files)
    rows = [row for rule in _RULES for row in rule(store, release)]
    order = (REFUSED, LOST, CHANGED, UNUSED)
    return sorted(rows, key=lambda row: order.index(row.effect))


class _Store:
    """The store that all rules look at, with what several of them need."""

    def __init__(self, files: StoreFiles) -> None:
        self.files = files
        self.layout = files.layout
        self.has_rocksdb_queues = has_rocksdb_queues(files.layout)
        self.queues: list[AnyConsumeQueue] = [] if self.has_rocksdb_queues else files.queues.all()

    def messages(self, queue: AnyConsumeQueue) -> int:
        """Return how many messages a queue holds."""
        return max(0, queue.max_offset - queue.min_offset(self.files.log.min_offset))

    def messages_of(self, is_wanted: Callable[[str], bool]) -> int:
        """Return how many messages the queues of some topics hold."""
        return sum(self.messages(queue) for queue in self.queues if is_wanted(queue.topic))

    def table(self, file: str, table: str) -> dict[str, Any]:
        """Return a table of a config file; empty where it cannot be read, which is a row of its own."""
        try:
            content = read_config(self.layout.config / file)
        except (CorruptError, UnreadableError):
            return {}
        found = content.get(table) if isinstance(content, dict) else None
        return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def _config_files(store: _Store, release: Release) -> Iterator[VersionDifference]:
    start = start_of_config(store.layout, store.files.config, release.name)
    for step in start.steps:
        if step.is_harmful and step.source is not None:
            yield VersionDifference(LOST, f"config/{step.file}", step.detail)
    for error in (start.error, start.error_after, start.error_registering):
        if error is not None:
            yield VersionDifference(REFUSED, "config", error)


def _config_databases(store: _Store, release: Release) -> Iterator[VersionDifference]:
    for database, names in databases(store.layout.config).items():
        if release.is_of_4 or (database.name == "metadata" and not release.makes_rocksdb_store):
            text = f"{release.name} reads {', '.join(names)}, and not this RocksDB: what changed since is lost to it"
            yield VersionDifference(LOST, f"config/{database.name}", text)


def _long_topics(store: _Store, release: Release) -> Iterator[VersionDifference]:
    found = {queue.topic for queue in store.queues if len(queue.topic.encode("utf-8")) > _LONGEST_V1_TOPIC}
    messages = store.messages_of(found.__contains__)
    if not release.reads_v2 and messages:
        text = (
            f"{counted(messages, 'message')} of {counted(len(found), 'topic')} with long names have version 2. "
            "For 4.9.8 the log ends at the first one that its recovery reads, and all later messages are cut"
        )
        yield VersionDifference(LOST, "commitlog", text, messages)


def _batches(store: _Store, release: Release) -> Iterator[VersionDifference]:
    messages = sum(store.messages(queue) for queue in store.queues if queue.kind == "BatchCQ")
    if not release.knows_batches and messages:
        text = f"{counted(messages, 'message')} in batch queues (queue.type=BatchCQ): 4.9.8 does not read such queues"
        yield VersionDifference(LOST, "batchconsumequeue", text, messages)


def _rocksdb_queues(store: _Store, release: Release) -> Iterator[VersionDifference]:
    separate = is_database(store.layout.consumequeue_rocksdb)
    if store.has_rocksdb_queues and (release.is_of_4 or (separate and not release.makes_rocksdb_store)):
        text = (
            f"{release.name} does not read this RocksDB: it makes queues from the log as far as its recovery reads; "
            "earlier messages are in no queue. `rmqctl predict` does not follow such a start"
        )
        yield VersionDifference(LOST, "consumequeue", text)
    elif has_rocksdb_beside_files(store.layout) and release.is_of_4:
        yield VersionDifference(UNUSED, "consumequeue_rocksdb", "4.9.8 reads the queue files beside it")


def _rocksdb_store(store: _Store, release: Release) -> Iterator[VersionDifference]:
    if release.makes_rocksdb_store:
        return
    if holds_rocksdb_data(store.layout):
        text = (
            f"{release.name} does not read it: keys, timers or transactions that only this RocksDB holds are not found"
        )
        yield VersionDifference(LOST, "rocksdbstore", text)
    messages = store.messages_of(_ROCKSDB_HALF_TOPIC.__eq__)
    if messages:
        name = release.name
        text = f"{counted(messages, 'half message')} in {_ROCKSDB_HALF_TOPIC}: {name} never asks their producers"
        yield VersionDifference(LOST, "transactions", text, messages)


def _timer(store: _Store, release: Release) -> Iterator[VersionDifference]:
    pending = _pending(store)
    waiting = 0 if pending is None else len(pending)
    if release.is_of_4 and pending is None:
        yield VersionDifference(LOST, "timer", "timed messages cannot be counted: 4.9.8 delivers none of them")
    elif release.is_of_4 and waiting:
        text = f"{counted(waiting, 'timed message')} wait: 4.9.8 has no timer and never delivers them"
        yield VersionDifference(LOST, "timer", text, waiting)
    elif release.recalls_by_key and pending is not None and pending.old_recalls:
        text = (
            f"{counted(pending.old_recalls, 'recall')} in the form of 5.3.3 (topic and key): without "
            "appendTopicForTimerDeleteKey=true 5.5.0 ignores them, and delivers the recalled messages"
        )
        yield VersionDifference(LOST, "timer", text, pending.old_recalls)


def _pending(store: _Store) -> PendingTimer | None:
    """Return what waits in the timer, None where that cannot be read."""
    queue = next((one for one in store.queues if (one.topic, one.queue_id) == (TIMER_TOPIC, 0)), None)
    if queue is None:
        return PendingTimer()
    reader = StoreReader(store.files, UNHEARD)
    try:
        return pending_messages(reader, queue, recover_timer(reader, queue))
    except (CorruptError, UnreadableError):
        return None


def _pop(store: _Store, release: Release) -> Iterator[VersionDifference]:
    messages = store.messages_of(lambda topic: topic.startswith(_REVIVE_PREFIX))
    if release.is_of_4 and (messages or is_database(store.layout.root / "kvStore")):
        text = "4.9.8 has no POP: messages that clients took and did not acknowledge are not given to them again"
        yield VersionDifference(LOST, "pop", text, messages or None)


def _copies(store: _Store, release: Release) -> Iterator[VersionDifference]:
    copies = unread_copies(store.layout) if release.is_of_4 else []
    for kind, part in (("compaction", "compaction"), ("tiered", "tiered storage")):
        messages = sum(copy.messages for copy in copies if copy.kind == kind)
        if messages:
            text = f"{counted(messages, 'message')}: 4.9.8 does not read them"
            yield VersionDifference(LOST, part, text, messages)


def _attributes(store: _Store, release: Release) -> Iterator[VersionDifference]:
    topics = store.table("topics.json", "topicConfigTable")
    with_any = {name: entry["attributes"] for name, entry in topics.items() if _has(entry, "attributes")}
    if release.is_of_4 and with_any:
        text = f"attributes (such as message.type) of {counted(len(with_any), 'topic')} are dropped at the first save"
        yield VersionDifference(LOST, "config/topics.json", text, len(with_any))
    newer = [name for name, found in with_any.items() if found.get("message.type") in _TYPES_SINCE_5_4]
    if not (release.is_of_4 or release.makes_rocksdb_store) and newer:
        text = f"message.type of {counted(len(newer), 'topic')} is PRIORITY or LITE, which 5.3.3 does not know"
        yield VersionDifference(CHANGED, "config/topics.json", text, len(newer))
    groups = store.table("subscriptionGroup.json", "subscriptionGroupTable")
    named = [name for name, entry in groups.items() if _has(entry, "attributes")]
    if release.is_of_4 and named:
        text = f"attributes of {counted(len(named), 'group')} are dropped at the first save"
        yield VersionDifference(LOST, "config/subscriptionGroup.json", text, len(named))
    mapped = store.table("topicQueueMapping.json", "topicQueueMappingInfoMap")
    if release.is_of_4 and mapped:
        text = f"{counted(len(mapped), 'static topic')}: 4.9.8 does not read their mapping of queues"
        yield VersionDifference(LOST, "config/topicQueueMapping.json", text, len(mapped))


def _has(entry: object, name: str) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get(name), dict) and bool(entry[name])


def _index_tags(store: _Store, release: Release) -> Iterator[VersionDifference]:
    if not store.files.index.files:
        return
    has_tags = has_tag_entries(store.files.index, store.files.log, store.layout, None)
    if not release.has_tag_queries and has_tags:
        text = f"index entries of tags stay; {release.name} writes none, so later queries by tag miss its messages"
        yield VersionDifference(UNUSED, "index", text)
    elif release.has_tag_queries and not has_tags:
        text = "queries by tag (`queryMsgByKey -p T`) do not find messages that are stored so far"
        yield VersionDifference(CHANGED, "index", text)


def _recovery(store: _Store, release: Release) -> Iterator[VersionDifference]:
    checkpoint = store.files.readable_checkpoint() or Checkpoint()
    logics = checkpoint.logics_physical_offset
    if not release.starts_by_frames and logics > 0:
        text = f"the sixth long (logicsPhysicalOffset {logics}) stays as it is, and is too low when 5.5.0 comes back"
        yield VersionDifference(UNUSED, "checkpoint", text)
    start = RecoveryStart(store.files.log, release, store.files.config, checkpoint, queues_end=None)
    if start.goes_by_a_time and store.files.has_abort():
        text = (
            "the store was not closed cleanly, and the checkpoint has no logicsPhysicalOffset: 5.5.0 goes by a time "
            "that can be ahead of the queues. Start it once by its own version, or run `rmqctl recover` first"
        )
        yield VersionDifference(LOST, "checkpoint", text)
    count, most_files = len(store.files.log.files), store.files.config.commit_log_recover_max_num
    if release.starts_by_frames and count > most_files:
        text = (
            f"recovery reads {most_files} of {count} files at most (commitLogRecoverMaxNum): with lost queues "
            "or those far behind, earlier messages reach no queue"
        )
        yield VersionDifference(CHANGED, "commitlog", text, count)


def _property_crc(store: _Store, release: Release) -> Iterator[VersionDifference]:
    last = store.files.log.last_with_data()
    message = None if last is None else message_if_any(store.files.log, last.start_offset)
    if release.is_of_4 and message is not None and _PROPERTY_CRC in message.properties():
        yield VersionDifference(
            CHANGED, "commitlog", f"4.9.8 does not verify {_PROPERTY_CRC} of properties, and writes none"
        )


def _security(store: _Store, release: Release) -> Iterator[VersionDifference]:
    if release.is_of_4 and exists(store.layout.config / "auth"):
        text = "4.9.8 does not read users and ACLs of 5.x: without conf/plain_acl.yml it lets all clients in"
        yield VersionDifference(CHANGED, "config/auth", text)
    if release.is_of_4 and exists(store.layout.root / EPOCH_FILE):
        text = "4.9.8 has no controller mode: it neither reads nor cuts the epochs"
        yield VersionDifference(UNUSED, EPOCH_FILE, text)


_RULES: tuple[Callable[[_Store, Release], Iterator[VersionDifference]], ...] = (
    _config_files,
    _config_databases,
    _long_topics,
    _batches,
    _rocksdb_queues,
    _rocksdb_store,
    _timer,
    _pop,
    _copies,
    _attributes,
    _index_tags,
    _recovery,
    _property_crc,
    _security,
)


def probable_version(files: StoreFiles) -> str:
    """Return the newest version that the files of the store fit: the one that probably ran last.

    5.5.0 leaves `rocksdbstore/` or a sixth long of the checkpoint in every store. A broker of 5.x has files beside
    its tables that 4.9.8 does not make; a store without a configuration is taken for one of 5.3.3.
    """
    v4, v5_3, v5_5 = VERSIONS
    layout = files.layout
    if files.keeps_logics_offset():
        return v5_5
    if not has_entries(layout.config) or has_rocksdb_queues(layout):
        return v5_3
    names = ("timerwheel", "timerlog", "compaction", "batchconsumequeue", EPOCH_FILE)
    in_config = ("topicQueueMapping.json", "consumerOrderInfo.json", "timercheck")
    is_newer = any(exists(layout.root / name) for name in names) or any(
        exists(layout.config / name) for name in in_config
    )
    has_long_topic = any(len(name.encode("utf-8")) > _LONGEST_V1_TOPIC for name in files.queues.topics())
    return v5_3 if is_newer or has_long_topic else v4
