"""The kinds of findings about the commitlog's bytes: frames, tails, topics, checksums."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_BRIDGE = "rmqctl recover --bridge"
_LOST = (
    "The message at this place is lost; all later ones are intact. After a crash a broker ends the log here and "
    "deletes every later file. After a clean stop it may notice only when a consumer gets there."
)
_DISK = "A failing disk or memory, a write torn by a power cut, a copy of a running store."
_MEND = (
    "Inspect it with `rmqctl dump`. `recover --bridge` replaces it with a filler message and keeps all later messages."
)
_OVERFLOW = (
    "The message is intact if the length of its topic or properties is read as unsigned. A broker reads a negative "
    "length and cannot read the message. "
)
_OVERFLOW_CAUSE = "A broker that did not check the length of the properties, as some did for batches."
_NUMBER = (
    "The message is intact, but a number in its properties does not parse: DELAY of a message in "
    "SCHEDULE_TOPIC_XXXX, or INNER_NUM or INNER_BASE of an inner batch. A running broker gives it no queue unit. "
)
_NUMBER_CAUSE = "A producer that sends to the topic of delayed messages directly, past the broker's checks."

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-LOG-001",
        Severity.ERROR,
        "invalid frame size",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#289",),
    ),
    Kind(
        "RMQ-LOG-002",
        Severity.ERROR,
        "no magic code at the start of a frame",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#289",),
    ),
    Kind(
        "RMQ-LOG-003",
        Severity.ERROR,
        "frame of another offset",
        "The frame is intact but names another physical offset, so it does not belong here. Brokers up to 5.3 do "
        "not compare the offset and accept the message.",
        "A file of another store or of another time; a recycled file.",
        "`recover --bridge` replaces it with a filler; `salvage` extracts the message.",
        _BRIDGE,
        ("apache/rocketmq#10017",),
    ),
    Kind("RMQ-LOG-004", Severity.ERROR, "inconsistent lengths inside a frame", _LOST, _DISK, _MEND, _BRIDGE),
    Kind(
        "RMQ-LOG-005",
        Severity.ERROR,
        "body checksum wrong",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#9852",),
    ),
    Kind(
        "RMQ-LOG-006",
        Severity.ERROR,
        "frame checksum wrong",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#7437",),
    ),
    Kind("RMQ-LOG-007", Severity.ERROR, "topic is not valid UTF-8", _LOST, _DISK, _MEND, _BRIDGE),
    Kind(
        "RMQ-LOG-008",
        Severity.ERROR,
        "properties are not valid UTF-8",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-009",
        Severity.ERROR,
        "blank frame with a wrong size",
        "The frame that fills a file to its end is damaged. No message is lost, but a broker may end the log here.",
        _DISK,
        _MEND,
        _BRIDGE,
    ),
    Kind(
        "RMQ-LOG-010",
        Severity.ERROR,
        "zeros inside the log",
        "Messages at this place are lost; valid ones follow. A broker ends the log here.",
        "A page that never reached the disk, a hole in a sparse copy.",
        _MEND,
        _BRIDGE,
    ),
    Kind(
        "RMQ-LOG-011",
        Severity.ERROR,
        "torn tail",
        "The last message is incomplete. The broker died while writing it. Nothing follows.",
        "A crash, a kill, a power cut or a full disk.",
        "`recover` ends the log before it, as a broker does, and keeps the bytes beside the store.",
        "rmqctl recover",
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-012",
        Severity.WARNING,
        "bytes after the end of the log",
        "Bytes that are not a message follow the last message. A broker leaves them and overwrites them later.",
        "A torn write, a recycled file.",
        "`recover` clears them and keeps the bytes beside the store.",
        "rmqctl recover",
    ),
    Kind(
        "RMQ-LOG-013",
        Severity.WARNING,
        "old messages after the end of the log",
        "Messages that a truncation removed are still there, with valid checksums. If a new message ends where one "
        "of them begins, they become part of the log again.",
        "A truncation by recovery or high availability: it moves positions and clears nothing.",
        "`salvage --stale` reads them. `repair --only RMQ-LOG-013` clears everything after the end of the log and "
        "keeps it beside the store. Earlier damage stays.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#10666",),
    ),
    Kind(
        "RMQ-LOG-014",
        Severity.WARNING,
        "frames of another offset after the end of the log",
        "Intact frames that name other physical offsets follow the last message. After a crash, a broker that does "
        "not compare offsets accepts them.",
        "A recycled or copied file.",
        "`recover` clears them and keeps the bytes beside the store; `salvage` reads them.",
        "rmqctl recover",
        ("apache/rocketmq#10017",),
    ),
    Kind(
        "RMQ-LOG-015",
        Severity.ERROR,
        "old messages reappeared",
        "From this offset, messages are older than those before them and reuse queue offsets. They are bytes from "
        "before a truncation.",
        "A new message ended exactly where an old one began.",
        "Compare both with `rmqctl cat`. If no newer message follows, `repair --only RMQ-LOG-015` ends the log "
        "before them and keeps them beside the store. Otherwise `truncate --at` also removes the newer messages.",
        None,
        ("apache/rocketmq#10666",),
    ),
    Kind(
        "RMQ-LOG-016",
        Severity.ERROR,
        "topic or properties are zeros",
        "The body checksum is right, but topic, keys and tags were never written and are lost. Brokers accept the "
        "message.",
        "A frame torn by a power cut.",
        "`rmqctl query` by its offset prints the body. enabledAppendPropCRC=true lets a broker detect this.",
        None,
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-017",
        Severity.NOTICE,
        "messages without frame checksum",
        "No checksum covers head, topic and properties of these messages (nor an empty body). Damage there shows "
        "only in inconsistent lengths.",
        "The broker runs without enabledAppendPropCRC (RocketMQ's default).",
        "Nothing. enabledAppendPropCRC=true protects new messages.",
        None,
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-018",
        Severity.ERROR,
        "topic name is a path",
        "The topic name contains NUL or leads out of the store's directories. rmqctl gives it no queue. Brokers "
        "without a name check created such a directory.",
        "A hostile or broken producer; a broker without a check of topic names.",
        "`rmqctl cat` reads the messages. Find their origin before you start a broker on the store.",
        None,
        ("apache/rocketmq#1637", "apache/rocketmq#6747", "apache/rocketmq#1271"),
    ),
    Kind(
        "RMQ-LOG-019",
        Severity.NOTICE,
        "topic name too long for a directory",
        "The topic name has more than 255 bytes. No broker can create its queue, so no consumer receives its messages.",
        "A producer that bypassed the check of the topic length.",
        "`rmqctl cat` reads the messages.",
        None,
        ("apache/rocketmq#1271",),
    ),
    Kind(
        "RMQ-LOG-020",
        Severity.WARNING,
        "compressed body cannot be decompressed",
        "The stored bytes match the checksum but do not decompress, so consumers fail on them. The stream starts "
        "well and then is damaged or ends, so part of the body may be lost.",
        "A producer that cut the body or used another library; or the body decompresses to more than 64 MiB.",
        "`rmqctl query` by its offset shows the message, `rmqctl dump` its bytes.",
    ),
    Kind(
        "RMQ-LOG-021",
        Severity.ERROR,
        "body checksum stored as 0",
        "The frame is well formed, but its body checksum is 0. The message is probably intact. A broker that "
        "checks it ends the log here.",
        "A writer other than the Java broker: some store the client's value.",
        "Do not start a broker while `abort` exists. `rmqctl dump` shows the message. `repair` writes the right "
        "checksum; run it again for other findings. If the body is wrong, `recover --bridge` replaces the message "
        "with a filler.",
        "rmqctl repair --only {code}",
        ("mxsm/rocketmq-rust#10758",),
    ),
    Kind(
        "RMQ-LOG-022",
        Severity.NOTICE,
        "body checksum is 0 and correct",
        "One in two billion messages has this checksum. Some versions treat 0 as a missing checksum and end the "
        "log there.",
        "Chance.",
        "Do not start this store with a broker that lacks the fix.",
        None,
        ("apache/rocketmq#9121",),
    ),
    Kind(
        "RMQ-LOG-030",
        Severity.ERROR,
        "length overflows its signed field, inside the log",
        _OVERFLOW + "Messages after it are whole. After a crash a broker ends the log here and deletes every file "
        "after it.",
        _OVERFLOW_CAUSE,
        "`rmqctl cat` and `dump` show the message. Run `salvage` first: it stores the message in a new store and "
        "lists the properties that do not fit. Then `recover --bridge` replaces it with a filler.",
        "rmqctl salvage",
    ),
    Kind(
        "RMQ-LOG-031",
        Severity.ERROR,
        "length overflows its signed field, at the end of the log",
        _OVERFLOW + "It is the last message. A broker ends the log before it after a crash.",
        _OVERFLOW_CAUSE,
        "`rmqctl cat` and `dump` show the message. Run `salvage` first: it stores the message in a new store and "
        "lists the properties that do not fit. Then `recover` ends the log before it.",
        "rmqctl salvage",
    ),
    Kind(
        "RMQ-LOG-032",
        Severity.WARNING,
        "plain body flagged as compressed",
        "The body is intact and uncompressed, but sysFlag marks it as compressed. A Java client drops the message "
        "and the rest of the same pull. Nothing is lost in the store.",
        "A writer that decompressed the body and kept the flags, such as a check of half messages.",
        "`repair --only RMQ-LOG-032` clears the flag, up to 100 messages a run. A `__CRC32#` property that covers "
        "the flag prevents that: `rmqctl cat --format-string` prints the body for resending.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-LOG-033",
        Severity.ERROR,
        "invalid number in properties, inside the log",
        _NUMBER + "Messages after it are whole. When a broker starts and reads this file, it ends the log here and "
        "deletes every file after it.",
        _NUMBER_CAUSE,
        "`rmqctl cat` and `dump` show the message. Save it with `cat`. Then `recover --bridge` replaces it with a "
        "filler and keeps all later messages.",
        _BRIDGE,
    ),
    Kind(
        "RMQ-LOG-034",
        Severity.ERROR,
        "invalid number in properties, at the end of the log",
        _NUMBER + "It is the last message. A broker ends the log before it when it starts.",
        _NUMBER_CAUSE,
        "`rmqctl cat` and `dump` show the message. Save it with `cat`. Then `recover` ends the log before it and "
        "keeps the bytes beside the store.",
        "rmqctl recover",
    ),
)
