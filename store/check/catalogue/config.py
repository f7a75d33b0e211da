"""The kinds of findings about config files and about the offsets that they hold."""

from __future__ import annotations

from rmqctl.store.check.catalogue.kind import Kind, Severity

_REPAIR = "rmqctl repair --only {code}"

KINDS: tuple[Kind, ...] = (
    Kind(
        "RMQ-CFG-001",
        Severity.WARNING,
        "config file damaged, backup intact",
        "A broker loads the backup, which is a few seconds older. Versions after 5.3.3 delete the damaged file "
        "first: without the backup they start with nothing.",
        "A crash while the file was written; Windows.",
        "`repair` restores the backup and keeps the damaged file.",
        _REPAIR,
        ("apache/rocketmq#3401", "apache/rocketmq#1498", "apache/rocketmq#6096", "apache/rocketmq#9705"),
    ),
    Kind(
        "RMQ-CFG-002",
        Severity.ERROR,
        "config file damaged, no intact backup",
        "The file is damaged or empty, and its backup is damaged, empty or missing. A broker does not start while "
        "both are damaged. With an empty or missing backup it starts with an empty table: topics are lost, groups "
        "restart at the first or last message, or all delayed messages are delivered again. The same happens if "
        "both files are moved away.",
        "A power cut before the bytes of a renamed file were on disk; two crashes in a row; a full disk.",
        "Restore the file from a copy before the broker starts: it writes its own within seconds. `repair --only "
        "RMQ-CFG-002` writes the entries that are still readable, topics from the queues, groups from the offsets. "
        "Then `rmqctl offsets set` sets missing offsets.",
        _REPAIR,
        ("apache/rocketmq#3401", "apache/rocketmq#9705"),
    ),
    Kind(
        "RMQ-CFG-003",
        Severity.WARNING,
        "config file with stale trailing bytes",
        "A complete JSON value is followed by the last bytes of a longer, older one. Brokers fail to load the file.",
        "A shorter file written over a longer one without truncation.",
        "`repair` truncates the file after the value.",
        _REPAIR,
        ("apache/rocketmq#9328",),
    ),
    Kind(
        "RMQ-CFG-004",
        Severity.WARNING,
        "config file missing, backup exists",
        "A broker loads the backup. If that is lost too, it starts with nothing.",
        "A crash while the file was replaced; a version that deletes damaged config files.",
        "`repair` restores the backup.",
        _REPAIR,
        ("apache/rocketmq#9705",),
    ),
    Kind(
        "RMQ-CFG-005",
        Severity.NOTICE,
        "backup of a config file damaged",
        "The file itself is intact, but has no fallback.",
        "A crash while the backup was written.",
        "Nothing: the broker replaces it when it next saves.",
    ),
    Kind(
        "RMQ-CFG-006",
        Severity.NOTICE,
        "queues of a topic that is not configured",
        "topics.json does not have the topic, but its queues exist. If the topic is created again, consumers "
        "receive their messages.",
        "A deleted topic whose queues were not removed or reappeared in a recovery; an older topics.json.",
        "If the topic was deleted, `repair --only` moves its queues out of the store; `rmqctl purge -t TOPIC` also "
        "removes its offsets. Otherwise create it again with as many queues (`rmqctl topics create`).",
        _REPAIR,
        ("apache/rocketmq#7264", "apache/rocketmq#1852"),
    ),
    Kind(
        "RMQ-CFG-007",
        Severity.WARNING,
        "config file with an unexpected structure",
        "The file is JSON, but not what a broker writes. A broker fails on it or ignores it.",
        "An edit by hand or by another tool.",
        "Compare it with its backup.",
    ),
    Kind(
        "RMQ-CFG-040",
        Severity.NOTICE,
        "configuration in RocksDB",
        "RocksDB holds topics, groups or offsets, and rmqctl does not read it. JSON files beside it are outdated. "
        "Answers that depend on it are marked `not certain`, and changes are refused.",
        "storeType=defaultRocksDB, configManagerVersion=v2 or useSingleRocksDBForAllConfigs.",
        "Nothing. `mqadmin rocksDBConfigToJson` prints its content. If the broker no longer uses it, move the "
        "directory away.",
        None,
    ),
    Kind(
        "RMQ-CFG-041",
        Severity.NOTICE,
        "offsets in the file of light queues",
        "A broker with enableLmq keeps the offsets of all groups in lmqConsumerOffset.json, others in "
        "consumerOffset.json. Without a broker.conf, rmqctl uses the only or the newer file.",
        "enableLmq=true, now or earlier.",
        "Name the broker.conf with -c if both files exist.",
        None,
    ),
    Kind(
        "RMQ-CFG-042",
        Severity.NOTICE,
        "queue with messages that no consumer can read",
        "topics.json has fewer readQueueNums than the topic has queues, or no read permission. Consumers receive "
        "none of these messages, and the lag stays.",
        "A topic that was shrunk before its last queues were consumed; perm changed to write only.",
        "Restore readQueueNums or perm (`rmqctl topics change`) until the messages are consumed.",
        None,
    ),
    Kind(
        "RMQ-CFG-043",
        Severity.NOTICE,
        "messages of a removed topic",
        "topics.json does not have the topic, and it has no queue: a broker leaves this when it deletes a topic. "
        "The messages stay in the log until their files expire. A recovery after a crash and `rebuild` create "
        "the queues again.",
        "A deleted topic. Or an older topics.json together with lost queue files.",
        "Nothing if the topic was deleted. Otherwise run `rmqctl rebuild --queues -t TOPIC` and create the topic "
        "again (`mqadmin updateTopic`).",
        None,
        ("apache/rocketmq#1852", "apache/rocketmq#7264"),
    ),
    Kind(
        "RMQ-OFF-001",
        Severity.WARNING,
        "consumer offset past the end of its queue",
        "The committed offset is past the end of the queue. The lag is negative. The group misses new messages "
        "until the queue has grown past the offset, or restarts at the first one.",
        "A queue that was cut, rebuilt or deleted; offsets copied from another broker.",
        "`repair --only` sets it to the end of the queue.",
        _REPAIR,
        ("apache/rocketmq#2743", "alibaba/rocketmq#78", "alibaba/rocketmq#512", "apache/rocketmq#6600"),
    ),
    Kind(
        "RMQ-OFF-002",
        Severity.NOTICE,
        "consumer offset before the first message",
        "Messages expired before the group consumed them. The group continues at the first remaining message.",
        "A group that was offline longer than messages are kept.",
        "Nothing.",
        None,
        ("apache/rocketmq#1825", "apache/rocketmq#3503"),
    ),
    Kind(
        "RMQ-OFF-003",
        Severity.ERROR,
        "delay offset past the end of its level",
        "The delay level waits for a queue offset that does not exist yet. Delayed messages of that level are not "
        "delivered.",
        "A queue that was cut or deleted; a delayOffset.json of another broker.",
        "`repair --only` sets it to the end of the queue.",
        _REPAIR,
        ("apache/rocketmq#1869", "apache/rocketmq#4226", "apache/rocketmq#7077", "apache/rocketmq#6269"),
    ),
    Kind(
        "RMQ-OFF-004",
        Severity.NOTICE,
        "delay offset before the first message of its level",
        "Delayed messages of that level expired before they were delivered.",
        "A broker that was down longer than messages are kept.",
        "Nothing.",
        None,
        ("apache/rocketmq#4226",),
    ),
    Kind(
        "RMQ-OFF-005",
        Severity.NOTICE,
        "offset of a queue that does not exist",
        "A group has an offset for a topic or queue without files in this store.",
        "A deleted topic or group; fewer queues than before.",
        "Nothing.",
        None,
        ("apache/rocketmq#7264", "apache/rocketmq#2133"),
    ),
    Kind(
        "RMQ-OFF-006",
        Severity.NOTICE,
        "consumer offset went back",
        "The offset is lower than in the older backup. The group consumes messages again.",
        "A reset, or a broker that overwrote newer offsets with older ones.",
        "If it was not reset, compare with the offsets of the other replicas.",
        None,
        ("apache/rocketmq#1094", "apache/rocketmq#10176"),
    ),
    Kind(
        "RMQ-OFF-007",
        Severity.WARNING,
        "invalid offset",
        "The offset is negative or missing. A broker may fail on it or restart the group.",
        "A damaged or hand-written file.",
        "`repair --only` sets it to the first message of the queue.",
        _REPAIR,
        ("apache/rocketmq#1825",),
    ),
    Kind(
        "RMQ-OFF-008",
        Severity.NOTICE,
        "no delay offset for a level with messages",
        "delayOffset.json does not have the level. A broker delivers all of its messages again.",
        "A delayOffset.json overwritten before it was loaded, or a store without deliveries.",
        "If they were already delivered, set the offset before the start.",
        None,
        ("apache/rocketmq#6881",),
    ),
    Kind(
        "RMQ-OFF-030",
        Severity.NOTICE,
        "offset past the end of an incomplete queue",
        "The queue has findings of its own, so its end is unknown. The offset may be right.",
        "Lost or empty queue files; a broker that crashed before it wrote the last units.",
        "Recover the queue first, then run `check` again.",
        None,
    ),
    Kind(
        "RMQ-OFF-031",
        Severity.WARNING,
        "delayed messages of an undefined level",
        "A broker delivers only the levels in messageDelayLevel. These messages wait forever. Consumer retries use "
        "level 3 and up.",
        "messageDelayLevel was shortened, for example by a command line update without quotes.",
        "Configure a messageDelayLevel with enough levels, then restart the broker.",
        None,
        (),
    ),
    Kind(
        "RMQ-CFG-020",
        Severity.NOTICE,
        "config file is not strict JSON",
        "4.9.8, 5.3.3 and 5.5.0 load it anyway. At the next save they write strict JSON.",
        "An edit by hand: comments, single quotes, a byte order mark, quoted numbers.",
        "Nothing.",
    ),
    Kind(
        "RMQ-CFG-021",
        Severity.WARNING,
        "config file that some versions cannot load",
        "The named versions reject its syntax. They load the older backup, or start without these entries; 5.5.0 "
        "then deletes the file. Other versions load it. rmqctl uses this file.",
        "An edit by hand: fastjson (4.9.8, 5.3.3) reads unquoted names and comments beside values, fastjson2 "
        "(5.5.0) does not.",
        "`repair --only RMQ-CFG-021` writes the same values as strict JSON.",
        _REPAIR,
    ),
    Kind(
        "RMQ-CFG-022",
        Severity.NOTICE,
        "config file missing",
        "Other config files exist, but this one and its backup do not. A broker starts with an empty table "
        "instead. A store without groups may never have had it.",
        "A deletion by hand; an incomplete copy; a power cut.",
        "Restore it from a copy if it existed.",
    ),
    Kind(
        "RMQ-CFG-050",
        Severity.WARNING,
        "topics.json missing",
        "Queues and other config files exist, but topics.json and its backup do not. A broker starts without these "
        "topics: clients cannot use them until they are created again.",
        "A deletion by hand; an incomplete copy; a power cut.",
        "Restore it from a copy, or create the topics again (`rmqctl topics create`); `ls --topics` lists them.",
    ),
    Kind(
        "RMQ-CFG-023",
        Severity.ERROR,
        "name that leads out of the store",
        "A broker creates directories and files with this name. `..` or `/` in it can place them outside the store.",
        "A hostile or broken client; an edit by hand.",
        "Remove the entry from the file while the broker is stopped.",
    ),
    Kind(
        "RMQ-CFG-024",
        Severity.WARNING,
        "invalid name",
        "Brokers reject clients that use this name. Letters, digits and % | _ - are allowed, up to 255 characters.",
        "A file edited by hand or damaged.",
        "Remove the entry from the file while the broker is stopped.",
    ),
)
