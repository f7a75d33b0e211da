"""A server that is killed while gRPC clients send, receive and acknowledge."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path

import grpc
import pytest

from rmqctl.network.grpc.pops import parse_receipt_handle
from rmqctl.network.grpc.protocol import Code
from tests.network.grpc.calling import Client
from tests.network.pop_killing import Popping, kill_while_popping
from tests.network.serving import Served
from tests.quick import sample


class Receiving(Popping):
    """Clients of gRPC: one sends while the other receives, and both are at it when the server is killed."""

    invisible_ms = 10_000
    options = ("--topic", "T:NORMAL:4", "--grpc", "127.0.0.1:0")
    _thread: threading.Thread | None = None

    def send(self, served: Served, bodies: list[bytes], sent: set[bytes]) -> None:
        def go_on() -> None:
            with contextlib.suppress(grpc.RpcError), contextlib.closing(Client(str(served.grpc), "p")) as client:
                client.produce("T")
                for body in bodies:
                    if client.send("T", body).status.code == Code.OK:
                        sent.add(body)
                    time.sleep(0.04)

        self._thread = threading.Thread(target=go_on)
        self._thread.start()

    def wait(self) -> None:
        assert self._thread is not None
        self._thread.join(60)
        assert not self._thread.is_alive()

    def go_on(self, served: Served, seconds: float, share: float) -> None:
        end = time.monotonic() + seconds
        with contextlib.suppress(grpc.RpcError), contextlib.closing(Client(str(served.grpc), "c")) as client:
            client.consume("g", T="*")
            while time.monotonic() < end:
                found = client.receive("g", "T", 10, batch_size=8)
                now = time.monotonic()
                for message in found:
                    system, body = message.system_properties, bytes(message.body)
                    topic = parse_receipt_handle(system.receipt_handle).real_topic("g", "T")
                    self.popped[body].append((now, f"{topic}@g", system.queue_id, system.queue_offset))
                    if self._chance.random() >= share:
                        continue
                    if client.ack("g", message).status.code == Code.OK:
                        self.acknowledged.setdefault(body, time.monotonic())
                    if time.monotonic() - now >= self.invisible_ms / 1000:
                        self.late.add(body)


@pytest.mark.parametrize("kills", sample([1, 10], [1]))
def test_nothing_acknowledged_is_lost_or_comes_again(kills: int, tmp_path: Path) -> None:
    chance = random.Random(kills)
    assert kill_while_popping(tmp_path, kills, Receiving(chance), chance) > 0
