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
