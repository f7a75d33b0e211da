"""Settings of a store: what a broker.conf says, RocketMQ's defaults for the rest (MessageStoreConfig)."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UsageError, unreadable
from rmqctl.store.files.layout import StoreLayout

# What each key of a broker.conf does here: the one table that docs/config.md and the words about a key come from.

READING = "reading"
WRITING = "writing"
CLEANING = "cleaning"
PREDICT = "`predict` only"


class ConfigKey(NamedTuple):
    """A key as RocketMQ spells it, where it counts (one of the words above), and what it does or why it does little.

    `default`: RocketMQ's, as a broker.conf would say it, of a key that counts for `predict` only: it changes nothing.
    """

    name: str
    counts_for: str
    meaning: str
    default: str = ""


KEYS = (
    ConfigKey("storePathRootDir", READING, "the store where -s names none"),
    ConfigKey("storePathCommitLog", READING, "directories of the commitlog, separated by commas"),
    ConfigKey("readOnlyCommitLogStorePaths", READING, "further directories, only read; who writes or cleans refuses"),
    ConfigKey("tieredStoreFilePath", READING, "folder of tiered storage, else the one in the store that looks like it"),
    ConfigKey("storeType", WRITING, "defaultRocksDB: queues and tables are read from RocksDB, never written"),
    ConfigKey("mappedFileSizeCommitLog", READING, "size of files, else as they are"),
    ConfigKey("mappedFileSizeConsumeQueue", READING, "size of files, else as they are"),
    ConfigKey("mapperFileSizeBatchConsumeQueue", READING, "size of files, else as they are"),
    ConfigKey("mappedFileSizeConsumeQueueExt", READING, "size of files, else as they are"),
    ConfigKey("enableConsumeQueueExt", WRITING, "true: queue units get ext units"),
    ConfigKey("maxHashSlotNum", READING, "slots of index files, else as they are"),
    ConfigKey("maxIndexNum", READING, "entries of index files, else as they are"),
    ConfigKey("messageIndexEnable", WRITING, "whether keys go into the index"),
    ConfigKey("indexFileWriteEnable", WRITING, "false: the index is in RocksDB alone, index files stay as they are"),
    ConfigKey(
        "indexTags",
        WRITING,
        "rmqctl's own: whether tags go into the index (RocketMQ 5.4); without it as the store has it",
    ),
    ConfigKey("messageIndexSafe", PREDICT, "as with true, a recovery holds the index against the log", "false"),
    ConfigKey("flushDiskType", WRITING, "SYNC_FLUSH: a put returns when its message is on disk"),
    ConfigKey("flushIntervalCommitLog", WRITING, "ms between two flushes of the commitlog"),
    ConfigKey("flushCommitLogTimed", WRITING, "false: wakeFlushWhenPutMessage and commits of the pool count"),
    ConfigKey("flushCommitLogLeastPages", WRITING, "dirty pages that are worth a flush"),
    ConfigKey("flushCommitLogThoroughInterval", WRITING, "ms after which fewer dirty pages are flushed, too"),
    ConfigKey("commitIntervalCommitLog", WRITING, "ms between two commits of the transient pool"),
    ConfigKey("commitCommitLogLeastPages", WRITING, "pages in the pool that are worth a commit"),
    ConfigKey("commitCommitLogThoroughInterval", WRITING, "ms after which fewer pages are committed, too"),
    ConfigKey("wakeCommitWhenPutMessage", WRITING, "false: puts do not wake the commit, which keeps to its interval"),
    ConfigKey(
        "wakeFlushWhenPutMessage", WRITING, "true: a flush also follows each dispatch, when pages enough are dirty"
    ),
    ConfigKey("flushIntervalConsumeQueue", WRITING, "ms between two flushes of the queues"),
    ConfigKey("flushConsumeQueueLeastPages", WRITING, "new pages of a queue that are worth a flush"),
    ConfigKey("flushConsumeQueueThoroughInterval", WRITING, "ms after which fewer dirty pages are flushed, too"),
    ConfigKey("syncFlushTimeout", WRITING, "ms that a put waits for its flush"),
    ConfigKey("transientStorePoolEnable", WRITING, "puts go to memory first, and to the file at every commit"),
    ConfigKey("transientStorePoolSize", WRITING, "buffers of the transient pool, each as large as a commitlog file"),
    ConfigKey(
        "fastFailIfNoBufferInStorePool", WRITING, "true: without a free buffer no commitlog file is begun, puts fail"
    ),
    ConfigKey("warmMapedFileEnable", WRITING, "a commitlog file has its pages in memory before it is written"),
    ConfigKey("flushLeastPagesWhenWarmMapedFile", WRITING, "SYNC_FLUSH: pages between two flushes of warm files"),
    ConfigKey("maxMessageSize", WRITING, "bytes of the largest body"),
    ConfigKey("autoMessageVersionOnTopicLen", WRITING, "long topics get frames of version 2"),
    ConfigKey("enabledAppendPropCRC", WRITING, "frames end with a CRC over all of them"),
    ConfigKey("forceVerifyPropCRC", WRITING, "true: for recover and a start a frame without such a CRC is damaged"),
    ConfigKey("checkCRCOnRecover", WRITING, "false: recover and a start accept wrong CRCs"),
    ConfigKey("checkCommitLogOffsetOnRecover", PREDICT, "a recovery always checks offsets", "false"),
    ConfigKey("commitLogRecoverMaxNum", PREDICT, "a recovery reads all files that it has to", "10"),
    ConfigKey("enableAcceleratedRecovery", PREDICT, "a recovery reads whole files", "false"),
    ConfigKey("indexRocksDBEnable", PREDICT, "read where it has keys, never written", "false"),
    ConfigKey("transRocksDBEnable", PREDICT, "read where it has half messages, never written", "false"),
    ConfigKey("rocksdbCQDoubleWriteEnable", PREDICT, "queue files are written, RocksDB never", "false"),
    ConfigKey("combineCQUseRocksdbForLmq", PREDICT, "RocksDB is never written", "false"),
    ConfigKey("combineCQLoadingCQTypes", PREDICT, "queue files are written, RocksDB never", "default;defaultRocksDB"),
    ConfigKey("combineAssignOffsetCQType", PREDICT, "queue files are written, RocksDB never", "default"),
    ConfigKey("combineCQPreferCQType", PREDICT, "queue files are written, RocksDB never", "default"),
    ConfigKey("timerRocksDBEnable", READING, "false: what a RocksDB has of the timer is not delivered"),
    ConfigKey("messageDelayLevel", WRITING, "delays of levels 1, 2, ...; also to read delayed messages"),
    ConfigKey("osPageCacheBusyTimeOutMills", WRITING, "ms after which a put behind a slow one is refused"),
    ConfigKey("maxTransferBytesOnMessageInMemory", READING, "bytes that one read or pull gives"),
    ConfigKey("maxTransferCountOnMessageInMemory", READING, "messages that one read or pull gives"),
    ConfigKey("maxTransferBytesOnMessageInDisk", READING, "bytes that one read or pull gives from disk"),
    ConfigKey("maxTransferCountOnMessageInDisk", READING, "messages that one read or pull gives from disk"),
    ConfigKey("accessMessageInMemoryMaxRatio", READING, "percent of the memory that has the end of the log"),
    ConfigKey("maxFilterMessageSize", READING, "bytes of queue units that a pull with tags looks through"),
    ConfigKey("brokerPermission", READING, "`info` says whether a broker takes messages with it"),
    ConfigKey("duplicationEnable", WRITING, "lets a slave's store take messages"),
    ConfigKey("enableDLegerCommitLog", WRITING, "true is refused, but by `predict`"),
    ConfigKey("storePathDLedgerCommitLog", PREDICT, "a DLedger log elsewhere is not read"),
    ConfigKey("enableControllerMode", WRITING, "true: a slave has a transient pool, too"),
    ConfigKey("enableSlaveActingMaster", READING, "only with enableRemoteEscape"),
    ConfigKey("enableRemoteEscape", READING, "slaves deliver to other brokers"),
    ConfigKey("enableLmq", WRITING, "messages for several queues get an offset in each"),
    ConfigKey("enableRetryTopicV2", READING, "retry topics of POP are %RETRY%group+topic; without it as the store has"),
    ConfigKey("enableMultiDispatch", WRITING, "false with enableLmq: offsets in light queues, no slots there"),
    ConfigKey("timerWheelEnable", WRITING, "messages with a delivery time wait for it, else are refused"),
    ConfigKey("mappedFileSizeTimerLog", READING, "size of files, else as they are"),
    ConfigKey("enableCompaction", READING, "false: no copies are needed, none are loaded at a start"),
    ConfigKey("compactionMappedFileSize", READING, "size of files, with compactionCqMappedFileSize; else as they are"),
    ConfigKey("compactionCqMappedFileSize", READING, "size of files, else as they are"),
    ConfigKey("timerWheelSnapshotFlush", READING, "the wheel is in snapshots (5.5.0), else as files show"),
    ConfigKey("timerPrecisionMs", WRITING, "else as the wheel or the timer log shows"),
    ConfigKey("timerRollWindowSlot", WRITING, "slots after which a waiting message is stored again"),
    ConfigKey("timerMaxDelaySec", WRITING, "s that a timed message may wait"),
    ConfigKey(
        "brokerRole", WRITING, "SLAVE takes no messages; SYNC_MASTER has puts wait for slaves, with `serve --ha-listen`"
    ),
    ConfigKey("deleteWhen", CLEANING, "hours at which expired files are removed"),
    ConfigKey("fileReservedTime", CLEANING, "hours that commitlog files are kept"),
    ConfigKey("transactionCheckMax", READING, "times that a broker asks about a half message, else 15"),
    ConfigKey("deleteCommitLogFilesInterval", CLEANING, "ms between two removals of commitlog files"),
    ConfigKey("deleteConsumeQueueFilesInterval", CLEANING, "ms between two removals of queue files"),
    ConfigKey("destroyMapedFileIntervalForcibly", CLEANING, "ms that a reader can keep a file"),
    ConfigKey("redeleteHangedFileInterval", CLEANING, "ms after which a held first file is tried again"),
    ConfigKey("deleteFileBatchMax", CLEANING, "commitlog files that are removed in one run"),
    ConfigKey("cleanFileForciblyEnable", CLEANING, "whether a nearly full disk takes young files"),
    ConfigKey("cleanResourceInterval", CLEANING, "ms between two runs of cleaning"),
    ConfigKey("diskMaxUsedSpaceRatio", CLEANING, "percent from which expired files are removed at any hour"),
    ConfigKey(
        "diskSpaceWarningLevelRatio", CLEANING, "percent from which young files are removed; with a flag, puts refused"
    ),
    ConfigKey("diskSpaceCleanForciblyRatio", CLEANING, "percent from which young files are removed"),
    ConfigKey(
        "logicalDiskSpaceCleanForciblyThreshold",
        CLEANING,
        "share of the disk, as diskSpaceCleanForciblyRatio, with several brokers in a process",
    ),
)


def without_effect(properties: Mapping[str, str], source: str) -> Iterator[str]:
    """A sentence for each key of a broker.conf that counts for `predict` only, and is not set to its default."""
    given = {name.lower(): text.strip().lower() for name, text in properties.items()}
    for key in KEYS:
        text = given.get(key.name.lower())
        if key.counts_for == PREDICT and text is not None and text != key.default:
            yield f"{source}: {key.name} counts for {PREDICT}: {key.meaning}"


DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _paths(listed: str | None) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in (listed or "").split(",") if part.strip())


class StoreConfig(NamedTuple):
    """The keys of MessageStoreConfig that matter to a store at rest, in snake_case, with their defaults.

    Sizes in bytes, intervals in ms, ratios in percent. A geometry of None is taken from the files, and from the
    default where there are none. `index_tags` is rmqctl's own: None goes by the store (store/index/index_service.py).
    """

    store_path_root_dir: str | None = None
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    store_type: str | None = None
    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    mapper_file_size_batch_consume_queue: int | None = None
    mapped_file_size_consume_queue_ext: int | None = None
    enable_consume_queue_ext: bool = False
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    message_index_enable: bool = True
    message_index_safe: bool = False
    index_file_write_enable: bool = True
    index_tags: bool | None = None
    flush_disk_type: str = "ASYNC_FLUSH"
    flush_interval_commit_log: int = 500
    flush_commit_log_timed: bool = True
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    wake_commit_when_put_message: bool = True
    wake_flush_when_put_message: bool = False
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_filter_message_size: int = 16_000
    sync_flush_timeout: int = 5000
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4096
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    max_message_size: int = 4 * 1024 * 1024
    auto_message_version_on_topic_len: bool = True
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    check_crc_on_recover: bool = True
    check_commit_log_offset_on_recover: bool = False
    commit_log_recover_max_num: int = 10
    enable_accelerated_recovery: bool = False
    index_rocksdb_enable: bool = False
    trans_rocksdb_enable: bool = False
    timer_rocksdb_enable: bool | None = None
    rocksdb_cq_double_write_enable: bool = False
    combine_cq_use_rocksdb_for_lmq: bool = False
    combine_cq_loading_cq_types: str = "default;defaultRocksDB"
    combine_assign_offset_cq_type: str = "default"
    combine_cq_prefer_cq_type: str = "default"
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    os_page_cache_busy_time_out_mills: int = 1000
    duplication_enable: bool = False
    enable_dleger_commit_log: bool = False
    store_path_dledger_commit_log: str = ""
    enable_controller_mode: bool = False
    enable_slave_acting_master: bool = False
    enable_remote_escape: bool = False
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    enable_retry_topic_v2: bool | None = None
    timer_wheel_enable: bool | None = True
    """None: of a version without a timer, which takes delivery times for properties like others."""
    timer_max_delay_sec: int = 259_200
    timer_roll_window_slot: int = 172_800
    timer_precision_ms: int | None = None
    mapped_file_size_timer_log: int | None = None
    enable_compaction: bool = True
    compaction_mapped_file_size: int | None = None
    compaction_cq_mapped_file_size: int | None = None
    timer_wheel_snapshot_flush: bool | None = None
    broker_role: str = "ASYNC_MASTER"
    broker_permission: int = 6
    delete_when: str = "04"
    file_reserved_time: int = 72
    transaction_check_max: int | None = None
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    redelete_hanged_file_interval: int = 120_000
    clean_resource_interval: int = 10_000
    delete_file_batch_max: int = 10
    clean_file_forcibly_enable: bool = True
    disk_max_used_space_ratio: int = 75
    disk_space_warning_level_ratio: int = 90
    disk_space_clean_forcibly_ratio: int = 85
    logical_disk_space_clean_forcibly_threshold: float = 0.8
    tiered_store_file_path: str | None = None
    dropped: frozenset[str] = frozenset()
    """Names of settings whose value in the broker.conf a broker drops, or does not start with."""

    def layout(self, root: Path) -> StoreLayout:
        """Paths of the store at `root`."""
        directories = _paths(self.store_path_commit_log) or (root / "commitlog",)
        # files there are read like all others (MultiPathMappedFileQueue#load); who writes or removes files refuses
        further = (path for path in _paths(self.read_only_commit_log_store_paths) if path not in directories)
        return StoreLayout(root, (*directories, *further))

    @property
    def is_slave(self) -> bool:
        """Whether the store is that of a slave."""
        return self.broker_role == "SLAVE"

    @property
    def escapes(self) -> bool:
        """Whether a slave whose master is away delivers messages, to another broker (EscapeBridge#putMessage)."""
        return self.enable_slave_acting_master and self.enable_remote_escape

    @property
    def uses_transient_store_pool(self) -> bool:
        """Whether messages go to a transient store pool first (DefaultMessageStore#isTransientStorePoolEnable)."""
        return self.transient_store_pool_enable and (self.enable_controller_mode or not self.is_slave)

    @property
    def fills_light_queues(self) -> bool:
        """Whether messages get their slots in light queues (MultiDispatchUtils#isNeedHandleMultiDispatch). RocketMQ
        asks one setting for the offsets and the other for the slots; without either the properties decide."""
        return self.enable_multi_dispatch or not self.enable_lmq

    @property
    def writes_index_files(self) -> bool:
        """Whether the broker keeps its key index in files: not without an index, or with one in RocksDB alone."""
        return self.message_index_enable and self.index_file_write_enable

    def delay_levels(self) -> tuple[int, ...]:
        """Delay in ms of levels 1, 2, ...: RocketMQ's own where messageDelayLevel does not parse.

        A broker does not start then: who writes asks for `delay_levels_to_write`.
        """
        levels = _delay_levels(self.message_delay_level)
        return _delay_levels(DEFAULT_DELAY_LEVELS) or () if levels is None else levels

    def delay_levels_to_write(self) -> tuple[int, ...]:
        """The same; UsageError where messageDelayLevel does not parse: due times would be made up."""
        if not is_delay_table(self.message_delay_level):
            raise UsageError(
                f"messageDelayLevel {self.message_delay_level!r} does not parse, and a broker does not start with it",
                hint="write it as `1s 5s 10s 1m 2h`: single spaces, units s, m, h and d",
            )
        return self.delay_levels()


def is_delay_table(text: str) -> bool:
    """Whether a broker parses `text` as messageDelayLevel (ScheduleMessageService#parseDelayLevel)."""
    return _delay_levels(text) is not None


@functools.cache
def _delay_levels(text: str) -> tuple[int, ...] | None:
    """Single spaces between the levels, those at the end aside; None where a broker does not parse it."""
    delays: list[int] = []
    for part in text.rstrip(" ").split(" "):
        number, unit = part[:-1], part[-1:]
        if unit not in _UNIT_MS or not re.fullmatch(r"[+-]?\d{1,18}", number):
            return None
        delays.append(int(number) * _UNIT_MS[unit])
    return tuple(delays)


_KINDS: dict[str, str] = {
    name: kind.__forward_arg__ for name, kind in StoreConfig.__annotations__.items() if name != "dropped"
}
# by their letters alone: no rule tells that enabledAppendPropCRC has a word CRC
_NAMES = {name.replace("_", ""): name for name in _KINDS}
_SPELLINGS = {key.name.lower(): key.name for key in KEYS}

_SIZES = {
    "mapped_file_size_commit_log": 1024 * 1024 * 1024,
    "mapped_file_size_consume_queue": 6_000_000,
    "mapper_file_size_batch_consume_queue": 13_800_000,
    "mapped_file_size_consume_queue_ext": 48 * 1024 * 1024,
    "mapped_file_size_timer_log": 104_857_600,
    "compaction_mapped_file_size": 104_857_600,
    "compaction_cq_mapped_file_size": 10_485_760,
    "max_hash_slot_num": 5_000_000,
    "max_index_num": 20_000_000,
}
"""Sizes of files, with RocketMQ's defaults."""
_WORDS = {"flush_disk_type": ("SYNC_FLUSH", "ASYNC_FLUSH"), "broker_role": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")}
"""Settings that take one of these words (Java enumerations)."""
# what String#trim takes away
_JAVA_SPACE = "".join(map(chr, range(0x21)))
_LARGEST_INT = 2**31 - 1
# fullwidth and other digits come only by \\u escapes; Integer#parseInt reads them, too
_JAVA_INT = r"[+-]?\d{1,40}"
_JAVA_DOUBLE = r"([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?)[fFdD]?"
_BYTE_ORDER_MARK = "\u00ef\u00bb\u00bf"
# MessageStoreConfig#setTimerPrecisionMs takes the largest of these that is not above the value
_TIMER_PRECISIONS = (100, 200, 500, 1000)


class _DroppedError(Exception):
    """A broker passes over the value and goes on with its default (MixAll#properties2Object)."""


def _convert(name: str, text: str) -> tuple[object, str]:
    """`text` as a broker takes it, and what is to be said of that, "" for nothing. _DroppedError."""
    kind = _KINDS[name]
    if kind.startswith("bool"):
        value = text.lower() == "true"
        return value, "" if text.lower() in ("true", "false") else f"a broker takes it for {str(value).lower()}"
    if kind.startswith("int"):
        return _number(name, text)
    if kind == "float":
        found = re.fullmatch(_JAVA_DOUBLE, text.strip(_JAVA_SPACE))
        if found is None:
            raise _DroppedError("is no number, as a broker reads numbers")
        return float(found[1]), ""
    trimmed = text.strip(_JAVA_SPACE)
    if name in _WORDS and trimmed not in _WORDS[name]:
        raise _DroppedError(f"is not one of {', '.join(_WORDS[name])}")
    if trimmed != text:
        return trimmed, "5.x ignores the white space at its end, 4.9.8 keeps it"
    if name.startswith("store_path") and not trimmed.isascii():
        return trimmed, "a broker reads its bytes as Latin-1, so its path has other characters than an editor shows"
    return trimmed, ""


def _number(name: str, text: str) -> tuple[int | None, str]:
    if not re.fullmatch(_JAVA_INT, text):
        if re.fullmatch(_JAVA_INT, text.strip()):
            raise _DroppedError("has white space at its end, where a broker reads no number")
        raise _DroppedError("is no number, as a broker reads numbers")
    value = int(text)
    if not -_LARGEST_INT - 1 <= value <= _LARGEST_INT:
        raise _DroppedError("is larger than a broker's numbers")
    if name in _SIZES and value <= 0:
        return None, "no file can have this size: a broker does not start with it"
    if name == "timer_precision_ms":
        taken = max((one for one in _TIMER_PRECISIONS if one <= value), default=_TIMER_PRECISIONS[0])
        return taken, "" if taken == value else f"a broker takes {taken}"
    if value < 0:
        return getattr(StoreConfig(), name), "a broker takes it, rmqctl goes by the default"
    return value, ""


def config_from_properties(
    properties: Mapping[str, str], source: str = "configuration", *, refuses: bool = False
) -> StoreConfig:
    """Settings of `properties` (camelCase keys) as a broker takes them: it drops or changes a wrong value in silence.

    Keys that are no store settings are ignored. With `refuses`: UsageError for a value that a broker would not take as
    it is written. `odd_settings` says which these are.
    """
    config, words = _settings(properties)
    if refuses and words:
        raise UsageError(words[0], file=source)
    return config


def odd_settings(properties: Mapping[str, str]) -> list[str]:
    """A sentence for each setting that a broker drops, changes or does not see."""
    return _settings(properties)[1]


def _settings(properties: Mapping[str, str]) -> tuple[StoreConfig, list[str]]:
    values: dict[str, object] = {}
    words: list[str] = []
    dropped: list[str] = []
    for key, text in properties.items():
        if key.startswith((_BYTE_ORDER_MARK, "\u00ff\u00fe", "\u00fe\u00ff")):
            words.append(_hidden(key))
        name = _NAMES.get(key.lower())
        if name is None:
            continue
        spelled = _SPELLINGS[key.lower()]
        if key != spelled:
            words.append(f"{key} is passed over, as by a broker: the key is {spelled}")
            continue
        try:
            values[name], said = _convert(name, text)
        except _DroppedError as why:
            default = _SIZES.get(name, getattr(StoreConfig(), name))
            words.append(f"{key}={text!r} {why}: it drops the value and takes its default, {default}")
            dropped.append(name)
            continue
        if said:
            words.append(f"{key}={text!r}: {said}")
        if values[name] is None:
            dropped.append(name)
        if name == "message_delay_level" and not is_delay_table(str(values[name])):
            words.append(f"{key}={text!r} does not parse: a broker does not start with it; write it as `1s 5s 10s`")
    return StoreConfig(**values, dropped=frozenset(dropped)), words  # type: ignore[arg-type]  # of its field's type


def _hidden(key: str) -> str:
    if not key.startswith(_BYTE_ORDER_MARK):
        return "the file is UTF-16: a broker sees no key of it"
    name = key.removeprefix(_BYTE_ORDER_MARK)
    return f"the file begins with a byte order mark: brokers and rmqctl do not recognise {name}"


def as_a_broker_starts(config: StoreConfig) -> StoreConfig:
    """`config` with RocketMQ's default for each size that a broker drops: the files are not asked then."""
    sizes = {name: _SIZES[name] for name in config.dropped if name in _SIZES}
    return config._replace(**sizes)  # type: ignore[arg-type]  # all of them are sizes


def read_broker_conf(path: Path) -> StoreConfig:
    """Settings of a broker.conf that concern its store; errors as for `read_properties`."""
    return config_from_properties(read_properties(path), str(path))


def read_properties(path: Path) -> dict[str, str]:
    """All that a broker.conf says, as Java reads it (docs/config.md). UnreadableError, UsageError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(error, path, hint="check the path given to -c") from error
    return parse_properties(data, path)


def parse_properties(data: bytes, source: Path | None = None) -> dict[str, str]:
    """Keys and values of Java properties. UsageError for what Java refuses to load."""
    from rmqctl.store.config.properties_text import java_properties

    try:
        return java_properties(data)
    except ValueError as error:
        hint = "a broker does not start with this file: write \\uXXXX with four hexadecimal digits"
        raise UsageError(f"is no properties file: {error}", file=source, hint=hint) from error


def cleaning_hours(delete_when: str) -> frozenset[int]:
    """Return the local hours in which a broker removes expired files, by deleteWhen, such as `04` or `04;16`. Numbers
    that are no hour never come. (UtilAll#isItTimeToDo)

    UsageError where a part is no number: a broker ends each round of its cleaning there, on a full disk, too.
    """
    parts = delete_when.rstrip(";").split(";") if delete_when else []
    for part in parts:
        if not re.fullmatch(r"[+-]?0*[0-9]{1,9}", part):
            raise UsageError(
                f"deleteWhen {delete_when!r}: a broker stops cleaning at {part!r}, which is no number",
                hint="write hours from 0 to 23 as `04` or `04;16`",
            )
    return frozenset(hour for hour in map(int, parts) if 0 <= hour < 24)


def next_hour(moment: int, delete_when: str) -> int | None:
    """Return the first moment from `moment` (ms) on in an hour of deleteWhen; None if it names no hour. UsageError, see
    `cleaning_hours`."""
    hours = cleaning_hours(delete_when)
    local = time.localtime(moment / 1000)
    if local.tm_hour in hours:
        return moment
    begin = moment // 1000 - local.tm_min * 60 - local.tm_sec
    # two days of hours hold each hour of the day, whatever the clocks do meanwhile
    for ahead in range(1, 49):
        later = begin + ahead * 3600
        if time.localtime(later).tm_hour in hours:
            return later * 1000
    return None
