"""`rmqctl serve` as a process: its one line, its end, its warnings; and not one byte of the store changes."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqctl.commands.wire import serve
from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.formats.message import Message
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting import server
from rmqctl.network.remoting.codec import FrameDecoder, RemotingCommand, RequestCode, encode_frame
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.network.topic_config import topic_from_text
from rmqctl.output.output import Output
from rmqctl.store.message_store import MessageStore
from tests.goldens import GoldenStore, tree_state, truth
from tests.network.callers import pulling
from tests.network.serving import SECONDS, free_pair, serving
from tests.processes import start
from tests.store.write.writing import wait_until


def ask(address: str, code: int, **fields: object) -> RemotingCommand:
    """One request over a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
        texts = {name: str(value) for name, value in fields.items()}
        connection.sendall(encode_frame(RemotingCommand(code, texts)))
        decoder = FrameDecoder()
        while True:
            decoder.feed(connection.recv(1 << 16))
            answer = decoder.next_command()
            if answer is not None:
                return answer


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rmqctl", "serve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_client_finds_the_broker_and_its_messages_and_nothing_changes(golden_store: GoldenStore, end: int) -> None:
    store = golden_store("broker-real")
    before = tree_state(store)
    with serving(store) as served:
        route = ask(served.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Events")
        broker = json.loads(route.body)["brokerDatas"][0]["brokerAddrs"]["0"]
        assert broker == served.broker
        assert ask(broker, RequestCode.PULL_MESSAGE, **pulling("Events", 3, 0)).code == 0
        commit = {"topic": "Events", "queueId": 3, "consumerGroup": "g-events", "commitOffset": 1}
        assert ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, **commit).code == 0
        offset = ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, **commit)
        assert offset.fields == {"offset": "1"}
        # ends with a connection open and a frame that never came whole
        host, _, port = broker.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=SECONDS) as silent:
            silent.sendall(struct.pack(">I", 100))
            assert served.end(end) == 0
    assert "Traceback" not in served.errors
    assert "bug" not in served.errors
    assert tree_state(store) == before


def test_a_writable_store_is_made_locked_and_closed(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nflushDiskType=SYNC_FLUSH\n", encoding="utf-8")
    store = tmp_path / "store"
    with serving(store, "--writable", "--create", "-c", str(conf)) as served:
        with Producer(served.namesrv) as producer:
            sent = producer.send(Message("T", b"x"))
        again = run("-s", store, "--writable", "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0")
        assert again.returncode == 4, again.stderr
        assert served.end() == 0
    assert "Traceback" not in served.errors
    assert not (store / "abort").exists()
    with MessageStore.open(store) as opened:
        (message,) = opened.get("T", sent.queue.queue_id, 0).messages
        assert (message.message_id, message.store_host.port) == (
            sent.message_ids[0],
            int(served.broker.rpartition(":")[2]),
        )
    topics = parse_config_json((store / "config/topics.json").read_text("utf-8"))["topicConfigTable"]
    assert topics["T"]["writeQueueNums"] == 4


def test_a_store_that_may_not_be_written_is_served(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    for folder, _, files in os.walk(store):
        for name in files:
            os.chmod(Path(folder) / name, 0o400)
        os.chmod(folder, 0o500)
    before = tree_state(store)
    try:
        with serving(store) as served:
            assert ask(served.broker, RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
            assert served.end() == 0
        assert tree_state(store) == before
    finally:
        for folder, _, _ in os.walk(store):
            os.chmod(folder, 0o700)


def test_names_come_from_the_broker_conf(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("broker-real")
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerClusterName=mine\nbrokerName=b-7\n", encoding="ascii")
    with serving(store, "-c", str(conf)) as served:
        cluster = ask(served.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body.decode()
        assert f'{{"b-7":{{"brokerAddrs":{{0:"{served.broker}"}}' in cluster
        assert '"clusterAddrTable":{"mine":["b-7"]}' in cluster
        assert served.end() == 0


def test_other_addresses_than_loopback_are_warned_of(golden_store: GoldenStore) -> None:
    with serving(golden_store("clean"), "--listen", "0.0.0.0:0") as served:
        port = served.broker.rpartition(":")[2]
        route = ask(served.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body.decode()
        assert f'{{0:"127.0.0.1:{port}"}}' in route
        assert served.end() == 0
    assert "any client that reaches 0.0.0.0 can read all messages" in served.errors


def test_the_vip_channel_is_two_ports_below(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    vip, port = free_pair()
    with serving(store, "--listen", f"127.0.0.1:{port}") as served:
        assert ask(f"127.0.0.1:{vip}", RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
        assert served.end() == 0
    with socket.create_server(("127.0.0.1", vip)), serving(store, "--listen", f"127.0.0.1:{port}") as served:
        assert ask(served.broker, RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
        assert served.end() == 0
    assert f"clients with the VIP channel on cannot send: cannot listen at 127.0.0.1:{vip}" in served.errors


def test_a_port_that_the_system_chooses_has_a_vip_channel_too(golden_store: GoldenStore) -> None:
    with serving(golden_store("clean"), "--listen", "127.0.0.1:0") as served:
        host, _, port = served.broker.rpartition(":")
        assert ask(f"{host}:{int(port) - 2}", RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
        assert served.end() == 0
    assert "VIP" not in served.errors


def test_another_port_is_tried_where_the_vip_channel_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked = server.bound, list[int]()

    def bound(host: str, port: int) -> socket.socket:
        asked.append(port)
        if port and sum(map(bool, asked)) <= refused:
            raise RefusedError(f"cannot listen at {host}:{port}")
        return plain(host, port)

    monkeypatch.setattr(server, "bound", bound)
    refused = 2
    problems = list[str]()
    own, vip = server.bound_pair("127.0.0.1", 0, problems.append)
    assert vip is not None
    with own, vip:
        assert own.getsockname()[1] - vip.getsockname()[1] == 2
        assert problems == []
        assert [bool(port) for port in asked] == [False, True] * 3
    refused = 1 << 30
    own, vip = server.bound_pair("127.0.0.1", 0, problems.append)
    with own:
        assert vip is None
        (problem,) = problems
        assert problem.startswith("clients with the VIP channel on cannot send: cannot listen at 127.0.0.1:")


def test_a_broker_whose_process_dies_leaves_the_routes_at_once(golden_store: GoldenStore, tmp_path: Path) -> None:
    """And while it is there, its slaves learn where the log is."""
    with serving(golden_store("clean")) as first:
        conf = tmp_path / "b.conf"
        conf.write_text("brokerName=b\n", encoding="ascii")
        second = golden_store("features")
        more = ("--register", first.namesrv, "--ha-listen", "127.0.0.1:0", "--writable")
        with serving(second, "-c", str(conf), *more) as other:
            fields = {
                "brokerName": "b", "clusterName": "DefaultCluster", "brokerId": "1", "brokerAddr": "127.0.0.1:1",
            }  # fmt: skip
            wait_until(lambda: b'"b"' in ask(first.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body)
            answer = ask(first.namesrv, RequestCode.REGISTER_BROKER, **fields)
            assert answer.fields == {"masterAddr": other.broker, "haServerAddr": other.slaves}
            other.process.kill()
            other.process.wait()
            # the connection of the slave ended with its one request
            wait_until(lambda: b'"b"' not in ask(first.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body)
        assert first.end() == 0


def test_a_crashed_store_is_recovered_before_it_is_served(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    somewhere = ("--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0", "--writable")
    refused = run("-s", store, *somewhere)
    assert refused.returncode == 5
    assert "or add --recover, which does so and then serves it" in refused.stderr
    assert tree_state(store) == before
    with serving(store, "--writable", "--recover") as served:
        found = ask(served.broker, RequestCode.GET_MAX_OFFSET, topic="TopicTest", queueId="3")
        assert int(found.fields["offset"]) == max(
            row["queueOffset"] + 1
            for row in truth("crash").messages
            if (row["topic"], row["queueId"]) == ("TopicTest", 3)
        )
        assert served.end() == 0
    assert "recovered after a crash: 2500 messages up to physical offset 2135612" in served.errors
    assert "400 units added" in served.errors
    assert [path.name.endswith("-recover") for path in store.with_name("crash.rmqctl").iterdir() if path.is_dir()] == [
        True
    ]
    assert not (store / "abort").exists()


def test_a_recovery_that_needs_a_decision_is_refused(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-third")
    (store / "abort").touch()
    before = tree_state(store)
    ended = run("-s", store, "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0", "--writable", "--recover")
    assert ended.returncode == 5
    assert "573 good messages" in ended.stderr
    assert tree_state(store) == before


def test_an_address_that_is_taken_ends_with_5(golden_store: GoldenStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("-s", golden_store("clean"), "--listen", f"127.0.0.1:{port}", "--namesrv", "127.0.0.1:0")
    assert (ended.returncode, ended.stdout) == (5, "")
    assert f"cannot listen at 127.0.0.1:{port}" in ended.stderr


def test_a_port_for_grpc_that_is_taken_leaves_the_store_alone(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="the extra grpc is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        free = ("--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0")
        ended = run("-s", tmp_path / "new", "--writable", "--create", *free, "--grpc", at)
    assert (ended.returncode, ended.stdout) == (5, "")
    assert f"cannot listen at {at}: Address already in use" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--listen", "127.0.0.1"], 2, "is no address"),
        (["--listen", "127.0.0.1:65536"], 2, "is no address"),
        (["--listen", "127.0.0.1:x"], 2, "is no address"),
        (["--create"], 2, "go with --writable"),
        (
            ["-s", "/nowhere/at/all", "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0"],
            3,
            "there is no such directory",
        ),
        (
            ["-s", "/nowhere/at/all", "--writable", "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0"],
            3,
            "to make a new one there, say --create",
        ),
    ],
)
def test_wrong_calls_end_with_their_codes(arguments: list[str], code: int, said: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == code
    assert said in ended.stderr


@pytest.mark.parametrize("options", [(), ("--as-stored",)])
def test_a_dead_store_is_served_as_it_would_be(golden_store: GoldenStore, options: tuple[str, ...]) -> None:
    """The queues lack 400 of 2,500 messages, as the broker was killed. The golden of its own recovery has them all."""
    store, copy = golden_store("crash"), golden_store("crash")
    with MessageStore.open(copy) as recovered:
        recovered.recover()
        ends = [(row["topic"], row["queue_id"], row["max_offset"]) for row in recovered.queues()]
    before = tree_state(store)
    with serving(store, *options) as served:
        found = [
            int(ask(served.broker, RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue).fields["offset"])
            for topic, queue, _ in ends
        ]
        topic, queue, end = max(ends)
        last = ask(served.broker, RequestCode.PULL_MESSAGE, **pulling(topic, queue, end - 1))
        assert served.end() == 0
    assert (found == [end for *_, end in ends], last.code == 0) == (not options, not options)
    assert ("shown as recovered, in a temporary folder: 400 units added" in served.errors) is (not options)
    assert ("are in no queue, as after a crash" in served.errors) is bool(options)
    assert tree_state(store) == before


def test_what_recovery_refuses_is_served_as_it_is(golden_store: GoldenStore) -> None:
    store = golden_store("stray-file")
    with serving(store) as served:
        assert served.end() == 0
    assert "served as it is stored: " in served.errors
    ended = run("-s", store, "--as-recovered", "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0")
    assert ended.returncode == 5


def test_messages_in_the_topic_that_brokers_hide_are_served(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", create=True) as store:
        store.put(Message("TBW102", b"x"))
    with serving(tmp_path / "store") as served:
        assert ask(served.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102").code == 0
        assert ask(served.broker, RequestCode.PULL_MESSAGE, **pulling("TBW102", 0, 0)).code == 0
        assert served.end() == 0


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_an_ephemeral_store_has_its_topics_and_goes_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "rmqctl", "serve", "--ephemeral", "--json", "--topic", "Orders:FIFO:2"]
    command += ["--topic", "Bills", "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0"]
    with start(command, seconds=SECONDS, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        at = json.loads(process.stdout.readline())
        with Producer(at["namesrv"]) as producer:
            assert producer.send(Message("Orders", b"x")).status == "SEND_OK"
        (folder,) = tmp_path.glob("rmqctl-ephemeral-*")
        topics = parse_config_json((folder / "store/config/topics.json").read_text("utf-8"))["topicConfigTable"]
        orders, bills = topics["Orders"], topics["Bills"]
        assert (orders["readQueueNums"], orders["attributes"], bills["attributes"]) == (2, {"message.type": "FIFO"}, {})
        process.send_signal(end)
        process.wait(SECONDS)
    wait_until(lambda: not list(tmp_path.glob("*rmqctl-ephemeral-*")))


@pytest.mark.parametrize("text", ["", "a b", "T:SOME", "T:FIFO:0", "T:FIFO:2:3", "T::2"])
def test_topics_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="topic "):
        topic_from_text(text, 8)


def test_queues_in_a_rocksdb_are_served_and_never_written(golden_store: GoldenStore) -> None:
    store = golden_store("rocksdb")
    with serving(store) as served:
        answer = ask(served.broker, RequestCode.PULL_MESSAGE, **pulling("TopicTest", 0, 0))
        assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "7")
    ended = run("-s", store, "--writable", "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0")
    assert (ended.returncode, ended.stdout) == (5, "")
    assert "RocksDB" in ended.stderr


def test_nobody_waits_for_whoever_does_not_read_what_is_told(golden_store: GoldenStore) -> None:
    """A terminal that was stopped, a pipe that nobody empties: this one holds 4 KiB, and there is more to be told."""
    with serving(golden_store("gap")) as served:
        assert served.process.stderr is not None
        fcntl.fcntl(served.process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        for topic in ("TopicTest", "OrderTopic", "topic_under_score", "topic-with-dash", "%DLQ%GroupA"):
            offset, code = 0, 0
            while code in {0, Response.PULL_RETRY_IMMEDIATELY}:
                answer = ask(served.broker, RequestCode.PULL_MESSAGE, **pulling(topic, 0, offset))
                offset, code = int(answer.fields.get("nextBeginOffset", 0)), answer.code
        assert served.end() == 0
    told = served.errors.splitlines()
    assert sum(map(len, told)) > 4 * 4096
    assert [line for line in told if json.loads(line).get("message", "").startswith("a message is passed over")]


def test_what_is_loaded_is_left_out_of_garbage_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collected once, before there are clients: later that would keep them waiting."""
    done: list[str] = []
    monkeypatch.setattr(serve, "_SETTLE_SECONDS", 0)
    monkeypatch.setattr(serve, "_LOADING_SECONDS", 0)
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))

    async def looked_at(times: int) -> list[str]:
        for _ in range(times):
            await asyncio.sleep(0)
        return list(done)

    async def watching() -> None:
        settling = asyncio.create_task(serve._settle())
        assert await looked_at(20) == ["collect", "freeze"]
        for number in range(5):
            monkeypatch.setitem(sys.modules, f"rmqctl_loaded_{number}", gc)
            assert await looked_at(20) == ["collect"] + ["freeze"] * (number + 2)
        settling.cancel()

    asyncio.run(watching())


def test_no_thread_keeps_the_loop_waiting_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Python's own 5 ms, which the loop waits after each call of the kernel, a request takes 50 while kernels are
    loaded."""
    usual, seen = sys.getswitchinterval(), []

    async def served(*_: object, **__: object) -> None:
        seen.append(sys.getswitchinterval())

    monkeypatch.setattr("rmqctl.network.serving.serve", served)
    some: Any = SimpleNamespace(**dict.fromkeys(serve._Places._fields) | {"on": SimpleNamespace(grpc=None)})
    serve._run(some, some, Output(), serve._Teller(print, is_json=False))
    assert seen == [pytest.approx(0.0005)]
    assert sys.getswitchinterval() == usual
