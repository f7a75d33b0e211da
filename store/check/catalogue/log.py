"""The kinds of findings about the commitlog's bytes: frames, tails, topics, checksums."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_BRIDGE = "rmqctl recover --bridge"
_LOST = (
    "The message there is lost, those behind it are whole. After a crash a broker ends the log here and deletes every "
    "file behind it; after a clean stop it may not notice until a consumer gets there."
)
_DISK = "A failing disk or memory, a write that was torn by a power cut, a copy of a running store."
_MEND = (
    "Look at it with `rmqctl dump`. `recover --bridge` puts a filler message in its place and keeps everything behind."
)
_OVERFLOW = (
    "The message is whole: size and checksums hold if the length of its topic or properties is read without a sign. "
    "A broker reads the length as a negative number and cannot read the message. "
)
_OVERFLOW_CAUSE = "A broker that did not check the length of the properties, as some did for batches of messages."
_NUMBER = (
    "The message is whole, but a number in its properties does not parse: DELAY of a message in SCHEDULE_TOPIC_XXXX, "
    "or INNER_NUM or INNER_BASE of an inner batch. A running broker gives it no queue unit. "
)
_NUMBER_CAUSE = "A producer that sends to the topic of delayed messages itself, past the broker's checks."

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-LOG-001",
        Severity.ERROR,
        "impossible frame size",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#289",),
    ),
    Kind(
        "RMQ-LOG-002",
        Severity.ERROR,
        "no magic code where a frame should begin",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#289",),
    ),
    Kind(
        "RMQ-LOG-003",
        Severity.ERROR,
        "frame of another place",
        "The frame is whole but gives another physical offset than its own: it does not belong here. Brokers up to 5.3 "
        "do not look at that and take it for a message.",
        "A file of another store or another time in this place, a recycled file.",
        "`recover --bridge` puts filler in its place; `salvage` can read what is there.",
        _BRIDGE,
        ("apache/rocketmq#10017",),
    ),
    Kind("RMQ-LOG-004", Severity.ERROR, "lengths inside a frame do not add up", _LOST, _DISK, _MEND, _BRIDGE),
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
    Kind("RMQ-LOG-007", Severity.ERROR, "topic is no text", _LOST, _DISK, _MEND, _BRIDGE),
    Kind(
        "RMQ-LOG-008",
        Severity.ERROR,
        "properties are no text",
        _LOST,
        _DISK,
        _MEND,
        _BRIDGE,
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-009",
        Severity.ERROR,
        "blank frame of a wrong size",
        "The frame that fills a file to its end is damaged. No message is lost by it, but a broker may end the log "
        "here.",
        _DISK,
        _MEND,
        _BRIDGE,
    ),
    Kind(
        "RMQ-LOG-010",
        Severity.ERROR,
        "zeros inside the log",
        "Messages stood here and are lost; good ones follow. A broker ends the log here.",
        "A page that never reached the disk, a hole in a sparse copy.",
        _MEND,
        _BRIDGE,
    ),
    Kind(
        "RMQ-LOG-011",
        Severity.ERROR,
        "torn tail",
        "The last message is not whole: it was being written when the broker died. Nothing follows it.",
        "A crash, a kill or a power cut; a full disk.",
        "`recover` ends the log before it, as a broker does, and keeps the bytes beside the store.",
        "rmqctl recover",
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-012",
        Severity.WARNING,
        "bytes behind the end of the log",
        "Something that is no message stands behind the last one. A broker leaves it there and writes over it.",
        "A torn write, a recycled file.",
        "`recover` clears it and keeps the bytes beside the store.",
        "rmqctl recover",
    ),
    Kind(
        "RMQ-LOG-013",
        Severity.WARNING,
        "old messages behind the end of the log",
        "Messages that a truncation took out of the log still stand behind its end, with good checksums. If new "
        "messages end just where one of them begins, they come back to life.",
        "A truncation by recovery or high availability, which only moves positions and clears nothing.",
        "`salvage --stale` reads them. `repair --only {code}` clears everything after the end of the log and keeps it "
        "beside the store; damage before that stays.",
        "rmqctl repair --only {code}",
        ("apache/rocketmq#10666",),
    ),
    Kind(
        "RMQ-LOG-014",
        Severity.WARNING,
        "messages of another place behind the end of the log",
        "Whole frames that give other physical offsets stand behind the last message. A broker that does not compare "
        "offsets takes them for messages after a crash.",
        "A recycled or copied file in this place.",
        "`recover` clears them and keeps the bytes beside the store; `salvage` reads them.",
        "rmqctl recover",
        ("apache/rocketmq#10017",),
    ),
    Kind(
        "RMQ-LOG-015",
        Severity.ERROR,
        "old messages came back",
        "From here on messages are older than those before them and take queue offsets that were given already: they "
        "are what stood there before a truncation.",
        "New messages ended exactly where an old one began.",
        "Look at both with `rmqctl cat`. Where no newer message follows, `repair --only {code}` ends the log before "
        "them and keeps them beside the store. Else `truncate --at` does, and takes the newer ones along.",
        None,
        ("apache/rocketmq#10666",),
    ),
    Kind(
        "RMQ-LOG-016",
        Severity.ERROR,
        "topic or properties are zeros",
        "The body checksum is right, but the part that it does not cover was never written: topic, keys and tags of "
        "the message are lost. Brokers take it for a good message.",
        "A write torn within one frame by a power cut.",
        "Its body can be read with `rmqctl query` by its offset. enabledAppendPropCRC=true lets a broker see this.",
        None,
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-017",
        Severity.NOTICE,
        "messages that no checksum covers",
        "Head, topic and properties of these messages (and the body, where it is empty) have no checksum: damage "
        "there shows only where lengths stop adding up.",
        "The broker runs without enabledAppendPropCRC, which is RocketMQ's default.",
        "Nothing. enabledAppendPropCRC=true protects new messages.",
        None,
        ("apache/rocketmq#7437",),
    ),
    Kind(
        "RMQ-LOG-018",
        Severity.ERROR,
        "topic that is a path",
        "The topic's name would lead out of the store's directories, or holds a NUL: rmqctl gives it no queue. Brokers "
        "before the check of names made such a directory.",
        "A hostile or broken producer; a broker without a check of topic names.",
        "The messages stay readable by `rmqctl cat`. Do not start a broker on the store before you know where they "
        "come from.",
        None,
        ("apache/rocketmq#1637", "apache/rocketmq#6747", "apache/rocketmq#1271"),
    ),
    Kind(
        "RMQ-LOG-019",
        Severity.NOTICE,
        "topic too long for a directory",
        "The topic's name has more than 255 bytes: no broker can make its queue, and no consumer gets its messages.",
        "A producer past the check of the topic's length.",
        "The messages are readable by `rmqctl cat`.",
        None,
        ("apache/rocketmq#1271",),
    ),
    Kind(
        "RMQ-LOG-020",
        Severity.WARNING,
        "compressed body does not unpack",
        "The stored bytes are those that the checksum covers, but they do not unpack: a consumer fails on them. The "
        "stream begins well and is damaged or breaks off, so a part of the body may be lost.",
        "A producer that cut the body or compressed it with another library; or it unpacks to more than 64 MiB.",
        "`rmqctl query` by its offset shows the message; `rmqctl dump` its bytes.",
    ),
    Kind(
        "RMQ-LOG-021",
        Severity.ERROR,
        "body checksum stored as 0",
        "The frame is well formed, but says 0 where its body's checksum should be. The message is probably whole; "
        "a broker that checks it ends the log here.",
        "Another writer than the Java broker: some store the client's value.",
        "Do not start a broker while `abort` is there. `rmqctl dump` shows the message. `repair` writes the right "
        "checksum; what else it finds it fixes when it is run again. If the body is not what it should be, "
        "`recover --bridge` puts filler in the message's place.",
        "rmqctl repair --only {code}",
        ("mxsm/rocketmq-rust#10758",),
    ),
    Kind(
        "RMQ-LOG-022",
        Severity.NOTICE,
        "body checksum is 0 and right",
        "One message in two thousand million has it. Some versions take a checksum of 0 for a missing one and end the "
        "log there.",
        "Chance.",
        "Do not start this store with a broker that lacks the fix.",
        None,
        ("apache/rocketmq#9121",),
    ),
    Kind(
        "RMQ-LOG-030",
        Severity.ERROR,
        "length over its signed field, inside the log",
        _OVERFLOW + "Messages after it are whole. After a crash a broker ends the log here and deletes every file "
        "after it.",
        _OVERFLOW_CAUSE,
        "`rmqctl cat` and `dump` show the message. `salvage` stores it in a new store without the properties that do "
        "not fit, and lists those in the lost and found. `recover --bridge` takes it out of this store and puts a "
        "filler message in its place: salvage first.",
        "rmqctl salvage",
    ),
    Kind(
        "RMQ-LOG-031",
        Severity.ERROR,
        "length over its signed field, at the end of the log",
        _OVERFLOW + "It is the last message. A broker ends the log before it after a crash.",
        _OVERFLOW_CAUSE,
        "`rmqctl cat` and `dump` show the message. `salvage` stores it in a new store without the properties that do "
        "not fit, and lists those in the lost and found. `recover` ends the log before it and keeps the bytes beside "
        "the store: salvage first.",
        "rmqctl salvage",
    ),
    Kind(
        "RMQ-LOG-032",
        Severity.WARNING,
        "plain body flagged as compressed",
        "The body is whole and not compressed, but sysFlag says that it is. A Java client cannot decode the message: "
        "it drops it together with the messages after it in the same pull. Nothing is lost in the store.",
        "A writer that unpacked the body and kept the flags, such as a check of half messages.",
        "`repair --only {code}` clears the flag; up to 100 messages a run. Where a `__CRC32#` property covers the flag "
        "it stays: `rmqctl cat --format-string` gives the body, to be sent again.",
        "rmqctl repair --only {code}",
    ),
    Kind(
        "RMQ-LOG-033",
        Severity.ERROR,
        "number that does not parse, inside the log",
        _NUMBER + "Messages after it are whole. When a broker starts and reads this file, it ends the log here and "
        "deletes every file after it.",
        _NUMBER_CAUSE,
        "`rmqctl cat` and `dump` show the message. Save it with `cat` first. `recover --bridge` puts a filler message "
        "in its place and keeps everything after it.",
        _BRIDGE,
    ),
    Kind(
        "RMQ-LOG-034",
        Severity.ERROR,
        "number that does not parse, at the end of the log",
        _NUMBER + "It is the last message. A broker ends the log before it when it starts.",
        _NUMBER_CAUSE,
        "`rmqctl cat` and `dump` show the message. Save it with `cat` first. `recover` ends the log before it and "
        "keeps the bytes beside the store.",
        "rmqctl recover",
    ),
)
