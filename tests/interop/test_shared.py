"""Members of one group, one of them Java's and one ours: each message is consumed, retried ones too; and replies."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from tests.interop.toolchain import Unavailable, clients
from tests.network.serving import serving
from tests.processes import SHORT_LIVED_JVM, start

pytestmark = pytest.mark.interop

SECONDS = 120
COUNT = 12


def test_retries_and_replies_flow_between_java_and_us(tmp_path: Path) -> None:
    try:
        tools = clients("5.3.3")
    except Unavailable as reason:
        pytest.skip(str(reason))
    lines: list[list[str]] = []
    with serving(tmp_path / "store", "--writable", "--create") as served:
        with Producer(served.namesrv) as producer:
            for topic in ("Shared", "Shared-asks"):
                for number in range(COUNT if topic == "Shared" else 1):
                    producer.send(Message(topic, b"%d" % number))
            options = [*SHORT_LIVED_JVM, f"-Duser.home={tmp_path}"]
            command: list[str | Path] = [tools.java, *options, "-cp", tools.classpath, "rmqctl.clients.Shares"]
            pipe = subprocess.PIPE
            with start(
                [*command, served.namesrv, "Shared", "shared", str(COUNT)],
                seconds=SECONDS, stdin=pipe, stdout=pipe, text=True,
            ) as java:  # fmt: skip
                assert java.stdout is not None
                assert java.stdin is not None
                out = java.stdout

                def read() -> None:
                    lines.extend(line.rstrip("\n").split("\t") for line in out)

                reading = threading.Thread(target=read)
                reading.start()
                until = time.monotonic() + SECONDS
                _answer_java(served.namesrv, producer, until)
                retried: set[str] = set()
                with Consumer(served.namesrv, "shared", "Shared", begin="first") as member:
                    while len(retried) < COUNT and time.monotonic() < until:
                        for message in member.poll(0.2):
                            if message.reconsume_times:
                                retried.add(message.body.decode())
                            else:
                                member.send_back(message, 1)
                        retried |= {line[1] for line in lines if line[0] == "got" and line[2] != "0"}
                assert sorted(map(int, retried)) == list(range(COUNT))
                reply = producer.request(Message("Shared", b"we ask"), seconds=30)
                assert reply.body == b"re: we ask"
                java.stdin.close()
                reading.join(SECONDS)
        assert served.end() == 0
        assert "Traceback" not in served.errors
    assert [line for line in lines if line[0] == "failed"] == []
    assert ["reply", "re: java asks"] in lines


def _answer_java(namesrv: str, producer: Producer, until: float) -> None:
    """Reply to the request that Java sends."""
    with Consumer(namesrv, "answers", "Shared-asks", begin="first") as consumer:
        while time.monotonic() < until:
            for message in consumer.poll(1):
                if message.properties().get("CORRELATION_ID"):
                    producer.reply(message, b"re: " + message.plain_body())
                    return
