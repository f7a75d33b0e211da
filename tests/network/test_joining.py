"""Members of one group, ours among them: each message is consumed by one of them, retried ones too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.membership import LiveGroup, consumer_heartbeat
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode, objects, parse_body
from rmqctl.network.serving import LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import with_header

LIMIT = 60


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
    path = tmp_path_factory.mktemp("joining") / "store"
    with MessageStore.open(path, "rw", config, create=True) as store, LocalBroker(store) as broker:
        yield broker


def _consumer(local: LocalBroker, group: str, topic: str, tags: str = "*", **options: object) -> Consumer:
    return Consumer(local.namesrv, group, topic, tags, dial=local.dial, **{"begin": "first", **options})  # type: ignore[arg-type]


def _poll_until(member: Consumer, is_done: Callable[[], bool]) -> None:
    """Poll until that holds: a poll that does not wait gives up early on a busy machine."""
    end = time.monotonic() + LIMIT
    member.poll(0)
    while not is_done() and time.monotonic() < end:
        member.poll(0)


def test_retries_flow_while_another_member_is_there(local: LocalBroker) -> None:
    """The only queue of a retry topic belongs to one of the members, whichever sorts first."""
    with Producer(local.namesrv, dial=local.dial) as producer:
        for number in range(8):
            producer.send(Message("Flow", b"%d" % number))
    with _consumer(local, "flow", "Flow") as one, _consumer(local, "flow", "Flow") as two:
        got: list[StoredMessage] = []
        end = time.monotonic() + LIMIT
        while len({message.body for message in got if message.reconsume_times}) < 8 and time.monotonic() < end:
            for member in (one, two):
                for message in member.poll(0.05):
                    got.append(message)
                    if not message.reconsume_times:
                        member.send_back(message, 1)
        again = [message for message in got if message.reconsume_times]
        # at least once: while queues change hands both members may get a message, and send it back
        assert {message.body for message in again} == {b"%d" % number for number in range(8)}
        assert {message.topic for message in again} == {"%RETRY%flow"}
        queues = [*one.queues, *two.queues]
        assert len(queues) == len(set(queues)) == 5
        one.commit()
        two.commit()
    # both topics are at their ends
    with _consumer(local, "flow", "Flow") as consumer:
        assert list(consumer.messages(to_the_end=True)) == []


def test_what_a_member_announces_is_a_push_consumers(local: LocalBroker) -> None:
    """Brokers select messages for all members by the hashes of the tags that came last: without them nothing passes."""
    with Producer(local.namesrv, dial=local.dial) as producer:
        producer.send(Message("Told", b"x"))
    with _consumer(local, "told", "Told", "paid || late") as consumer:
        consumer.poll(0)
        client = Client(local.namesrv, local.dial)
        answer = client.ask(
            "broker",
            *with_header(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "told"}),
        )
        client.close()
        content = parse_body(answer.body)
        table = content["subscriptionTable"]
        assert (content["consumeType"], content["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert content["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
        assert table.keys() == {"Told", "%RETRY%told"}
        assert table["Told"]["codeSet"] == sorted([java_hash("paid"), java_hash("late")])
        assert (table["Told"]["tagsSet"], table["%RETRY%told"]["subString"]) == (["late", "paid"], "*")
        assert [one["clientId"] for one in objects(content["connectionSet"])] == [consumer.client_id]


def test_members_that_subscribe_otherwise_are_not_joined(local: LocalBroker) -> None:
    with Producer(local.namesrv, dial=local.dial) as producer:
        producer.send(Message("Mine", b"x"))
        producer.send(Message("Theirs", b"x"))
    with _consumer(local, "apart", "Theirs") as member:
        _poll_until(member, lambda: local.broker.clients.consumer_group("apart") is not None)
        heard: list[str] = []
        with _consumer(local, "apart", "Mine") as other:
            with pytest.raises(RefusedError, match="they subscribe Theirs '\\*'; this one subscribes Mine") as refused:
                _poll_until(other, lambda: False)
            assert "--force" in (refused.value.hint or "")
        assert set(local.broker.clients.consumer_group("apart").subscriptions) == {"Theirs", "%RETRY%apart"}  # type: ignore[union-attr]
        with _consumer(local, "apart", "Mine", force=True, warn=heard.append) as other:
            _poll_until(other, lambda: bool(heard))
        (line,) = heard
        assert "1 live member (" in line
        assert "messages of theirs may wait" in line
        # the same subscription is no conflict, and said once
        heard.clear()
        with _consumer(local, "apart2", "Theirs", warn=heard.append) as first:
            _poll_until(first, lambda: local.broker.clients.consumer_group("apart2") is not None)
            assert heard == []
            with _consumer(local, "apart2", "Theirs", warn=heard.append) as second:
                _poll_until(second, lambda: bool(heard))
                second._share_soon()
                second.poll(0)
            (line,) = heard
            assert line.startswith(f"group 'apart2' has 1 live member ({first.client_id}): a share of their queues")


@pytest.mark.parametrize(
    ("group", "is_conflict"),
    [
        (LiveGroup((), {"Other": ("TAG", "*")}), False),
        (LiveGroup(("c",), {"T": ("TAG", "b||a ")}, "CLUSTERING"), False),
        (LiveGroup(("c",), {}, "CLUSTERING"), False),
        (LiveGroup(("c",), {"T": ("TAG", "a")}, "CLUSTERING"), True),
        (LiveGroup(("c",), {"T": ("SQL92", "a || b")}, "CLUSTERING"), True),
        (LiveGroup(("c",), {"T": ("TAG", "a || b"), "U": ("TAG", "*")}, "CLUSTERING"), True),
        (LiveGroup(("c",), {"T": ("TAG", "a || b")}, "BROADCASTING"), True),
        (LiveGroup(("c",), {"T": ("TAG", "a || b")}, "CLUSTERING", "CONSUME_POP"), True),
    ],
)
def test_subscriptions_are_compared_by_what_they_mean(group: LiveGroup, is_conflict: bool) -> None:
    assert (group.conflict({"T": "a || b"}) is not None) is is_conflict
    everything = LiveGroup(("c",), {"T": ("TAG", "")}, "CLUSTERING")
    assert everything.conflict({"T": "*"}) is None


def test_many_members_are_named_in_short() -> None:
    assert LiveGroup(("a", "b", "c", "d", "e"), {}).members == "5 live members (a, b, c and 2 more)"
    (consumer,) = consumer_heartbeat("g", {"T": "*"}, "last")["consumerDataSet"]
    assert consumer["subscriptionDataSet"][0]["codeSet"] == []
