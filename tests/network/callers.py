"""Requests without a socket: a caller that keeps what it is sent, and a broker over a golden store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.message import decode_message
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.identity import BrokerIdentity
from rmqctl.network.broker.services import SERVICES
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Processor, Suspended
from rmqctl.store.store_files import StoreFiles


class Peer:
    """A Caller in the same process."""

    def __init__(self, remote: str = "127.0.0.1:5000", local_ip: str = "127.0.0.1") -> None:
        self.remote = remote
        self.local_ip = local_ip
        self.sent: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)


class Asking:
    """A broker over the store at `path` with a clock that stands still until it is told, asked by one caller."""

    def __init__(self, path: Path) -> None:
        self.now = 1_800_000_000_000
        self.told: list[str] = []
        self.peer = Peer()
        self.broker = Broker(StoreFiles(path), BrokerIdentity(), self.told.append, lambda: self.now)
        self.processor: Processor[Broker] = Processor(self.broker, SERVICES, self.told.append)

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
    found, position = [], 0
    while position < len(body):
        message = decode_message(body, position, len(body) - position, None)
        found.append((message.queue_id, message.queue_offset, message.physical_offset))
        position += message.total_size
    return found
