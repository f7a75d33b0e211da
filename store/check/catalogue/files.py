"""The kinds of findings about files as such: names, sizes, gaps, what is no file at all."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_REPAIR = "rmqctl repair --only {code}"

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-FILE-001",
        Severity.ERROR,
        "stray file in the commitlog",
        "A broker takes every name in this directory for an offset: it does not start. Messages are not affected.",
        "An editor's backup, a note, a half copied file, a renamed commitlog file.",
        "Look what it is (`rmqctl dump FILE`). `repair` moves it beside the store; `salvage` reads messages out of it.",
        _REPAIR,
        ("apache/rocketmq#3257",),
    ),
    Kind(
        "RMQ-FILE-002",
        Severity.ERROR,
        "commitlog file of another size",
        "Every version refuses to start: length not matched message store config value. What the file still holds can "
        "be read; what was cut off is lost.",
        "A copy that broke off, a full disk, a kill between creating and sizing a file, another "
        "mappedFileSizeCommitLog.",
        "`recover` cuts one that is too long, and gives the last one its size back. In the middle `recover --bridge` "
        "fills what is missing.",
        "rmqctl recover",
        ("apache/rocketmq#6904", "alibaba/rocketmq#419"),
    ),
    Kind(
        "RMQ-FILE-003",
        Severity.ERROR,
        "empty commitlog file",
        "4.x refuses to start, 5.x removes the file if it is the last one. As a rule it held nothing; where queue "
        "units lead into it, their messages are lost.",
        "A kill -9 or a full disk while the next file was created; a file emptied by a command or a broken copy.",
        "Bring the file back if it held messages and there is a copy. Else `recover` moves it away.",
        "rmqctl recover",
        ("apache/rocketmq#6904", "apache/rocketmq#7729"),
    ),
    Kind(
        "RMQ-FILE-004",
        Severity.ERROR,
        "commitlog file missing in the middle",
        "The messages of that file are lost. A broker starts, logs a [BUG] line, and stops handing out messages of "
        "queues that point into the hole.",
        "A file deleted or lost by hand, by a disk, by an incomplete copy.",
        "Bring the file back if there is a copy. Else `recover --bridge` fills the hole so that what follows it is "
        "served.",
        "rmqctl recover --bridge",
        ("apache/rocketmq#2140", "apache/rocketmq#2141"),
    ),
    Kind(
        "RMQ-FILE-005",
        Severity.ERROR,
        "commitlog files overlap",
        "Two files claim the same offsets, or a name is no multiple of the file size: which one a broker reads is left "
        "to chance.",
        "A file copied in from another store, a renamed file, a changed mappedFileSizeCommitLog.",
        "Find out which file belongs here (`rmqctl dump FILE` shows the offsets its frames give) and move the other "
        "one away.",
        None,
        ("alibaba/rocketmq#419",),
    ),
    Kind(
        "RMQ-FILE-006",
        Severity.ERROR,
        "file cannot be read",
        "What it holds is unknown: neither whole nor damaged. A broker that cannot read it does not start.",
        "Permissions, a failing disk, a broken link.",
        "Check the permissions and the disk (dmesg), then check again.",
    ),
    Kind(
        "RMQ-FILE-007",
        Severity.ERROR,
        "not a regular file",
        "A directory, a fifo, a socket, a device or a broken link is where a store file should be. A broker does not "
        "start, or hangs on it.",
        "A container engine makes a directory for a bind mount whose source is missing; a broken copy of a store.",
        "Find out where it comes from. `repair` moves it beside the store; a broker makes a new file.",
        _REPAIR,
    ),
    Kind(
        "RMQ-FILE-008",
        Severity.WARNING,
        "store file is a link",
        "A broker follows it, but its expiry removes only the link, and whoever owns the target can change messages.",
        "A file moved to another disk by hand.",
        "Put the file itself in the place of the link. To spread a store over disks, configure storePathCommitLog with "
        "several directories.",
    ),
    Kind(
        "RMQ-FILE-009",
        Severity.ERROR,
        "directory inside the commitlog",
        "5.x passes over it, 4.x refuses to start.",
        "A backup or something moved aside inside the commitlog directory.",
        "`repair` moves it beside the store.",
        _REPAIR,
        ("apache/rocketmq#3257",),
    ),
    Kind(
        "RMQ-FILE-010",
        Severity.ERROR,
        "commitlog missing",
        "Queues or index point into a commitlog that is not there. A broker that starts like this deletes all queues.",
        "A store moved in parts, a wrong storePathCommitLog, a disk that is not mounted.",
        "Do not start the broker. Bring the commitlog back, or name its place with -c broker.conf.",
        None,
        ("apache/rocketmq#1231", "apache/rocketmq#7972"),
    ),
    Kind(
        "RMQ-FILE-050",
        Severity.NOTICE,
        "commitlog in a DLedger log",
        "The messages are in a DLedger (Raft) log, which is not read: they, the queues and the index were not checked.",
        "enableDLegerCommitLog=true.",
        "Nothing. Every change of this store is refused. `rmqctl salvage STORE/dledger-ID/data --to NEW` brings the "
        "messages into a new store.",
    ),
    Kind(
        "RMQ-FILE-060",
        Severity.ERROR,
        "lock is not a regular file",
        "No broker starts, and no command of rmqctl can change the store: the lock cannot be taken. Messages are not "
        "affected.",
        "A container engine makes a directory for a bind mount whose source is missing.",
        "Stop the container, move `lock` out of the store by hand, then check again. A broker makes a new one.",
    ),
    Kind(
        "RMQ-FILE-011",
        Severity.NOTICE,
        "prepared commitlog file",
        "A file of zeros that was created ahead of need. A start removes or uses it.",
        "A broker that runs, or was killed.",
        "Nothing.",
    ),
    Kind(
        "RMQ-FILE-012",
        Severity.ERROR,
        "stray file in a consume queue",
        "A broker takes every name there for an offset: it does not start.",
        "A backup or a note in the queue's directory.",
        "`repair` moves it beside the store.",
        _REPAIR,
        ("apache/rocketmq#3257",),
    ),
    Kind(
        "RMQ-FILE-013",
        Severity.ERROR,
        "consume queue file of another size",
        "A broker refuses to start: length not matched message store config value. Its units can be made anew from "
        "the commitlog.",
        "A copy that broke off, a full disk, another mappedFileSizeConsumeQueue.",
        "`rebuild` makes the queue anew.",
        "rmqctl rebuild",
        ("alibaba/rocketmq#419",),
    ),
    Kind(
        "RMQ-FILE-014",
        Severity.ERROR,
        "empty consume queue file",
        "A file of 0 bytes: 4.x refuses to start, 5.x removes it if it is the last one.",
        "A kill or a full disk while the file was created.",
        "`recover` gives it its size and units; `rebuild` makes all queues anew.",
        "rmqctl recover",
        ("apache/rocketmq#6904", "apache/rocketmq#9728"),
    ),
    Kind(
        "RMQ-FILE-015",
        Severity.ERROR,
        "consume queue file missing in the middle",
        "The messages whose units stood there are in the commitlog but no consumer gets them.",
        "A file deleted or lost, an incomplete copy.",
        "`rebuild` makes the queue anew.",
        "rmqctl rebuild",
        ("apache/rocketmq#7355",),
    ),
    Kind(
        "RMQ-FILE-016",
        Severity.NOTICE,
        "no queue by its name",
        "A broker passes over it: queues are directories named by their id.",
        "Something put there by hand.",
        "Move it elsewhere.",
    ),
    Kind(
        "RMQ-FILE-017",
        Severity.ERROR,
        "files have not the configured size",
        "With this configuration a broker refuses to start (commitlog, queues) or reads a wrong index and extends its "
        "files.",
        "A changed mappedFileSizeCommitLog, mappedFileSizeConsumeQueue, maxHashSlotNum or maxIndexNum; the broker.conf "
        "of another broker.",
        "Configure what the files have. The rest of this check goes by the files.",
        None,
        ("alibaba/rocketmq#419", "apache/rocketmq#7191"),
    ),
)


# The kinds of findings about the timer and the epochs, which follow the commitlog.

_MENDED = (
    "`repair` writes the timer log from the messages that wait, without a wheel, which a broker makes of it, and sets "
    "timercheck to it."
)

FOLLOWERS_KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-TMR-001",
        Severity.ERROR,
        "timer past the end of its queue",
        "timercheck says that the timer has more messages than its queue holds. A broker goes on at the end: messages "
        "that take these slots before it starts are never delivered.",
        "A log that was cut or restored from an older copy, without the timer's files.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-002",
        Severity.ERROR,
        "timer log leads past the end of the log",
        "Units of the timer log, or slots of the wheel, lead to no message of the timer. Once the log has grown over "
        "these places, the timer reads other messages there, and may stop delivering.",
        "A log that was cut or restored from an older copy, without the timer's files; a timer log that was removed.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-003",
        Severity.ERROR,
        "messages that the timer does not deliver",
        "They wait in the timer's queue, the timer has passed them, and no slot of its wheel leads to them: a broker "
        "never delivers them.",
        "A wheel or a timer log that was removed; messages that were stored after the log was cut.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-004",
        Severity.ERROR,
        "timer file damaged or missing",
        "With a wheel of a wrong length or a gap in the timer log a broker does not start. It cuts a timer log at "
        "damage. Bytes that timercheck lacks are zeros for a broker. Without a timercheck, or with an empty one, it "
        "delivers again what it has delivered of the timer's queue, and twice what waits.",
        "A torn write, an incomplete copy, a file that was removed.",
        "`repair` writes wheel and log from the messages that wait. A timercheck can only be restored from a copy of "
        "the store: it says what was delivered.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-005",
        Severity.NOTICE,
        "messages that the timer delivers twice",
        "They are on the wheel, and the timer's checkpoint is older: a broker puts them there once more.",
        "A crash: timercheck is written every second.",
        _MENDED,
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-TMR-006",
        Severity.NOTICE,
        "recalls in the form of 5.3.3",
        "Messages that take others back name topic and key. A broker 5.5.0 knows the key alone, unless "
        "appendTopicForTimerDeleteKey=true, and delivers what was taken back.",
        "An upgrade while recalled messages wait.",
        "Start a broker 5.3.3, or one with appendTopicForTimerDeleteKey=true, until their time has passed.",
    ),
    Kind(
        "RMQ-TMR-050",
        Severity.NOTICE,
        "timer wheel empty",
        "A broker starts and makes the wheel again: it links the units of the last two files of the timer log. "
        "Messages whose units are all in older files are not delivered, which is a finding of its own (RMQ-TMR-003).",
        "A file that was removed; a broker that stopped while it made the file.",
        "Nothing, if it is the only finding of the timer: a broker writes the wheel when it starts.",
    ),
    Kind(
        "RMQ-TMR-051",
        Severity.ERROR,
        "timer ahead of the clock",
        "timercheck says that messages are delivered which are not due yet. A broker never looks at "
        "slots before that time: messages that are due until then are not delivered.",
        "A clock that was far ahead and was set back; a damaged timercheck.",
        "Restore config/timercheck from a copy. If there is none, move it away: a broker then delivers again what the "
        "timer's queue holds.",
    ),
    Kind(
        "RMQ-EPO-001",
        Severity.WARNING,
        "epoch past the end of the log",
        "An epoch begins past the end of the commitlog. A master's next epoch is refused, and slaves compare their "
        "logs by entries that are not true.",
        "A log that was cut or lost its tail, without the epoch file.",
        "`repair` removes these entries. Replicas need the same cut.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-EPO-002",
        Severity.WARNING,
        "epoch file damaged",
        "The number of entries, the CRC or an entry is wrong. A broker takes the backup, and without one starts with "
        "no epochs: as a slave it copies the whole log again.",
        "A torn write, an edit by hand.",
        "`repair` takes the backup if that is whole, else it writes the entries that can be read, with count and CRC.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-EPO-003",
        Severity.WARNING,
        "epochs that do not ascend",
        "Each epoch has to be larger than the one before it, and to begin after it.",
        "An edit by hand, files of different replicas.",
        "`repair` keeps the entries up to the first that does not ascend. Compare with a replica's file before.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-EPO-004",
        Severity.ERROR,
        "messages of another master in an epoch",
        "From here on messages are older than those before them and another broker stored them than the master of the "
        "epoch: this slave cut its log and they are what stood there. A recovery takes them for the log's end, and "
        "the slave goes on after bytes that its master does not have.",
        "A slave that died after its log was cut to its master's: a truncation moves positions and clears nothing.",
        "Where no newer message follows, `repair --only {code}` ends the log before them and keeps them beside the "
        "store: run it before the broker starts. Else compare with a replica (`diff`): `truncate --at` takes the newer "
        "ones along.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#10666",),
    ),
)
