"""`serve --grpc` as a process: the official Python client, unmodified; a golden store that is only read; TLS."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path

import grpc
import pytest

from rmqctl.network.grpc.protocol import Code, v2
from tests import goldens
from tests.network.certificates import certificate
from tests.network.grpc import signing
from tests.network.grpc.calling import Client
from tests.network.serving import ANY, serving
from tests.processes import run

_SCRIPT = """
import json, sys
from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

endpoints, topic = sys.argv[1:3]
configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
producer = Producer(configuration, (topic,))
producer.startup()
message = Message()
message.topic, message.body, message.tag, message.keys = topic, b"hello", "T", "k"
message.add_property("a", "b")
sent = producer.send(message)
consumer = SimpleConsumer(configuration, "g-grpc", {topic: FilterExpression("T")})
consumer.startup()
found = consumer.receive(16, 15)
for one in found:
    consumer.ack(one)
print(json.dumps([[one.body.decode(), one.tag, one.properties, one.message_id == sent.message_id] for one in found]))
consumer.shutdown()
producer.shutdown()
"""


def test_the_official_client_sends_receives_and_acknowledges(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="the extra grpc is not installed")
    script = tmp_path / "client.py"
    script.write_text(_SCRIPT)
    options = ("--writable", "--create", "--topic", "T:NORMAL:1", "--grpc", ANY)
    with serving(tmp_path / "store", *options) as served:
        assert served.grpc is not None
        # it makes a folder for its log in the home directory
        home = {**os.environ, "HOME": str(tmp_path)}
        ended = run([sys.executable, script, served.grpc, "T"], env=home)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout) == [["hello", "T", {"a": "b"}, True]]
        assert served.end() == 0
    assert "failed" not in served.errors


def test_a_store_that_is_only_read_hands_its_messages_out(tmp_path: Path) -> None:
    store = goldens.golden("broker-real", tmp_path)
    before = goldens.tree_state(store)
    with serving(store, "--grpc", ANY) as served:
        client = Client(str(served.grpc))
        settings = client.consume("g", Orders="*")
        assert settings.subscription.fifo is False
        route = client.QueryRoute(topic=v2.Resource(name="Orders"), endpoints=client.endpoints)
        assert {queue.permission for queue in route.message_queues} == {2}
        first = client.receive("g", "Orders", batch_size=8)
        assert len(first) == 8
        found = list(first)
        while len(found) < 60:
            found += client.receive("g", "Orders")
        assert len({one.system_properties.message_id for one in found}) == 60
        assert client.ack("g", *found[:30]).status.code == Code.OK
        assert client.ack("g", found[0]).status.code == Code.OK
        assert client.ack("h", found[30]).status.code == Code.INVALID_RECEIPT_HANDLE
        changed = client.change("g", found[30], 1)
        assert changed.status.code == Code.OK
        assert client.ack("g", found[30]).status.code == Code.INVALID_RECEIPT_HANDLE
        (again,) = client.receive("g", "Orders")
        assert again.system_properties.message_id == found[30].system_properties.message_id
        assert again.system_properties.delivery_attempt == 2
        assert client.forward("g", again).status.code == Code.FORBIDDEN
        sent = client.send("Orders", b"x", message_type=2, message_group="g")
        assert "for reading only" in sent.status.message
        client.close()
        assert served.end() == 0
    assert goldens.tree_state(store) == before


def test_calls_and_pops_are_counted(tmp_path: Path) -> None:
    options = ("--writable", "--create", "--topic", "T", "--grpc", ANY, "--metrics", ANY)
    with serving(tmp_path / "store", *options) as served:
        client = Client(str(served.grpc))
        client.produce("T")
        client.send("T", b"one", b"two")
        client.send("Nowhere", b"x")
        found = client.receive("g", "T")
        while len(found) < 2:
            found += client.receive("g", "T")
        client.ack("g", found[0])
        page = urllib.request.urlopen(f"http://{served.metrics}/metrics", timeout=30).read().decode()
        told = json.loads(served.process.stderr.readline())  # type: ignore[union-attr]
        client.close()
        assert served.end() == 0
    samples = dict(line.rpartition(" ")[::2] for line in page.splitlines() if line[0] != "#")
    wanted = {
        ("SendMessage", "OK"): 1,
        ("SendMessage", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"): 1,
        ("AckMessage", "OK"): 1,
    }
    for (call, status), count in wanted.items():
        assert samples[f'rmqctl_grpc_calls_total{{call="{call}",status="{status}"}}'] == str(count)
    assert (samples["rmqctl_grpc_clients"], samples["rmqctl_pop_messages"]) == ("1", "1")
    assert int(samples["rmqctl_grpc_received_bytes_total"]) > 0
    assert int(samples["rmqctl_grpc_sent_bytes_total"]) > 0
    assert told["requests"] > 0


def test_one_port_is_for_those_who_speak_tls_and_those_who_do_not(tmp_path: Path) -> None:
    shown = certificate(tmp_path, alternatives="IP:127.0.0.1")
    tls = ("--tls-cert", str(shown.certificate), "--tls-key", str(shown.key))
    with serving(tmp_path / "store", "--writable", "--create", "--topic", "T", "--grpc", ANY, *tls) as served:
        credentials = grpc.ssl_channel_credentials(shown.certificate.read_bytes())
        encrypted, plain = Client(str(served.grpc)), Client(str(served.grpc))
        encrypted.channel = grpc.secure_channel(str(served.grpc), credentials)
        body = bytes(range(256)) * 4096
        for client in (encrypted, plain):
            client.produce("T")
            assert client.send("T", body).status.code == Code.OK
            (message,) = client.receive("g", "T")
            assert message.body == body
            assert message.system_properties.born_host.startswith("127.0.0.1:")
            assert client.ack("g", message).status.code == Code.OK
            client.close()
        assert served.end() == 0
    assert "failed" not in served.errors


def test_users_are_asked_for_by_calls_as_well(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(signing.PLAIN_ACL)
    topics = [option for topic in signing.TOPICS for option in ("--topic", f"{topic}:NORMAL:1")]
    users = ("--auth", str(tmp_path / "plain_acl.yml"))
    with serving(tmp_path / "store", "--writable", "--create", *users, *topics, "--grpc", ANY) as served:
        assert served.grpc is not None
        signing.check(served.grpc)
        assert served.end() == 0
    assert "failed" not in served.errors
