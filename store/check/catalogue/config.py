"""The kinds of findings about config files and about the offsets that they hold."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_REPAIR = "rmqctl repair --only {code}"

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-CFG-001",
        Severity.WARNING,
        "config file damaged, backup good",
        "A broker loads the backup, which is a few seconds older. Versions after 5.3.3 delete the damaged file first: "
        "if the backup is lost too, they start with nothing.",
        "A crash while the file was written; Windows.",
        "`repair` puts the backup in its place and keeps the damaged file.",
        _REPAIR,
        ("apache/rocketmq#3401", "apache/rocketmq#1498", "apache/rocketmq#6096", "apache/rocketmq#9705"),
    ),
    Kind(
        "RMQ-CFG-002",
        Severity.ERROR,
        "config file damaged, no good backup",
        "The file is damaged or empty, and so is its backup, or the backup is gone. A broker does not start while both "
        "are damaged. Where the backup is empty or gone it starts with an empty table: topics are lost, or groups "
        "start again at the first or last message as their clients say, or all delayed messages are delivered again. "
        "The same happens if both files are moved away.",
        "A power cut before the bytes of a renamed file were on disk; two crashes in a row; a full disk.",
        "Restore the file from a copy, best before the broker starts: it writes its own within seconds. "
        "`rmqctl repair --only RMQ-CFG-002` writes what is known: the entries that can still be read out of the torn "
        "text, topics from the queues, groups from the offsets. Then `rmqctl offsets set` gives groups the offsets "
        "that are missing.",
        _REPAIR,
        ("apache/rocketmq#3401", "apache/rocketmq#9705"),
    ),
    Kind(
        "RMQ-CFG-003",
        Severity.WARNING,
        "config file with a stale end",
        "Behind a whole JSON value stand the last bytes of a longer, older one: brokers fail to load it.",
        "A shorter file written over a longer one without cutting it.",
        "`repair` cuts the file behind the value.",
        _REPAIR,
        ("apache/rocketmq#9328",),
    ),
    Kind(
        "RMQ-CFG-004",
        Severity.WARNING,
        "config file missing, backup there",
        "A broker loads the backup. If that is lost too, it starts with nothing.",
        "A crash while the file was replaced; a start of a version that deletes damaged config files.",
        "`repair` puts the backup in its place.",
        _REPAIR,
        ("apache/rocketmq#9705",),
    ),
    Kind(
        "RMQ-CFG-005",
        Severity.NOTICE,
        "backup of a config file damaged",
        "The file itself is good. If it is damaged in turn, there is nothing to fall back on.",
        "A crash while the backup was written.",
        "Nothing: the broker replaces it when it next saves.",
    ),
    Kind(
        "RMQ-CFG-006",
        Severity.NOTICE,
        "queues of a topic that is not configured",
        "The topic is not in topics.json, its queues are still there: if it is created again, consumers get their "
        "messages.",
        "A deleted topic whose queues were not removed or came back in a recovery; an older topics.json.",
        "If the topic was deleted, `repair --only` moves its queues out of the store, or `rmqctl purge -t TOPIC` its "
        "offsets, too. If not, create it again with as many queues (`rmqctl topics create`).",
        _REPAIR,
        ("apache/rocketmq#7264", "apache/rocketmq#1852"),
    ),
    Kind(
        "RMQ-CFG-007",
        Severity.WARNING,
        "config file of an unexpected shape",
        "It is JSON, but not what a broker writes there: the broker fails on it or ignores it.",
        "Written by hand or by another tool.",
        "Compare it with its backup.",
    ),
    Kind(
        "RMQ-CFG-040",
        Severity.NOTICE,
        "configuration in a RocksDB",
        "A RocksDB holds topics, groups or offsets, and is not read: a JSON file of them beside it is history. Answers "
        "that depend on them say `not certain`, and changes of them are refused.",
        "storeType=defaultRocksDB, configManagerVersion=v2 or useSingleRocksDBForAllConfigs.",
        "Nothing. `mqadmin rocksDBConfigToJson` prints what it holds. If the broker no longer uses it, move the folder "
        "away.",
        None,
    ),
    Kind(
        "RMQ-CFG-041",
        Severity.NOTICE,
        "offsets in the file of light queues",
        "A broker with enableLmq keeps the offsets of all groups in lmqConsumerOffset.json, one without it in "
        "consumerOffset.json. Without a broker.conf the only file counts, or the newer one.",
        "enableLmq=true, now or once.",
        "Name the broker.conf with -c where both files are there.",
        None,
    ),
    Kind(
        "RMQ-CFG-042",
        Severity.NOTICE,
        "queue with messages that no consumer sees",
        "topics.json gives the topic fewer readQueueNums than it has queues, or no permission to read: consumers get "
        "none of the messages there, and their lag stays.",
        "A topic that was made smaller before its last queues were consumed; perm changed to write only.",
        "Set readQueueNums or perm back (`rmqctl topics change`) until the messages are consumed.",
        None,
    ),
    Kind(
        "RMQ-CFG-043",
        Severity.NOTICE,
        "messages of a removed topic",
        "topics.json does not name the topic, and it has no queue: so a broker leaves a topic that it deletes. Its "
        "messages stay in the log until their files expire. A broker that recovers after a crash dispatches them again "
        "from where it starts; `recover` and `rebuild` do so, too. The queues are back then.",
        "A deleted topic. Or an older topics.json together with lost queue files.",
        "Nothing if the topic was deleted. If not: `rmqctl rebuild --queues -t TOPIC`, and create it again "
        "(`mqadmin updateTopic`).",
        None,
        ("apache/rocketmq#1852", "apache/rocketmq#7264"),
    ),
    Kind(
        "RMQ-OFF-001",
        Severity.WARNING,
        "consumer offset behind the end of its queue",
        "The group has read further than the queue reaches: its lag is negative, and it misses new messages until the "
        "queue has grown past the offset, or is set back to the first one.",
        "A queue that was cut, rebuilt or deleted, offsets copied from another broker.",
        "`repair --only` sets it to the end of the queue.",
        _REPAIR,
        ("apache/rocketmq#2743", "alibaba/rocketmq#78", "alibaba/rocketmq#512", "apache/rocketmq#6600"),
    ),
    Kind(
        "RMQ-OFF-002",
        Severity.NOTICE,
        "consumer offset before the first message",
        "What the group has not read yet has expired: it goes on at the first message that is left.",
        "A group that was away longer than messages are kept.",
        "Nothing.",
        None,
        ("apache/rocketmq#1825", "apache/rocketmq#3503"),
    ),
    Kind(
        "RMQ-OFF-003",
        Severity.ERROR,
        "delay offset behind the end of its level",
        "The delay level waits at a place that its queue has not reached: delayed messages of that level are not "
        "delivered.",
        "A queue that was cut or deleted, a delayOffset.json of another broker.",
        "`repair --only` sets it to the end of the queue.",
        _REPAIR,
        ("apache/rocketmq#1869", "apache/rocketmq#4226", "apache/rocketmq#7077", "apache/rocketmq#6269"),
    ),
    Kind(
        "RMQ-OFF-004",
        Severity.NOTICE,
        "delay offset before the first message of its level",
        "Delayed messages of that level expired before they were delivered.",
        "A broker that stood still longer than messages are kept.",
        "Nothing.",
        None,
        ("apache/rocketmq#4226",),
    ),
    Kind(
        "RMQ-OFF-005",
        Severity.NOTICE,
        "offset of a queue that does not exist",
        "A group has an offset in a topic or queue that this store has no files of.",
        "A deleted topic or group, fewer queues than before.",
        "Nothing.",
        None,
        ("apache/rocketmq#7264", "apache/rocketmq#2133"),
    ),
    Kind(
        "RMQ-OFF-006",
        Severity.NOTICE,
        "consumer offset went back",
        "It is lower than in the backup, which is older: the group reads messages again.",
        "A reset, or a broker that overwrote newer offsets with older ones.",
        "If nobody reset it, compare with the offsets of the other replicas.",
        None,
        ("apache/rocketmq#1094", "apache/rocketmq#10176"),
    ),
    Kind(
        "RMQ-OFF-007",
        Severity.WARNING,
        "impossible offset",
        "A negative offset, or none at all: a broker may fail on it or start anew.",
        "A damaged or hand-written file.",
        "`repair --only` sets it to the first message of the queue.",
        _REPAIR,
        ("apache/rocketmq#1825",),
    ),
    Kind(
        "RMQ-OFF-008",
        Severity.NOTICE,
        "no delay offset for a level with messages",
        "delayOffset.json does not name the level: a broker delivers all of its messages again, from the first on.",
        "A delayOffset.json overwritten before it was loaded, or a store that no broker delivered from.",
        "If they were delivered already, set the offset before the start.",
        None,
        ("apache/rocketmq#6881",),
    ),
    Kind(
        "RMQ-OFF-030",
        Severity.NOTICE,
        "offset past the end of a queue that is not whole",
        "The queue has findings of its own, so its files do not say where it ends: the offset may well be right.",
        "Lost or empty queue files, a broker that crashed before it wrote the last units.",
        "Recover the queue first; then `check` judges the offset.",
        None,
    ),
    Kind(
        "RMQ-OFF-031",
        Severity.WARNING,
        "delayed messages of a level that is not configured",
        "A broker starts a timer for each level of messageDelayLevel. It never looks at the queue of another level, so "
        "these messages wait for ever. Retries of consumers use level 3 and up.",
        "messageDelayLevel was shortened, as by an update on the command line without quotes.",
        "Give the broker a messageDelayLevel with as many levels, then start it.",
        None,
        (),
    ),
    Kind(
        "RMQ-CFG-020",
        Severity.NOTICE,
        "config file that is not plain JSON",
        "Brokers load it all the same: 4.9.8, 5.3.3 and 5.5.0 take these forms. The next time they save, they write it "
        "in their own form.",
        "Edited by hand: comments, single quotes, a byte order mark, numbers in quotes.",
        "Nothing.",
    ),
    Kind(
        "RMQ-CFG-021",
        Severity.WARNING,
        "config file that some versions do not load",
        "The versions that are named refuse its form and take the backup, which is older, or start without these "
        "entries; 5.5.0 deletes the file then. The others load it. rmqctl goes by this file.",
        "Edited by hand: names without quotes and comments beside values are read by fastjson (4.9.8, 5.3.3) and "
        "refused by fastjson2 (5.5.0).",
        "`rmqctl repair --only RMQ-CFG-021` writes the same values in a broker's own form.",
        _REPAIR,
    ),
    Kind(
        "RMQ-CFG-022",
        Severity.NOTICE,
        "config file gone",
        "Other config files of the broker are there, this one and its backup are not: a broker starts with an empty "
        "table in its place. A store without groups may never have had it.",
        "Deleted by hand; copied without it; a power cut.",
        "Restore it from a copy if there was one.",
    ),
    Kind(
        "RMQ-CFG-050",
        Severity.WARNING,
        "topics.json gone",
        "Other config files of the broker and queues are there, topics.json and its backup are not. A broker starts "
        "without these topics: clients find none of them until they are created again.",
        "Deleted by hand; copied without it; a power cut.",
        "Restore it from a copy, or create the topics again (`rmqctl topics create`); `ls --topics` lists them.",
    ),
    Kind(
        "RMQ-CFG-023",
        Severity.ERROR,
        "name that leads out of the store",
        "A broker makes folders and files of this name. With `..` or `/` in it they can be outside of the store.",
        "A hostile or broken client; a file edited by hand.",
        "Take the entry out of the file while the broker is stopped.",
    ),
    Kind(
        "RMQ-CFG-024",
        Severity.WARNING,
        "name that no broker takes",
        "Clients that use this name are refused: letters, digits and % | _ - are allowed, and 255 characters.",
        "A file edited by hand or damaged.",
        "Take the entry out of the file while the broker is stopped.",
    ),
)
