"""The kinds of findings about consume queues."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_RECOVER = "rmqctl recover"
_RENUMBER = "rmqctl salvage --offsets renumber"
_MEND = "`recover` writes exactly the units that the commitlog implies. It removes nothing from the log."

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-CQ-001",
        Severity.ERROR,
        "message missing from its queue",
        "The message is intact in the commitlog, but its queue slot is empty, so no consumer receives it. Queries "
        "by key and id find it.",
        "Lost or cut queue files, an unclean stop, a broker that skipped undispatched messages at start. Brokers "
        "never fix slots in the middle of a queue.",
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
        "queues lag the commitlog",
        "From one offset on, no message is in its queue. Dispatch stopped there while messages were still stored. "
        "Consumers receive them only after dispatch.",
        "A kill or power cut before the queues were written; dispatch stuck at a rejected message; a full disk. "
        "Usually the next start of a broker dispatches them.",
        "`recover` dispatches them without a broker. If they are still missing after a long run of a broker, "
        "inspect the message where dispatch stopped: `rmqctl query -i OFFSET`.",
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
        "The store is in use, and its last messages were not dispatched yet at the time of the check.",
        "Dispatch lags the log briefly. If `check` names the same offset later, dispatch is stuck.",
        "Nothing. Check again if consumers wait.",
        None,
        ("apache/rocketmq#8394",),
    ),
    Kind(
        "RMQ-CQ-004",
        Severity.ERROR,
        "all consume queues missing",
        "No queue holds a unit, so consumers receive nothing. The messages are intact in the commitlog. A broker "
        "rebuilds the queues after a clean stop; with `abort`, only from the file where its recovery starts.",
        "consumequeue/ deleted to get a broker started, or left out of a copy.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#8032", "apache/rocketmq#7355"),
    ),
    Kind(
        "RMQ-CQ-005",
        Severity.ERROR,
        "unit in the wrong slot",
        "The slot points at a message of the same queue that belongs in another slot. Consumers receive messages "
        "twice, out of order or not at all.",
        "A broker that started its recovery too late in the log, or skipped a message, writes all later units some "
        "slots too low.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495", "apache/rocketmq#678", "apache/rocketmq#1434", "apache/rocketmq#7355"),
    ),
    Kind(
        "RMQ-CQ-006",
        Severity.ERROR,
        "unit of another queue",
        "The slot points at a message of another topic or queue, or at a half or rolled back message. Consumers "
        "receive messages of others.",
        "Two unclean stops; stale units that reappeared; files mixed from several stores.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495",),
    ),
    Kind(
        "RMQ-CQ-007",
        Severity.ERROR,
        "unit that points at no message",
        "No message begins at the offset, although the log is intact there. Consumers stop or skip ahead.",
        "A damaged queue file, stale units, or a queue of another store.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495", "apache/rocketmq#289"),
    ),
    Kind(
        "RMQ-CQ-008",
        Severity.WARNING,
        "units past the end of the commitlog",
        "The last units of the queue point at messages that the log does not have. If a broker counts them at "
        "start, new messages get slots after them, and consumers see a gap.",
        "A log that was cut (a torn tail, a truncated slave) after the queue was flushed; units that a truncation "
        "left.",
        "`recover` removes them from the queue and keeps their bytes.",
        _RECOVER,
        ("alibaba/rocketmq#358", "apache/rocketmq#10666"),
    ),
    Kind(
        "RMQ-CQ-009",
        Severity.WARNING,
        "units of damaged messages",
        "The units point into a damaged part of the log or at a missing file. The messages are lost; the queue is "
        "right. Consumers stop or skip ahead here.",
        "The damage of the commitlog (see the finding of that offset).",
        "Restore the commitlog file if a copy exists. `recover --bridge` writes fillers, so that consumers continue.",
        "rmqctl recover --bridge",
        ("apache/rocketmq#2140", "apache/rocketmq#2141"),
    ),
    Kind(
        "RMQ-CQ-010",
        Severity.ERROR,
        "unit with a wrong size",
        "The unit points at its message with a wrong size. Consumers receive too few or too many bytes.",
        "A damaged queue file.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495",),
    ),
    Kind(
        "RMQ-CQ-011",
        Severity.ERROR,
        "unit with a wrong tags code",
        "Consumers that filter by tag miss the message or receive it wrongly. A delayed message is delivered at a "
        "wrong time.",
        "A damaged queue file; a messageDelayLevel other than the one of -c.",
        _MEND,
        _RECOVER,
        ("apache/rocketmq#495",),
    ),
    Kind(
        "RMQ-CQ-012",
        Severity.NOTICE,
        "another table of delay levels",
        "All delayed messages of this level are due the same number of seconds earlier or later than the delay "
        "levels of this check define.",
        "messageDelayLevel is not the default and was not given with -c, or was changed.",
        "Give the broker's configuration with -c. Do not run `recover` without it: it would write the other times.",
        None,
    ),
    Kind(
        "RMQ-CQ-013",
        Severity.ERROR,
        "placeholder in the slot of a message",
        "The slot holds a placeholder, but the log has a message for it. No consumer receives the message.",
        "A queue that lost its first files and was continued; a copy without them.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-CQ-014",
        Severity.WARNING,
        "empty slot inside a queue",
        "The slot holds zeros, a phantom unit. A broker returns nothing there and moves consumers ahead; some "
        "clients stop.",
        "A broker counts an all-zero queue file as one unit at start; a queue offset that was assigned and never used.",
        "`recover` writes a placeholder that all versions skip.",
        _RECOVER,
        ("apache/rocketmq#9728", "apache/rocketmq#7355"),
    ),
    Kind(
        "RMQ-CQ-015",
        Severity.ERROR,
        "unit with invalid values",
        "A negative offset or an impossible size: the queue file is damaged there.",
        "A failing disk, a foreign write, a file of another kind.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-CQ-016",
        Severity.ERROR,
        "units out of order",
        "Physical offsets decrease along the queue. Brokers search queues by rising offsets, so searches by time "
        "and the first offset are wrong (`logic queue order maybe wrong`).",
        "Stale units that reappeared after newer ones, or two brokers that wrote one store.",
        "`recover` fixes units of messages in the log. Units of expired messages go only with their file.",
        _RECOVER,
        ("apache/rocketmq#7355",),
    ),
    Kind(
        "RMQ-CQ-017",
        Severity.WARNING,
        "queue offset used twice",
        "Two messages of the log have the same queue and queue offset. Only one can have the slot. The other is "
        "intact, but no consumer receives it.",
        "A broker that started with short queues assigned the offsets again; stale messages that reappeared.",
        "`salvage --offsets renumber` creates a store in which every message has its own slot.",
        _RENUMBER,
        ("apache/rocketmq#678", "apache/rocketmq#1434"),
    ),
    Kind(
        "RMQ-CQ-018",
        Severity.WARNING,
        "invalid queue offset",
        "The queue offset is negative, or too high for a log of this size. The rest of the message is valid. No "
        "checksum covers this field. No consumer receives the message.",
        "A bit that flipped in memory or on disk.",
        "Read it with `rmqctl query -i OFFSET`. `salvage --offsets renumber` assigns a slot.",
        _RENUMBER,
    ),
    Kind(
        "RMQ-CQ-019",
        Severity.WARNING,
        "queue ends with a file of zeros",
        "The last file of the queue holds no unit. Some versions do not start (IllegalArgumentException in "
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
        "All messages of the file have left the commitlog, so the file is no longer needed.",
        "The commitlog was cleaned by hand, or the broker stopped before it cleaned this queue.",
        "Nothing: the broker's next cleaning removes it. `rmqctl clean` also removes it, together with expired "
        "commitlog files and for good. See its `--dry-run` first.",
        None,
        ("apache/rocketmq#8753",),
    ),
    Kind(
        "RMQ-CQ-021",
        Severity.ERROR,
        "ext unit cannot be read",
        "The unit's tags code is the address of an ext unit that is missing or damaged. Filters by tag and by "
        "SQL92 fail for the message.",
        "consumequeue_ext/ lost, cut or left out of a copy.",
        "With enableConsumeQueueExt=true in the file of -c, `recover` writes the ext unit again. Otherwise it "
        "writes the plain tags code. Bit maps for SQL92 are lost.",
        _RECOVER,
        ("apache/rocketmq#9704",),
    ),
    Kind(
        "RMQ-CQ-022",
        Severity.WARNING,
        "queue ends with a placeholder",
        "No unit follows the last placeholder. 4.x takes the placeholder's size for an offset and stops dispatch: "
        "no new message reaches any queue.",
        "A queue file created before its first message, or one that lost its last units.",
        "`recover` removes placeholders at the end.",
        _RECOVER,
        ("apache/rocketmq#8394",),
    ),
    Kind(
        "RMQ-CQ-024",
        Severity.ERROR,
        "batch unit with wrong fields",
        "The unit has another store time or message count than its batch. Offsets of later batches are wrong.",
        "A damaged queue file.",
        _MEND,
        _RECOVER,
    ),
    Kind(
        "RMQ-CQ-030",
        Severity.NOTICE,
        "messages of a deleted topic",
        "Queue offsets restart later in the log, and the queue points at the later messages: the topic was deleted "
        "and created again. The earlier messages expire with their files.",
        "A topic that was deleted and created again, also to change its queue type; queue files removed before the "
        "broker went on writing.",
        "Nothing. `rmqctl where` and `rmqctl query -i` still read these messages.",
        None,
    ),
    Kind(
        "RMQ-CQ-031",
        Severity.ERROR,
        "queue points at messages of a deleted topic",
        "Queue offsets restart later in the log, but the queue points at the earlier messages. Consumers receive "
        "messages of the deleted topic instead of the new ones.",
        "A broker or a tool that rebuilt the queue from the whole log.",
        "`recover` points the queue at the later messages.",
        _RECOVER,
    ),
    Kind(
        "RMQ-CQ-032",
        Severity.NOTICE,
        "messages from before a topic was created",
        "The topic is configured, these queues have no files, and topics.json was changed after the messages. A broker "
        "leaves this when a topic is deleted and created again: its queues start at 0, and the log keeps the old "
        "messages until their files expire. A recovery after a crash dispatches them again.",
        "A topic that was deleted and created again. Or queue files that were lost before topics.json was changed.",
        "Nothing if the topic was deleted. Otherwise run `rmqctl rebuild --queues -t TOPIC`.",
        None,
    ),
)
