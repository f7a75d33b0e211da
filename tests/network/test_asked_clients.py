"""Requests of ours that clients answer: who asked is given the answer, and waits no longer than said."""

from __future__ import annotations

import asyncio

from rmqctl.network.remoting.codec import RESPONSE_FLAG, ResponseCode
from tests.network.benches import ASK_BACK, Bench, served


def test_what_a_client_answers_is_handed_on_and_waited_for_no_longer_than_said() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        client.send(ASK_BACK, 7, seconds="20")
        asked = await client.receive()
        assert asked is not None
        assert (asked.code, asked.is_response, asked.is_oneway) == (307, False, False)
        # what nobody asked for is no answer to it
        client.send(0, asked.opaque + 1, flag=RESPONSE_FLAG, body=b"another")
        client.send(0, asked.opaque, flag=RESPONSE_FLAG, body=b"running")
        answer = await client.receive()
        assert answer is not None
        assert (answer.opaque, answer.body, answer.flag) == (7, b"running", RESPONSE_FLAG)
        client.send(ASK_BACK, 8, seconds="0.05")
        assert (await client.receive() or answer).code == 307
        late = await client.receive()
        assert late is not None
        assert (late.opaque, late.code) == (8, 207)

    served(check)


def test_answers_of_a_client_that_is_gone_or_answers_nothing_are_no_longer_waited_for() -> None:
    async def check(bench: Bench) -> None:
        client = await bench.connect()
        for opaque in range(65):
            client.send(ASK_BACK, opaque, seconds="20")
        for _ in range(64):
            asked = await client.receive()
            assert asked is not None
            assert asked.code == 307
        refused = await client.receive()
        assert refused is not None
        assert (refused.opaque, refused.code) == (64, ResponseCode.SYSTEM_BUSY)
        (connection,) = bench.server.connections
        client.writer.close()
        while bench.server.connections:
            await asyncio.sleep(0.01)
        assert not connection._asked

    served(check)
