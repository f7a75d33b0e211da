"""`produce` and `consume` with --grpc, through the official Python client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.network.serving import Served, serving
from tests.processes import start
from tests.rmqctl.looking import run

pytest.importorskip("rocketmq", reason="the extra grpc-client is not installed")

SECONDS = 60
TYPES = {"Orders": "NORMAL", "Steps": "FIFO", "Later": "DELAY", "Pay": "TRANSACTION"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = tmp_path_factory.mktemp("proxied") / "store"
    topics = [part for topic, kind in TYPES.items() for part in ("--topic", f"{topic}:{kind}:1")]
    with serving(store, "--writable", "--create", *topics, "--grpc", "127.0.0.1:0") as one:
        yield one


def _run(verb: str, home: Path, address: str | None, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """The JSON lines of a command, which leaves nothing in the home directory."""
    command = [sys.executable, "-m", "rmqctl", verb, "--grpc", str(address), "--json", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "HOME": str(home)}
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert list(home.iterdir()) == []
    return [json.loads(line) for line in (done.stderr if code else done.stdout).splitlines()]


def test_what_produce_sends_consume_prints_and_acknowledges(served: Served, tmp_path: Path) -> None:
    at = served.grpc
    (sent,) = _run(
        "produce", tmp_path, at, "-t", "Orders", "--body", "één", "--tags", "a", "-k", "k", "--property", "n=7"
    )
    assert (sent["status"], sent["topic"], sent["queue_offset"]) == ("SEND_OK", "Orders", 0)
    (step,) = _run("produce", tmp_path, at, "-t", "Steps", "--body", "1", "--order-key", "m")
    (later,) = _run("produce", tmp_path, at, "-t", "Later", "--body", "late", "--deliver-after", "1s")
    assert later.keys() == {"status", "unique_key", "topic", "recall_handle"}
    for end in ("rollback", "commit"):
        _run("produce", tmp_path, at, "-t", "Pay", "--body", end, "--transaction", end)
    (found,) = _run("consume", tmp_path, at, "-t", "Orders", "-g", "g", "--filter", "n > 5", "--limit", "1")
    assert (found["body"], found["tags"], found["keys"], found["properties"]) == ("één", "a", ["k"], {"n": "7"})
    assert (found["unique_key"], found["queue_offset"], found["crc_ok"]) == (sent["unique_key"], 0, True)
    (found,) = _run("consume", tmp_path, at, "-t", "Steps", "-g", "g", "--limit", "1")
    assert (found["message_group"], found["unique_key"]) == ("m", step["unique_key"])
    (found,) = _run("consume", tmp_path, at, "-t", "Later", "-g", "g", "--limit", "1")
    assert found["body"] == "late"
    (found,) = _run("consume", tmp_path, at, "-t", "Pay", "-g", "g", "--limit", "1")
    assert found["body"] == "commit"
    # acknowledged, and to the end: exit code 1 says that there was none
    (error,) = _run("consume", tmp_path, at, "-t", "Orders", "-g", "g", code=1)
    assert error["message"] == "topic 'Orders' has no message for group 'g'"


def test_many_come_from_a_file(served: Served, tmp_path: Path) -> None:
    lines = tmp_path / "orders.jsonl"
    rows = [{"topic": "Steps", "body": str(n), "keys": ["m"], "tags": "many"} for n in range(20)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    home = tmp_path / "home"
    home.mkdir()
    summary = {"sent": 20, "bad_lines": 0}
    assert _run("produce", home, served.grpc, "--from", str(lines), "--order-key", "@KEYS") == [summary]
    found = _run("consume", home, served.grpc, "-t", "Steps", "-g", "g-many", "--tag", "many", "--limit", "20")
    assert [one["body"] for one in found] == [row["body"] for row in rows]


def test_a_command_decides_on_each_message(served: Served, tmp_path: Path) -> None:
    at, home, seen = served.grpc, tmp_path / "home", tmp_path / "seen"
    home.mkdir()
    script = tmp_path / "script"
    script.write_text(
        f'#!/bin/sh\necho "$(cat)/$RMQCTL_TOPIC/$RMQCTL_KEYS/$RMQCTL_RECONSUME_TIMES" >> {seen}\n'
        'test "$RMQCTL_KEYS" != bad\n'
    )
    script.chmod(0o755)
    decided = ("consume", home, at, "--exec", str(script), "--max-retries", "1")
    for key in ("good", "bad"):
        for topic, own in (("Orders", ()), ("Steps", ("--order-key", "m"))):
            _run("produce", home, at, "-t", topic, "--body", "b", "--tags", "exec", "-k", key, *own)
    for topic in ("Orders", "Steps"):
        asked = (*decided, "-t", topic, "-g", f"g-exec-{topic}", "--tag", "exec")
        # the one that failed comes again after a second, and is a dead letter then
        found = _run(*asked, "--limit", "3", "--threads", "2")
        assert sorted((one["exit_status"], one["result"], one["reconsume_times"]) for one in found) == [
            (0, "success", 0), (1, "later", 0), (1, "later", 1),
        ]  # fmt: skip
        assert sorted(seen.read_text().split()) == [f"b/{topic}/bad/0", f"b/{topic}/bad/1", f"b/{topic}/good/0"]
        seen.unlink()
        # the server makes it a dead letter when its time is over, with nobody waiting for that
        end = time.monotonic() + 60
        dead: list[dict[str, Any]] = []
        while not dead and time.monotonic() < end:
            dead = run("consume", "-n", served.namesrv, "-t", f"%DLQ%g-exec-{topic}", "--json").objects
        assert [one["keys"] for one in dead] == [["bad"]]


REFUSED: list[tuple[list[str], int, str]] = [
    (["produce", "-t", "Nowhere", "--body", "x"], 1, "answered TOPIC_NOT_FOUND"),
    (["produce", "-t", "Orders", "--body", "x", "--order-key", "m"], 2, "current message type not match"),
    (["produce", "-t", "Orders", "--body", "x", "-q", "0"], 2, "--queue goes without --grpc"),
    (["produce", "-t", "Orders", "--body", "x", "--delay", "3"], 2, "--delay goes without --grpc"),
    (["produce", "-t", "Orders", "--body", "x", "--tls"], 2, "give --tls-ca FILE"),
    (["produce", "-t", "Orders", "--body", "x", "-n", "127.0.0.1:1"], 2, "--namesrv goes without --grpc"),
    (["consume", "-t", "Orders"], 2, "--grpc needs a group"),
    (["consume", "-t", "Nowhere", "-g", "g"], 1, "answered TOPIC_NOT_FOUND"),
    (["consume", "-t", "Orders", "-g", "g", "--filter", "a >"], 2, "is not an SQL92 filter"),
    (["consume", "-t", "Orders", "-g", "g", "--ordered"], 2, "--ordered goes without --grpc"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), REFUSED, ids=[" ".join(one[0][:4]) for one in REFUSED])
def test_what_it_cannot_is_refused(served: Served, tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    (error,) = _run(arguments[0], tmp_path, served.grpc, *arguments[1:], code=code)
    assert said in error["message"]


def test_a_proxy_that_is_down_is_an_error(tmp_path: Path) -> None:
    (error,) = _run("produce", tmp_path, "127.0.0.1:1", "-t", "Orders", "--body", "x", code=3)
    assert error["message"].startswith("cannot reach a proxy at 127.0.0.1:1: ")


def test_ctrl_c_ends_a_consumer_that_waits(served: Served, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rmqctl", "consume", "--grpc", str(served.grpc), "-t", "Orders", "-g", "g-wait"]
    pipe = subprocess.PIPE
    with start([*command, "-f", "--json"], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["topic"] == "Orders"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors
