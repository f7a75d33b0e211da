"""The server over real sockets: answers, waiting ones, and every bound on what a client may take."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.network.remoting.codec import ONEWAY_FLAG, RemotingCommand, encode_frame
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import Asked, HandOver, Processor, Service
from rmqctl.network.remoting.server import Limits, PeerConnection, RemotingServer, bound
from tests.network.benches import (
    BIG,
    BIG_ONE,
    CALL_BACK,
    ECHO,
    FAIL,
    HOLD,
    SECONDS,
    SLOW,
    TOO_BIG,
    Bench,
    served,
)


def test_requests_of_a_connection_are_answered_each_by_its_number() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        for opaque in range(50):
            client.send(SLOW if opaque % 2 else ECHO, opaque, body=str(opaque).encode())
        client.send(ECHO, 99, flag=ONEWAY_FLAG)
        client.send(1234, 50)
        answers = [await client.receive() for _ in range(51)]
        got = {answer.opaque: answer for answer in answers if answer is not None}
        assert sorted(got) == list(range(51))
        assert all(got[opaque].body == str(opaque).encode() for opaque in range(50))
        assert (got[50].code, got[50].flag) == (3, 1)

    served(check)


def test_a_bug_and_an_answer_too_large_are_told_and_the_connection_lives_on() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        for code, remark in ((FAIL, "RuntimeError: a bug"), (TOO_BIG, "larger than a frame")):
            client.send(code, code)
            answer = await client.receive()
            assert answer is not None
            assert (answer.code, answer.opaque, answer.flag) == (1, code, 1)
            assert answer.remark is not None
            assert remark in answer.remark
        client.send(ECHO)
        assert await client.receive() is not None
        assert len(bench.told) == 2

    served(check)


def test_an_answer_that_waits_does_not_keep_others_waiting() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        client.send(HOLD, 1, seconds="0.2")
        client.send(ECHO, 2)
        first, second = await client.receive(), await client.receive()
        assert first is not None
        assert second is not None
        assert (first.opaque, second.opaque, second.code, second.flag) == (2, 1, 19, 1)
        client.send(HOLD, 3, flag=ONEWAY_FLAG, seconds="0")
        client.send(ECHO, 4)
        last = await client.receive()
        assert last is not None
        assert last.opaque == 4

    served(check)


def test_what_waits_is_forgotten_with_its_connection_and_bounded() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        for opaque in range(3):
            client.send(HOLD, opaque, seconds="1000")
        busy = await client.receive()
        assert busy is not None
        assert (busy.opaque, busy.code) == (2, 2)
        assert bench.server.shared.waiting.count == 2
        client.writer.close()
        while bench.server.connections:
            await asyncio.sleep(0.01)
        assert bench.server.shared.waiting.count == 0
        assert len(bench.lost) == 1

    served(check, Limits(suspended=2))


def test_requests_of_ours_reach_the_client() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        client.send(CALL_BACK, 7)
        request, answer = await client.receive(), await client.receive()
        assert request is not None
        assert answer is not None
        assert (request.code, request.fields, request.is_oneway) == (40, {"consumerGroup": "g"}, True)
        assert answer.opaque == 7

    served(check)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", struct.pack(">II", 8, 1 << 20) + b"abcd"]
)
def test_whoever_speaks_something_else_is_sent_away(data: bytes) -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        client.writer.write(data)
        assert await client.receive() is None
        assert len(bench.told) == 1

    served(check)


def test_connections_and_unfinished_frames_are_bounded() -> None:
    async def check(bench: Bench) -> None:
        one, two = await bench.connect(), await bench.connect()
        one.send(ECHO)
        two.send(ECHO)
        assert await one.receive() is not None
        assert await two.receive() is not None
        three = await bench.connect()
        assert await three.receive() is None
        one.writer.write(struct.pack(">I", 5000) + bytes(3000))
        two.writer.write(struct.pack(">I", 5000) + bytes(3000))
        ended = [asyncio.ensure_future(client.receive()) for client in (one, two)]
        done, waiting = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED, timeout=SECONDS)
        assert [one.result() for one in done] == [None]
        assert len(waiting) == 1
        assert bench.server.buffered == 3004
        for future in waiting:
            future.cancel()

    served(check, Limits(connections=2, buffered=5000))


def test_a_client_that_does_not_read_is_not_heard() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        asked = 64
        for opaque in range(asked):
            client.send(BIG_ONE, opaque)
        await client.writer.drain()
        other = await bench.connect()
        other.send(ECHO)
        assert await other.receive() is not None
        waiting = [connection for connection in bench.server.connections if connection.unsent > BIG // 2]
        assert sum(connection.unsent for connection in waiting) < 8 * BIG
        answers = [await client.receive() for _ in range(asked)]
        assert [answer.opaque for answer in answers if answer is not None] == list(range(asked))

    served(check)


def test_a_silent_connection_is_closed() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        client.send(ECHO)
        assert await client.receive() is not None
        assert await client.receive() is None
        assert len(bench.lost) == 1

    served(check, Limits(idle_seconds=0.3))


def test_an_address_that_is_taken_is_refused() -> None:
    async def check(bench: Bench) -> None:
        with pytest.raises(RefusedError, match=r"cannot listen at 127\.0\.0\.1:[0-9]+: Address already in use$"):
            await bench.server.listen("127.0.0.1", bench.port)

    served(check)


def test_an_ipv6_address_has_brackets() -> None:
    with pytest.raises(RefusedError, match=r"cannot listen at \[2001:db8::1\]:7: "):
        bound("2001:db8::1", 7)


def test_slow_requests_are_bounded() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        client.send(SLOW)
        busy = await client.receive()
        assert busy is not None
        assert busy.code == 2

    served(check, Limits(slow_requests=0))


def test_a_connection_that_ends_while_it_is_answered_does_no_harm() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        for opaque in range(20):
            client.send(SLOW, opaque)
        client.writer.transport.abort()
        while bench.server.connections:
            await asyncio.sleep(0.01)
        other = await bench.connect()
        other.send(SLOW)
        assert await other.receive() is not None
        assert bench.server.shared.slow == 0

    served(check)


def test_what_other_threads_hand_over_at_once_wakes_the_loop_once() -> None:
    """And one of the calls that fails keeps none of the others from being made."""
    to_run: list[Callable[[], None]] = []

    def soon(function: Callable[..., None], *given: object) -> None:
        to_run.append(lambda: function(*given))

    loop: Any = SimpleNamespace(call_soon=soon, call_soon_threadsafe=soon)
    made: list[int] = []
    hand_over = HandOver()
    for number in range(3):
        hand_over.call(loop, partial(made.append, number))
    assert (len(to_run), made) == (1, [])
    to_run.pop()()
    assert made == [0, 1, 2]
    hand_over.call(loop, lambda: made.append(1 // 0))
    hand_over.call(loop, lambda: made.append(3))
    assert len(to_run) == 1
    with pytest.raises(ZeroDivisionError):
        to_run.pop()()
    to_run.pop()()
    assert (made, to_run) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize(("size", "order"), [(100, "asked asked left"), (10_000, "asked left asked left")])
def test_small_answers_leave_together_and_large_ones_at_once(size: int, order: str) -> None:
    """Who has his can go on while others are answered."""
    seen: list[str] = []

    def answer(context: None, header: Header, asked: Asked) -> RemotingCommand:
        seen.append("asked")
        return RemotingCommand(0, body=bytes(size))

    class Recording(asyncio.Transport):
        def write(self, data: object) -> None:
            seen.append("left")

        def is_closing(self) -> bool:
            return False

    async def ask() -> None:
        server = RemotingServer(Processor(None, {1: Service(answer, "")}, print), print)
        connection = PeerConnection(server, asyncio.get_running_loop())
        connection.connection_made(Recording())
        data = encode_frame(RemotingCommand(1)) * 2
        connection.get_buffer(0)[: len(data)] = data
        connection.buffer_updated(len(data))
        connection.connection_lost(None)
        await server.close()

    asyncio.run(ask())
    assert seen == order.split()


@pytest.mark.parametrize("size", [1, 64 * 1024 - 1, 64 * 1024, 300_000])
def test_a_large_body_leaves_as_it_is_behind_its_head_and_keeps_its_place(size: int) -> None:
    body = bytes(size)
    written: list[bytes] = []

    async def check(bench: Bench) -> None:
        connection = PeerConnection(bench.server, asyncio.get_running_loop())
        transport = SimpleNamespace(write=written.append, is_closing=lambda: False)
        connection._transport = transport  # type: ignore[assignment]
        for opaque in range(3):
            connection._write(RemotingCommand(0, opaque=opaque, body=body if opaque == 1 else b"small"))
        await asyncio.sleep(0)
        connection._transport = None

    served(check)
    version = RemotingServer(SimpleNamespace(), print).version  # type: ignore[arg-type]
    frames = [RemotingCommand(0, opaque=one, body=body if one == 1 else b"small", version=version) for one in range(3)]
    assert b"".join(written) == b"".join(map(encode_frame, frames))
    # not copied into a frame
    assert any(one is body for one in written) is (size >= 64 * 1024)
