"""The requests of a session that two brokers answer: every code that `serve` serves, good and bad."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from rmqctl.formats.checksums import java_hash
from rmqctl.network.clients.channel import messages_of
from rmqctl.network.remoting.codec import RequestCode as Code
from rmqctl.network.remoting.codec import parse_body
from tests.network.callers import heartbeat, pulling

BROKER, NAMESRV = "broker", "namesrv"


class Ask(NamedTuple):
    """One request. `without`: what no two brokers have in common of the answer's header and body, by name;
    `read`: what is compared of a body that is no JSON. `end`: the end of the queue, once what was sent is in it."""

    name: str
    code: int
    fields: Mapping[str, Any] = {}
    body: bytes = b""
    to: str = BROKER
    version: int = 479
    without: tuple[str, ...] = ()
    read: Callable[[bytes], Any] | None = None
    end: str | None = None


def _queue(topic: str, queue_id: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "queueId": queue_id, **more}


def _group(topic: str, queue_id: int, group: str = "g-events", **more: Any) -> dict[str, Any]:
    return _queue(topic, queue_id, consumerGroup=group, **more)


def _pull(name: str, topic: str, queue_id: int, offset: int, code: int = Code.PULL_MESSAGE, **more: Any) -> Ask:
    return Ask(name, code, pulling(topic, queue_id, offset, consumerGroup="g-events", **more))


def _send(name: str, topic: str, **more: Any) -> Ask:
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_795_218_500_000, "h": 3,
        "i": "UNIQ_KEY\x01FRAME\x02KEYS\x01frame\x02", "j": 0, "k": False, "m": False,
    } | more  # fmt: skip
    return Ask(name, Code.SEND_MESSAGE_V2, fields, b"a frame")


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _name_server() -> Iterator[Ask]:
    route, topic = Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "Events"}
    yield Ask("route", route, topic, to=NAMESRV)
    yield Ask("route for an old client", route, topic, to=NAMESRV, version=300)
    yield Ask("route in plain JSON", route, topic | {"acceptStandardJsonOnly": True}, to=NAMESRV, version=300)
    yield Ask("route of nothing", route, {"topic": "Nothing"}, to=NAMESRV)
    yield Ask("route of a retry topic", route, {"topic": "%RETRY%g-idle"}, to=NAMESRV)
    yield Ask("route of TBW102", route, {"topic": "TBW102"}, to=NAMESRV)
    yield Ask("clusters", Code.GET_BROKER_CLUSTER_INFO, to=NAMESRV)
    yield Ask("all topics", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, to=NAMESRV)
    yield Ask("topics of a cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}, to=NAMESRV)
    yield Ask("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, to=NAMESRV)
    yield Ask("unit topics", Code.GET_UNIT_TOPIC_LIST, to=NAMESRV)
    yield Ask("retry topics of units", Code.GET_HAS_UNIT_SUB_TOPIC_LIST, to=NAMESRV)
    yield Ask("those alone", Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, to=NAMESRV)
    yield Ask("a setting", Code.GET_KV_CONFIG, {"namespace": "N", "key": "K"}, to=NAMESRV)
    yield Ask("settings", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}, to=NAMESRV)
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Events"}
    yield Ask("put a setting", Code.PUT_KV_CONFIG, order | {"value": "broker-a:4"}, to=NAMESRV)
    yield Ask("the setting", Code.GET_KV_CONFIG, order, to=NAMESRV)
    yield Ask("all of the namespace", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"}, to=NAMESRV)
    yield Ask("route of what has an order", route, topic, to=NAMESRV)
    yield Ask("delete the setting", Code.DELETE_KV_CONFIG, order, to=NAMESRV)
    yield Ask("it is deleted", Code.GET_KV_CONFIG, order, to=NAMESRV)
    broker = {"brokerName": "broker-a"}
    count = ("wipeTopicCount", "addTopicCount")
    yield Ask("wipe", Code.WIPE_WRITE_PERM_OF_BROKER, broker, to=NAMESRV, without=count)
    yield Ask("wiped route", route, topic, to=NAMESRV)
    yield Ask("add", Code.ADD_WRITE_PERM_OF_BROKER, broker, to=NAMESRV, without=count)
    yield Ask("wipe nobody", Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "none"}, to=NAMESRV)
    black = b"kvConfigPath=/tmp\n"
    yield Ask("change the name server's home", Code.UPDATE_NAMESRV_CONFIG, body=black, to=NAMESRV)
    member = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    yield Ask("members", Code.GET_BROKER_MEMBER_GROUP, member, to=NAMESRV)
    yield Ask("delete a topic", Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "Nothing"}, to=NAMESRV)
    yield Ask("unknown request", 9999, to=NAMESRV)


def _pulls() -> Iterator[Ask]:
    yield _pull("pull", "Events", 3, 0)
    yield _pull("lite pull", "Events", 3, 5, Code.LITE_PULL_MESSAGE)
    yield _pull("pull of tags", "Events", 3, 0, subscription="Tag1 || Tag2")
    yield _pull("pull of no such tag", "Events", 3, 0, subscription="None")
    yield _pull("pull of two", "Events", 3, 4, maxMsgNums=2)
    yield _pull("pull at the end", "Events", 3, 29)
    yield _pull("pull beyond the end", "Events", 3, 1000)
    yield _pull("pull of an empty queue", "AutoMade", 2, 0)
    yield _pull("pull beyond an empty queue", "AutoMade", 2, 7)
    yield _pull("pull of a missing queue", "Events", 99, 0)
    yield _pull("pull of a missing topic", "Nothing", 0, 0)
    yield Ask("pull of a bad group", Code.PULL_MESSAGE, pulling("Events", 3, 0, consumerGroup="bad group!"))
    yield _pull("pull of bad tags", "Events", 3, 0, subscription="||")
    yield _pull("pull by SQL", "Events", 3, 0, expressionType="SQL92", subscription="a > 1")
    yield _pull("pull without a subscription", "Events", 3, 0, sysFlag=0)
    yield Ask("pull without a topic", Code.PULL_MESSAGE, {"consumerGroup": "g-events"})


def _offsets() -> Iterator[Ask]:
    for name, topic, queue_id in (
        ("of a queue", "Events", 3),
        ("of no queue", "Events", 99),
        ("of no topic", "Nothing", 0),
    ):
        yield Ask(f"end {name}", Code.GET_MAX_OFFSET, _queue(topic, queue_id))
        yield Ask(f"beginning {name}", Code.GET_MIN_OFFSET, _queue(topic, queue_id))
        yield Ask(f"first time {name}", Code.GET_EARLIEST_MSG_STORETIME, _queue(topic, queue_id))
        search = Code.SEARCH_OFFSET_BY_TIMESTAMP
        for moment in (0, 1_795_218_529_000, 1_795_218_540_000, 1_900_000_000_000):
            for bound in ("LOWER", "UPPER"):
                fields = _queue(topic, queue_id, timestamp=moment, boundaryType=bound)
                yield Ask(f"offset {name} at {moment} {bound}", search, fields)
        yield Ask(f"group's offset {name}", Code.QUERY_CONSUMER_OFFSET, _group(topic, queue_id))
    nobody = _group("Events", 3, "nobody")
    yield Ask("offset of nobody", Code.QUERY_CONSUMER_OFFSET, nobody | {"setZeroIfNotFound": False})
    yield Ask("commit", Code.UPDATE_CONSUMER_OFFSET, _group("Events", 3, commitOffset=7))
    yield Ask("commit nowhere", Code.UPDATE_CONSUMER_OFFSET, _group("Nothing", 3, commitOffset=7))
    yield Ask("commit of nobody", Code.UPDATE_CONSUMER_OFFSET, _group("Events", 3, "bad group!", commitOffset=7))
    yield Ask("what was committed", Code.QUERY_CONSUMER_OFFSET, _group("Events", 3))


def _messages() -> Iterator[Ask]:
    span = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    key = {"topic": "Orders", "key": "order-3", "maxNum": 32, **span}
    # the last entry of the index may be of what a broker has written since it began
    last = ("indexLastUpdatePhyoffset", "indexLastUpdateTimestamp")
    yield Ask("messages by key", Code.QUERY_MESSAGE, key, without=last)
    yield Ask("messages by no key", Code.QUERY_MESSAGE, key | {"key": "none"})
    yield Ask("message at an offset", Code.VIEW_MESSAGE_BY_ID, {"offset": 0})
    yield Ask("message beyond the log", Code.VIEW_MESSAGE_BY_ID, {"offset": 1 << 40})
    units = {"topic": "Events", "queueId": 3, "index": 2, "count": 3}
    yield Ask("units", Code.QUERY_CONSUME_QUEUE, units)
    yield Ask("units for a group", Code.QUERY_CONSUME_QUEUE, units | {"consumerGroup": "nobody"})
    yield Ask("units of no queue", Code.QUERY_CONSUME_QUEUE, units | {"queueId": 99})
    yield Ask("topic stats", Code.GET_TOPIC_STATS_INFO, {"topic": "Events"})
    yield Ask("stats of no topic", Code.GET_TOPIC_STATS_INFO, {"topic": "Nothing"})


def _groups() -> Iterator[Ask]:
    yield Ask("consume stats", Code.GET_CONSUME_STATS, {"consumerGroup": "g-orders"})
    yield Ask(
        "consume stats of a topic",
        Code.GET_CONSUME_STATS,
        {"consumerGroup": "g-events", "topic": "Events"},
        without=("consumeTps",),
    )
    yield Ask("consume stats of nobody", Code.GET_CONSUME_STATS, {"consumerGroup": "nobody"})
    yield Ask("who consumes", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Orders"})
    span = {"topic": "Orders", "group": "g-orders"}
    yield Ask("time span", Code.QUERY_CONSUME_TIME_SPAN, span, without=("delayTime",))
    yield Ask("time span of no topic", Code.QUERY_CONSUME_TIME_SPAN, span | {"topic": "Nothing"})
    yield Ask("stats of all groups", Code.GET_BROKER_CONSUME_STATS, {"isOrder": False}, without=("totalDiff",))
    yield Ask("offsets of all groups", Code.GET_ALL_CONSUMER_OFFSET, without=("dataVersion",))
    yield Ask("delivered delays", Code.GET_ALL_DELAY_OFFSET, without=("dataVersion",))
    yield Ask("correction of offsets", Code.QUERY_CORRECTION_OFFSET, {"topic": "Orders", "compareGroup": "g-events"})
    status = {"topic": "Orders", "group": "g-orders"}
    yield Ask("status of nobody", Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
    yield Ask("all producers", Code.GET_ALL_PRODUCER_INFO)
    yield Ask("may read", Code.UPDATE_AND_GET_GROUP_FORBIDDEN, status)
    yield Ask("may not read", Code.UPDATE_AND_GET_GROUP_FORBIDDEN, status | {"readable": False})
    yield Ask("may read again", Code.UPDATE_AND_GET_GROUP_FORBIDDEN, status | {"readable": True})
    yield Ask("topics of a group", Code.QUERY_TOPICS_BY_CONSUMER, {"group": "g-orders"})
    yield Ask("topics of nobody", Code.QUERY_TOPICS_BY_CONSUMER, {"group": "nobody"})
    yield Ask("subscription", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g-orders", "topic": "Orders"})
    yield Ask("connections", Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g-orders"})
    info = {"consumerGroup": "g-orders", "clientId": "nobody", "jstackEnable": False}
    yield Ask("running info of nobody", Code.GET_CONSUMER_RUNNING_INFO, info)
    directly = {"consumerGroup": "g-orders", "clientId": "nobody", "msgId": "7F00000100002A9F" + "0" * 16}
    yield Ask("message for nobody", Code.CONSUME_MESSAGE_DIRECTLY, directly)
    yield Ask("producers", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "none"})
    yield Ask("members of nobody", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"})
    yield Ask("group settings", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g-retry"})
    yield Ask("settings of a group that never came", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g-asked-for"})
    yield Ask("settings of a bad group", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "bad group!"})
    yield Ask("topic settings", Code.GET_TOPIC_CONFIG, {"topic": "Orders", "lo": True})
    yield Ask("settings of no topic", Code.GET_TOPIC_CONFIG, {"topic": "Nothing", "lo": True})
    yield Ask("all topics' settings", Code.GET_ALL_TOPIC_CONFIG, without=("dataVersion", "mappingDataVersion"))
    yield Ask("all groups' settings", Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, without=("dataVersion",))
    yield Ask("system topics of the broker", Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    yield Ask("high availability", Code.GET_BROKER_HA_STATUS, without=("masterCommitLogMaxOffset",))


def _clients() -> Iterator[Ask]:
    beat = heartbeat("me@1", "g-frames", Events="Tag1")
    beat["consumerDataSet"][0]["subscriptionDataSet"][0] |= {"tagsSet": ["Tag1"], "codeSet": [java_hash("Tag1")]}
    yield Ask("heartbeat", Code.HEART_BEAT, body=_json(beat))
    yield Ask("members of mine", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g-frames"})
    yield Ask("my subscription", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g-frames", "topic": "Events"})
    member = "lastUpdateTimestamp", "clientAddr", "subVersion"
    yield Ask("my connection", Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g-frames"}, without=member)
    mine = partial(pulling, "Events", 3, 0, consumerGroup="g-frames", sysFlag=0)
    yield Ask("pull by heartbeat", Code.PULL_MESSAGE, mine(subVersion=7))
    yield Ask("pull by a newer one", Code.PULL_MESSAGE, mine(subVersion=9))
    yield Ask("pull of another topic", Code.PULL_MESSAGE, mine(subVersion=7) | {"topic": "Orders"})
    yield Ask(
        "newer subscription",
        Code.PULL_MESSAGE,
        pulling("Events", 3, 0, consumerGroup="g-frames", sysFlag=0, subVersion=9),
    )
    share = {"topic": "Events", "consumerGroup": "g-frames", "clientId": "me@1", "strategyName": "AVG"}
    for name, changes in (("mine", {}), ("of nobody", {"clientId": "x"}), ("by none", {"strategyName": "CONFIG"})):
        body = _json(share | {"messageModel": "CLUSTERING"} | changes)
        yield Ask(f"assignment {name}", Code.QUERY_ASSIGNMENT, body=body, read=_assigned)
    mode = {"topic": "Events", "consumerGroup": "g-frames", "mode": "PULL", "popShareQueueNum": 0}
    yield Ask("a mode", Code.SET_MESSAGE_REQUEST_MODE, body=_json(mode))
    yield Ask("a mode of retries", Code.SET_MESSAGE_REQUEST_MODE, body=_json(mode | {"topic": "%RETRY%g-frames"}))
    yield Ask("a mode of nothing", Code.SET_MESSAGE_REQUEST_MODE, body=_json(mode | {"topic": "Nothing"}))
    first = {"brokerName": "broker-a", "queueId": 1, "topic": "Events"}
    lock = {"clientId": "me@1", "consumerGroup": "g-frames", "mqSet": [first]}
    yield Ask("lock", Code.LOCK_BATCH_MQ, body=_json(lock))
    yield Ask("lock of another", Code.LOCK_BATCH_MQ, body=_json(lock | {"clientId": "other"}))
    yield Ask("unlock", Code.UNLOCK_BATCH_MQ, body=_json(lock))
    wanted = {"topic": "Events", "subString": "||", "expressionType": "TAG"}
    check = {"clientId": "me@1", "group": "g-frames", "subscriptionData": wanted}
    yield Ask("check of bad tags", Code.CHECK_CLIENT_CONFIG, body=_json(check))
    check |= {"subscriptionData": wanted | {"subString": "a > 1", "expressionType": "SQL92"}}
    yield Ask("check of SQL", Code.CHECK_CLIENT_CONFIG, body=_json(check))
    yield Ask("leave", Code.UNREGISTER_CLIENT, {"clientID": "me@1", "consumerGroup": "g-frames"})
    yield Ask("nobody is left", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g-frames"})


def _modes() -> Iterator[Ask]:
    """What concerns other modes of a broker."""
    yield Ask("epochs", Code.GET_BROKER_EPOCH_CACHE)
    yield Ask("flush offset", Code.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": 0})
    yield Ask("cold data", Code.GET_COLD_DATA_FLOW_CTR_INFO)
    yield Ask("no limit of cold data", Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"g-orders")
    yield Ask("limit of cold data", Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"g-orders=1\n")
    yield Ask("read ahead", Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": 0})
    yield Ask("read ahead otherwise", Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": 7})
    yield Ask("read ahead by a word", Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "x"})
    yield Ask("check RocksDB", Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {"topic": "Orders", "checkStoreTime": 0})
    yield Ask("export RocksDB", Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "topics;"})
    yield Ask("clean queues", Code.CLEAN_EXPIRED_CONSUMEQUEUE)
    yield Ask("clean the log", Code.DELETE_EXPIRED_COMMITLOG)
    yield Ask("clean unused topics", Code.CLEAN_UNUSED_TOPIC)
    yield Ask("half message again", Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": "7F00000100002A9F" + "7" * 16})
    yield Ask("recall", Code.RECALL_MESSAGE, {"producerGroup": "P", "topic": "Events", "recallHandle": "x"})
    topics = [{"topicName": f"Many{number}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for number in (1, 2)]
    yield Ask("make topics", Code.UPDATE_AND_CREATE_TOPIC_LIST, body=_json({"topicConfigList": topics}))
    yield Ask("one of them", Code.GET_TOPIC_CONFIG, {"topic": "Many2", "lo": True})
    bad = {"topicConfigList": [{**topics[0], "topicName": "Many3"}, {**topics[0], "topicName": "a b"}]}
    yield Ask("make bad topics", Code.UPDATE_AND_CREATE_TOPIC_LIST, body=_json(bad))
    yield Ask("none of them", Code.GET_TOPIC_CONFIG, {"topic": "Many3", "lo": True})
    groups = {"groupConfigList": [{"groupName": "g-many1"}, {"groupName": "g-many2", "retryMaxTimes": 2}]}
    yield Ask("make groups", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=_json(groups))
    yield Ask("one of the groups", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g-many2"})


def _writes() -> Iterator[Ask]:
    yield _send("send", "Audit")
    yield _send("send to a new topic", "Made")
    yield _send("send to a bad name", "a b")
    yield _send("send to a forbidden topic", "SCHEDULE_TOPIC_XXXX")
    yield _send("send to a missing queue", "Audit", e=99)
    yield _send("send without a default", "Nowhere", c="None")
    yield _send("send too far away", "Audit", i="TIMER_DELAY_SEC\x01999999\x02UNIQ_KEY\x01F\x02")
    yield _send("send with a bad time", "Audit", i="TIMER_DELAY_SEC\x01soon\x02UNIQ_KEY\x01F\x02")
    yield _send("send a batch to retries", "%RETRY%g-events", m=True)
    yield Ask(
        "send back nothing", Code.CONSUMER_SEND_MSG_BACK, {"offset": 1 << 40, "group": "g-events", "delayLevel": 0}
    )
    yield Ask("send back of nobody", Code.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": "bad group!", "delayLevel": 0})
    made: dict[str, Any] = {
        "topic": "New",
        "readQueueNums": 3,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }
    made |= {"defaultTopic": "TBW102", "topicSysFlag": 0, "order": False}
    yield Ask("make a topic", Code.UPDATE_AND_CREATE_TOPIC, made)
    yield Ask("what was made", Code.GET_TOPIC_CONFIG, {"topic": "New", "lo": True})
    kinds = (
        "+message.type=NONSENSE",
        "+queue.type=X",
        "-message.type",
        "+a=b",
        "+reserve.time=x",
        "+message.type=MIXED",
    )
    for kind in kinds:
        bad = made | {"topic": "Bad", "attributes": kind}
        yield Ask(f"make a topic with {kind}", Code.UPDATE_AND_CREATE_TOPIC, bad)
    typed = made | {"topic": "Typed", "attributes": "+message.type=FIFO"}
    yield Ask("make a topic with a type", Code.UPDATE_AND_CREATE_TOPIC, typed)
    yield Ask("change its type", Code.UPDATE_AND_CREATE_TOPIC, typed | {"attributes": "+message.type=DELAY"})
    yield Ask("change its policy", Code.UPDATE_AND_CREATE_TOPIC, typed | {"attributes": "+cleanup.policy=DELETE"})
    yield Ask("take away what it has not", Code.UPDATE_AND_CREATE_TOPIC, typed | {"attributes": "-reserve.time"})
    yield Ask("its attributes", Code.GET_TOPIC_CONFIG, {"topic": "Typed", "lo": True})
    yield Ask("make a bad topic", Code.UPDATE_AND_CREATE_TOPIC, made | {"topic": "a b"})
    yield Ask("make a system topic", Code.UPDATE_AND_CREATE_TOPIC, made | {"topic": "SCHEDULE_TOPIC_XXXX"})
    group = _json({"groupName": "g-new", "retryMaxTimes": 3, "retryQueueNums": 2})
    yield Ask("make a group", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
    yield Ask("the group", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g-new"})
    yield Ask("delete a group", Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g-new", "cleanOffset": True})
    reset = {"topic": "Orders", "group": "g-orders", "timestamp": 0, "isForce": True}
    yield from _modes()
    yield Ask("reset", Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    yield Ask("reset nowhere", Code.INVOKE_BROKER_TO_RESET_OFFSET, reset | {"topic": "Nothing"})
    yield Ask("change settings", Code.UPDATE_BROKER_CONFIG, body=b"transactionCheckMax=14\ntraceOn=false\n")
    yield _send("send untraced", "Audit")
    yield Ask("change them back", Code.UPDATE_BROKER_CONFIG, body=b"transactionCheckMax=15\ntraceOn=true\n")
    yield Ask("change nothing", Code.UPDATE_BROKER_CONFIG)
    yield Ask("change the home", Code.UPDATE_BROKER_CONFIG, body=b"rocketmqHome=/tmp\n")
    yield Ask("change what is no setting", Code.UPDATE_BROKER_CONFIG, body=b"nonsense=1\n")
    clone = {"srcGroup": "g-events", "destGroup": "g-clone", "topic": "Events", "offline": True}
    yield Ask("clone offsets", Code.CLONE_GROUP_OFFSET, clone)
    yield Ask("what was cloned", Code.QUERY_CONSUMER_OFFSET, _group("Events", 3, "g-clone"))
    yield Ask("delete a topic of the broker", Code.DELETE_TOPIC_IN_BROKER, {"topic": "New"})
    yield Ask("delete a system topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": "SCHEDULE_TOPIC_XXXX"})
    yield Ask("it is gone", Code.GET_TOPIC_CONFIG, {"topic": "New", "lo": True})
    yield Ask("unknown to the broker", 9999)


def _keys(body: bytes) -> list[str]:
    """Names of texts, without those that hold a path."""
    return sorted(name for name in parse_body(body)["table"] if "/" not in name)


def _assigned(body: bytes) -> Any:
    """Assignments in order: a broker gives a set of them."""
    found = parse_body(body).get("messageQueueAssignments") if body else None
    return None if found is None else sorted(map(str, found))


def _stored(body: bytes) -> list[Any]:
    """Messages without times and places."""
    found = []
    for one in messages_of(body):
        place = one.topic, one.queue_id, one.queue_offset
        found.append((place, one.sys_flag, one.flag, one.body, one.reconsume_times, one.properties()))
    return found


def _sent() -> Iterator[Ask]:
    long: dict[str, Any] = {
        "producerGroup": "P", "topic": "Audit", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1_795_218_500_000, "flag": 1, "reconsumeTimes": 0, "unitMode": False,
        "properties": "UNIQ_KEY\x01LONG\x02TAGS\x01a\x02",
    }  # fmt: skip
    yield Ask("send in the long form", Code.SEND_MESSAGE, long, b"long")
    item = struct.pack(">iiiii", 0, 0, 0, 5, 3) + b"one" + struct.pack(">h", 11) + b"TAGS\x01a\x02k\x01v\x02"
    item = struct.pack(">i", len(item)) + item[4:]
    short = _send("batch", "Audit", m=True, i="UNIQ_KEY\x01BATCH\x02WAIT\x01true\x02")
    yield short._replace(name="send a batch", code=Code.SEND_BATCH_MESSAGE, body=item * 2)
    yield Ask("half message", Code.SEND_MESSAGE, long | {
        "topic": "Pay", "sysFlag": 4, "properties": "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01HALF\x02"
    }, b"half", without=("msgId", "queueOffset"))  # fmt: skip
    yield Ask("send a retry that was tried enough", Code.SEND_MESSAGE, long | {
        "topic": "%RETRY%g-orders", "reconsumeTimes": 17
    }, b"dead")  # fmt: skip
    replied = long | {
        "topic": "DefaultCluster_REPLY_TOPIC",
        "properties": "REPLY_TO_CLIENT\x01gone\x02MSG_TYPE\x01reply\x02",
    }
    yield Ask("reply to a client that is gone", Code.SEND_REPLY_MESSAGE, replied, b"reply")
    yield Ask("reply to no client", Code.SEND_REPLY_MESSAGE, replied | {"properties": ""}, b"reply")
    reply = {"i": "REPLY_TO_CLIENT\x01gone\x02"}
    yield _send("reply in the short form", "DefaultCluster_REPLY_TOPIC", **reply)._replace(
        code=Code.SEND_REPLY_MESSAGE_V2
    )
    stored = pulling("DefaultCluster_REPLY_TOPIC", 0, 0, consumerGroup="g-events")
    yield Ask("replies", Code.PULL_MESSAGE, stored, read=_stored, end="3")
    pull = pulling("Audit", 0, 21, consumerGroup="g-events")
    yield Ask("what was sent", Code.PULL_MESSAGE, pull, read=_stored, end="25")
    dead = pulling("%DLQ%g-orders", 0, 0, consumerGroup="g-events")
    yield Ask("what is dead", Code.PULL_MESSAGE, dead, read=_stored, end="1")
    yield Ask("state", Code.GET_BROKER_RUNTIME_INFO, read=_keys)


def _pops() -> Iterator[Ask]:
    """POP, as far as it works without a timer; test_popped.py pops."""
    pop: dict[str, Any] = {
        "maxMsgNums": 4, "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 0, "order": False,
    }  # fmt: skip
    yield Ask("pop without a timer", Code.POP_MESSAGE, _group("Events", -1, **pop))
    yield Ask("pop too many", Code.POP_MESSAGE, _group("Events", -1, **(pop | {"maxMsgNums": 33})))
    yield Ask("pop too late", Code.POP_MESSAGE, _group("Events", -1, **(pop | {"bornTime": 5})))
    for code in (Code.NOTIFICATION, Code.POLLING_INFO, Code.PEEK_MESSAGE):
        name = code.name.lower()
        yield Ask(name, code, _group("Events", 0, **pop))
        yield Ask(f"{name} by a new group", code, _group("Orders", 0, "g-new", **pop))
        yield Ask(f"{name} in no queue", code, _group("Events", 99, **pop))
        yield Ask(f"{name} in nothing", code, _group("Nothing", 0, **pop))
        yield Ask(f"{name} by a bad name", code, _group("Events", 0, "a b", **pop))
    bad = pop | {"expType": "SQL92", "exp": "a >"}
    yield Ask("notification for a bad filter", Code.NOTIFICATION, _group("Events", 0, **bad))
    handle: dict[str, Any] = {"extraInfo": "0 1 2 3 0 broker-a 0 0", "offset": 0, "invisibleTime": 1000}
    for code in (Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME):
        name = code.name.lower()
        yield Ask(f"{name} in nothing", code, _group("Nothing", 0, **handle))
        yield Ask(f"{name} in no queue", code, _group("Events", -1, **handle))
        yield Ask(f"{name} of nothing", code, _group("Events", 0, **(handle | {"offset": 1 << 40})))
    yield Ask("ack_message of what is over", Code.ACK_MESSAGE, _group("Events", 0, **handle))
    yield Ask("acks of nothing", Code.BATCH_ACK_MESSAGE, body=_json({"brokerName": "broker-a", "acks": []}))
    yield Ask("acks without a body", Code.BATCH_ACK_MESSAGE)


def session() -> list[Ask]:
    """All of them, in the order in which they are asked; each has a name of its own."""
    parts = _name_server(), _pulls(), _offsets(), _messages(), _groups(), _clients(), _pops(), _writes(), _sent()
    return [one for part in parts for one in part]
