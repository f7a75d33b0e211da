"""The kinds of findings about consume queues."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_RECOVER = "rmqctl recover"
_RENUMBER = "rmqctl salvage --offsets renumber"
_MEND = "`recover` gives every queue exactly the units that the commitlog implies; nothing is taken from the log."

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-CQ-001",
        Severity.ERROR,
        "message without a unit in its queue",
        "The message is whole in the commitlog, but its slot in the queue is empty: no consumer gets it. Key and id "
        "still find it.",
        "Queue files lost or cut, an unclean stop, a broker that skipped what was not dispatched when it started. "
        "Brokers never fix slots in the middle of a queue.",
        _MEND,
        _RECOVER,
        (
            "apache/rocketmq#467",
            "apache/rocketmq#405",
            "apache/rocketmq#1613",
            "apache/rocketmq#1434",
            "apache/rocketmq#7355",
            "apache/rocketmq#4826",
        ),
    ),
    Kind(
        "RMQ-CQ-002",
        Severity.WARNING,
        "queues behind the commitlog",
        "From one place of the log on no message is in its queue: dispatch stopped there while messages were still "
        "stored. Consumers do not get them until they are dispatched.",
        "A kill or power cut before the queues were written; dispatch stuck at a message that a queue rejects; a full "
        "disk that stopped the queues. As a rule the next start of a broker dispatches them.",
        "`recover` dispatches them without a broker. If a broker has run for long and they are still missing, look at "
        "the message where dispatch stands: `rmqctl query -i OFFSET`.",
        _RECOVER,
        (
            "apache/rocketmq#405",
            "apache/rocketmq#467",
            "apache/rocketmq#8394",
            "apache/rocketmq#1613",
            "apache/rocketmq#2398",
        ),
    ),
    Kind(
        "RMQ-CQ-003",
        Severity.NOTICE,
        "queues are being written",
        "The store is in use, and its last messages were not dispatched yet when it was looked at.",
        "Dispatch runs a moment behind the log. If the same place is named again later, dispatch is stuck.",
        "Nothing; check again if consumers wait.",
        None,
        ("apache/rocketmq#8394",),
    ),
    Kind(
        "RMQ-CQ-004",
        Severity.ERROR,
        "all consume queues missing",
        "No queue holds a unit: consumers get nothing. The messages are whole in the commitlog. A clean start of a "
        "broker makes the queues anew; with `abort` it does so only from the file where its recovery starts.",
        "consumequeue/ deleted to get a broker started, or left out of a copy.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#8032", "apache/rocketmq#7355"),
    ),
    Kind(
        "RMQ-CQ-005",
        Severity.ERROR,
        "unit of another slot",
        "The slot points at a message of the same queue that belongs to another slot: consumers get messages twice, "
        "out of place or not at all.",
        "A broker that started its recovery too late in the log, or skipped a message, puts all later ones some slots "
        "too low.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495", "apache/rocketmq#678", "apache/rocketmq#1434", "apache/rocketmq#7355"),
    ),
    Kind(
        "RMQ-CQ-006",
        Severity.ERROR,
        "unit of another queue",
        "The slot points at a message of another topic or queue, or at one that belongs into no queue (half or rolled "
        "back): consumers get what is not theirs.",
        "Two unclean stops; stale units that came back; files mixed from several stores.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495",),
    ),
    Kind(
        "RMQ-CQ-007",
        Severity.ERROR,
        "unit that points at no message",
        "No message begins where the slot points, though the log is whole there: consumers get stuck or are moved on.",
        "A damaged queue file, stale units, or a queue of another store.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495", "apache/rocketmq#289"),
    ),
    Kind(
        "RMQ-CQ-008",
        Severity.WARNING,
        "units behind the end of the commitlog",
        "The queue is longer than the log: its last units point at messages that the log does not have. If they are "
        "counted at a start, new messages get slots behind them, and consumers see a gap.",
        "A log that was cut (a torn tail, a truncated slave) while the queue had been flushed; units that a truncation "
        "left behind the queue's end.",
        "`recover` takes them out of the queue and keeps their bytes.",
        _RECOVER,
        ("alibaba/rocketmq#358", "apache/rocketmq#10666"),
    ),
    Kind(
        "RMQ-CQ-009",
        Severity.WARNING,
        "units of messages that are damaged",
        "The units point into a damaged part of the log or at a missing file. The messages are gone, the queue itself "
        "is right: consumers stop or are moved on here.",
        "What damaged the commitlog (see the finding about that place).",
        "Bring the commitlog file back if there is a copy. `recover --bridge` puts fillers there, so that consumers "
        "pass.",
        "rmqctl recover --bridge",
        ("apache/rocketmq#2140", "apache/rocketmq#2141"),
    ),
    Kind(
        "RMQ-CQ-010",
        Severity.ERROR,
        "unit with a wrong size",
        "The unit points at its message with another size than it has: consumers get it cut off, or more than it.",
        "A damaged queue file.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495",),
    ),
    Kind(
        "RMQ-CQ-011",
        Severity.ERROR,
        "unit with a wrong tags code",
        "Consumers that filter by tag miss the message or get it wrongly; a delayed message is delivered at a wrong "
        "time.",
        "A damaged queue file; another messageDelayLevel than the one given with -c.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495",),
    ),
    Kind(
        "RMQ-CQ-012",
        Severity.NOTICE,
        "another table of delay levels",
        "All delayed messages of this level are due by the same number of seconds later or earlier than the table of "
        "levels says that was used for this check.",
        "messageDelayLevel is not the default and was not given with -c, or was changed since.",
        "Give the broker's configuration with -c. Do not `recover` without it: it would write the other times.",
        None,
    ),
    Kind(
        "RMQ-CQ-013",
        Severity.ERROR,
        "filler in the slot of a message",
        "The slot holds the filler of a queue that began later, but the log has a message for it: no consumer gets it.",
        "A queue that lost its first files and was continued; a copy without them.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-CQ-014",
        Severity.WARNING,
        "empty slot inside a queue",
        "Zeros that are no message's place: a phantom unit. A broker hands out nothing there and moves consumers on, "
        "some clients stop.",
        "An all-zero queue file counts as one unit at a start; a queue offset that was given and never used.",
        "`recover` puts a filler there that all versions pass over.",
        _RECOVER,
        ("apache/rocketmq#9728", "apache/rocketmq#7355"),
    ),
    Kind(
        "RMQ-CQ-015",
        Severity.ERROR,
        "unit with impossible values",
        "A negative offset or a size that no message has: the queue file is damaged there.",
        "A failing disk, a foreign write, a file of another kind.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-CQ-016",
        Severity.ERROR,
        "units out of order",
        "Physical offsets fall along the queue. Brokers search queues as if they rose: searches by time and the first "
        "offset of the queue come out wrong (`logic queue order maybe wrong`).",
        "Stale units that came back behind newer ones, or two brokers that wrote one store.",
        "`recover` puts right what the log tells; what points at expired messages is only removed with its file.",
        _RECOVER,
        ("apache/rocketmq#7355",),
    ),
    Kind(
        "RMQ-CQ-017",
        Severity.WARNING,
        "queue offset given twice",
        "Two messages of the log have the same queue and queue offset. Only one of them can have the slot; the other "
        "is whole, but no consumer gets it.",
        "A broker that started with short queues gave the offsets again; stale messages that came back.",
        "`salvage --offsets renumber` makes a store in which every message has a slot of its own.",
        _RENUMBER,
        ("apache/rocketmq#678", "apache/rocketmq#1434"),
    ),
    Kind(
        "RMQ-CQ-018",
        Severity.WARNING,
        "impossible queue offset",
        "The message is good but for its queue offset, which is negative or so high that the log could not have held "
        "the messages before it. No checksum covers this field. No consumer gets the message.",
        "A bit that flipped in memory or on disk.",
        "Read it with `rmqctl query -i OFFSET`; `salvage --offsets renumber` gives it a slot.",
        _RENUMBER,
    ),
    Kind(
        "RMQ-CQ-019",
        Severity.WARNING,
        "queue ends with a file of zeros",
        "The last file of the queue holds no unit. Some versions do not start with it (IllegalArgumentException in "
        "correctMinOffset), others count a phantom unit.",
        "A kill just after the file was created.",
        "`recover` moves it away.",
        _RECOVER,
        ("apache/rocketmq#9728", "apache/rocketmq#10108"),
    ),
    Kind(
        "RMQ-CQ-020",
        Severity.NOTICE,
        "queue file of expired messages",
        "All messages of the file have left the commitlog; it could have been deleted with them.",
        "The commitlog was cleaned by hand, or the broker was stopped before it came to this queue.",
        "Nothing: the next cleaning of a broker removes it. `rmqctl clean` does so too, and removes expired commitlog "
        "files with it, for good: see its `--dry-run` first.",
        None,
        ("apache/rocketmq#8753",),
    ),
    Kind(
        "RMQ-CQ-021",
        Severity.ERROR,
        "ext unit cannot be read",
        "The unit's tags code is the address of an ext unit that is missing or damaged: filtering by tag and by "
        "SQL92 fails for the message.",
        "consumequeue_ext/ lost, cut or left out of a copy.",
        "With enableConsumeQueueExt=true in the file of -c, `recover` writes the ext unit again; else it puts the "
        "plain tags code into the unit. Bit maps for SQL92 are lost.",
        _RECOVER,
        ("apache/rocketmq#9704",),
    ),
    Kind(
        "RMQ-CQ-022",
        Severity.WARNING,
        "queue ends with a filler",
        "Behind the last filler no unit follows. 4.x takes the filler's size for a place in the log and dispatches "
        "nothing any more: no new message reaches any queue.",
        "A queue file that was made ahead of its first message, or lost its last units.",
        "`recover` takes fillers at the end away.",
        _RECOVER,
        ("apache/rocketmq#8394",),
    ),
    Kind(
        "RMQ-CQ-024",
        Severity.ERROR,
        "batch unit with wrong fields",
        "Another store time or number of messages than the batch has: offsets of the batches behind it do not fit.",
        "A damaged queue file.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-CQ-030",
        Severity.NOTICE,
        "messages of a deleted topic",
        "Queue offsets of the queue begin again later in the log, and the queue leads to the later messages: the topic "
        "was deleted and created again. The earlier messages expire with their files. Nothing is wrong.",
        "A topic that was deleted and created again, also to change the type of its queues; queue files that were "
        "removed before the broker went on writing.",
        "Nothing. `rmqctl where` and `rmqctl query -i` still read these messages.",
        None,
    ),
    Kind(
        "RMQ-CQ-031",
        Severity.ERROR,
        "queue leads to messages of a deleted topic",
        "Queue offsets begin again later in the log, but the queue leads to the earlier messages: consumers get "
        "messages of the topic that was deleted, and not those of the topic that was created after it.",
        "A broker, or a tool, that built the queue again from the whole log.",
        "`recover` makes the queue lead to the later messages.",
        _RECOVER,
    ),
)
