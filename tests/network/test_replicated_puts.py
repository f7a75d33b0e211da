"""Puts of a SYNC_MASTER wait for its slaves; and what a slave asks of its master and of the name server."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.ha.master import IN_SYNC_BYTES, Slave
from rmqctl.network.nameserver import SERVICES, NameServer
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.requests import Awaited, Processor, Promised, PutWait
from rmqctl.store.config.config import StoreConfig
from tests.network.callers import Peer, Writing, popped, wait_for_end

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False, broker_role="SYNC_MASTER")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Writing]:
    broker = _made(tmp_path)
    yield broker
    broker.close()


def _made(path: Path, config: StoreConfig = CONFIG, **properties: str) -> Writing:
    broker = Writing(path / "store", config, **properties)
    broker.master.identity = broker.master.identity._replace(ha_host="127.0.0.1", ha_port=10912)
    return broker


def _slave(broker: Writing, acknowledged: int) -> Slave:
    slave = Slave("127.0.0.1:1")
    broker.master.slaves.add(slave)
    broker.master.slaves.acknowledge(slave, acknowledged)
    return slave


def _put(broker: Writing, properties: str = "") -> Any:
    header = {
        "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": properties, "reconsumeTimes": "0",
        "unitMode": "false",
    }  # fmt: skip
    return broker.processor.reply(RemotingCommand(RequestCode.SEND_MESSAGE, header, b"x", opaque=9), broker.peer)


def test_without_a_slave_it_is_stored_and_said(broker: Writing) -> None:
    answer = _put(broker)
    assert (answer.code, answer.fields["queueOffset"]) == (11, "0")
    assert len(broker.stored("T")) == 1
    slave = _slave(broker, 0)
    assert isinstance(_put(broker), Promised)
    # one that is far behind is not waited for
    broker.master.slaves.acknowledge(slave, broker.master.log_end - IN_SYNC_BYTES)
    assert _put(broker).code == 11
    assert len(broker.stored("T")) == 3


def test_it_is_answered_when_the_slave_has_it(broker: Writing) -> None:
    slave = _slave(broker, 0)
    reply = _put(broker)
    end = broker.master.log_end
    for offset in (0, end - 1):
        broker.master.slaves.acknowledge(slave, offset)
        assert not reply.done.done()
    broker.master.slaves.acknowledge(slave, end)
    assert reply.done.done()
    assert reply.answer().code == 0
    # who does not want to wait does not
    assert _put(broker, "WAIT\1false\2").code == 0
    assert broker.told == []


def test_a_slow_slave_is_not_waited_for_for_long(broker: Writing) -> None:
    slave = _slave(broker, 0)
    reply = _put(broker)
    broker.step(2999)
    assert not reply.done.done()
    broker.step(1)
    answer = reply.answer()
    assert (answer.code, answer.fields["queueId"]) == (12, "0")
    broker.master.slaves.acknowledge(slave, broker.master.log_end)
    assert _put(broker) is not reply


def test_more_slaves_and_the_disk(tmp_path: Path) -> None:
    broker = _made(tmp_path, CONFIG._replace(flush_disk_type="SYNC_FLUSH"), inSyncReplicas="3", slaveTimeout="10")
    first = _slave(broker, 0)
    alone = _put(broker)
    wait_for_end(alone.done)
    assert alone.answer().code == 11
    second = _slave(broker, 0)
    late = _put(broker)
    broker.step(10)
    wait_for_end(late.done)
    assert late.answer().code == 12
    reply = _put(broker)
    broker.master.slaves.acknowledge(first, broker.master.log_end)
    assert not reply.done.done()
    broker.store.flush()
    broker.master.slaves.acknowledge(second, broker.master.log_end)
    wait_for_end(reply.done)
    assert reply.answer().code == 0
    broker.close()


def test_nobody_waits_where_no_slave_can_come(tmp_path: Path) -> None:
    broker = _made(tmp_path)
    broker.master.identity = broker.master.identity._replace(ha_port=None)
    assert _put(broker).code == 0
    answer = broker.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert answer.code == 1
    assert "--ha-listen" in str(answer.remark)
    broker.close()


def test_the_master_tells_of_itself_and_of_its_slaves(broker: Writing) -> None:
    _put(broker)
    slave = _slave(broker, 0)
    slave.next_offset = 7
    info = broker.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).fields
    end = broker.master.log_end
    assert info == {
        "masterAddress": "127.0.0.1:10911", "masterFlushOffset": str(end), "masterHaAddress": "127.0.0.1:10912",
    }  # fmt: skip
    status = broker.content(RequestCode.GET_BROKER_HA_STATUS)
    assert (status["inSyncSlaveNums"], status["masterCommitLogMaxOffset"]) == (1, end)
    (row,) = status["haConnectionInfo"]
    assert (row["addr"], row["diff"], row["inSync"], row["transferFromWhere"]) == ("127.0.0.1:1", end, True, 7)
    config = broker.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
    assert "mappedFileSizeCommitLog=1048576\n" in config


def _register(server: NameServer, name: str, broker_id: int, ha: str, body: bytes = b"") -> RemotingCommand:
    fields = {
        "brokerName": name, "clusterName": "DefaultCluster", "brokerId": str(broker_id),
        "brokerAddr": f"10.0.0.1:{broker_id}",
        "haServerAddr": ha,
    }  # fmt: skip
    reply = Processor(server, SERVICES, lambda line: None).reply(
        RemotingCommand(RequestCode.REGISTER_BROKER, fields, body), Peer()
    )
    assert isinstance(reply, RemotingCommand)
    return reply


def test_slaves_learn_from_the_name_server_where_the_log_is(broker: Writing) -> None:
    server = NameServer(lambda: broker.now)
    identity = broker.master.identity
    topics = broker.master.topics.routes
    server.routes.add_own("DefaultCluster", "broker-a", identity.address, topics, identity.ha_address)
    assert _register(server, "broker-a", 1, "10.0.0.1:2").fields == {
        "haServerAddr": "127.0.0.1:10912",
        "masterAddr": "127.0.0.1:10911",
    }
    assert server.routes.find("broker-a").address_table(Peer()) == {0: "127.0.0.1:10911", 1: "10.0.0.1:1"}  # type: ignore[union-attr]
    # nobody takes the master's place
    assert _register(server, "broker-a", 0, "x").code == 1
    server.routes.unregister("broker-a", 1)
    server.routes.unregister("broker-a", 0)
    assert server.routes.find("broker-a").address_table(Peer()) == {0: "127.0.0.1:10911"}  # type: ignore[union-attr]
    # masters and slaves of others
    assert _register(server, "b", 0, "10.0.0.1:9").fields == {}
    assert _register(server, "b", 1, "10.0.0.1:8").fields == {"haServerAddr": "10.0.0.1:9", "masterAddr": "10.0.0.1:0"}


def test_a_broker_may_tell_of_one_topic_at_a_time(broker: Writing) -> None:
    server = NameServer(lambda: broker.now)
    for topic in ("First", "Second"):
        table = {topic: {"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}
        body = {"topicConfigSerializeWrapper": {"topicConfigTable": table}}
        _register(server, "b", 0, "", json.dumps(body).encode())
    found = server.routes.find("b")
    assert found is not None
    assert sorted(found.topic_table()) == ["First", "Second"]
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "First"})
    Processor(server, SERVICES, lambda line: None).reply(delete, Peer())
    assert sorted(found.topic_table()) == ["Second"]


def test_without_slaves_the_name_is_taken(broker: Writing) -> None:
    server = NameServer(lambda: broker.now)
    server.routes.add_own("DefaultCluster", "broker-a", broker.master.identity.address, broker.master.topics.routes)
    assert _register(server, "broker-a", 1, "x").code == 1


def test_a_wait_that_is_over_holds_on_to_nobody() -> None:
    """Or each put would be garbage that only a collection finds."""
    told: list[object] = []
    wait = PutWait(0)
    wait.wait_for(ResponseCode.FLUSH_DISK_TIMEOUT, 10)

    def tell(one: Awaited) -> None:
        told.append(one)

    listener = weakref.ref(tell)
    wait.add_done_callback(tell)
    del tell
    wait.reached(ResponseCode.FLUSH_DISK_TIMEOUT)
    assert (told, wait.done(), wait.code) == ([wait], True, ResponseCode.SUCCESS)
    assert listener() is None
    wait.add_done_callback(told.append)
    assert told == [wait, wait]


@pytest.mark.parametrize("disk", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("has_slave", [False, True])
def test_pops_and_acknowledgements_wait_like_sends(tmp_path: Path, disk: str, has_slave: bool) -> None:
    broker = _made(tmp_path, CONFIG._replace(flush_disk_type=disk, timer_wheel_enable=True))
    slave = _slave(broker, 0) if has_slave else None

    def settled(reply: Any) -> RemotingCommand:
        if isinstance(reply, RemotingCommand):
            assert slave is None
            assert disk == "ASYNC_FLUSH"
            return reply
        if slave is not None:
            broker.store.flush()
            assert not reply.done.done()
            broker.master.slaves.acknowledge(slave, broker.master.log_end)
        wait_for_end(reply.done)
        answer: RemotingCommand = reply.answer()
        return answer

    settled(_put(broker))
    broker.store.wait_for_dispatch()
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "invisibleTime": 60_000, "pollTime": 0}
    found = settled(broker.reply(RequestCode.POP_MESSAGE, maxMsgNums=1, initMode=0, order=False, bornTime=0, **fields))
    # a checkpoint that is on no slave counts all the same, as at RocketMQ's brokers
    ((message, topic, handle),) = popped(found, "g")
    ack: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": 0,
        "offset": message.queue_offset,
        "extraInfo": handle,
    }
    assert settled(broker.reply(RequestCode.ACK_MESSAGE, **ack)).code == 0
    assert broker.master.pop.records.in_flight(("g", "T", 0)) == 0
    broker.close()
