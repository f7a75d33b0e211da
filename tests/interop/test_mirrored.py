"""Mirrors of real masters, and real slaves of `rmqctl serve`: byte for byte, whoever is killed meanwhile."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.store.config.config_files import read_config
from rmqctl.store.message_store import MessageStore
from tests.goldens import golden
from tests.interop import harness, replicas
from tests.interop.harness import VERSIONS
from tests.interop.replicas import Replica, broker, free_port, replica
from tests.interop.toolchain import Unavailable, clients, run, servers
from tests.network.callers import with_header
from tests.network.serving import ANY, Served, serving
from tests.processes import SHORT_LIVED_JVM, start

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

SECONDS = 120
SIZES = {key.removeprefix("store."): value for key, value in replicas.SETTINGS.items()}
SIZES.pop("enableCompaction")


@contextlib.contextmanager
def _mirroring(port: int, directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "rmqctl",
        "mirror",
        f"127.0.0.1:{port}",
        directory,
        "--json",
        *options,
    ]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _until_it_has(process: subprocess.Popen[str], directory: Path, offset: int) -> None:
    """Wait until the mirror has all before `offset`; what it said if it ended instead."""
    _until(lambda: process.poll() is not None or _has(directory, offset))
    assert process.poll() is None, process.communicate(timeout=SECONDS)


def _ended(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> Any:
    """The report of a mirror that is told to end."""
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    return json.loads(out)


def _until(holds: Callable[[], bool], seconds: float = 0.05) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(seconds)


def _has(directory: Path, offset: int) -> bool:
    """Whether the byte before `offset` has come; no record ends in a zero here."""
    size = int(SIZES["mappedFileSizeCommitLog"])
    path = directory / "commitlog" / f"{(offset - 1) // size * size:020d}"
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek((offset - 1) % size)
        return file.read(1) not in (b"", b"\0")


def _require_same_log(master: Path, copy: Path, files: int = 3) -> None:
    there = {path.name: path.read_bytes() for path in (master / "commitlog").iterdir()}
    here = {path.name: path.read_bytes() for path in (copy / "commitlog").iterdir()}
    # a file that was made ahead holds nothing
    assert {name: data for name, data in here.items() if any(data)} == {
        name: data for name, data in there.items() if any(data)
    }
    assert len(there) >= files


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_master_is_mirrored_whoever_is_killed(version: str, tmp_path: Path) -> None:
    store, mirror, port = tmp_path / "master", tmp_path / "mirror", free_port()
    sizes = ["-c", str(_broker_conf(tmp_path))]
    with replica(version, store, "ASYNC_MASTER", port) as master:
        end = master.tell("put plain 150")
        with _mirroring(port, mirror, *sizes) as process:
            # while it writes; killed in the middle
            writing = threading.Thread(target=lambda: [master.tell("put plain 40") for _ in range(10)])
            writing.start()
            _until_it_has(process, mirror, end)
            process.kill()
            writing.join()
        end = master.tell("put batch 10")
        with _mirroring(port, mirror, "--acknowledge", *sizes) as process:
            _until_it_has(process, mirror, end)
            # the master dies and comes back
            master.kill()
            with replica(version, store, "ASYNC_MASTER", port) as again:
                end = again.tell("put delay 300")
                _until_it_has(process, mirror, end)
                report = _ended(process)
                again.stop()
    assert report["connections"] > 1
    assert (report["end_offset"], report["commitlog_file_size"]) == (end, 65536)
    _require_same_log(store, mirror)
    with MessageStore.open(mirror) as opened:
        assert list(opened.check()) == []
    view = harness.open_store(version, mirror, replicas.SETTINGS)
    assert view.complaints() == []
    assert (view.max_offset, len(view.messages)) == (end, report["messages"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_slave_follows_our_master(version: str, tmp_path: Path) -> None:
    store, slave = tmp_path / "master", tmp_path / "slave"
    with _serving(store) as served, Producer(served.namesrv) as producer:
        assert producer.send(Message("Orders", b"alone")).status == "SLAVE_NOT_AVAILABLE"
        with replica(version, slave, "SLAVE") as running:
            running.tell(f"follow {served.slaves}")
            _send_waiting(producer, 400)
            running.kill()
        # it comes back, and goes on
        with replica(version, slave, "SLAVE") as running:
            running.tell(f"follow {served.slaves}")
            _send_waiting(producer, 100)
            assert served.end() == 0
            running.stop()
    _require_same_log(store, slave)
    view = harness.open_store(version, slave, replicas.SETTINGS)
    assert view.complaints() == []
    assert sum(message.topic == "Orders" for message in view.messages) >= 500


@contextlib.contextmanager
def _serving(store: Path) -> Iterator[Served]:
    conf = _broker_conf(store.parent, brokerRole="SYNC_MASTER")
    with serving(store, "--writable", "--create", "-c", str(conf), "--ha-listen", ANY) as served:
        yield served
    assert "Traceback" not in served.errors


def _broker_conf(folder: Path, **more: str) -> Path:
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in {**SIZES, **more}.items()), encoding="ascii")
    return conf


def _send_waiting(producer: Producer, count: int) -> None:
    """Messages that the slave has when they are answered, once it is there."""
    _until(lambda: producer.send(Message("Orders", b"there?")).status == "SEND_OK", 0.5)
    assert {producer.send(Message("Orders", bytes(300))).status for _ in range(count)} == {"SEND_OK"}


@pytest.fixture(scope="module")
def whole_broker() -> None:
    try:
        servers("5.3.3")
    except Unavailable as reason:
        pytest.skip(str(reason))


def _conf(namesrv: str, **more: str) -> dict[str, str]:
    names = {"brokerClusterName": "DefaultCluster", "namesrvAddr": namesrv, "brokerIP1": "127.0.0.1"}
    ports = {"listenPort": str(free_port()), "haListenPort": str(free_port())}
    return {**SIZES, **names, **ports, **more}


@pytest.mark.usefixtures("whole_broker")
def test_a_whole_broker_is_the_slave_of_ours(tmp_path: Path) -> None:
    store, slave = tmp_path / "master", tmp_path / "slave"
    with _serving(store) as served, Producer(served.namesrv) as producer:
        conf = _conf(served.namesrv, brokerRole="SLAVE", brokerId="1", brokerName="broker-a")
        with broker(slave, conf) as running:
            _send_waiting(producer, 300)
            with Consumer(served.namesrv, "billing", "Orders", begin="first") as consumer:
                _until(lambda: bool(consumer.poll(1)))
                consumer.commit()
            offsets = slave / "config" / "consumerOffset.json"
            _until(lambda: b"Orders@billing" in (offsets.read_bytes() if offsets.exists() else b""))
            route = Client(served.namesrv).ask(served.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body.decode()
            assert f'1:"127.0.0.1:{conf["listenPort"]}"' in route
            assert served.end() == 0
            running.stop()
        assert "not supported" not in "".join(running.log)
    _require_same_log(store, slave)
    topics = [read_config(root / "config/topics.json")["topicConfigTable"] for root in (store, slave)]
    assert topics[0].keys() <= topics[1].keys()


@pytest.mark.usefixtures("whole_broker")
def test_a_whole_broker_is_mirrored_and_starts_on_the_mirror(tmp_path: Path) -> None:
    store, mirror = tmp_path / "master", tmp_path / "mirror"
    with serving(golden("clean", tmp_path)) as names:
        conf = _conf(names.namesrv, brokerRole="ASYNC_MASTER", brokerName="broker-b")
        at = f"127.0.0.1:{conf['listenPort']}"
        with broker(store, conf) as master:
            _create(at, names.namesrv, "Plainx", "Orderedx", "Payx")
            with _mirroring(master.port, mirror, "--broker", at) as process:
                _produce(names.namesrv, tmp_path)
                end = _quiet(master)
                _until_it_has(process, mirror, end)
                report = _ended(process)
            # once more, to the end
            with _mirroring(master.port, mirror, "--broker", at, "--exit-at-end") as process:
                _, err = process.communicate(timeout=SECONDS)
                assert process.returncode == 0, err
            end = master.tell("stop")
        assert report["config_files"] == [
            "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json",
        ]  # fmt: skip
        _require_same_log(store, mirror, 1)
        for name, table in (("topics", "topicConfigTable"), ("subscriptionGroup", "subscriptionGroupTable")):
            ours, theirs = (read_config(root / f"config/{name}.json")[table] for root in (mirror, store))
            assert ours == theirs
        with MessageStore.open(mirror) as opened:
            assert list(opened.check()) == []
        with broker(mirror, conf | {"listenPort": str(free_port())}) as running:
            assert running.tell("end") >= end
            offsets = read_config(mirror / "config/consumerOffset.json")["offsetTable"]
            assert sum(offsets["Plainx@plainx"].values()) > 0
            running.stop()


def _create(at: str, namesrv: str, *topics: str) -> None:
    """Topics that clients find: a broker tells the name server of them when it has answered."""
    client = Client(namesrv)
    for topic in topics:
        queues = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "defaultTopic": "TBW102"}
        client.ask(
            at,
            *with_header(
                RequestCode.UPDATE_AND_CREATE_TOPIC, queues | {"topicFilterType": "SINGLE_TAG", "order": False}
            ),
        )
    # after the last of these all others are made; a store that is served has a route of TBW102, too
    _until(lambda: all(at in str(client.route(topic, anew=True)) for topic in (*topics, "TBW102")), 0.5)
    client.close()


def _produce(namesrv: str, folder: Path) -> None:
    """Every kind of message by RocketMQ's own producers and consumers."""
    tools = clients("5.3.3")
    options = [*SHORT_LIVED_JVM, f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"]
    done = run([tools.java, *options, "-cp", tools.classpath, "rmqctl.clients.Produce", namesrv, "x", "45"], SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SEND_OK") > 30


def _quiet(master: Replica) -> int:
    """Where the log ends when nothing comes any more."""
    end = -1
    while end != (now := master.tell("end")):
        end = now
        time.sleep(3)
    return end
