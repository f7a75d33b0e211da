"""What each key of a broker.conf does here: the one table that docs/config.md and the words about a key come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

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
    ConfigKey("readOnlyCommitLogStorePaths", READING, "further ones, which are read; writing and cleaning refuse them"),
    ConfigKey("storeType", WRITING, "defaultRocksDB is refused"),
    ConfigKey("mappedFileSizeCommitLog", READING, "size of commitlog files, else that of the files"),
    ConfigKey("mappedFileSizeConsumeQueue", READING, "size of consumequeue files, else that of the files"),
    ConfigKey("mapperFileSizeBatchConsumeQueue", READING, "size of batch consumequeue files, else that of the files"),
    ConfigKey("mappedFileSizeConsumeQueueExt", READING, "size of consumequeue_ext files, else that of the files"),
    ConfigKey("enableConsumeQueueExt", WRITING, "true: queue units get ext units"),
    ConfigKey("maxHashSlotNum", READING, "slots of index files, else as the files have them"),
    ConfigKey("maxIndexNum", READING, "entries of index files, else as the files have them"),
    ConfigKey("messageIndexEnable", WRITING, "whether keys go into the index"),
    ConfigKey("indexFileWriteEnable", WRITING, "false: the index is in RocksDB alone, index files stay as they are"),
    ConfigKey(
        "indexTags",
        WRITING,
        "rmqctl's own: whether tags go into the index (RocketMQ 5.4 and later); without it as the store has it",
    ),
    ConfigKey("messageIndexSafe", PREDICT, "a recovery holds the index against the log in any case", "false"),
    ConfigKey("flushDiskType", WRITING, "SYNC_FLUSH: a put returns when its message is on disk"),
    ConfigKey("flushIntervalCommitLog", WRITING, "ms between two flushes of the commitlog"),
    ConfigKey("flushCommitLogTimed", WRITING, "false: a flush also follows each dispatch, when pages enough are dirty"),
    ConfigKey("flushCommitLogLeastPages", WRITING, "dirty pages that are worth a flush"),
    ConfigKey("flushCommitLogThoroughInterval", WRITING, "ms after which fewer pages are flushed, too"),
    ConfigKey("commitIntervalCommitLog", WRITING, "ms between two commits of the transient pool"),
    ConfigKey("commitCommitLogLeastPages", WRITING, "pages in the transient pool that are worth a commit"),
    ConfigKey("commitCommitLogThoroughInterval", WRITING, "ms after which fewer pages are committed, too"),
    ConfigKey("wakeCommitWhenPutMessage", WRITING, "false: puts do not wake the commit, which keeps to its interval"),
    ConfigKey("flushIntervalConsumeQueue", WRITING, "ms between two flushes of the queues"),
    ConfigKey("syncFlushTimeout", WRITING, "ms that a put waits for its flush"),
    ConfigKey("transientStorePoolEnable", WRITING, "puts go to memory first, and to the file at every commit"),
    ConfigKey("transientStorePoolSize", WRITING, "buffers of that pool, each as large as a commitlog file"),
    ConfigKey(
        "fastFailIfNoBufferInStorePool", WRITING, "true: without a free buffer no commitlog file is begun, puts fail"
    ),
    ConfigKey("warmMapedFileEnable", WRITING, "a commitlog file has its pages in memory before it is written"),
    ConfigKey("flushLeastPagesWhenWarmMapedFile", WRITING, "pages between two flushes of that, with SYNC_FLUSH"),
    ConfigKey("maxMessageSize", WRITING, "bytes of the largest body"),
    ConfigKey("autoMessageVersionOnTopicLen", WRITING, "long topics get frames of version 2"),
    ConfigKey("enabledAppendPropCRC", WRITING, "frames end with a CRC over all of them"),
    ConfigKey("forceVerifyPropCRC", PREDICT, "a frame's CRC is checked wherever there is one", "false"),
    ConfigKey("checkCRCOnRecover", PREDICT, "a recovery checks every CRC in any case", "true"),
    ConfigKey(
        "messageDelayLevel", WRITING, "delays of levels 1, 2, ...; queues of delayed messages are read by them, too"
    ),
    ConfigKey("osPageCacheBusyTimeOutMills", WRITING, "ms after which a put behind a slow one is refused"),
    ConfigKey("brokerPermission", READING, "`info` says whether a broker takes messages with it"),
    ConfigKey("duplicationEnable", WRITING, "lets a slave's store take messages"),
    ConfigKey("enableDLegerCommitLog", PREDICT, "the broker's logs of that kind are not read", "false"),
    ConfigKey("enableControllerMode", PREDICT, "a store is never truncated for a new master", "false"),
    ConfigKey("enableLmq", WRITING, "messages for several queues get an offset in each"),
    ConfigKey("enableMultiDispatch", PREDICT, "a message with an offset in a light queue gets its slot", "false"),
    ConfigKey(
        "timerWheelEnable", WRITING, "messages with a delivery time wait in the timer's topic, else they are refused"
    ),
    ConfigKey("timerMaxDelaySec", WRITING, "the longest time that such a message may wait"),
    ConfigKey(
        "brokerRole", WRITING, "SLAVE takes no messages; SYNC_MASTER has puts wait for slaves, with `serve --ha-listen`"
    ),
    ConfigKey("deleteWhen", CLEANING, "hours at which expired files are removed"),
    ConfigKey("fileReservedTime", CLEANING, "hours that commitlog files are kept"),
    ConfigKey("deleteCommitLogFilesInterval", CLEANING, "ms between two removals"),
    ConfigKey("destroyMapedFileIntervalForcibly", CLEANING, "ms that a reader can keep a file from being removed"),
    ConfigKey("redeleteHangedFileInterval", CLEANING, "ms after which a first file that was held is tried again"),
    ConfigKey("deleteFileBatchMax", CLEANING, "commitlog files that are removed in one run"),
    ConfigKey("cleanFileForciblyEnable", CLEANING, "whether a disk that is nearly full takes young files"),
    ConfigKey("cleanResourceInterval", CLEANING, "ms between two runs of `MessageStore.open(..., clean_expired=True)`"),
    ConfigKey("diskMaxUsedSpaceRatio", CLEANING, "percent from which expired files are removed at any hour"),
    ConfigKey(
        "diskSpaceWarningLevelRatio",
        CLEANING,
        "percent from which young files are removed; with a flag, puts refused",
    ),
    ConfigKey("diskSpaceCleanForciblyRatio", CLEANING, "percent from which young files are removed"),
)


def without_effect(properties: Mapping[str, str], source: str) -> Iterator[str]:
    """A sentence for each key of a broker.conf that counts for `predict` only, and is not set to its default."""
    given = {name.lower(): text.strip().lower() for name, text in properties.items()}
    for key in KEYS:
        text = given.get(key.name.lower())
        if key.counts_for == PREDICT and text is not None and text != key.default:
            yield f"{source}: {key.name} counts for {PREDICT}: {key.meaning}"


def config_document() -> str:
    """The text of docs/config.md."""
    lines = [
        "# Keys of a broker.conf",
        "",
        "Generated by `make docs` from the table in store/config/config_keys.py, which a test holds against the code.",
        "",
        "`-c broker.conf` and `rmqctl.store.read_broker_conf` take these keys. A key that is not in this table",
        "is a broker's own business and is passed over. One that counts for `predict` only is named once on stderr",
        "where it is set to something else than RocketMQ's default.",
        "",
        "A store that is open for writing removes nothing by itself, as fits a library. With",
        '`MessageStore.open(path, "rw", clean_expired=True)` expired files are removed every cleanResourceInterval, by',
        "the rules that a broker has for the hour, the age of files and the use of its disks. `MessageStore.clean`",
        "removes them at once.",
        "",
        "| key | counts for | what it does |",
        "|---|---|---|",
        *(f"| {key.name} | {key.counts_for} | {key.meaning} |" for key in KEYS),
        "",
    ]
    return "\n".join(lines)
