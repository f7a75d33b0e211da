"""A consumer is started before its brokers, and ends after them: it waits for them, and says what is not committed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.errors import RefusedError, RemoteError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.channel import Answers, SocketChannel
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, PushSettings
from rmqctl.network.remoting.codec import RequestCode, bean, fastjson
from rmqctl.network.serving import ListeningBroker
from rmqctl.network.topic_config import TopicConfig
from tests.network.callers import with_header
from tests.network.serving import free_pair, serving, serving_here
from tests.network.test_client_manners import CONFIG
from tests.processes import start
from tests.rmqctl.looking import run

LIMIT = 60.0


class _Taking:
    """A consumer of either kind, and what it took and said."""

    def __init__(self, kind: str, namesrv: str, group: str, topic: str, **more: object) -> None:
        self.bodies: list[bytes] = []
        self.said: list[str] = []
        self.consumer: Consumer | PushConsumer
        if kind == "lite":
            self.consumer = Consumer(namesrv, group, topic, begin="first", warn=self.said.append, **more)  # type: ignore[arg-type]
        else:
            settings = PushSettings(rebalance_seconds=0.2, first_pull_seconds=0.0, error_seconds=0.1)
            options = MemberOptions(begin="first", warn=self.said.append, **more)  # type: ignore[arg-type]
            self.consumer = PushConsumer(namesrv, group, {topic: "*"}, self._take, settings=settings, options=options)

    def _take(self, messages: Sequence[StoredMessage], context: object) -> ConsumeStatus:
        self.bodies += [one.body for one in messages]
        return ConsumeStatus.CONSUME_SUCCESS

    def look(self, seconds: float = 0.1) -> None:
        if isinstance(self.consumer, Consumer):
            self.bodies += [one.body for one in self.consumer.poll(seconds)]
        else:
            time.sleep(seconds)

    def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT
        while not is_so():
            assert time.monotonic() < end, (self.bodies, self.said)
            self.look()


KINDS = pytest.mark.parametrize("kind", ["lite", "push"])


@KINDS
def test_a_consumer_waits_for_brokers_and_topics_that_come_later(kind: str, tmp_path: Path) -> None:
    names_port, port = free_pair()
    address = f"127.0.0.1:{names_port + 1}"
    taking = _Taking(kind, address, "early", "Late")
    with contextlib.ExitStack() as stack:
        stack.enter_context(taking.consumer)
        taking.look(0.5)
        assert taking.bodies == []
        (line,) = taking.said
        assert f"{address} cannot be reached" in line
        options = ("--writable", "--create", "--listen", f"127.0.0.1:{port}", "--namesrv", address)
        served = stack.enter_context(serving(tmp_path / "store", *options))
        taking.until(lambda: any("no broker has messages of topic 'Late'" in line for line in taking.said))
        with Producer(served.namesrv) as producer:
            producer.send(Message("Late", b"x"))
        taking.until(lambda: taking.bodies == [b"x"])
        taking.consumer.close()
        assert served.end() == 0


def test_messages_up_to_the_end_wait_for_a_topic(tmp_path: Path) -> None:
    with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
        timer = threading.Timer(0.5, lambda: producer.send(Message("Late", b"x")))
        timer.start()
        with Consumer(served.namesrv, "end", "Late", begin="first") as consumer:
            assert [one.body for one in consumer.messages(to_the_end=True)] == [b"x"]
        timer.join()


@KINDS
@pytest.mark.parametrize("namesrv", ["nonsense", "", "127.0.0.1:0"])
def test_a_wrong_address_is_an_error_at_once(kind: str, namesrv: str) -> None:
    taking = _Taking(kind, namesrv, "wrong", "Any")
    with pytest.raises(RemoteError, match=r"is no address|no name server is given"), taking.consumer:
        taking.look()


@KINDS
def test_a_limit_makes_the_first_contact_an_error(kind: str) -> None:
    taking = _Taking(kind, "127.0.0.1:1", "limited", "Any", failing_seconds=30.0)
    with pytest.raises(RemoteError, match=r"127\.0\.0\.1:1 cannot be reached"), taking.consumer:
        taking.look()


@contextlib.contextmanager
def _beside_a_dead_broker(path: Path, topic: str) -> Iterator[ListeningBroker]:
    """A broker with four queues of a topic, beside one, first by its name, that its name server thinks is there."""
    with serving_here(path, CONFIG, {}, name="broker-b") as served:
        with Producer(served.namesrv) as producer:
            for number, queue in enumerate(producer.queues(topic)):
                producer.send(Message(topic, b"%d" % number), queue)
        client = Client(served.namesrv)
        table = {topic: TopicConfig(topic, 4, 4).as_bean()}
        body = fastjson(bean(filterServerList=[], topicConfigSerializeWrapper=bean(topicConfigTable=table)))
        fields = {
            "brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster", "brokerId": 0,
            "haServerAddr": "127.0.0.1:0", "compressed": False, "bodyCrc32": body_crc(body),
        }  # fmt: skip
        client.ask(served.namesrv, *with_header(RequestCode.REGISTER_BROKER, fields), body)
        yield served
        client.close()


@KINDS
def test_a_broker_that_is_away_keeps_back_no_queue_of_the_others(kind: str, tmp_path: Path) -> None:
    with _beside_a_dead_broker(tmp_path / "store", "Half") as served:
        taking = _Taking(kind, served.namesrv, "half", "Half")
        with taking.consumer:
            taking.until(lambda: len(taking.bodies) >= 4)
            assert sorted(taking.bodies) == [b"0", b"1", b"2", b"3"]
            taking.until(lambda: any("127.0.0.1:1 cannot be reached" in line for line in taking.said))


def test_a_group_that_must_not_be_joined_is_refused_when_its_broker_comes(tmp_path: Path) -> None:
    is_there = threading.Event()

    def dial(address: str, answers: Answers) -> SocketChannel:
        if not is_there.is_set():
            raise RemoteError(f"{address} is away")
        return SocketChannel(address, answers)

    with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
        for topic in ("Here", "There"):
            producer.send(Message(topic, b"x"))
        late = _Taking("push", served.namesrv, "theirs", "Here", dial=dial)
        assert isinstance(late.consumer, PushConsumer)
        with late.consumer, _Taking("push", served.namesrv, "theirs", "There").consumer as member:
            is_there.set()
            with pytest.raises(RefusedError, match="they subscribe There '\\*'; this one subscribes Here"):
                late.consumer.wait()
            assert (late.consumer.queues, late.bodies) == ([], [])
            assert isinstance(member, PushConsumer)
            assert member.queues


@KINDS
def test_the_end_says_which_offsets_are_not_committed(kind: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as ends:
        with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
            producer.send(Message("Ends", b"x"), producer.queues("Ends")[2])
            taking = _Taking(kind, served.namesrv, "ends", "Ends")
            ends.enter_context(taking.consumer)
            taking.until(lambda: taking.bodies == [b"x"])
        ends.close()
    (line,) = [line for line in taking.said if "not committed" in line]
    assert "offset 1 of Ends queue 2 is not committed: " in line


def test_without_anybody_to_warn_the_log_has_what_is_not_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as ends:
        with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
            producer.send(Message("Ends", b"x"), producer.queues("Ends")[2])
            consumer = ends.enter_context(Consumer(served.namesrv, "ends", "Ends", begin="first"))
            assert consumer.poll(LIMIT)
        ends.close()
    assert [one.name for one in caplog.records if "offset 1 of Ends queue 2 is not committed" in one.message] == [
        "rmqctl.network"
    ]


def _ends_without_its_broker(store: Path) -> tuple[int, str]:
    """Exit code and talk of a `consume` that is interrupted once its broker was killed."""
    with serving(store, "--writable", "--create") as served:
        with Producer(served.namesrv) as producer:
            producer.send(Message("Ends", b"x"), producer.queues("Ends")[2])
        command = [sys.executable, "-m", "rmqctl", "consume", "-n", served.namesrv, "-t", "Ends", "-g", "ends", "-f"]
        pipe = subprocess.PIPE
        with start([*command, "--json"], seconds=LIMIT, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            assert '"x"' in process.stdout.readline()
            served.end(signal.SIGKILL)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT)
    return process.returncode, errors


def test_consume_says_at_its_end_which_offsets_are_not_committed(tmp_path: Path) -> None:
    # on a busy machine the broker may have got the offset of the 5 s before it was killed, or the message was not yet
    # consumed: then once more
    for number in range(10):
        code, errors = _ends_without_its_broker(tmp_path / str(number))
        assert code == 130
        if "not committed" in errors:
            break
    assert "offset 1 of Ends queue 2 is not committed: " in errors


def test_consume_fails_where_it_could_not_commit_what_it_handed_on(tmp_path: Path) -> None:
    with serving(tmp_path / "store", "--writable", "--create") as served:
        with Producer(served.namesrv) as producer:
            producer.send(Message("Ends", b"x"), producer.queues("Ends")[2])
        code, out, err = run(
            "consume", "-n", served.namesrv, "-t", "Ends", "-g", "ends", "--limit", "1",
            "--exec", f"kill -9 {served.process.pid}",
        )  # fmt: skip
    assert (code, "success" in out) == (3, True)
    assert "offset 1 of Ends queue 2 is not committed: " in err
    assert "the offsets of 1 queue are not committed: messages come again" in err
