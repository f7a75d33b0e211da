"""`rmqctl serve --writable` killed while messages are popped, again and again: nothing acknowledged comes again, and
nothing else is lost.

As with a broker, offsets since the last save are forgotten: what was popped shortly before a kill is popped again.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.store.config.config_files import read_config
from rmqctl.store.message_store import MessageStore
from rmqctl.store.pop.records import REVIVE_GROUP, REVIVE_PREFIX, PopCheckpoint, revive_record
from tests.network.callers import popped, with_header
from tests.network.serving import Served, serving

CONF = "mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=20000\nflushConsumerOffsetInterval=200\n"
# by then offsets are on disk, but on a busy machine
_SAVED_SECONDS = 1.5
_AT_ONCE = 8
LIMIT = 60
REVIVE_TOPIC = f"{REVIVE_PREFIX}DefaultCluster"
_REVIVED, _REVIVE_QUEUES = f"{REVIVE_TOPIC}@{REVIVE_GROUP}", 8
# a client sees a pop later than the broker
_CLOCKS_SECONDS = 0.5


class Popping:
    """A client that pops, acknowledges some, and remembers what it was given and told."""

    invisible_ms = 4_000
    options: tuple[str, ...] = ()
    """What `serve` needs for it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        # by body, when and where from
        self.popped: dict[bytes, list[tuple[float, str, int, int]]] = defaultdict(list)
        self.acknowledged: dict[bytes, float] = {}
        self.late: set[bytes] = set()
        # when, and the offsets that were on disk then
        self.kills: list[tuple[float, dict[str, dict[int, int]]]] = []
        # by where a message was popped from, the places of its checkpoints in the revive topic
        self.checkpoints: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)

    def send(self, served: Served, bodies: list[bytes], sent: set[bytes]) -> None:
        """Send messages; what was acknowledged is `sent`."""
        with Producer(served.namesrv) as producer:
            for body in bodies:
                producer.send(Message("T", body))
                sent.add(body)

    def wait(self) -> None:
        """Return once nothing is sent any more, after a kill."""

    def go_on(self, served: Served, seconds: float, share: float) -> None:
        """Pop for so long, and acknowledge this share of it; until the broker is gone."""
        end = time.monotonic() + seconds
        with contextlib.suppress(RmqctlError), contextlib.closing(Client(served.namesrv)) as client:
            while time.monotonic() < end:
                self._pop(client, served.broker, share)

    def _pop(self, client: Client, broker: str, share: float) -> None:
        fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": _AT_ONCE}
        fields |= {"invisibleTime": self.invisible_ms, "pollTime": 200, "bornTime": 0, "initMode": 0}
        answer = client.ask(broker, *with_header(RequestCode.POP_MESSAGE, fields), allowed=(210,))
        now = time.monotonic()
        for message, topic, handle in popped(answer, "g"):
            self.popped[message.body].append((now, f"{topic}@g", message.queue_id, message.queue_offset))
            if self._chance.random() >= share:
                continue
            ack = {"consumerGroup": "g", "topic": topic, "queueId": message.queue_id}
            ack |= {"offset": message.queue_offset, "extraInfo": handle}
            client.ask(broker, *with_header(RequestCode.ACK_MESSAGE, ack))
            self.acknowledged.setdefault(message.body, time.monotonic())
            if time.monotonic() - now >= self.invisible_ms / 1000:
                self.late.add(message.body)

    def _is_excused(self, body: bytes) -> bool:
        """Whether the offset after a pop of a message was lost by a kill, or it was acknowledged too late."""
        lost = (
            popped_at < kill and offset >= saved.get(key, {}).get(queue_id, 0)
            for kill, saved in self.kills
            for popped_at, key, queue_id, offset in self.popped[body]
        )
        return body in self.late or any(lost) or self._was_revived_at_a_kill(body)

    def _was_revived_at_a_kill(self, body: bytes) -> bool:
        """Whether a message may be in the retry topic twice: one that was revived before a kill, of which the offset of
        the revive topic on disk says nothing yet, is revived again. A real 5.5.0 repeats those, too."""
        earlier = [pop for pop in self.popped[body] if pop[0] < self.acknowledged[body]][:-1]
        return any(
            popped_at + self.invisible_ms / 1000 - _CLOCKS_SECONDS < kill
            and offset > saved.get(_REVIVED, {}).get(revive_queue, -1)
            for popped_at, key, queue_id, queue_offset in earlier
            for revive_queue, offset in self.checkpoints[key, queue_id, queue_offset]
            for kill, saved in self.kills
        )

    def learn(self, store: MessageStore) -> None:
        """Look up all checkpoints."""
        for queue_id in range(_REVIVE_QUEUES):
            offset = 0
            while found := store.get(REVIVE_TOPIC, queue_id, offset, 32).messages:
                offset = found[-1].queue_offset + 1
                for one in found:
                    record = revive_record(one.properties()["TAGS"], one.body)
                    if isinstance(record, PopCheckpoint):
                        for distance in record.distances:
                            place = f"{record.topic}@{record.group}", record.queue_id, record.start + distance
                            self.checkpoints[place].append((queue_id, one.queue_offset))

    def came_again(self) -> tuple[list[bytes], int]:
        """Return what was popped after it was acknowledged, and of how many messages that may not be."""
        bound = {body: at for body, at in self.acknowledged.items() if not self._is_excused(body)}
        again = [body for body, at in bound.items() if any(popped_at > at for popped_at, *_ in self.popped[body])]
        return again, len(bound)


def kill_while_popping(folder: Path, kills: int, client: Popping, chance: random.Random) -> int:
    """Kill it so often; AssertionError if what was acknowledged comes again, or anything else does not. Return how many
    acknowledged messages could not have come again for any reason."""
    conf, store = folder / "broker.conf", folder / "store"
    conf.write_text(CONF)
    options, sent = ("--writable", "-c", str(conf), *client.options), set[bytes]()
    for kill in range(kills):
        with serving(store, *options, "--recover" if kill else "--create") as served:
            client.send(served, [b"%d-%d" % (kill, number) for number in range(60)], sent)
            client.go_on(served, chance.uniform(0.3, 1.5) + _SAVED_SECONDS, 0.7)
            assert served.end(signal.SIGKILL) == -signal.SIGKILL
            client.wait()
            saved = read_config(store / "config" / "consumerOffset.json") or {"offsetTable": {}}
            client.kills.append((time.monotonic(), saved["offsetTable"]))
    with serving(store, *options, "--recover") as served:
        end = time.monotonic() + LIMIT
        while sent - client.acknowledged.keys() and time.monotonic() < end:
            client.go_on(served, 1, 1.0)
        assert sent - client.acknowledged.keys() == set()
        # what is in flight comes again by then, if it does
        client.go_on(served, client.invisible_ms / 1000 + 4, 1.0)
        assert served.end() == 0
        assert "Traceback" not in served.errors
    with MessageStore.open(store) as opened:
        client.learn(opened)
        again, bound = client.came_again()
        assert again == [], [(body, client.popped[body], client.acknowledged[body], client.kills) for body in again]
        alarms = [one for one in opened.check() if one.severity.is_alarm]
        assert alarms == [], alarms
        states = {one.state for one in opened.pop().messages()}
        assert states <= {"acknowledged"}, states
    return bound
