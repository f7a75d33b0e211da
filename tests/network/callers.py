"""Requests without a socket: a caller that keeps what it is sent, and a broker over a golden store."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.message import LOCAL_HOST, StoredMessage, decode_message
from rmqctl.formats.properties import encode_properties
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.services import services_of
from rmqctl.network.broker.settings import BrokerIdentity, written_by
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.headers import HEADERS, Header
from rmqctl.network.remoting.requests import Awaited, Processor, Promised, Suspended
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import DEFAULT_RELEASE
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles


def wait_for_end(one: Awaited, seconds: float = 60) -> None:
    """Wait until it has ended."""
    ended = threading.Event()
    one.add_done_callback(lambda _: ended.set())
    assert ended.wait(seconds)


def with_header(code: int, fields: Mapping[str, Any]) -> tuple[int, Header]:
    """A code and the header with these fields, by their names on the wire."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    return code, HEADERS.get(code, Header).decode(texts)


class Peer:
    """A Caller in the same process."""

    def __init__(self, remote: str = "127.0.0.1:5000", local_ip: str = "127.0.0.1") -> None:
        self.remote = remote
        self.local_ip = local_ip
        self.sent: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def ask(self, command: RemotingCommand, seconds: float) -> Future[RemotingCommand | None]:
        self.sent.append(command)
        self.asked = Future[RemotingCommand | None]()
        return self.asked


class Asking:
    """A broker over the store at `path`, asked by one caller.

    `now`: its time in ms, which goes on only where a test says so; `set_back`: by how much its wall clock was set back.
    """

    processor: Processor[Any]

    def __init__(self, path: Path) -> None:
        self.now = 1_800_000_000_000
        self.set_back = 0
        self.told: list[str] = []
        self.peer = Peer()
        self.make(path)

    def make(self, path: Path) -> None:
        """Make the broker."""
        self.broker = Broker(StoreFiles(path), BrokerIdentity(), self.told.append, self.clock, elapsed=lambda: self.now)
        self.processor = Processor(self.broker, services_of(writable=False), self.told.append)

    def clock(self) -> int:
        """The wall clock, in ms."""
        return self.now - self.set_back

    def reply(self, code: int, body: Any = None, *, flag: int = 0, peer: Peer | None = None, **fields: Any) -> Any:
        """What the broker answers, Suspended and None too; fields as texts, the body as JSON."""
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        data = b"" if body is None else json.dumps(body).encode()
        return self.processor.reply(RemotingCommand(code, texts, data, opaque=9, flag=flag), peer or self.peer)

    def ask(self, code: int, body: Any = None, *, peer: Peer | None = None, **fields: Any) -> RemotingCommand:
        """An answer that is given at once."""
        reply = self.reply(code, body, peer=peer, **fields)
        assert isinstance(reply, RemotingCommand)
        assert (reply.opaque, reply.flag) == (9, 1)
        return reply

    def suspended(self, code: int, **fields: Any) -> Suspended:
        """An answer that has to wait."""
        reply = self.reply(code, **fields)
        assert isinstance(reply, Suspended)
        return reply

    def content(self, code: int, body: Any = None, *, peer: Peer | None = None, **fields: Any) -> Any:
        """The body of a good answer."""
        reply = self.ask(code, body, peer=peer, **fields)
        assert reply.code == 0, reply.remark
        return parse_config_json(reply.body.decode())


class Writing(Asking):
    """A broker that writes, over the store at `path`, which is made if there is none. To be closed."""

    master: MasterBroker
    release = DEFAULT_RELEASE

    def __init__(self, path: Path, config: StoreConfig | None = None, **properties: str) -> None:
        self.config = config or StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
        self.properties = properties
        self.is_closed = False
        super().__init__(path)

    def make(self, path: Path) -> None:
        config = written_by(self.release, self.config)
        self.store = MessageStore.open(
            path, "rw", config, create=True, allocate_ahead=False, clock=self.clock, store_host=LOCAL_HOST
        )
        try:
            self.broker = self.master = MasterBroker(
                self.store,
                BrokerIdentity(release=self.release),
                self.told.append,
                self.clock,
                self.properties,
                lambda: self.now,
            )
        except BaseException:
            self.store.close()
            raise
        known = services_of(writable=True, release=self.release)
        self.processor = Processor(self.master, known, self.told.append, self.release)

    def ask(self, code: int, body: Any = None, *, peer: Peer | None = None, **fields: Any) -> RemotingCommand:
        """An answer, waited for if it is promised."""
        reply = self.reply(code, body, peer=peer, **fields)
        if isinstance(reply, Promised):
            wait_for_end(reply.done)
            reply = reply.answer()
        assert isinstance(reply, RemotingCommand)
        return reply

    def send(self, topic: str, body: bytes, queue_id: int = 0, *, code: int = 10, **fields: Any) -> RemotingCommand:
        """Send a message; properties by their own names after `_`."""
        properties = {name[1:]: str(fields.pop(name)) for name in list(fields) if name.startswith("_")}
        header = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": queue_id, "sysFlag": 0, "bornTimestamp": self.now, "flag": 0,
            "properties": encode_properties(properties).decode(), "reconsumeTimes": 0, "unitMode": False,
        }  # fmt: skip
        return self.raw(code, body, **(header | fields))

    def raw(self, code: int, body: bytes, **fields: Any) -> RemotingCommand:
        """The answer to a body that is no JSON."""
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        reply = self.processor.reply(RemotingCommand(code, texts, body, opaque=9), self.peer)
        if isinstance(reply, Promised):
            wait_for_end(reply.done)
            reply = reply.answer()
        assert isinstance(reply, RemotingCommand)
        return reply

    def step(self, milliseconds: int = 0) -> None:
        """Let time go by, and what goes on by itself with it."""
        self.now += milliseconds
        self.store.wait_for_dispatch()
        self.master.step()
        self.store.wait_for_dispatch()

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """All messages of a queue."""
        self.store.wait_for_dispatch()
        end = self.master.end_of(topic, queue_id)
        found: list[StoredMessage] = []
        while len(found) < end:
            found += self.store.get(topic, queue_id, len(found)).messages
        return found

    def close(self) -> None:
        """Close broker and store, as serve does; again does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self.master.close()
            self.store.close()


def pulling(topic: str, queue_id: int, offset: int, **more: Any) -> dict[str, Any]:
    """Fields of a pull that names its subscription and does not wait."""
    fields = {
        "consumerGroup": "g", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    return fields | more


def heartbeat(client_id: str, group: str, **topics: str) -> dict[str, Any]:
    """A consumer's heartbeat: what it subscribes, by topic."""
    subscriptions = [
        {"topic": topic, "subString": tags, "subVersion": 7, "expressionType": "TAG"} for topic, tags in topics.items()
    ]
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions,
    }  # fmt: skip
    return {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "P"}]}


def frames(body: bytes) -> list[tuple[int, int, int]]:
    """Queue, queue offset and physical offset of the good frames that `body` consists of."""
    return [(one.queue_id, one.queue_offset, one.physical_offset) for one in messages(body)]


def messages(body: bytes) -> list[StoredMessage]:
    """The messages whose frames `body` consists of."""
    found, position = list[StoredMessage](), 0
    while position < len(body):
        found.append(decode_message(body, position, len(body) - position, None))
        position += found[-1].total_size
    return found


def popped(answer: RemotingCommand, group: str, broker: str = "broker-a") -> list[tuple[StoredMessage, str, str]]:
    """The messages that an answer hands out, each with the topic that it is acknowledged in, and its handle."""
    said, starts = answer.fields, {}
    times = f"{said.get('popTime')} {said.get('invisibleTime')} {said.get('reviveQid')}"
    for one in filter(None, said.get("startOffsetInfo", "").split(";")):
        flag, queue_id, start = one.split(" ")
        starts[flag, queue_id] = f"{start} {times} {flag} {broker}"
    found = []
    for message in messages(answer.body):
        handle = message.properties().get("POP_CK")
        handle = handle or f"{starts['0', str(message.queue_id)]} {message.queue_id} {message.queue_offset}"
        separator = {"0": None, "1": "_", "2": "+"}[handle.split(" ")[4]]
        topic = message.topic if separator is None else f"%RETRY%{group}{separator}{message.topic}"
        found.append((message, topic, handle))
    return found
