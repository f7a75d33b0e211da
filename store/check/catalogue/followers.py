"""The kinds of findings about the timer and the epochs, which follow the commitlog."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_MENDED = (
    "`repair` writes the timer log from the messages that wait, without a wheel, which a broker makes of it, and sets "
    "timercheck to it."
)

KINDS: tuple[Kind, ...] = (
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
