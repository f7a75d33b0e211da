"""The kinds of findings about how the store was left: abort, checkpoint, clocks and file times."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

KINDS: tuple[Kind, ...] = (
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
