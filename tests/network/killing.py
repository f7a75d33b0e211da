"""`rmqctl serve --writable` killed in the middle of its work, again and again: what was acknowledged is never lost.

Producers of all kinds send, a consumer commits, and then there is no server any more. After each kill the store is
recovered, and held against what was acknowledged; in the end a server delivers what still waits.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from pathlib import Path

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer, SendResult
from rmqctl.store.answers.undispatched import HALF_TOPIC, OP_TOPIC, ended_offsets
from rmqctl.store.config.config_files import read_config
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from tests.network.serving import serving

CONF = """mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
transactionTimeOut=500
transactionCheckInterval=500
transactionCheckMax=1000
flushConsumerOffsetInterval=200
flushDelayOffsetInterval=200
"""
THREADS = 4
LIMIT = 60


class Load:
    """Producers of all kinds and a consumer of one broker, until it is gone; and what they were told."""

    def __init__(self, namesrv: str, kill: int) -> None:
        self.namesrv = namesrv
        self.kill = kill
        self.lock = threading.Lock()
        # acknowledged bodies, by topic: what has to be there
        self.sent: dict[str, list[bytes]] = {"Plain": [], "Later": [], "Timed": [], "Half": []}
        self.consumed = 0
        # a consumer waits for its broker for ever, as RocketMQ's does: only the test knows that it will not come back
        self.over = threading.Event()
        with Producer(namesrv) as producer:
            # now there is a topic to consume
            # however busy the machine is: there is no load yet that a kill could be in the middle of
            first = Message("Plain", b"first %d" % kill)
            self._note_sent("Plain", first.body, producer.send(first, seconds=LIMIT))
        self.threads = [threading.Thread(target=self._send, args=(number,)) for number in range(THREADS)]
        self.threads.append(threading.Thread(target=self._consume))
        for thread in self.threads:
            thread.start()

    def _send(self, number: int) -> None:
        with contextlib.suppress(RmqctlError), Producer(self.namesrv, "P") as producer:
            producer.answer_checks(lambda message: True)
            for count in range(1_000_000):
                body = b"%d-%d-%d" % (self.kill, number, count)
                if count % 10 == 3:
                    producer.send(Message("Later", body, properties={"DELAY": "1"}))
                    self._note("Later", body)
                elif count % 10 == 7:
                    producer.send(Message("Timed", body, properties={"TIMER_DELAY_MS": "1500"}))
                    self._note("Timed", body)
                elif count % 10 == 5:
                    self._send_half(producer, body)
                else:
                    self._note_sent("Plain", body, producer.send(Message("Plain", body)))

    def _send_half(self, producer: Producer, body: bytes) -> None:
        """A half message, for whose end the broker has to ask."""
        result = producer.send_in_transaction(Message("Pay", body), lambda message: None)
        self._note_sent("Half", body, result)

    def _note_sent(self, topic: str, body: bytes, result: SendResult) -> None:
        if result.status == "SEND_OK":
            self._note(topic, body)

    def _note(self, topic: str, body: bytes) -> None:
        with self.lock:
            self.sent[topic].append(body)

    def _consume(self) -> None:
        with contextlib.suppress(RmqctlError), Consumer(self.namesrv, "g", "Plain", begin="first") as consumer:
            while not self.over.is_set():
                self.consumed += len(consumer.poll(0.2))
                consumer.commit()

    def wait(self) -> None:
        """Until producers and consumer have seen that the server is gone."""
        self.over.set()
        for thread in self.threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), thread.name


def _all(store: MessageStore, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for queue in store.reader.queues(topic):
        offset = 0
        while offset < queue.max_offset:
            result = store.get(topic, queue.queue_id, offset)
            assert result.damaged == []
            offset = result.next_offset
            found += [message.body for message in result.messages]
    return found


def _require_all(path: Path, sent: dict[str, set[bytes]]) -> None:
    """What was acknowledged is in the store, and no committed offset is beyond the log."""
    with MessageStore.open(path) as store:
        assert sent["Plain"] <= set(_all(store, "Plain"))
        waiting = set(_all(store, "SCHEDULE_TOPIC_XXXX")) if sent["Later"] else set()
        assert sent["Later"] <= waiting
        assert sent["Timed"] <= (set(_all(store, TIMER_TOPIC)) if sent["Timed"] else set())
        if sent["Half"]:
            assert sent["Half"] <= set(_all(store, HALF_TOPIC))
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.reader.queues()}
        table = read_config(path / "config/consumerOffset.json")
        for key, queues in (table or {"offsetTable": {}})["offsetTable"].items():
            topic = key.split("@")[0]
            for queue_id, offset in queues.items():
                assert offset <= ends.get((topic, queue_id), 0), (key, queue_id)


def _require_delivered(namesrv: str, sent: dict[str, set[bytes]]) -> None:
    """What was delayed comes, and transactions are asked for and committed, whoever was killed between."""
    got: set[bytes] = set()
    with contextlib.ExitStack() as clients:
        producer = clients.enter_context(Producer(namesrv, "P"))
        producer.answer_checks(lambda message: True)
        producer.send_in_transaction(Message("Pay", b"last"), lambda message: True)
        end = time.monotonic() + 2 * LIMIT
        wanted = sent["Later"] | sent["Timed"] | sent["Half"]
        topics = {"Pay": "Half", "Later": "Later", "Timed": "Timed"}
        # a topic that nobody got to send to is not there; one that a kill left no time to write is, once it is put to
        routes = clients.enter_context(contextlib.closing(Client(namesrv)))
        awaited = [topic for topic, kind in topics.items() if sent[kind]]
        while not all(routes.route(topic, anew=True) for topic in awaited) and time.monotonic() < end:
            time.sleep(0.2)
        consumers = [clients.enter_context(Consumer(namesrv, topic, topic, begin="first")) for topic in awaited]
        while not wanted <= got and time.monotonic() < end:
            for consumer in consumers:
                got |= {message.body for message in consumer.poll(0.2)}
        assert wanted <= got, len(wanted - got)


def kill_in_mid_load(folder: Path, kills: int, chance: random.Random) -> dict[str, set[bytes]]:
    """Kill it so often, one after the other over the same store below `folder`, when `chance` says; AssertionError if
    anything is lost. Gives the acknowledged bodies: Plain, Later (by level), Timed and Half."""
    conf, store = folder / "broker.conf", folder / "store"
    options = ("--writable", "--create", "-c", str(conf))
    sent: dict[str, set[bytes]] = {"Plain": set(), "Later": set(), "Timed": set(), "Half": set()}
    for kill in range(kills):
        # a kill, unlike a power failure, takes nothing that was written and not flushed
        conf.write_text(f"{CONF}flushDiskType={chance.choice(['SYNC_FLUSH', 'ASYNC_FLUSH'])}\n", encoding="ascii")
        with serving(store, *options) as served:
            load = Load(served.namesrv, kill)
            end = time.monotonic() + LIMIT
            while not load.consumed and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(chance.uniform(0.1, 0.6))
            served.process.send_signal(signal.SIGKILL)
            served.process.wait(LIMIT)
            load.wait()
        for topic, bodies in sent.items():
            bodies |= set(load.sent[topic])
        assert load.consumed, "no message was consumed before the kill"
        assert (store / "abort").exists()
        with MessageStore.open(store) as killed:
            killed.recover()
        _require_all(store, sent)
    with serving(store, *options) as served:
        _require_delivered(served.namesrv, sent)
        assert served.end() == 0
        assert "Traceback" not in served.errors
    with MessageStore.open(store) as opened:
        assert list(opened.check()) == []
        assert ended_offsets(b"".join(_all(opened, OP_TOPIC)))
    return sent
