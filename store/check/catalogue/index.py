"""The kinds of findings about the key index."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_REBUILD = "rmqctl rebuild --index"
_RECOVER = "rmqctl recover"
_MEND = "`recover` or `rebuild --index` rebuilds the index from the commitlog, complete and without repeats."

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-IDX-001",
        Severity.ERROR,
        "keys missing from the index",
        "The messages are intact in the commitlog, but a query by their keys does not find them.",
        "A start after a crash deleted index files and read only part of the log again; an index file lost or not "
        "copied; indexing that stopped silently.",
        _MEND,
        _RECOVER,
        (
            "apache/rocketmq#8007",
            "apache/rocketmq#3868",
            "apache/rocketmq#8041",
            "apache/rocketmq#10291",
            "apache/rocketmq-externals#410",
        ),
    ),
    Kind(
        "RMQ-IDX-002",
        Severity.WARNING,
        "index lags the commitlog",
        "From one offset on, no key is in the index. Queries do not find the last messages.",
        "A kill or power cut before dispatch, or indexing that stopped while messages were still stored. Usually "
        "the next start of a broker indexes them.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#9030", "apache/rocketmq#4463", "apache/rocketmq#8041"),
    ),
    Kind(
        "RMQ-IDX-003",
        Severity.ERROR,
        "index missing",
        "The checkpoint shows that an index existed, but it is missing. No query by key finds anything. A clean "
        "start of a broker does not rebuild it.",
        "index/ deleted by hand or left out of a copy.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#8007", "apache/rocketmq#3868"),
    ),
    Kind(
        "RMQ-IDX-004",
        Severity.NOTICE,
        "no index",
        "No index file exists, and nothing shows that one existed. Either messageIndexEnable=false, or the index "
        "was lost before its first file was full.",
        "messageIndexEnable=false, or index/ deleted.",
        "If queries by key should work, run `rmqctl rebuild --index`. Otherwise give the broker's configuration "
        "with -c.",
        None,
    ),
    Kind(
        "RMQ-IDX-005",
        Severity.ERROR,
        "entries that point at the wrong message",
        "The entry points at another message, or at none. A query skips it; an old broker returns a wrong message.",
        "A log that was cut and written again under an old index; an index of another store.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#3613",),
    ),
    Kind(
        "RMQ-IDX-006",
        Severity.WARNING,
        "entries of damaged messages",
        "The entries point into a damaged part of the log or at a missing file. The messages are lost; the index "
        "is right.",
        "The damage of the commitlog (see the finding of that offset).",
        "Restore the commitlog file if a copy exists. `recover --bridge` writes fillers into the log and rebuilds "
        "the index without the entries; `rebuild --index` does only the latter.",
        "rmqctl recover --bridge",
        ("apache/rocketmq#2140",),
    ),
    Kind(
        "RMQ-IDX-007",
        Severity.WARNING,
        "entries past the end of the commitlog",
        "The index has messages that the log does not have. A broker silently indexes no new message until the log "
        "has grown past them.",
        "A log that was cut, or an index that stayed when the commitlog was moved or restarted.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#9030", "apache/rocketmq#8041", "apache/rocketmq#4463"),
    ),
    Kind(
        "RMQ-IDX-008",
        Severity.NOTICE,
        "messages indexed twice",
        "The index has all entries of these messages more than once. A broker returns them repeatedly; rmqctl "
        "returns each once.",
        "RocketMQ dispatches the last message again at start, and part of the log after a crash.",
        "Nothing. `rebuild --index` removes the repeats.",
        None,
        ("apache/rocketmq#7539",),
    ),
    Kind(
        "RMQ-IDX-009",
        Severity.WARNING,
        "index header wrong",
        "Offsets, times or counts in the header differ from the entries. Queries may skip the file, expiry may "
        "remove it too early or never, and a broker may not add to it.",
        "A page that was not written before a power cut; a damaged file.",
        _MEND,
        _REBUILD,
        ("apache/rocketmq#9030",),
    ),
    Kind(
        "RMQ-IDX-010",
        Severity.ERROR,
        "index slots wrong",
        "Slots do not point at the newest entry of their chain. Keys of such a slot are not found, although their "
        "entries exist.",
        "A damaged page, or one that was not written before a power cut. A broker does not notice.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#8041",),
    ),
    Kind(
        "RMQ-IDX-011",
        Severity.ERROR,
        "index chains broken",
        "Entries point at wrong predecessors. Older messages with keys of these slots are not found.",
        "A damaged page; slots that were damaged when new entries came.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-IDX-012",
        Severity.ERROR,
        "circular index chains",
        "An entry points at itself or at a newer one. A broker follows the circle until it has enough results; "
        "rmqctl stops there.",
        "A damaged or hostile index file.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-IDX-013",
        Severity.ERROR,
        "not a valid index file",
        "The file has the name of an index file, but its length and entries do not match one. Its keys are not "
        "found. A broker with another geometry reads garbage.",
        "A damaged or cut file; a file of another kind.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#9030",),
    ),
    Kind(
        "RMQ-IDX-014",
        Severity.NOTICE,
        "stray file in the index",
        "The name is not that of an index file. Brokers ignore it.",
        "An editor's backup, a note, a partial copy.",
        "Identify it (`rmqctl dump FILE`) and move it away; `recover` moves it beside the store.",
        _RECOVER,
        ("apache/rocketmq#9030",),
    ),
    Kind(
        "RMQ-IDX-015",
        Severity.ERROR,
        "index file ends before its entries",
        "The header counts more entries than the file has or can hold.",
        "A file that was cut, or a damaged header.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-IDX-016",
        Severity.NOTICE,
        "index file that is not full",
        "Newer files follow an index file with free entries. Each file has its full size, so many of them fill the "
        "disk.",
        "A broker that creates a file for few keys (its clock went back, or a file could not be read).",
        "Nothing. RMQ-IDX-032 reports many of them.",
        None,
        ("apache/rocketmq#7539",),
    ),
    Kind(
        "RMQ-IDX-017",
        Severity.WARNING,
        "entries with a wrong time",
        "Queries by time miss these messages or find them at a wrong time.",
        "A damaged header (begin_timestamp) or damaged entries.",
        _MEND,
        _REBUILD,
        ("apache/rocketmq#5174",),
    ),
    Kind(
        "RMQ-IDX-018",
        Severity.NOTICE,
        "first entry of a file with a late time",
        "RocketMQ counts the time of a file's first entry from the end of the previous file. A query that ends in "
        "this span may miss one message.",
        "A defect of all RocketMQ versions; rmqctl writes the right time.",
        "Nothing. `rebuild --index` corrects the times.",
        None,
        ("apache/rocketmq#5174",),
    ),
    Kind(
        "RMQ-IDX-019",
        Severity.NOTICE,
        "index is being written",
        "The store is in use, and its last messages were not indexed yet at the time of the check.",
        "Indexing lags the log briefly. If `check` names the same offset later, indexing is stuck.",
        "Nothing. Check again if queries miss messages.",
        None,
        ("apache/rocketmq#8041",),
    ),
    Kind(
        "RMQ-IDX-030",
        Severity.NOTICE,
        "tags missing from the index",
        "Queries by key find these messages. Queries by tag (RocketMQ 5.4 and later, `mqadmin queryMsgByKey -p T`) "
        "do not.",
        "The messages were stored before an upgrade to 5.4 or later, or after a downgrade.",
        "Nothing. `rebuild --index` adds the tags.",
        None,
    ),
    Kind(
        "RMQ-IDX-031",
        Severity.NOTICE,
        "keys in RocksDB",
        "No index file exists, and `rocksdbstore/` holds data. The keys may be only there. rmqctl did not read them.",
        "indexRocksDBEnable=true with indexFileWriteEnable=false (RocketMQ 5.4 and later).",
        "Nothing. If queries by key should use files, run `rmqctl rebuild --index`.",
        None,
    ),
    Kind(
        "RMQ-IDX-032",
        Severity.WARNING,
        "more index files than the entries need",
        "Each index file has its full size, however few entries it holds (420 MB by default). The files fill the "
        "disk, and every query by key searches all of them.",
        "A broker that cannot open a new index file creates another one with the next message: too few memory "
        "maps, a 32-bit Java, an error in the last file; a clock that went back.",
        "Check the broker's log for IndexService errors first. `rebuild --index` creates as few files as possible "
        "and keeps the old ones beside the store; `--no-journal` frees their space at once.",
        _REBUILD,
        ("apache/rocketmq#7539",),
    ),
)


# The kinds of findings about how the store was left: abort, checkpoint, clocks and file times.

STATE_KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-STATE-001",
        Severity.NOTICE,
        "not closed cleanly",
        "`abort` exists and no process has the store open. The next start of a broker runs crash recovery: it ends "
        "the log at the first damage and deletes young index files.",
        "A kill, a crash, a power cut.",
        "`recover` does the same without losing keys.",
        "rmqctl recover",
        ("apache/rocketmq#8007", "apache/rocketmq#3868"),
    ),
    Kind(
        "RMQ-STATE-002",
        Severity.WARNING,
        "interrupted change",
        "rmqctl stopped in the middle of a change. Other changes are refused until this one is finished or undone.",
        "A kill or a full disk during recover, rebuild, repair or the like.",
        "`rmqctl log` shows it. `resume` finishes it, `undo` reverts it.",
        "rmqctl resume",
    ),
    Kind(
        "RMQ-STATE-003",
        Severity.NOTICE,
        "queues in RocksDB",
        "rmqctl does not read consume queues in RocksDB, so they were not compared with the commitlog.",
        "storeType=defaultRocksDB.",
        "Nothing.",
        None,
        ("apache/rocketmq#8589",),
    ),
    Kind(
        "RMQ-CKPT-001",
        Severity.NOTICE,
        "no checkpoint",
        "A broker creates a new one. After a crash it reads the whole log and rebuilds the whole index.",
        "Deleted by hand, not copied.",
        "Nothing; `recover` writes one.",
        "rmqctl recover",
    ),
    Kind(
        "RMQ-CKPT-002",
        Severity.NOTICE,
        "checkpoint file with a wrong size",
        "The file usually has 4096 bytes. A broker extends it and reads the missing part as 0.",
        "An interrupted copy.",
        "`repair` writes a new one.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-CKPT-003",
        Severity.WARNING,
        "checkpoint ahead of the files",
        "The checkpoint claims newer data on disk than the files hold. After a crash a broker starts its recovery "
        "too late: earlier messages never reach their queues, or get wrong slots.",
        "Files restored from an older copy, a missed queue flush, a clock jump.",
        "Do not start a broker while `abort` exists. `repair` sets the checkpoint to the files; `recover` "
        "completes the queues.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#678", "apache/rocketmq#1434", "apache/rocketmq#9455"),
    ),
    Kind(
        "RMQ-CKPT-004",
        Severity.NOTICE,
        "checkpoint far behind the files",
        "The next start after this crash reads much of the log again before it serves messages.",
        "A crash; checkpoints are written rarely.",
        "`recover` updates it while the broker is stopped.",
        "rmqctl recover",
        ("apache/rocketmq#472", "apache/rocketmq#1258", "apache/rocketmq#5091"),
    ),
    Kind(
        "RMQ-CKPT-005",
        Severity.WARNING,
        "confirmed offset past the end of the log",
        "The checkpoint confirms messages that are not in the log.",
        "A log that was cut or restored from an older copy.",
        "`repair` sets it to the end of the log.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-CKPT-006",
        Severity.WARNING,
        "invalid checkpoint values",
        "A time or an offset is negative, so the page is damaged. A broker uses the values as they are.",
        "A failing disk, a torn write.",
        "`repair` writes a new one.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-CKPT-030",
        Severity.WARNING,
        "checkpoint queue offset past the end of the log",
        "logicsPhysicalOffset claims queue units on disk for messages that are not in the log. After a crash "
        "RocketMQ 5.5 starts its recovery too late, and new messages never reach their queues.",
        "A log that was cut or restored from an older copy, by a tool or a broker that does not know this field.",
        "`repair` lowers it to the last message of the log.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TIME-001",
        Severity.NOTICE,
        "files look younger than their messages",
        "Expiry uses the file's mtime. These files are kept longer than fileReservedTime, and all younger files "
        "with them.",
        "A copy without times (cp without -p), a file that was touched or repaired.",
        "Copy with times kept, or let `repair` set each file to the time it was closed at: the first message of the "
        "next file. The broker then deletes expired files at its next deleteWhen hour: run `clean --forecast` first.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#2260", "apache/rocketmq#2264"),
    ),
    Kind(
        "RMQ-TIME-002",
        Severity.NOTICE,
        "files look older than their messages",
        "Expiry uses the file's mtime. These files are deleted before their messages reach fileReservedTime.",
        "A file system or Windows version that does not update the mtime of mapped files; a wrong clock.",
        "`repair` sets each mtime to the time of the next file's first message.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#1948",),
    ),
    Kind(
        "RMQ-TIME-003",
        Severity.NOTICE,
        "messages stored in the future",
        "Their store time is later than this machine's clock. Brokers compare times with the clock; some do not start.",
        "A wrong clock at store time, or now.",
        "Compare the clocks.",
        None,
        ("apache/rocketmq#9455", "apache/rocketmq#9406"),
    ),
    Kind(
        "RMQ-TIME-004",
        Severity.NOTICE,
        "the clock went back",
        "Store times decrease along the log. A search by time can miss messages.",
        "The clock was set back, or the machine changed. Or old messages of a truncated log reappeared.",
        "Inspect the messages around the offset with `rmqctl cat`. Search by offset where it matters.",
        None,
        ("apache/rocketmq#9455", "apache/rocketmq#5445"),
    ),
    Kind(
        "RMQ-TIME-005",
        Severity.NOTICE,
        "producers' clocks are ahead",
        "Born times are later than store times. Queries by time and key that use the born time miss these messages.",
        "The clock of a producer's machine.",
        "Correct that clock; `rmqctl cat` shows the host.",
        None,
        ("apache/rocketmq#681",),
    ),
)
