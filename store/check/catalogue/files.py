"""The kinds of findings about files as such: names, sizes, gaps, what is no file at all."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_REPAIR = "rmqctl repair --only {code}"

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-FILE-001",
        Severity.ERROR,
        "stray file in the commitlog",
        "RocketMQ parses every file name here as an offset, so the broker does not start. Messages are not affected.",
        "An editor's backup, a note, a partial copy, a renamed commitlog file.",
        "Identify the file (`rmqctl dump FILE`). `repair` moves it beside the store; `salvage` extracts its messages.",
        _REPAIR,
        ("apache/rocketmq#3257",),
    ),
    Kind(
        "RMQ-FILE-002",
        Severity.ERROR,
        "commitlog file with a wrong size",
        "No version starts: `length not matched message store config value`. The remaining part is readable; the "
        "missing part is lost.",
        "An interrupted copy, a full disk, a kill between creating and sizing a file, a changed "
        "mappedFileSizeCommitLog.",
        "`recover` truncates a file that is too long and extends a last file that is too short. In the middle of "
        "the log, `recover --bridge` fills the missing part.",
        "rmqctl recover",
        ("apache/rocketmq#6904", "alibaba/rocketmq#419"),
    ),
    Kind(
        "RMQ-FILE-003",
        Severity.ERROR,
        "empty commitlog file",
        "4.x does not start; 5.x removes the file if it is the last one. The file usually held nothing. Where "
        "queue units point into it, their messages are lost.",
        "A kill -9 or a full disk while the next file was created; a file emptied by a command or a failed copy.",
        "Restore the file if it held messages and a copy exists. Otherwise `recover` moves it away.",
        "rmqctl recover",
        ("apache/rocketmq#6904", "apache/rocketmq#7729"),
    ),
    Kind(
        "RMQ-FILE-004",
        Severity.ERROR,
        "commitlog file missing in the middle",
        "The messages of that file are lost. A broker starts, logs a [BUG] line, and stops serving queues that "
        "point into the gap.",
        "A file deleted or lost by hand, by a disk, by an incomplete copy.",
        "Restore the file if a copy exists. Otherwise `recover --bridge` fills the gap so that later messages are "
        "served.",
        "rmqctl recover --bridge",
        ("apache/rocketmq#2140", "apache/rocketmq#2141"),
    ),
    Kind(
        "RMQ-FILE-005",
        Severity.ERROR,
        "commitlog files overlap",
        "Two files cover the same offsets, or a name is not a multiple of the file size. Which file a broker reads "
        "is undefined.",
        "A file copied in from another store, a renamed file, a changed mappedFileSizeCommitLog.",
        "Find the right file (`rmqctl dump FILE` shows the offsets in its frames) and move the other one away.",
        None,
        ("alibaba/rocketmq#419",),
    ),
    Kind(
        "RMQ-FILE-006",
        Severity.ERROR,
        "file cannot be read",
        "The content is unknown, so the file counts neither as intact nor as damaged. A broker that cannot read it "
        "does not start.",
        "Permissions, a failing disk, a broken link.",
        "Check permissions and disk (dmesg), then run `check` again.",
    ),
    Kind(
        "RMQ-FILE-007",
        Severity.ERROR,
        "not a regular file",
        "A directory, fifo, socket, device or broken link has the name of a store file. A broker does not start, "
        "or hangs.",
        "A container engine makes a directory for a bind mount whose source is missing; a broken copy of a store.",
        "Find its origin. `repair` moves it beside the store; a broker creates a new file.",
        _REPAIR,
    ),
    Kind(
        "RMQ-FILE-008",
        Severity.WARNING,
        "store file is a link",
        "A broker follows the link. Expiry removes only the link, and the owner of the target can change messages.",
        "A file moved to another disk by hand.",
        "Replace the link with the file. To spread a store over disks, set several directories in storePathCommitLog.",
    ),
    Kind(
        "RMQ-FILE-009",
        Severity.ERROR,
        "directory inside the commitlog",
        "5.x ignores it, 4.x does not start.",
        "A backup inside the commitlog directory.",
        "`repair` moves it beside the store.",
        _REPAIR,
        ("apache/rocketmq#3257",),
    ),
    Kind(
        "RMQ-FILE-010",
        Severity.ERROR,
        "commitlog missing",
        "Queues or index point into a commitlog that is missing. A broker that starts now deletes all queues.",
        "A store moved in parts, a wrong storePathCommitLog, a disk that is not mounted.",
        "Do not start the broker. Restore the commitlog, or name its path with -c broker.conf.",
        None,
        ("apache/rocketmq#1231", "apache/rocketmq#7972"),
    ),
    Kind(
        "RMQ-FILE-050",
        Severity.NOTICE,
        "commitlog in a DLedger log",
        "The messages are in a DLedger (Raft) log. rmqctl did not read it, so messages, queues and index are "
        "unchecked.",
        "enableDLegerCommitLog=true.",
        "Nothing. rmqctl refuses every change of this store. `rmqctl salvage STORE/dledger-ID/data --to NEW` "
        "extracts the messages.",
    ),
    Kind(
        "RMQ-FILE-060",
        Severity.ERROR,
        "lock is not a regular file",
        "No broker starts and rmqctl cannot change the store, because the lock cannot be taken. Messages are not "
        "affected.",
        "A container engine makes a directory for a bind mount whose source is missing.",
        "Stop the container, move `lock` out of the store by hand, then run `check` again. A broker creates a new "
        "lock.",
    ),
    Kind(
        "RMQ-FILE-011",
        Severity.NOTICE,
        "preallocated commitlog file",
        "A file of zeros, created in advance. The next start removes or uses it.",
        "A broker that is running or was killed.",
        "Nothing.",
    ),
    Kind(
        "RMQ-FILE-012",
        Severity.ERROR,
        "stray file in a consume queue",
        "RocketMQ parses every file name here as an offset, so the broker does not start.",
        "A backup or a note in the queue's directory.",
        "`repair` moves it beside the store.",
        _REPAIR,
        ("apache/rocketmq#3257",),
    ),
    Kind(
        "RMQ-FILE-013",
        Severity.ERROR,
        "consume queue file with a wrong size",
        "A broker does not start: `length not matched message store config value`. The units can be rebuilt from "
        "the commitlog.",
        "An interrupted copy, a full disk, a changed mappedFileSizeConsumeQueue.",
        "`rebuild` rebuilds the queue.",
        "rmqctl rebuild",
        ("alibaba/rocketmq#419",),
    ),
    Kind(
        "RMQ-FILE-014",
        Severity.ERROR,
        "empty consume queue file",
        "The file has 0 bytes. 4.x does not start; 5.x removes the file if it is the last one.",
        "A kill or a full disk while the file was created.",
        "`recover` restores its size and units; `rebuild` rebuilds all queues.",
        "rmqctl recover",
        ("apache/rocketmq#6904", "apache/rocketmq#9728"),
    ),
    Kind(
        "RMQ-FILE-015",
        Severity.ERROR,
        "consume queue file missing in the middle",
        "The messages of the missing units are in the commitlog, but no consumer receives them.",
        "A file deleted or lost, an incomplete copy.",
        "`rebuild` rebuilds the queue.",
        "rmqctl rebuild",
        ("apache/rocketmq#7355",),
    ),
    Kind(
        "RMQ-FILE-016",
        Severity.NOTICE,
        "not a queue directory",
        "A broker ignores it: queue directories are named by queue id.",
        "A file or directory created by hand.",
        "Move it elsewhere.",
    ),
    Kind(
        "RMQ-FILE-017",
        Severity.ERROR,
        "file sizes differ from the configuration",
        "With this configuration a broker does not start (commitlog, queues), or misreads the index and extends "
        "its files.",
        "A changed mappedFileSizeCommitLog, mappedFileSizeConsumeQueue, maxHashSlotNum or maxIndexNum; the broker.conf "
        "of another broker.",
        "Configure the sizes of the files. The rest of this check uses the sizes of the files.",
        None,
        ("alibaba/rocketmq#419", "apache/rocketmq#7191"),
    ),
)


# The kinds of findings about the timer and the epochs, which follow the commitlog.

_MENDED = (
    "`repair` writes the timer log from the pending messages, without a wheel, and sets timercheck. A broker "
    "creates the wheel."
)

FOLLOWERS_KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-TMR-001",
        Severity.ERROR,
        "timer past the end of its queue",
        "timercheck counts more messages than the timer's queue holds. A broker continues at the end of the queue. "
        "Messages stored in the missing slots before it starts are never delivered.",
        "A log that was cut or restored from an older copy, without the timer's files.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-002",
        Severity.ERROR,
        "timer log points past the end of the log",
        "Units of the timer log or slots of the wheel point at no timer message. Once the log has grown past these "
        "offsets, the timer reads wrong messages and may stop delivering.",
        "A log that was cut or restored from an older copy, without the timer's files; a timer log that was removed.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-003",
        Severity.ERROR,
        "messages the timer never delivers",
        "The messages are in the timer's queue and the timer has passed them, but no slot of the wheel points at "
        "them. A broker never delivers them.",
        "A removed wheel or timer log; messages stored after the log was cut.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-004",
        Severity.ERROR,
        "timer file damaged or missing",
        "A broker does not start with a wheel of a wrong length or a gap in the timer log. It cuts the timer log "
        "at damage and reads missing bytes of timercheck as zeros. Without timercheck it delivers messages of the "
        "timer's queue again, and pending ones twice.",
        "A torn write, an incomplete copy, a file that was removed.",
        "`repair` writes wheel and log from the pending messages. Restore timercheck from a copy of the store: "
        "only it records what was delivered.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-005",
        Severity.NOTICE,
        "messages the timer delivers twice",
        "The messages are on the wheel, but the timer's checkpoint is older. A broker adds them to the wheel again.",
        "A crash: timercheck is written every second.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-006",
        Severity.NOTICE,
        "recalls in the format of 5.3.3",
        "Recall messages name topic and key. Broker 5.5.0 matches the key alone, unless "
        "appendTopicForTimerDeleteKey=true, and delivers recalled messages.",
        "An upgrade while recalled messages wait.",
        "Run broker 5.3.3, or set appendTopicForTimerDeleteKey=true, until their delivery time has passed.",
    ),
    Kind(
        "RMQ-TMR-050",
        Severity.NOTICE,
        "timer wheel empty",
        "A broker rebuilds the wheel from the last two files of the timer log. Messages that are only in older "
        "files are not delivered (RMQ-TMR-003).",
        "A removed file; a broker that stopped while creating it.",
        "Nothing, if this is the only timer finding: the broker writes the wheel at start.",
    ),
    Kind(
        "RMQ-TMR-051",
        Severity.ERROR,
        "timer ahead of the clock",
        "timercheck marks messages as delivered that are not due yet. A broker never reads slots before that time, "
        "so messages due until then are not delivered.",
        "A clock that was far ahead and was set back; a damaged timercheck.",
        "Restore config/timercheck from a copy. Without a copy, move it away: the broker then delivers the timer's "
        "queue again.",
    ),
    Kind(
        "RMQ-EPO-001",
        Severity.WARNING,
        "epoch past the end of the log",
        "An epoch begins past the end of the commitlog. The master's next epoch is refused, and slaves compare "
        "logs by wrong entries.",
        "A log that was cut or lost its tail, without the epoch file.",
        "`repair` removes these entries. Replicas need the same cut.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-EPO-002",
        Severity.WARNING,
        "epoch file damaged",
        "The entry count, the CRC or an entry is wrong. A broker loads the backup. Without a backup it starts "
        "without epochs, and a slave copies the whole log again.",
        "A torn write, an edit by hand.",
        "`repair` restores the backup if it is intact. Otherwise it writes the readable entries with count and CRC.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-EPO-003",
        Severity.WARNING,
        "epochs not ascending",
        "Each epoch must be larger than the previous one and begin after it.",
        "An edit by hand, files of different replicas.",
        "`repair` keeps the entries up to the first wrong one. Compare with a replica's file first.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-EPO-004",
        Severity.ERROR,
        "messages of another master in an epoch",
        "From this offset, messages are older than those before them and were stored by another broker than the "
        "master of the epoch. This slave truncated its log, and these are the old bytes. A recovery treats them as "
        "the end of the log, and the slave continues after bytes that its master does not have.",
        "A slave that died after its log was truncated to its master's: truncation moves positions and clears nothing.",
        "If no newer message follows, run `repair --only RMQ-EPO-004` before the broker starts: it ends the log "
        "before them and keeps them beside the store. Otherwise compare with a replica (`diff`); `truncate --at` "
        "also removes the newer messages.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#10666",),
    ),
)
