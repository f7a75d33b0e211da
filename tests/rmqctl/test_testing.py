"""A RocketMQ for the tests of others, as they use it: seeded, asked, moved in time, and failing as they want."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, RemoteError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.serving import ListeningBroker
from rmqctl.store.message_store import MessageStore
from rmqctl.testing import RocketMQ
from tests.processes import ROOT
from tests.processes import run as run_process
from tests.rmqctl.looking import run


@pytest.fixture(scope="module")
def shared() -> Iterator[RocketMQ]:
    with RocketMQ("Typed:FIFO:2") as made:
        yield made


def test_what_is_sent_is_consumed_and_stands_in_the_store(shared: RocketMQ) -> None:
    sent = shared.send("Orders", "one", tags="paid", keys=["k1"])
    (kept,) = shared.expect("Orders")
    assert (kept.body, kept.properties()["UNIQ_KEY"]) == (b"one", sent.unique_key)
    with shared.consumer("checking", "Orders") as consumer:
        (got,) = consumer.poll(20)
        assert (got.body, got.queue_offset) == (b"one", sent.queue_offset)
        consumer.poll(0)
    shared.expect_consumed("checking", "Orders")
    with pytest.raises(AssertionError, match="0 messages in Nowhere instead of 1"):
        shared.expect("Nowhere", seconds=0)
    with pytest.raises(AssertionError, match="other has not committed 1 messages"):
        shared.expect_consumed("other", "Orders", seconds=0)
    assert {"Orders", "Typed"} <= {row["topic"] for row in run("topics", "-n", shared.namesrv, "--json").objects}
    assert shared.reports == []


def test_delays_and_retries_come_when_time_moves(shared: RocketMQ) -> None:
    shared.send("Later", "in an hour", delay_level=17)
    shared.send("Later", "at a time", properties={"TIMER_DELAY_SEC": "7200"})
    shared.expect("Later", 0, seconds=0)
    shared.forward(3600)
    assert [one.body for one in shared.expect("Later")] == [b"in an hour"]
    shared.forward(3600)
    shared.expect("Later", 2)
    tries: list[int] = []

    def fail_once(messages: Sequence[StoredMessage], context: object) -> ConsumeStatus:
        tries.append(messages[0].reconsume_times)
        return ConsumeStatus.CONSUME_SUCCESS if len(tries) > 1 else ConsumeStatus.RECONSUME_LATER

    shared.send("Tried", "x")
    options = MemberOptions(begin="first")
    with PushConsumer(shared.namesrv, "tries", {"Tried": "*"}, fail_once, options=options):
        shared.expect("SCHEDULE_TOPIC_XXXX", 2)
        shared.forward(10)
        end = time.monotonic() + 30
        while len(tries) < 2 and time.monotonic() < end:
            time.sleep(0.02)
    assert tries == [0, 1]


def test_requests_fail_as_a_test_wants(shared: RocketMQ) -> None:
    send = RequestCode.SEND_MESSAGE_V2
    with shared.producer() as producer:
        producer.send(Message("Faults", b"first"))
        with shared.refusing(send, code=14), pytest.raises(RemoteError, match="refused for a test"):
            producer.send(Message("Faults", b"refused"))
        with shared.dropping(send), pytest.raises(RemoteError):
            producer.send(Message("Faults", b"dropped"), seconds=0.3)
        with shared.delaying(0.3, send):
            begun = time.monotonic()
            producer.send(Message("Faults", b"late"))
            assert time.monotonic() - begun >= 0.25
        shared.restart()
        producer.send(Message("Faults", b"after"))
    assert sorted(one.body for one in shared.expect("Faults", 3)) == [b"after", b"first", b"late"]


def test_starts_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = threading.active_count()
    for _ in range(3):
        with RocketMQ() as made:
            made.send("T", "x")
            made.expect("T")
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_pytest_finds_the_fixture_where_it_is_installed(tmp_path: Path) -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert '[project.entry-points.pytest11]\nrmqctl = "rmqctl.testing"' in project.read_text("utf-8")
    source = "def test_it(rocketmq):\n    rocketmq.send('T', 'x')\n    rocketmq.expect('T')\n"
    (tmp_path / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_where_it_cannot_listen_that_is_raised_and_nothing_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with MessageStore.open(tmp_path / "store", "rw", create=True) as store:
        with pytest.raises(RefusedError, match="cannot listen at"):
            ListeningBroker(store, host="192.0.2.1").__enter__()
        assert not [one for one in set(threading.enumerate()) - before if one.name == "rmqctl-broker"]
    end = time.monotonic() + 60
    while (left := set(threading.enumerate()) - before) and time.monotonic() < end:
        # the thread of an executor ends when that is collected
        gc.collect()
        time.sleep(0.05)
    assert not left


def test_the_example_project_tests_itself_with_the_official_client(tmp_path: Path) -> None:
    pytest.importorskip("rocketmq", reason="the extra grpc-client is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "examples" / "orders")]
    # the client makes a folder for its logs at home
    given = {**os.environ, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}
    done = run_process(command, seconds=120, cwd=ROOT / "examples" / "orders", env=given)
    assert done.returncode == 0, done.stdout + done.stderr
