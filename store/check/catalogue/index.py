"""The kinds of findings about the key index."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_REBUILD = "rmqctl rebuild --index"
_RECOVER = "rmqctl recover"
_MEND = "`recover` or `rebuild --index` makes the index anew from the commitlog, complete and without repeats."

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-IDX-001",
        Severity.ERROR,
        "keys that are not in the index",
        "The messages are whole in the commitlog, but a query by their keys does not find them.",
        "A start after a crash destroyed index files and read only part of the log again; an index file lost, or left "
        "out of a copy; indexing that stopped in silence.",
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
        "index behind the commitlog",
        "From one place of the log on no key is in the index: queries do not find the last messages.",
        "A kill or power cut before they were dispatched, or indexing that stopped while messages were still stored. "
        "As a rule the next start of a broker indexes them.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#9030", "apache/rocketmq#4463", "apache/rocketmq#8041"),
    ),
    Kind(
        "RMQ-IDX-003",
        Severity.ERROR,
        "index missing",
        "There was an index (the checkpoint has its time), and it is missing: no query by key finds anything. A clean "
        "start of a broker does not make it anew.",
        "index/ deleted by hand or left out of a copy.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#8007", "apache/rocketmq#3868"),
    ),
    Kind(
        "RMQ-IDX-004",
        Severity.NOTICE,
        "no index",
        "No index file is there and nothing says that there was one: the broker runs with messageIndexEnable=false, "
        "or the index was lost before its first file was full.",
        "messageIndexEnable=false, or index/ deleted.",
        "If queries by key should work: `rmqctl rebuild --index`. Else give the broker's configuration with -c.",
        None,
    ),
    Kind(
        "RMQ-IDX-005",
        Severity.ERROR,
        "entries that lead to no message of their key",
        "Where the entry points another message stands, or none. A query passes over it, or with an old broker shows "
        "a message that was not asked for.",
        "A log that was cut and written again under an index that was not; an index of another store.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#3613",),
    ),
    Kind(
        "RMQ-IDX-006",
        Severity.WARNING,
        "entries of messages that are damaged",
        "The entries point into a damaged part of the log or at a missing file: the messages are gone, the index is "
        "right.",
        "What damaged the commitlog (see the finding about that place).",
        "Bring the commitlog file back if there is a copy. Queries pass over the entries; `recover --bridge` puts "
        "fillers into the log and makes the index without them, `rebuild --index` only the latter.",
        "rmqctl recover --bridge",
        ("apache/rocketmq#2140",),
    ),
    Kind(
        "RMQ-IDX-007",
        Severity.WARNING,
        "entries behind the end of the commitlog",
        "The index knows messages that the log does not have. A broker does not index new messages until the log has "
        "grown beyond them, and says nothing.",
        "A log that was cut, or an index that was left when the commitlog was moved or started anew.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#9030", "apache/rocketmq#8041", "apache/rocketmq#4463"),
    ),
    Kind(
        "RMQ-IDX-008",
        Severity.NOTICE,
        "messages indexed twice",
        "All entries of these messages stand in the index more than once. Queries of a broker show them repeatedly; "
        "rmqctl shows each once.",
        "RocketMQ dispatches the last message again at a start, and a part of the log after a crash.",
        "Nothing has to be done. `rebuild --index` makes an index without repeats.",
        None,
        ("apache/rocketmq#7539",),
    ),
    Kind(
        "RMQ-IDX-009",
        Severity.WARNING,
        "index header wrong",
        "Offsets, times or counts in the header are not those of the entries: queries may pass over the file, expiry "
        "may remove it too early or never, and a broker may not add to it.",
        "A page that was not written before a power cut; a damaged file.",
        _MEND,
        _REBUILD,
        ("apache/rocketmq#9030",),
    ),
    Kind(
        "RMQ-IDX-010",
        Severity.ERROR,
        "index slots wrong",
        "Slots do not lead to the newest entry of their chain: keys of such a slot are not found although their "
        "entries are there.",
        "A page of the file damaged or not written before a power cut. A broker does not notice.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#8041",),
    ),
    Kind(
        "RMQ-IDX-011",
        Severity.ERROR,
        "index chains broken",
        "Entries lead on to other entries than they should: older messages with keys of these slots are not found.",
        "A page of the file damaged; slots that were damaged when new entries came.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-IDX-012",
        Severity.ERROR,
        "index chains in a circle",
        "An entry leads on to itself or to a newer one: a broker that follows the chain goes round until it has as "
        "many results as it may return, rmqctl stops there.",
        "A damaged or hostile index file.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-IDX-013",
        Severity.ERROR,
        "no index file inside",
        "The file has the name of an index file, but its length and entries fit none: its keys are not found. A "
        "broker with another geometry would read nonsense.",
        "A damaged or cut file; a file of another kind.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#9030",),
    ),
    Kind(
        "RMQ-IDX-014",
        Severity.NOTICE,
        "stray file in the index",
        "Its name is not that of an index file. Brokers pass over it.",
        "An editor's backup, a note, a half copied file.",
        "Look what it is (`rmqctl dump FILE`) and move it elsewhere; `recover` moves it beside the store.",
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
        "Newer files follow a file that has room. Many of them fill the disk: each has its whole size.",
        "A broker that makes a file for few keys (its clock went back, or a file could not be read).",
        "Nothing. Where there are many, RMQ-IDX-032 names them all.",
        None,
        ("apache/rocketmq#7539",),
    ),
    Kind(
        "RMQ-IDX-017",
        Severity.WARNING,
        "entries with a wrong time",
        "Queries between two times miss these messages or find them at a wrong time.",
        "A damaged header (begin_timestamp) or damaged entries.",
        _MEND,
        _REBUILD,
        ("apache/rocketmq#5174",),
    ),
    Kind(
        "RMQ-IDX-018",
        Severity.NOTICE,
        "first entry of a file with a time too late",
        "RocketMQ counts the time of a file's first entry from the end of the file before it: a query that ends in "
        "this span may miss one message.",
        "A defect of all RocketMQ versions; rmqctl writes the right time.",
        "Nothing has to be done. `rebuild --index` makes the times right.",
        None,
        ("apache/rocketmq#5174",),
    ),
    Kind(
        "RMQ-IDX-019",
        Severity.NOTICE,
        "index is being written",
        "The store is in use, and its last messages were not indexed yet when it was looked at.",
        "Indexing runs a moment behind the log. If the same place is named again later, it is stuck.",
        "Nothing; check again if queries miss messages.",
        None,
        ("apache/rocketmq#8041",),
    ),
    Kind(
        "RMQ-IDX-030",
        Severity.NOTICE,
        "messages whose tag is not in the index",
        "Queries by key find these messages. Queries by tag (RocketMQ 5.4 and later, `mqadmin queryMsgByKey -p T`) do "
        "not.",
        "They were stored before the broker was upgraded to 5.4 or later, or by an older broker after a downgrade.",
        "Nothing is damaged. `rebuild --index` adds the tags.",
        None,
    ),
    Kind(
        "RMQ-IDX-031",
        Severity.NOTICE,
        "keys in a RocksDB",
        "There is no index file, and `rocksdbstore/` holds data: the keys may be there alone. They were not read, so "
        "they were not compared with the commitlog.",
        "indexRocksDBEnable=true with indexFileWriteEnable=false (RocketMQ 5.4 and later).",
        "Nothing. If queries by key should work from files: `rmqctl rebuild --index`.",
        None,
    ),
    Kind(
        "RMQ-IDX-032",
        Severity.WARNING,
        "more index files than the entries need",
        "Each index file has its whole size, however few entries it holds (420 MB with RocketMQ's defaults). They fill "
        "the disk, and a query by key looks through all of them.",
        "A broker that cannot open the index file that it has just made tries again with the next message and makes "
        "another: too few memory maps, a 32-bit Java, an error in the last file; a clock that went back.",
        "Look for errors of IndexService in the broker's log first, or the files come again. `rebuild --index` makes "
        "as few files as possible and keeps the old ones beside the store; `--no-journal` frees their space at once.",
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
        "`abort` is there and nobody has the store open: the next start takes the recovery for crashes, which ends the "
        "log at the first damage it meets and deletes the young index files.",
        "A kill, a crash, a power cut.",
        "`recover` does the same without losing keys.",
        "rmqctl recover",
        ("apache/rocketmq#8007", "apache/rocketmq#3868"),
    ),
    Kind(
        "RMQ-STATE-002",
        Severity.WARNING,
        "interrupted change",
        "rmqctl was stopped in the middle of a change of this store. Other changes wait until it is finished or taken "
        "back.",
        "A kill or a full disk during recover, rebuild, repair or the like.",
        "`rmqctl log` shows it. `resume` finishes it, `undo` takes it back.",
        "rmqctl resume",
    ),
    Kind(
        "RMQ-STATE-003",
        Severity.NOTICE,
        "queues in a RocksDB",
        "The consume queues are in a RocksDB, which is not read: they were not compared with the commitlog.",
        "storeType=defaultRocksDB.",
        "Nothing.",
        None,
        ("apache/rocketmq#8589",),
    ),
    Kind(
        "RMQ-CKPT-001",
        Severity.NOTICE,
        "no checkpoint",
        "A broker makes a new one. After a crash it then reads the whole log and makes the whole index anew.",
        "Deleted by hand, not copied.",
        "Nothing; `recover` writes one.",
        "rmqctl recover",
    ),
    Kind(
        "RMQ-CKPT-002",
        Severity.NOTICE,
        "checkpoint file of another size",
        "It has 4096 bytes as a rule. A broker extends it; what is missing counts as 0.",
        "A copy that broke off.",
        "`repair` writes a new one.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-CKPT-003",
        Severity.WARNING,
        "checkpoint ahead of the files",
        "It says that something newer is on disk than the files hold. After a crash a broker starts its recovery too "
        "late, and messages before that never reach their queues or land in wrong slots.",
        "Files restored from an older copy, a queue flush that did not happen, a clock that jumped.",
        "Do not start a broker while `abort` is there. `repair` sets the checkpoint to what the files "
        "hold; `recover` completes queues that are behind the commitlog.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#678", "apache/rocketmq#1434", "apache/rocketmq#9455"),
    ),
    Kind(
        "RMQ-CKPT-004",
        Severity.NOTICE,
        "checkpoint far behind the files",
        "After this crash the next start reads much of the log again before it serves anything.",
        "A crash; checkpoints are written seldom.",
        "`recover` brings it up to date while the broker is down.",
        "rmqctl recover",
        ("apache/rocketmq#472", "apache/rocketmq#1258", "apache/rocketmq#5091"),
    ),
    Kind(
        "RMQ-CKPT-005",
        Severity.WARNING,
        "confirmed offset behind the end of the log",
        "The checkpoint confirms messages that are not in the log.",
        "A log that was cut or restored from an older copy.",
        "`repair` sets it to the end of the log.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-CKPT-006",
        Severity.WARNING,
        "checkpoint holds impossible values",
        "A time or an offset below 0: the page is damaged. A broker takes the values as they are.",
        "A failing disk, a torn write.",
        "`repair` writes a new one.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-CKPT-030",
        Severity.WARNING,
        "queue offset of the checkpoint beyond the log",
        "logicsPhysicalOffset says that queue units of messages are on disk that are not in the log. After a crash "
        "RocketMQ 5.5 then starts its recovery too late, and new messages never reach their queues.",
        "A log that was cut or restored from an older copy, by a tool or a broker that does not know this field.",
        "`repair` lowers it to the last message of the log.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TIME-001",
        Severity.NOTICE,
        "files look younger than their messages",
        "Expiry goes by the file's modification time: these files are kept longer than fileReservedTime, and they hold "
        "back all younger ones.",
        "A copy without the times (cp without -p), a file that was touched or repaired.",
        "Copy with times kept, or let `repair` set each file to the time it was closed at: the first message of the "
        "next file. The broker then deletes expired files at its next deleteWhen hour: run `clean --forecast` first.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#2260", "apache/rocketmq#2264"),
    ),
    Kind(
        "RMQ-TIME-002",
        Severity.NOTICE,
        "files look older than their messages",
        "Expiry goes by the file's modification time: these files are deleted before their messages are as old as "
        "fileReservedTime.",
        "A file system or Windows version that does not update the time of mapped files; a clock that was wrong.",
        "`repair` sets each file to the time it was closed at: the first message of the next file.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#1948",),
    ),
    Kind(
        "RMQ-TIME-003",
        Severity.NOTICE,
        "messages stored in the future",
        "Their store time is later than this machine's clock. Brokers compare times with now, some do not start.",
        "A clock that was wrong when they were stored, or is wrong here.",
        "Compare the clocks.",
        None,
        ("apache/rocketmq#9455", "apache/rocketmq#9406"),
    ),
    Kind(
        "RMQ-TIME-004",
        Severity.NOTICE,
        "the clock went back",
        "Messages are stored one after the other with times that fall: a search by time can miss some of them.",
        "The clock was set back, or the machine changed. Or a truncated log whose old messages came back, because new "
        "ones ended just where one of them begins.",
        "Look at the messages around the place with `rmqctl cat`. Search by offset where it matters.",
        None,
        ("apache/rocketmq#9455", "apache/rocketmq#5445"),
    ),
    Kind(
        "RMQ-TIME-005",
        Severity.NOTICE,
        "producers' clocks are ahead",
        "Messages were born later than they were stored. Queries by time and key that use the birth time miss them.",
        "The clock of a producer's machine.",
        "Set that clock; the messages name the host (`rmqctl cat`).",
        None,
        ("apache/rocketmq#681",),
    ),
)
