"""Members that come and go: shares at once, all for everybody in a broadcast, and those that must not join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError, RemoteError, UsageError
from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.membership import by_circle
from rmqctl.network.clients.producer import Producer, ProducerSettings
from rmqctl.network.clients.push.member import BrokerOffsets, LocalOffsets, local_offsets_text
from rmqctl.network.clients.push.push_consumer import PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus
from rmqctl.network.remoting.codec import MessageQueue, RequestCode
from tests.network.push.pushing import LIMIT, Pushing, Seen, refuse, wait_until


def _ids(consumer: PushConsumer, topic: str) -> list[int]:
    return [queue.queue_id for queue in consumer.queues if queue.topic == topic]


def test_queues_are_shared_out_at_once_when_members_come_and_go(pushing: Pushing) -> None:
    """The time between two rounds is an hour: brokers say when the members change (request 40)."""
    pushing.send("Joins", *"abcd")
    seen = Seen()
    with pushing.consumer("joins", "Joins", seen) as one:
        wait_until(lambda: _ids(one, "Joins") == [0, 1, 2, 3])
        with pushing.consumer("joins", "Joins", seen, allocate=by_circle) as two:
            wait_until(lambda: len(_ids(one, "Joins")) == 2 and len(_ids(two, "Joins")) == 2)
            # the retry topic's only queue is one member's
            wait_until(lambda: len(_ids(one, "%RETRY%joins") + _ids(two, "%RETRY%joins")) == 1)
        wait_until(lambda: _ids(one, "Joins") == [0, 1, 2, 3])
    assert [line for line in pushing.said if "1 live member (" in line]


def test_members_that_subscribe_otherwise_are_not_joined_by_a_push_consumer(pushing: Pushing) -> None:
    pushing.send("Here", "x")
    pushing.send("There", "x")
    with pushing.consumer("else", "Here", Seen()):
        with pytest.raises(RefusedError, match="they subscribe Here '\\*'; this one subscribes There"):
            pushing.consumer("else", "There", Seen()).__enter__()
        with pytest.raises(RefusedError, match="they consume as CLUSTERING, not as BROADCASTING"):
            pushing.consumer("else", "Here", Seen(), broadcast=True).__enter__()
        with pushing.consumer("else", "There", Seen(), force=True):
            pass
    assert any("messages of theirs may wait" in line for line in pushing.said)
    with pytest.raises(RemoteError, match="no broker has messages of topic 'Nowhere'"):
        pushing.consumer("else", "Nowhere", Seen(), failing_seconds=30.0).__enter__()


def test_every_member_of_a_broadcast_gets_all_and_goes_on_where_it_was(pushing: Pushing, tmp_path: Path) -> None:
    pushing.send("Cast", *"abcd")
    members = []
    for name in ("one", "two"):
        seen = Seen(lambda message: ConsumeStatus.RECONSUME_LATER if message.body == b"a" else None)
        more: dict[str, Any] = {"broadcast": True, "instance": name, "offsets_directory": tmp_path}
        with pushing.consumer("cast", "Cast", seen, **more) as member:
            member.wait_to_the_end()
            assert sorted(seen.bodies) == ["a", "b", "c", "d"]
            members.append(member)
    # what failed is dropped with a word: a broadcast has no retries
    assert len([line for line in pushing.said if "is dropped: a broadcast has no retries" in line]) == 2
    assert pushing.stored("%RETRY%cast") == []
    assert [pushing.committed("cast", "Cast", queue) for queue in range(4)] == [None] * 4
    file = tmp_path / members[0].client_id / "cast" / "offsets.json"
    assert members[0].client_id.endswith("@one")
    kept = LocalOffsets(file, pushing.said.append)
    assert [kept.stored(MessageQueue("broker-a", queue, "Cast")) for queue in range(4)] == [1, 1, 1, 1]
    pushing.send("Cast", "e", queue=0)
    seen = Seen()
    more = {"broadcast": True, "instance": "one", "offsets_directory": tmp_path}
    with pushing.consumer("cast", "Cast", seen, **more) as member:
        member.wait_to_the_end()
    assert seen.bodies == ["e"]
    assert (file.parent / "offsets.json.bak").exists()
    with pytest.raises(UsageError, match="instance"):
        pushing.consumer("cast", "Cast", seen, broadcast=True, instance="../up")


def test_a_broadcast_in_order_needs_no_lock(pushing: Pushing, tmp_path: Path) -> None:
    pushing.send("Cast-order", *map(str, range(8)))
    seen = Seen()
    more: dict[str, Any] = {"broadcast": True, "offsets_directory": tmp_path, "in_order": True}
    with pushing.consumer("cast-order", "Cast-order", seen, **more) as member:
        member.wait_to_the_end()
    assert sorted(seen.bodies) == sorted(map(str, range(8)))
    assert not pushing.local.broker.locks.is_held("cast-order", pushing.local.broker.elapsed())


LIVE = (
    '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n\t\t\t"topic":"TopicO"\n\t\t}:0,{\n'
    '\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"TopicO"\n\t\t}:7\n\t}\n}'
)


def test_progress_is_kept_in_rocketmqs_file(tmp_path: Path) -> None:
    queues = [MessageQueue("broker-a", number, "TopicO") for number in range(4)]
    path = tmp_path / "offsets.json"
    path.write_text(LIVE)
    said: list[str] = []
    offsets = LocalOffsets(path, said.append)
    assert [offsets.stored(queue) for queue in queues] == [None, 7, None, 0]
    offsets.update(queues[1], 5, increase_only=True)
    offsets.update(queues[2], 9, increase_only=False)
    offsets.persist([queues[1], queues[2]])
    assert path.with_name("offsets.json.bak").read_text() == LIVE
    # other queues of the file stay
    assert path.read_text() == local_offsets_text({queues[1]: 7, queues[2]: 9, queues[3]: 0})
    # a damaged file is its backup, and both damaged are no beginning from nothing
    path.write_text('{"offsetTable":')
    assert LocalOffsets(path, said.append).stored(queues[3]) == 0
    path.with_name("offsets.json.bak").write_text("nonsense")
    with pytest.raises(CorruptError, match=r"offsets\.json"):
        LocalOffsets(path, said.append)
    path.write_text("")
    path.with_name("offsets.json.bak").unlink()
    assert LocalOffsets(path, said.append).stored(queues[3]) is None
    assert said == []


def test_frozen_offsets_ignore_late_verdicts(tmp_path: Path) -> None:
    queue = MessageQueue("broker-a", 0, "T")
    offsets = LocalOffsets(tmp_path / "offsets.json", lambda line: None)
    offsets.freeze(queue, 3)
    offsets.update(queue, 9, increase_only=False)
    assert offsets.in_memory(queue) == 3
    offsets.forget(queue)
    offsets.update(queue, 9, increase_only=True)
    assert offsets.in_memory(queue) == 9


def test_a_reset_offset_is_committed_though_it_was_committed_before(pushing: Pushing) -> None:
    """The pull that learns of a reset commits what was consumed, over the reset."""
    pushing.send("Back", "x", queue=0)
    with pushing.consumer("back", "Back", Seen()):
        pass
    client, queue = Client(pushing.local.namesrv, pushing.local.dial), MessageQueue("broker-a", 0, "Back")
    offsets = BrokerOffsets(client, "back", pytest.fail)
    offsets.update(queue, 0, increase_only=False)
    offsets.persist([queue])
    pushing.local.broker.offsets.commit("back", "Back", 0, 1)
    offsets.freeze(queue, 0)
    offsets.persist([queue])
    assert pushing.committed("back", "Back") == 0
    client.close()


def test_a_namespace_is_between_consumer_and_broker(pushing: Pushing) -> None:
    """Of topics and group, of what is retried and of dead letters; callbacks do not see it."""
    with Producer(
        pushing.local.namesrv, "spaces", pushing.local.dial, ProducerSettings(namespace="MQ_INST_1_x")
    ) as producer:
        for body in ("good", "bad"):
            producer.send(Message("Spaced", body.encode()), producer.queues("Spaced")[0])
    pushing.local.broker.store.wait_for_dispatch()
    assert len(pushing.stored("MQ_INST_1_x%Spaced")) == 2
    seen = Seen(lambda message: ConsumeStatus.RECONSUME_LATER if message.body == b"bad" else None)
    with pushing.consumer("spaced", "Spaced", seen, namespace="MQ_INST_1_x", max_reconsume_times=1) as consumer:
        assert consumer._member.group == "MQ_INST_1_x%spaced"
        wait_until(lambda: len(seen.messages) >= 3)
        wait_until(lambda: pushing.stored("%DLQ%MQ_INST_1_x%spaced"))
    assert {one.topic for one in seen.messages} == {"Spaced"}
    assert [one.reconsume_times for one in seen.messages if one.body == b"bad"] == [0, 1]
    (dead,) = pushing.stored("%DLQ%MQ_INST_1_x%spaced")
    assert dead.properties()["RETRY_TOPIC"] == "MQ_INST_1_x%Spaced"
    assert pushing.committed("MQ_INST_1_x%spaced", "MQ_INST_1_x%Spaced") == 2
    with Consumer(
        pushing.local.namesrv, "polls", "Spaced", begin="first", dial=pushing.local.dial, namespace="MQ_INST_1_x"
    ) as polling:
        assert [one.topic for one in polling.poll(LIMIT)] == ["Spaced"] * 2


@pytest.mark.parametrize("code", [RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.QUERY_CONSUMER_OFFSET])
def test_the_end_is_not_there_before_all_queues_are_shared_out(pushing: Pushing, code: RequestCode) -> None:
    topic = f"Shared{code}"
    pushing.send(topic, *"abcd")
    seen = Seen()
    consumer = pushing.consumer(topic, topic, seen, rebalance_seconds=0.2)
    ask = consumer._client.ask
    refuse(consumer, code)
    with consumer:
        wait_until(lambda: any(f"queues of {topic} cannot be shared out" in line for line in pushing.said))
        assert not consumer.has_ended(to_the_end=True)
        consumer._client.ask = ask  # type: ignore[method-assign]
        consumer.wait_to_the_end()
    assert sorted(seen.bodies) == ["a", "b", "c", "d"]


def test_queues_that_are_never_shared_out_are_an_error_where_there_is_a_limit(pushing: Pushing) -> None:
    pushing.send("Unshared", "x")
    consumer = pushing.consumer("unshared", "Unshared", Seen(), failing_seconds=0.3)
    refuse(consumer, RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    with consumer, pytest.raises(RemoteError, match="queues of Unshared cannot be shared out"):
        consumer.wait_to_the_end()
