"""Members of one group, Java's and ours: each message is consumed, retried ones too; and replies."""

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
from typing import TextIO

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode, parse_body
from tests.interop.toolchain import Unavailable, clients
from tests.network.callers import with_header
from tests.network.serving import Served, serving
from tests.processes import SHORT_LIVED_JVM, start
from tests.quick import sample

pytestmark = pytest.mark.interop

SECONDS = 120
COUNT = 12


OLDEST, NEWEST = "4.9.8", "5.5.0"
"""Clients. request() of 5.3.3 counts the broker's answer to its send as the reply, and ends with a timeout at once."""


class _Member:
    """A Java member of a group (Shares.java), and the lines that it has printed, as columns."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self.lines: list[list[str]] = []
        self._reading = threading.Thread(target=self._read, args=(process.stdout,))
        self._reading.start()

    def _read(self, out: TextIO) -> None:
        self.lines.extend(line.rstrip("\n").split("\t") for line in out)

    def got(self, *, again: bool) -> set[str]:
        """Return the bodies that came for the first time, or `again`."""
        return {line[1] for line in list(self.lines) if line[0] == "got" and (line[2] != "0") is again}

    def leave(self) -> None:
        """Have it leave the group and end."""
        self._stdin.close()
        self._reading.join(SECONDS)


@contextlib.contextmanager
def _member(folder: Path, served: Served, *arguments: str, version: str = OLDEST) -> Iterator[_Member]:
    try:
        tools = clients(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    options = [*SHORT_LIVED_JVM, f"-Duser.home={folder}"]
    command: list[str | Path] = [
        tools.java,
        *options,
        "-cp",
        tools.classpath,
        "rmqctl.clients.Shares",
        served.namesrv,
        *arguments,
    ]
    with start(command, seconds=SECONDS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield _Member(process)


@pytest.mark.parametrize("version", sample([OLDEST, NEWEST], [NEWEST]))
def test_retries_and_replies_flow_between_java_and_us(version: str, tmp_path: Path) -> None:
    with serving(tmp_path / "store", "--writable", "--create") as served, Producer(served.namesrv) as producer:
        for topic in ("Shared", "Shared-asks"):
            for number in range(COUNT if topic == "Shared" else 1):
                producer.send(Message(topic, b"%d" % number))
        with _member(tmp_path, served, "Shared", "shared", "1", "asks", version=version) as java:
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
                    retried |= java.got(again=True)
            assert sorted(map(int, retried)) == list(range(COUNT))
            reply = producer.request(Message("Shared", b"we ask"), seconds=30)
            assert reply.body == b"re: we ask"
            # the answer to its send comes after the reply has been pushed
            _wait(lambda: ["replied", "we ask"] in java.lines, until)
            java.leave()
        assert served.end() == 0
        assert "Traceback" not in served.errors
    assert [line for line in java.lines if line[0] == "failed"] == []
    assert ["reply", "re: java asks"] in java.lines


@pytest.mark.parametrize(("leaver", "is_exec"), [("java", False), ("rmqctl", False), ("java", True)])
def test_every_failed_message_comes_back_when_a_member_leaves(leaver: str, is_exec: bool, tmp_path: Path) -> None:
    """Java fails eight messages, `consume -g` joins, and one of them leaves when the first one has come back."""
    with serving(tmp_path / "store", "--writable", "--create") as served:
        with Producer(served.namesrv) as producer:
            for number in range(8):
                producer.send(Message("Fails", b"%d" % number))
        until = time.monotonic() + SECONDS
        seen = tmp_path / "seen"
        command = [sys.executable, "-m", "rmqctl", "consume", "-n", served.namesrv, "-t", "Fails", "-g", "fails", "-f"]
        if is_exec:
            script = tmp_path / "script"
            row = '{"body": "%s", "reconsume_times": %s}\\n'
            script.write_text(f"#!/bin/sh\nprintf '{row}' \"$(cat)\" $RMQCTL_RECONSUME_TIMES >> {seen}\n")
            script.chmod(0o755)
            command += ["--exec", str(script)]
        # 10 s, in which the other member comes
        seen.touch()
        rows = tmp_path / "rows" if is_exec else seen
        with _member(tmp_path, served, "Fails", "fails", "3") as java, rows.open("w") as out:
            _wait(lambda: len(java.got(again=False)) == 8, until)
            with start([*command, "--json"], seconds=SECONDS, stdout=out, stderr=subprocess.PIPE, text=True) as ours:
                _wait(lambda: _members(served, "fails") == 2, until)
                _wait(lambda: bool(java.got(again=True) | _seen(seen)), until)
                if leaver == "java":
                    java.leave()
                else:
                    ours.send_signal(signal.SIGINT)
                    ours.communicate(timeout=SECONDS)
                _wait(lambda: len(java.got(again=True) | _seen(seen)) == 8, until)
                if leaver == "java":
                    ours.send_signal(signal.SIGINT)
                    _, said = ours.communicate(timeout=SECONDS)
                    assert "1 live member (" in said
            if leaver != "java":
                java.leave()
        assert served.end() == 0
        assert "Traceback" not in served.errors


def _seen(file: Path) -> set[str]:
    """Return the bodies of retried messages that `consume --json` has printed."""
    whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
    rows = [json.loads(line) for line in whole.splitlines()]
    return {row["body"] for row in rows if row["reconsume_times"]}


def _members(served: Served, group: str) -> int:
    client = Client(served.namesrv)
    body = client.ask(
        served.broker,
        *with_header(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
    ).body
    client.close()
    return len(parse_body(body)["consumerIdList"])


def _wait(is_so: Callable[[], bool], until: float) -> None:
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


def _answer_java(namesrv: str, producer: Producer, until: float) -> None:
    """Reply to the request that Java sends."""
    with Consumer(namesrv, "answers", "Shared-asks", begin="first") as consumer:
        while time.monotonic() < until:
            for message in consumer.poll(1):
                if message.properties().get("CORRELATION_ID"):
                    producer.reply(message, b"re: " + message.plain_body())
                    return
