"""The requests of `requests` in order, and what is asked of a proxy by them."""

from __future__ import annotations

import time
from typing import Any

from tests.network.grpc.requests import Raw

_GROUP = {"name": "g"}
_ID = "01" + "AB" * 16


def _topic(name: str) -> dict[str, str]:
    return {"name": name}


def _endpoints(raw: Raw) -> dict[str, Any]:
    host, _, port = raw.address.rpartition(":")
    return {"scheme": "IPv4", "addresses": [{"host": host, "port": int(port)}]}


def message(topic: str, body: bytes = b"body", kind: str = "NORMAL", **more: Any) -> dict[str, Any]:
    """A message to send; `user_properties` and any system properties may be given."""
    from base64 import b64encode

    user = more.pop("user_properties", {})
    system = {"message_id": _ID, "message_type": kind, "body_encoding": "IDENTITY", "born_host": "here"} | more
    return {
        "topic": _topic(topic),
        "body": b64encode(body).decode(),
        "user_properties": user,
        "system_properties": system,
    }


def seconds_from_now(seconds: float) -> str:
    """A time as JSON of protobuf has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def settings(raw: Raw, kind: str, group: str = "g", *topics: str, **more: Any) -> dict[str, Any]:
    """A command with a client's settings."""
    entries = [{"topic": _topic(name), "expression": {"type": "TAG", "expression": "*"}} for name in topics]
    role: dict[str, Any] = {"subscription": {"group": _topic(group), "subscriptions": entries}}
    if kind == "PRODUCER":
        role = {"publishing": {"topics": [_topic(name) for name in topics]}}
    agent = {"language": "JAVA", "version": "5.1.2", "platform": "p", "hostname": "h"}
    return {"settings": {"client_type": kind, "access_point": _endpoints(raw), "user_agent": agent, **role, **more}}


def receive(topic: str, group: str = "g", **more: Any) -> dict[str, Any]:
    """A request for messages."""
    queue = {"topic": _topic(topic), "permission": "READ_WRITE", "broker": {"name": "broker-a"}}
    asked: dict[str, Any] = {"group": _topic(group), "message_queue": queue, "batch_size": 4}
    asked |= {"filter_expression": {"type": "TAG", "expression": "*"}, "invisible_duration": "20s"}
    return asked | {"long_polling_timeout": "5s"} | more


def run(raw: Raw) -> list[list[Any]]:
    """Ask everything, and return the answers."""
    _routes(raw)
    _telemetry(raw)
    _sends(raw)
    _receives(raw)
    _handles(raw)
    _transactions(raw)
    _rest(raw)
    return raw.answers


def _routes(raw: Raw) -> None:
    names = ["plain", "fifo", "delay", "tx", "mixed", "untyped", "nowhere", "", "a b", "%RETRY%g", "%DLQ%g", "x" * 128]
    names += ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "BenchmarkTest"]
    for name in names:
        raw.ask(f"route {name}", "QueryRoute", {"topic": _topic(name), "endpoints": _endpoints(raw)})
    raw.ask("route without endpoints", "QueryRoute", {"topic": _topic("plain")})
    raw.ask("route of a namespace", "QueryRoute", {"topic": {"name": "plain", "resource_namespace": "n"},
                                                  "endpoints": _endpoints(raw)})  # fmt: skip
    plain = {"topic": _topic("plain"), "endpoints": _endpoints(raw)}
    raw.ask("without client id", "QueryRoute", plain, client_id=None)
    raw.ask("empty client id", "QueryRoute", plain, client_id="")
    raw.ask("without language", "QueryRoute", plain, language=None)
    raw.ask("unknown language", "QueryRoute", plain, language="COBOL")
    raw.ask("without version", "QueryRoute", plain, client_version=None)
    for topic, group in (("plain", "g"), ("nowhere", "g"), ("plain", ""), ("plain", "a b"), ("TBW102", "g")):
        asked = {"topic": _topic(topic), "group": _topic(group), "endpoints": _endpoints(raw)}
        raw.ask(f"assignment {topic} {group}", "QueryAssignment", asked)


def _telemetry(raw: Raw) -> None:
    raw.ask("heartbeat before settings", "Heartbeat", {"group": _GROUP, "client_type": "SIMPLE_CONSUMER"})
    raw.telemetry("neither publishing nor subscription", {"settings": {"client_type": "PRODUCER"}})
    raw.telemetry("no client type", {"settings": {**settings(raw, "PRODUCER")["settings"], "client_type": 0}})
    raw.telemetry("an unknown group", settings(raw, "SIMPLE_CONSUMER", "g-new", "plain"))
    raw.telemetry("a bad group", settings(raw, "SIMPLE_CONSUMER", "a b", "plain"))
    raw.telemetry("an unknown topic", settings(raw, "SIMPLE_CONSUMER", "g", "nowhere"))
    raw.telemetry("a bad topic", settings(raw, "SIMPLE_CONSUMER", "g", "a b"))
    raw.telemetry("a system topic to publish", settings(raw, "PRODUCER", "", "TBW102"))
    raw.telemetry("pull consumer", settings(raw, "PULL_CONSUMER", "g", "plain"))
    raw.telemetry("push consumer", settings(raw, "PUSH_CONSUMER", "g", "plain"))
    raw.telemetry("an ordered group", settings(raw, "PUSH_CONSUMER", "g-fifo", "fifo"))
    stream = raw.telemetry("producer", settings(raw, "PRODUCER", "", "plain", "tx"))
    raw.ask("heartbeat of a producer", "Heartbeat", {"client_type": "PRODUCER"})
    stream.put(None)
    raw.telemetry("simple consumer", settings(raw, "SIMPLE_CONSUMER", "g", "plain", "fifo", "mixed", "delay", "tx"))
    for kind in ("SIMPLE_CONSUMER", "PRODUCER", "CLIENT_TYPE_UNSPECIFIED", "PULL_CONSUMER"):
        raw.ask(f"heartbeat {kind}", "Heartbeat", {"group": _GROUP, "client_type": kind})
    raw.ask("heartbeat of a bad group", "Heartbeat", {"group": _topic("a b"), "client_type": "SIMPLE_CONSUMER"})


def _sends(raw: Raw) -> None:
    def send(label: str, *messages: dict[str, Any]) -> Any:
        return raw.ask(f"send: {label}", "SendMessage", {"messages": [*messages]})

    send("nothing")
    send("plain", message("plain"))
    send("unknown topic", message("nowhere"))
    send("system topic", message("TBW102"))
    send("bad topic", message("a b"))
    send("empty topic", message(""))
    send("empty body", message("plain", b""))
    send("4 MiB", message("untyped", bytes(4 << 20)))
    send("more than 4 MiB", message("plain", bytes((4 << 20) + 1)))
    send("untyped", message("untyped"))
    for kind, more in (
        ("FIFO", {"message_group": "m"}),
        ("DELAY", {"delivery_timestamp": seconds_from_now(600)}),
        ("TRANSACTION", {}),
        ("PRIORITY", {"priority": 1}),
        ("MESSAGE_TYPE_UNSPECIFIED", {}),
    ):
        for topic in ("plain", "mixed"):
            send(f"{kind} to {topic}", message(topic, b"typed", kind, **more))
    send("plain to fifo", message("fifo"))
    send("group but no type", message("plain", message_group="m"))
    send("type but no group", message("fifo", kind="FIFO"))
    send("type but no time", message("delay", kind="DELAY"))
    send("time that has been", message("delay", kind="DELAY", delivery_timestamp=seconds_from_now(-60)))
    send("time too far", message("delay", kind="DELAY", delivery_timestamp=seconds_from_now(86400 * 3 + 60)))
    send("fifo", message("fifo", b"ordered", "FIFO", message_group="m"))
    for size in (63, 64, 65):
        send(f"group of {size}", message("fifo", kind="FIFO", message_group="m" * size))
    send("blank group", message("fifo", kind="FIFO", message_group="  "))
    for tag in ("a|b", " ", "a\nb", "a b", "x" * 200):
        send(f"tag {tag[:9]!r}", message("plain", tag=tag))
    for key in ("", " ", "a b", "a\nb"):
        send(f"key {key!r}", message("plain", keys=[key]))
    send("no id", message("plain", message_id=""))
    send("short id", message("plain", message_id="x"))
    for name, text in (("TAGS", "x"), ("DELAY", "3"), ("__SHARDINGKEY", "x"), ("a\nb", "x"), ("a", "x\ny"), ("", "x"),
                       ("a", ""), ("a\x01b", "x"), ("a\x02b", "x"), ("a", "\x01"), ("UNIQ_KEY", "x"),
                       ("p", "é")):  # fmt: skip
        send(f"property {name!r}={text!r}", message("plain", user_properties={name: text}))
    send("128 properties", message("plain", user_properties={f"p{n}": "x" for n in range(128)}))
    send("129 properties", message("plain", user_properties={f"p{n}": "x" for n in range(129)}))
    send("16 KiB of properties", message("plain", user_properties={"p": "x" * (16384 - 1)}))
    send("more than that", message("plain", user_properties={"p": "x" * 16384}))
    send("recovery of 2 h", message("tx", kind="TRANSACTION", orphaned_transaction_recovery_duration="7200s"))
    send("two of one topic", message("plain"), message("plain", message_id=_ID[:-1] + "1"))
    send("two of two topics", message("plain"), message("mixed"))
    send("one good, one bad", message("plain"), message("plain", b""))
    send("two fifo", *(message("fifo", kind="FIFO", message_group="m") for _ in range(2)))
    send("two delayed", *(message("delay", kind="DELAY", delivery_timestamp=seconds_from_now(600)) for _ in range(2)))
    send("gzip", message("plain", b"no gzip", body_encoding="GZIP"))


def _receives(raw: Raw) -> None:
    def take(label: str, request: dict[str, Any], **more: Any) -> Any:
        return raw.ask(f"receive: {label}", "ReceiveMessage", request, **more)

    for text in ("0s", "5s", "9.999s", "43201s"):
        take(f"invisible {text}", receive("plain", invisible_duration=text))
    for text, kind in (
        ("a >", "SQL"),
        ("a > 5", "FILTER_TYPE_UNSPECIFIED"),
        ("a || ", "TAG"),
        ("", "TAG"),
        ("", "SQL"),
    ):
        asked = receive("fifo", "g-none", filter_expression={"type": kind, "expression": text})
        take(f"filter {text!r} {kind}", asked)
    take("unknown topic", receive("nowhere"))
    take("bad topic", receive("a b"))
    take("system topic", receive("TBW102"))
    take("bad group", receive("plain", "a b"))
    take("empty group", receive("plain", ""))
    take("system group", receive("plain", "CID_RMQ_SYS_TRANS"))
    take("unknown group", receive("plain", "g-unknown", batch_size=1))
    take("4 s left", receive("mixed", "g-short"), seconds=4)
    take("batch of 0", receive("plain", "g-zero", batch_size=0))
    got = take("batch of 99", receive("plain", "g-many", batch_size=99))
    raw.answers[-1][1] = len(got)
    asked = receive("plain", "g-noname")
    asked["message_queue"] = {**asked["message_queue"], "broker": {}}
    take("no broker", asked)
    asked["message_queue"] = {**asked["message_queue"], "broker": {"name": "broker-z"}}
    take("unknown broker", asked)
    asked["message_queue"] = {**asked["message_queue"], "id": 9, "broker": {"name": "broker-a"}}
    take("unknown queue", asked)
    take("nothing there", receive("mixed", "g-tag", filter_expression={"type": "TAG", "expression": "none"}))


def _handles(raw: Raw) -> None:
    def handles(count: int, group: str = "g") -> list[dict[str, Any]]:
        found = raw.call("ReceiveMessage", receive("plain", group, batch_size=count))
        return [one["message"]["system_properties"] for one in found if "message" in one]

    def ack(label: str, *entries: tuple[str, str], topic: str = "plain", group: str = "g") -> None:
        rows = [{"message_id": one, "receipt_handle": handle} for one, handle in entries]
        raw.ask(f"ack: {label}", "AckMessage", {"group": _topic(group), "topic": _topic(topic), "entries": rows})

    found = handles(8)
    given = [(one["message_id"], one["receipt_handle"]) for one in found]
    ack("nothing")
    ack("one", given[0])
    ack("again", given[0])
    ack("two", *given[1:3])
    ack("one twice", given[3], given[3])
    ack("no handle", (given[4][0], ""))
    ack("garbage", (given[4][0], "garbage"))
    ack("garbage and a good one", (given[4][0], "garbage"), given[4])
    ack("another topic", given[5], topic="fifo")
    ack("unknown topic", given[5], topic="nowhere")
    ack("another group", given[5], group="g-else")
    ack("bad group", given[5], group="a b")
    ack("no message id", ("", given[5][1]))
    ack("an offset beyond", (given[5][0], given[5][1].rsplit(" ", 2)[0] + " 99999 0"))
    start = given[5][1].split(" ")
    ack("expired", (given[5][0], " ".join([start[0], str(int(start[1]) - 60_000), *start[2:]])))

    def change(label: str, handle: str, seconds: str, **more: Any) -> Any:
        asked = {"group": _GROUP, "topic": _topic("plain"), "receipt_handle": handle, "message_id": given[6][0]}
        return raw.ask(f"change: {label}", "ChangeInvisibleDuration", asked | {"invisible_duration": seconds} | more)

    for text in ("-1s", "0s", "43201s"):
        change(text, given[6][1], text)
    change("garbage", "garbage", "20s")
    change("another group", given[6][1], "20s", group=_topic("g-else"))
    changed = change("1 s", given[7][1], "1s")
    if isinstance(changed, dict) and "receipt_handle" in changed:
        ack("with the old handle", given[7])
        ack("with the new handle", (given[7][0], changed["receipt_handle"]))
    changed = change("20 s", given[6][1], "20s")
    ack("with the new one", (given[6][0], changed.get("receipt_handle", "")))

    def forward(label: str, handle: str, **more: Any) -> None:
        asked = {"group": _GROUP, "topic": _topic("plain"), "receipt_handle": handle, "message_id": given[5][0]}
        raw.ask(f"dlq: {label}", "ForwardMessageToDeadLetterQueue", asked | {"max_delivery_attempts": 1} | more)

    (one,) = handles(1)[:1]
    forward("garbage", "garbage")
    forward("empty", "")
    forward("unknown topic", one["receipt_handle"], topic=_topic("nowhere"))
    forward("good", one["receipt_handle"])
    raw.ask("receive: dead letters", "ReceiveMessage", receive("%DLQ%g", "g-dlq", batch_size=1))
    raw.ask("route of dead letters", "QueryRoute", {"topic": _topic("%DLQ%g"), "endpoints": _endpoints(raw)})


def _transactions(raw: Raw) -> None:
    number = ""

    def begin(last: str) -> None:
        nonlocal number
        sent = raw.call(
            "SendMessage", {"messages": [message("tx", b"half", "TRANSACTION", message_id=_ID[:-1] + last)]}
        )
        number = sent["entries"][0]["transaction_id"]

    begin("1")

    def end(label: str, **more: Any) -> None:
        asked = {"topic": _topic("tx"), "message_id": _ID, "transaction_id": number, "resolution": "COMMIT"}
        raw.ask(f"end: {label}", "EndTransaction", asked | {"source": "SOURCE_CLIENT"} | more)

    end("no transaction id", transaction_id="")
    end("blank transaction id", transaction_id=" ")
    end("unknown transaction", transaction_id="nothing")
    end("unknown topic", topic=_topic("nowhere"))
    end("another topic", topic=_topic("plain"))
    end("unspecified", resolution="TRANSACTION_RESOLUTION_UNSPECIFIED")
    begin("2")
    end("commit")
    end("again")
    end("rollback after it", resolution="ROLLBACK")
    begin("3")
    end("rollback", resolution="ROLLBACK")
    begin("4")
    end("no message id", message_id="")


def _rest(raw: Raw) -> None:
    timed = message("delay", b"timed", "DELAY", delivery_timestamp=seconds_from_now(600))
    sent = raw.call("SendMessage", {"messages": [timed]})
    handle = sent["entries"][0]["recall_handle"]

    def recall(label: str, topic: str, text: str) -> None:
        raw.ask(f"recall: {label}", "RecallMessage", {"topic": _topic(topic), "recall_handle": text})

    recall("no handle", "delay", "")
    recall("garbage", "delay", "garbage")
    recall("not delayed", "plain", handle)
    recall("mixed", "mixed", handle)
    recall("unknown topic", "nowhere", handle)
    recall("good", "delay", handle)
    recall("again", "delay", handle)
    raw.ask("lite", "SyncLiteSubscription", {"topic": _topic("plain"), "group": _GROUP})
    for name in ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"):
        raw.ask(name, name, {})
    raw.ask("termination", "NotifyClientTermination", {"group": _GROUP})
    raw.ask("termination again", "NotifyClientTermination", {"group": _GROUP})
    raw.ask("termination of a bad group", "NotifyClientTermination", {"group": _topic("a b")})
    raw.ask("heartbeat after it", "Heartbeat", {"group": _GROUP, "client_type": "SIMPLE_CONSUMER"})
