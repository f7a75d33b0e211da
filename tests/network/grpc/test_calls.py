"""What gRPC clients send, get, and are done with."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from rmqctl.network.grpc import server
from rmqctl.network.grpc.protocol import Code, MessageTypeV2, Permission, v2
from rmqctl.network.topic_config import TopicConfig
from tests.network.grpc.calling import until
from tests.network.grpc.conftest import Make


def test_a_message_is_sent_received_and_acknowledged_once(make: Make) -> None:
    calling = make("T")
    client = calling.client()
    assert client.produce("T").backoff_policy.max_attempts == 3
    sent = client.send("T", b"a", tag="x", keys=["k", "l"], user={"p": "q"}, born_host="h", message_group="")
    assert (sent.status.code, sent.entries[0].status.code) == (Code.OK, Code.OK)
    consumer = calling.client("c-2")
    settings = consumer.consume("g", T="*")
    assert settings.backoff_policy.max_attempts == 17
    assert len(settings.backoff_policy.customized_backoff.next) == 18
    (message,) = consumer.receive("g", "T")
    assert (message.topic.name, message.body, dict(message.user_properties)) == ("T", b"a", {"p": "q"})
    system = message.system_properties
    assert (system.tag, list(system.keys), system.born_host) == ("x", ["k", "l"], "h")
    assert (system.message_id, system.delivery_attempt) == (sent.entries[0].message_id, 1)
    assert system.body_digest.checksum == "0CC175B9C0F1B6A831C399E269772661"
    assert consumer.receive("g", "T") == []
    assert consumer.status.code == Code.MESSAGE_NOT_FOUND
    answer = consumer.ack("g", message)
    assert (answer.status.code, answer.entries[0].status.code) == (Code.OK, Code.OK)
    assert consumer.ack("g", message).status.code == Code.OK
    assert calling.told == []


def test_a_route_names_every_queue_and_the_types_that_it_takes(make: Make) -> None:
    calling = make("T:FIFO:3")
    calling.broker.have_topics([TopicConfig("Wide", 1, 2), TopicConfig("Deaf", 1, 1, perm=2)])
    client = calling.client()

    def route(topic: str, **more: Any) -> Any:
        return client.QueryRoute(topic=v2.Resource(name=topic), **({"endpoints": client.endpoints} | more))

    found = route("T")
    assert [(one.id, one.permission, list(one.accept_message_types)) for one in found.message_queues] == [
        (number, Permission.READ_WRITE, [MessageTypeV2.FIFO]) for number in range(3)
    ]
    (address,) = found.message_queues[0].broker.endpoints.addresses
    assert f"{address.host}:{address.port}" == calling.address
    assert [one.permission for one in route("Wide").message_queues] == [Permission.READ_WRITE, Permission.WRITE]
    assert route("None").status.code == Code.TOPIC_NOT_FOUND
    assert route("a b").status.code == Code.ILLEGAL_TOPIC
    assert route("").status.code == Code.ILLEGAL_TOPIC
    assert route("T", endpoints=None).message_queues[0].broker.endpoints.addresses[0].host == "127.0.0.1"

    def assigned(topic: str, group: str = "g") -> Any:
        return client.QueryAssignment(
            topic=v2.Resource(name=topic), group=v2.Resource(name=group), endpoints=client.endpoints
        )

    assert [one.message_queue.id for one in assigned("T").assignments] == [-1]
    calling.broker.groups.put("ordered", {"consumeMessageOrderly": True})
    assert [one.message_queue.id for one in assigned("T", "ordered").assignments] == [0, 1, 2]
    assert assigned("Deaf").status.code == Code.FORBIDDEN
    assert assigned("T", "a b").status.code == Code.ILLEGAL_CONSUMER_GROUP


def _refused(**system: Any) -> dict[str, Any]:
    return {"bodies": [b"a"], "user": {}} | system


SENDS: list[tuple[Code, dict[str, Any]]] = [
    (Code.MESSAGE_CORRUPTED, _refused(bodies=[])),
    (Code.MESSAGE_BODY_EMPTY, _refused(bodies=[b""])),
    (Code.MESSAGE_BODY_TOO_LARGE, _refused(bodies=[bytes(4 * 1024 * 1024 + 1)])),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, _refused(user={str(number): "x" for number in range(129)})),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, _refused(user={"x": "y" * 16384})),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, _refused(user={"UNIQ_KEY": "x"})),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, _refused(user={"a\1": "x"})),
    (Code.ILLEGAL_MESSAGE_TAG, _refused(tag=" ")),
    (Code.ILLEGAL_MESSAGE_TAG, _refused(tag="a|b")),
    (Code.ILLEGAL_MESSAGE_TAG, _refused(tag="a\2")),
    (Code.ILLEGAL_MESSAGE_KEY, _refused(keys=["a", " "])),
    (Code.ILLEGAL_MESSAGE_KEY, _refused(keys=["a\n"])),
    (Code.ILLEGAL_MESSAGE_ID, _refused(message_id=" ")),
    (Code.ILLEGAL_MESSAGE_GROUP, _refused(message_group="g" * 64)),
    (Code.ILLEGAL_DELIVERY_TIME, _refused(delivery_timestamp={"seconds": 1 << 35})),
    (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, _refused(message_group="g")),
    (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, _refused(message_type=4)),
    (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, _refused(delivery_timestamp={"seconds": 1})),
    (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, _refused(topic="None")),
    (Code.ILLEGAL_TOPIC, _refused(topic="../T")),
    (Code.INTERNAL_SERVER_ERROR, _refused(topic="Any", bodies=[b"a", b"b"], delivery_timestamp={"seconds": 1})),
    (Code.BAD_REQUEST, _refused(message_type=4, orphaned_transaction_recovery_duration={"seconds": 3601})),
]


def test_what_may_not_be_sent_is_refused_with_the_code_of_its_kind(make: Make) -> None:
    calling = make("T", "Any")
    calling.broker.topics.put(calling.broker.topic("Any")._replace(attributes={"message.type": "MIXED"}))
    client = calling.client()
    found = [client.send(given.pop("topic", "T"), *given.pop("bodies"), **given) for _, given in map(_copied, SENDS)]
    assert [Code(one.status.code) for one in found] == [code for code, _ in SENDS]
    assert calling.client(None).send("T", b"a").status.code == Code.CLIENT_ID_REQUIRED
    assert calling.broker.end_of("T", 0) == 0
    assert calling.told == []


def _copied(one: tuple[Code, dict[str, Any]]) -> tuple[Code, dict[str, Any]]:
    return one[0], dict(one[1])


def test_several_messages_at_once_are_in_one_queue(make: Make) -> None:
    calling = make("T")
    client = calling.client()
    answer = client.send("T", b"a", b"b", b"c", tag="x")
    # as at the real proxy, one entry tells of all
    assert [entry.offset for entry in answer.entries] == [0]
    found = client.receive("g", "T")
    assert [(one.body, one.system_properties.queue_offset) for one in found] == [(b"a", 0), (b"b", 1), (b"c", 2)]
    assert len({one.system_properties.queue_id for one in found}) == 1
    assert ",".join(one.system_properties.message_id for one in found) == answer.entries[0].message_id


def test_a_message_is_due_at_its_time_or_taken_back(make: Make) -> None:
    calling = make("T:DELAY:1", recallMessageEnable="true")
    client = calling.client()

    def send(body: bytes) -> Any:
        due = {"seconds": calling.clock() // 1000 + 60}
        return client.send("T", body, message_type=3, delivery_timestamp=due).entries[0]

    send(b"kept")
    recalled = send(b"recalled")
    answer = client.RecallMessage(topic=v2.Resource(name="T"), recall_handle=recalled.recall_handle)
    assert (answer.status.code, answer.message_id) == (Code.OK, recalled.message_id)
    for handle in ("", "x", recalled.recall_handle[:-8]):
        wrong = client.RecallMessage(topic=v2.Resource(name="T"), recall_handle=handle)
        assert wrong.status.code == Code.INTERNAL_SERVER_ERROR
    assert client.receive("g", "T") == []
    calling.later(62)
    (message,) = until(lambda: client.receive("g", "T"))
    assert (message.body, message.system_properties.message_type) == (b"kept", MessageTypeV2.DELAY)
    assert client.receive("g", "T") == []


def test_messages_of_a_group_come_one_after_the_other(make: Make) -> None:
    calling = make("T:FIFO:4")
    calling.broker.groups.put("g", {"consumeMessageOrderly": True, "retryMaxTimes": 2})
    client = calling.client()
    assert client.consume("g", 2, T="*").subscription.fifo is True
    for body in (b"1", b"2"):
        client.send("T", body, message_type=2, message_group="one")
    first = client.receive("g", "T", batch_size=1, attempt_id="a")
    assert [one.body for one in first] == [b"1"]
    assert client.receive("g", "T", attempt_id="b") == []
    again = client.receive("g", "T", batch_size=1, attempt_id="a")
    assert [one.body for one in again] == [b"1"]
    assert client.ack("g", *again).status.code == Code.OK
    (second,) = client.receive("g", "T", attempt_id="b")
    assert (second.body, second.system_properties.delivery_attempt) == (b"2", 1)
    changed = client.change("g", second, 1)
    assert changed.status.code == Code.OK
    calling.later(2)
    (second,) = client.receive("g", "T", attempt_id="c")
    assert second.system_properties.delivery_attempt == 2
    forwarded = client.forward("g", second)
    assert forwarded.status.code == Code.OK
    assert client.receive("g", "T", attempt_id="d") == []
    assert [one.body for one in client.receive("other", "%DLQ%g")] == [b"2"]


def test_what_is_not_acknowledged_comes_again_until_it_is_a_dead_letter(make: Make) -> None:
    calling = make("T")
    calling.broker.groups.put("g", {"retryMaxTimes": 1})
    client = calling.client()
    client.send("T", b"a")
    (message,) = client.receive("g", "T")
    first = message.system_properties.receipt_handle
    answer = client.change("g", message, 20)
    assert answer.status.code == Code.OK
    assert answer.receipt_handle != first
    # the first handle is none any more, the second one counts
    assert client.ack("g", message).status.code == Code.OK
    message.system_properties.receipt_handle = answer.receipt_handle
    assert client.change("g", message, 1).status.code == Code.OK
    calling.later(5)
    (again,) = until(lambda: client.receive("g", "T"))
    assert (again.topic.name, again.system_properties.delivery_attempt) == ("T", 2)
    assert client.change("g", again, 1).status.code == Code.OK
    calling.later(5)
    (dead,) = until(lambda: client.receive("g", "T") or client.receive("h", "%DLQ%g"))
    assert (dead.topic.name, dead.body) == ("%DLQ%g", b"a")


def test_a_handle_that_the_group_was_not_given_changes_nothing(make: Make) -> None:
    calling = make("T")
    client = calling.client()
    client.send("T", b"a")
    (message,) = client.receive("g", "T")
    given = message.system_properties.receipt_handle
    parts = given.split(" ")

    def with_part(at: int, text: str) -> str:
        return " ".join([*parts[:at], text, *parts[at + 1 :]])

    forged = [with_part(0, "7"), with_part(1, str(int(parts[1]) + 1)), with_part(2, "99999"), with_part(3, "999")]
    forged += [with_part(4, "1"), with_part(5, "other"), with_part(6, str((int(parts[6]) + 1) % 4))]
    forged += [with_part(7, "1"), with_part(6, "-1"), with_part(7, str(1 << 62))]
    unreadable = ["", "x", given[:-2].rpartition(" ")[0], given + " 1", with_part(0, "a"), with_part(4, "9")]

    def codes(group: str, *handles: str) -> set[int]:
        found = set()
        for handle in handles:
            message.system_properties.receipt_handle = handle
            found |= {
                client.ack(group, message).entries[0].status.code,
                client.change(group, message, 30).status.code,
                client.forward(group, message).status.code,
            }
        return found

    # the latter where the queue has no such message
    assert codes("g", *forged) == {Code.INVALID_RECEIPT_HANDLE, Code.INTERNAL_SERVER_ERROR}
    assert codes("other", given) == {Code.INVALID_RECEIPT_HANDLE}
    assert codes("g", *unreadable) == {Code.INTERNAL_SERVER_ERROR}
    # where it says that the message lies in the log is not believed
    message.system_properties.receipt_handle = with_part(8, "0")
    assert client.forward("g", message).status.code == Code.OK
    assert [one.body for one in client.receive("h", "%DLQ%g")] == [b"a"]
    client.send("T", b"b")
    (message,) = client.receive("g", "T")
    calling.later(16)
    assert client.ack("g", message).entries[0].status.message == "receipt handle is expired"
    mixed = client.ack("g", message, *until(lambda: client.receive("g", "T")))
    assert mixed.status.code == Code.MULTIPLE_RESULTS
    assert calling.told == []


def test_a_receive_that_cannot_be_is_refused(make: Make) -> None:
    calling = make("T")
    client = calling.client()

    def code(**more: Any) -> Code:
        client.receive("g", more.pop("topic", "T"), **more)
        return Code(client.status.code)

    assert code(invisible=9) == Code.ILLEGAL_INVISIBLE_TIME
    assert code(invisible=43_201) == Code.ILLEGAL_INVISIBLE_TIME
    assert code(topic="None") == Code.INTERNAL_SERVER_ERROR
    assert code(filter_expression=v2.FilterExpression(type=9)) == Code.ILLEGAL_FILTER_EXPRESSION
    assert code(filter_expression=v2.FilterExpression(type=2, expression="a >")) == Code.INTERNAL_SERVER_ERROR
    assert code(filter_expression=v2.FilterExpression(type=1, expression="||")) == Code.ILLEGAL_FILTER_EXPRESSION
    assert code(seconds=0.09) == Code.ILLEGAL_POLLING_TIME
    assert code(batch_size=-5) == Code.MESSAGE_NOT_FOUND
    assert calling.told == []


def test_messages_are_filtered_by_tags_and_by_properties(make: Make) -> None:
    calling = make("T", enablePropertyFilter="true")
    client = calling.client()
    # two tags of the same hash code
    for tag in ("Aa", "BB", "C"):
        client.send("T", tag.encode(), tag=tag, user={"a": tag})
    tags = v2.FilterExpression(type=1, expression="Aa || C")
    assert sorted(one.body for one in client.receive("g", "T", filter_expression=tags)) == [b"Aa", b"C"]
    properties = v2.FilterExpression(type=2, expression="a IN ('BB', 'C')")
    assert sorted(one.body for one in client.receive("h", "T", filter_expression=properties)) == [b"BB", b"C"]


def test_a_transaction_ends_and_one_without_an_end_is_asked_for(make: Make) -> None:
    calling = make("T:TRANSACTION:2", transactionCheckInterval="300", transactionTimeOut="1000")
    client = calling.client()
    client.produce("T")

    def half(body: bytes) -> str:
        return str(client.send("T", body, message_type=4).entries[0].transaction_id)

    def end(transaction_id: str, resolution: int, source: int = 1, topic: str = "T") -> Code:
        answer = client.EndTransaction(
            topic=v2.Resource(name=topic), message_id=transaction_id or "m", transaction_id=transaction_id,
            resolution=resolution, source=source,
        )  # fmt: skip
        return Code(answer.status.code)

    committed, rolled_back, orphan = half(b"committed"), half(b"rolled back"), half(b"orphan")
    assert end("", 1) == Code.INVALID_TRANSACTION_ID
    assert end("unknown", 1) == Code.INTERNAL_SERVER_ERROR
    assert end(committed, 1, topic="Other") == Code.INTERNAL_SERVER_ERROR
    assert client.receive("g", "T") == []
    assert (end(committed, 1), end(rolled_back, 2), end(orphan, 0)) == (Code.OK, Code.OK, Code.OK)
    assert [one.body for one in until(lambda: client.receive("g", "T"))] == [b"committed"]
    calling.later(3)
    command = next(client.stream).recover_orphaned_transaction_command
    assert (command.transaction_id, command.message.body, command.message.topic.name) == (orphan, b"orphan", "T")
    assert end(command.transaction_id, 1, source=2) == Code.OK
    assert [one.body for one in until(lambda: client.receive("g", "T"))] == [b"orphan"]
    calling.later(3)
    assert client.receive("g", "T") == []


def test_a_client_is_known_from_its_settings_to_its_end(make: Make) -> None:
    calling = make("T")
    client = calling.client("id-1")
    assert client.Heartbeat(client_type=3).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    client.consume("g", T="*")
    members = calling.broker.clients
    group = members.consumer_group("g")
    assert group is not None
    assert [channel.client_id for channel in group.channels.values()] == ["id-1"]
    assert client.Heartbeat(client_type=3, group=v2.Resource(name="g")).status.code == Code.OK
    assert client.NotifyClientTermination(group=v2.Resource(name="g")).status.code == Code.OK
    assert members.consumer_group("g") is None
    assert client.Heartbeat(client_type=3).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    assert client.SyncLiteSubscription().status.code == Code.NOT_IMPLEMENTED
    for settings in (v2.Settings(client_type=1), v2.Settings(client_type=5, subscription={"group": {"name": "g"}})):
        with pytest.raises(grpc.RpcError) as raised:
            next(client.telemetry(v2.TelemetryCommand(settings=settings)))
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert calling.told == []


def test_a_client_keeps_a_message_for_as_long_as_it_works_on_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_EXPIRE_SECONDS", 0.05)
    calling = make("T", channelExpiredTimeout="600000")
    client = calling.client("id-1")
    client.consume("g", 2, T="*")
    for body in (b"a", b"b"):
        client.send("T", body)
    first, second = client.receive("g", "T", auto_renew=True)
    # 60 s, then a minute more, then three, then five
    for at, seconds in enumerate((0, 52, 52, 172)):
        calling.later(seconds)
        until(lambda count=2 * (at + 1): calling.checkpoints() == count)  # type: ignore[misc]
    assert client.ack("g", first).status.code == Code.OK
    until(lambda: client.receive("other", "T"))
    assert client.receive("g", "T") == []
    # a client that ends has its messages for nobody any more
    assert client.NotifyClientTermination(group=v2.Resource(name="g")).status.code == Code.OK
    calling.later(5)
    (again,) = until(lambda: calling.client("id-2").receive("g", "T"))
    assert (again.body, again.system_properties.delivery_attempt) == (second.body, 2)
    assert calling.told == []
