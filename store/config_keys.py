"""What each key of a broker.conf does here: the one table that docs/config.md and the words about a key come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

READING = "reading"
WRITING = "writing"
CLEANING = "cleaning"
PREDICT = "`predict` only"
NOTHING = "none"


class Key(NamedTuple):
    """A key as RocketMQ spells it, where it counts (one of the words above), and what it does or why it does nothing.

    `default`: RocketMQ's, as a broker.conf would say it; who writes that changes nothing.
    """

    name: str
    counts_for: str
    meaning: str
    default: str = ""


KEYS = (
    Key("storePathRootDir", READING, "the store where -s names none"),
    Key("storePathCommitLog", READING, "directories of the commitlog, separated by commas"),
    Key("readOnlyCommitLogStorePaths", READING, "further ones, which are read; writing and cleaning refuse them"),
    Key("storeType", WRITING, "defaultRocksDB is refused"),
    Key("mappedFileSizeCommitLog", READING, "size of commitlog files, else that of the files"),
    Key("mappedFileSizeConsumeQueue", READING, "size of consumequeue files, else that of the files"),
    Key("mapperFileSizeBatchConsumeQueue", READING, "size of batch consumequeue files, else that of the files"),
    Key("mappedFileSizeConsumeQueueExt", READING, "size of consumequeue_ext files, else that of the files"),
    Key("enableConsumeQueueExt", NOTHING, "ext units that are there are read; none are written", "false"),
    Key("maxHashSlotNum", READING, "slots of index files, else as the files have them"),
    Key("maxIndexNum", READING, "entries of index files, else as the files have them"),
    Key("messageIndexEnable", WRITING, "whether keys go into the index"),
    Key("messageIndexSafe", PREDICT, "a recovery holds the index against the log in any case", "false"),
    Key("flushDiskType", WRITING, "SYNC_FLUSH: a put returns when its message is on disk"),
    Key("flushIntervalCommitLog", WRITING, "ms between two flushes of the commitlog"),
    Key("flushCommitLogTimed", NOTHING, "flushes always keep to their interval, as with true", "true"),
    Key("flushCommitLogLeastPages", WRITING, "dirty pages that are worth a flush"),
    Key("flushCommitLogThoroughInterval", WRITING, "ms after which fewer pages are flushed, too"),
    Key("commitIntervalCommitLog", WRITING, "ms between two commits of the transient pool"),
    Key("commitCommitLogLeastPages", NOTHING, "every commit takes all that is there", "4"),
    Key("commitCommitLogThoroughInterval", NOTHING, "every commit takes all that is there", "200"),
    Key("flushIntervalConsumeQueue", WRITING, "ms between two flushes of the queues"),
    Key("syncFlushTimeout", WRITING, "ms that a put waits for its flush"),
    Key("transientStorePoolEnable", WRITING, "puts go to memory first, and to the file at every commit"),
    Key("transientStorePoolSize", NOTHING, "the pool takes 64 MiB, whatever the files' size", "5"),
    Key("warmMapedFileEnable", NOTHING, "room is reserved before it is written, so no page is warmed", "false"),
    Key("maxMessageSize", WRITING, "bytes of the largest body"),
    Key("autoMessageVersionOnTopicLen", WRITING, "long topics get frames of version 2"),
    Key("enabledAppendPropCRC", WRITING, "frames end with a CRC over all of them"),
    Key("forceVerifyPropCRC", PREDICT, "a frame's CRC is checked wherever there is one", "false"),
    Key("checkCRCOnRecover", PREDICT, "a recovery checks every CRC in any case", "true"),
    Key("messageDelayLevel", WRITING, "delays of levels 1, 2, ...; queues of delayed messages are read by them, too"),
    Key("osPageCacheBusyTimeOutMills", WRITING, "ms after which a put behind a slow one is refused"),
    Key("duplicationEnable", WRITING, "lets a slave's store take messages"),
    Key("enableDLegerCommitLog", PREDICT, "the broker's logs of that kind are not read", "false"),
    Key("enableControllerMode", PREDICT, "a store is never truncated for a new master", "false"),
    Key("enableLmq", WRITING, "messages for several queues get an offset in each"),
    Key("enableMultiDispatch", NOTHING, "enableLmq decides", "false"),
    Key("timerWheelEnable", WRITING, "messages with a delivery time wait in the timer's topic, else they are refused"),
    Key("timerMaxDelaySec", WRITING, "the longest time that such a message may wait"),
    Key("brokerRole", WRITING, "SLAVE takes no messages"),
    Key("deleteWhen", CLEANING, "hours at which expired files go"),
    Key("fileReservedTime", CLEANING, "hours that commitlog files are kept"),
    Key("deleteCommitLogFilesInterval", CLEANING, "ms between two removals"),
    Key("destroyMapedFileIntervalForcibly", CLEANING, "ms that a reader can keep a file from going"),
    Key("redeleteHangedFileInterval", CLEANING, "ms after which a first file that was held is tried again"),
    Key("deleteFileBatchMax", CLEANING, "commitlog files that go in one run"),
    Key("cleanFileForciblyEnable", CLEANING, "whether a disk that is nearly full takes young files"),
    Key("cleanResourceInterval", CLEANING, "ms between two runs of `MessageStore.open(..., clean_expired=True)`"),
    Key("diskMaxUsedSpaceRatio", CLEANING, "percent of the disk from which expired files go at any hour"),
    Key("diskSpaceWarningLevelRatio", CLEANING, "percent from which young files go, and puts are refused if asked for"),
    Key("diskSpaceCleanForciblyRatio", CLEANING, "percent from which young files go"),
)


def without_effect(properties: Mapping[str, str], source: str) -> Iterator[str]:
    """A sentence for each key of a broker.conf that does nothing here, or little, and is not set to its default."""
    given = {name.lower(): text.strip().lower() for name, text in properties.items()}
    for key in KEYS:
        text = given.get(key.name.lower())
        if text is None or text == key.default:
            continue
        if key.counts_for == NOTHING:
            yield f"{source}: {key.name} has no effect here: {key.meaning}"
        elif key.counts_for == PREDICT:
            yield f"{source}: {key.name} counts for {PREDICT}: {key.meaning}"


def config_document() -> str:
    """The text of docs/config.md."""
    lines = [
        "# Keys of a broker.conf",
        "",
        "Generated by `make docs` from the table in store/config_keys.py, which a test holds against the code.",
        "",
        "`-c broker.conf` and `rmqctl.store.config.read_broker_conf` take these keys. A key that is not in this table",
        "is a broker's own business and is passed over. One that has no effect, or an effect on `predict` alone, is",
        "named once on stderr where it is set to something else than RocketMQ's default.",
        "",
        "A store that is open for writing removes nothing by itself, as fits a library. With",
        '`MessageStore.open(path, "rw", clean_expired=True)` expired files go every cleanResourceInterval, by the',
        "rules that a broker has for the hour, the age of files and the use of its disks. `MessageStore.clean` removes",
        "them at once.",
        "",
        "| key | counts for | what it does |",
        "|---|---|---|",
        *(f"| {key.name} | {key.counts_for} | {key.meaning} |" for key in KEYS),
        "",
    ]
    return "\n".join(lines)
