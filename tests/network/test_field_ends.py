"""Integers on the wire and in what a broker saves, at the ends of their fields."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, UsageError
from rmqctl.formats.message import Message
from rmqctl.network.broker.delays import fits, write_timer_checkpoint, write_timer_log
from rmqctl.network.broker.send import batch_items
from rmqctl.network.clients.channel import Answers
from rmqctl.network.clients.producing.settings import encode_item
from rmqctl.network.ha.master import LARGEST_BODY, ReportDecoder, encode_report, encode_transfer_head
from rmqctl.network.remoting.codec import RESPONSE_FLAG, FrameDecoder, RemotingCommand, decode_command, encode_frame
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.requests import Processor
from rmqctl.network.remoting.server import PeerConnection, RemotingServer
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import next_version
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.timer.wheel import CHECKPOINT_FILE, TimerCheckpoint, TimerUnit, read_timer_checkpoint
from tests.network.callers import Writing, heartbeat, pulling

INT, LONG = 1 << 31, 1 << 63
DAY = 86_400_000


def test_a_message_of_a_batch_holds_the_ends_of_its_fields() -> None:
    for flag in (-INT, INT - 1):
        assert int.from_bytes(encode_item(Message("T", b"x", flag=flag))[12:16], "big", signed=True) == flag
    longest = encode_item(Message("T", b"x", properties={"K": "x" * 32_764}))
    assert longest[21:23] == b"\x7f\xff"
    for message in (
        Message("T", b"x", properties={"K": "x" * 32_765}),
        Message("T", b"x", flag=INT),
        Message("T", b"x", flag=-INT - 1),
    ):
        with pytest.raises(UsageError, match=r"32767|32-bit"):
            encode_item(message)


@pytest.mark.parametrize("name", ["code", "opaque", "flag", "version"])
def test_a_header_in_json_holds_32_bits_and_nothing_beyond(name: str) -> None:
    for value in (-INT, INT - 1):
        header = json.dumps({"code": 1, name: value}).encode()
        assert getattr(decode_command(header, 0, b""), name) == value
    for value in (-INT - 1, INT):
        with pytest.raises(CorruptError, match=f"{name} of the header"):
            decode_command(json.dumps({"code": 1, name: value}).encode(), 0, b"")


def test_a_binary_header_has_signed_fields() -> None:
    """RocketMQSerializable: a code of 16 bits, a number and a flag of 32."""
    for number in (-INT, -1, INT - 1):
        command = decode_command(struct.pack(">hbhiiii", -1, 0, -1, number, number, 0, 0), 1, b"")
        assert (command.code, command.version, command.opaque, command.flag) == (-1, -1, number, number)


def test_a_batch_is_read_by_signed_fields() -> None:
    for flag in (-INT, INT - 1):
        (item,) = batch_items(encode_item(Message("T", b"x", flag=flag)))
        assert item.flag == flag
    longest = 0x7FFF
    for size in (longest, longest + 1):
        data = struct.pack(">iiiii", 22 + size, 0, 0, 0, 0) + struct.pack(">H", size) + bytes(size)
        if size > longest:
            with pytest.raises(CorruptError, match="properties of -32768 bytes"):
                batch_items(data)
        else:
            assert len(batch_items(data)[0].property_bytes) == longest


@pytest.mark.parametrize("size", [0, LARGEST_BODY])
@pytest.mark.parametrize("offset", [0, LONG - 1])
def test_what_a_master_sends_holds_the_ends_of_its_fields(offset: int, size: int) -> None:
    assert ReportDecoder().feed(encode_report(offset)) == offset
    head = encode_transfer_head(offset, size)
    assert (int.from_bytes(head[:8], "big"), int.from_bytes(head[8:], "big")) == (offset, size)


@pytest.mark.parametrize("before", [0, INT - 2, INT - 1])
def test_the_number_of_a_request_wraps(before: int) -> None:
    answers = Answers("127.0.0.1:1", lambda *request: None)
    answers._opaque = before
    command, _ = answers.expect(RemotingCommand(Request.PULL_MESSAGE))
    assert command.opaque == (before + 1) % INT


@pytest.mark.parametrize("before", [0, INT - 2, INT - 1])
def test_the_number_of_a_request_to_a_client_wraps(before: int) -> None:
    """The client's answer finds its request."""
    written: list[bytes] = []

    class Recording(asyncio.Transport):
        def write(self, data: Any) -> None:
            written.append(bytes(data))

        def is_closing(self) -> bool:
            return False

    async def ask() -> tuple[int, RemotingCommand | None]:
        server = RemotingServer(Processor(None, {}, print), print)
        connection = PeerConnection(server, asyncio.get_running_loop())
        connection.connection_made(Recording())
        connection._opaque = before
        asked = connection.ask(RemotingCommand(Request.CHECK_TRANSACTION_STATE), 60)
        await asyncio.sleep(0)
        decoder = FrameDecoder()
        decoder.feed(b"".join(written))
        sent = decoder.next_command()
        assert sent is not None
        data = encode_frame(RemotingCommand(0, opaque=sent.opaque, flag=RESPONSE_FLAG))
        connection.get_buffer(0)[: len(data)] = data
        connection.buffer_updated(len(data))
        answer = asked.result(0)
        connection.connection_lost(None)
        await server.close()
        return sent.opaque, answer

    opaque, answer = asyncio.run(ask())
    assert opaque == (before + 1) % INT
    assert answer is not None


@pytest.mark.parametrize(("counter", "following"), [(0, 1), (LONG - 2, LONG - 1), (LONG - 1, -LONG), (-LONG, 1 - LONG)])
def test_the_counter_of_a_configuration_wraps(counter: int, following: int) -> None:
    assert next_version({"counter": counter}, 5)["counter"] == following


@pytest.mark.parametrize("offset", [0, 1, INT - 1, INT, LONG - 1, -1, -LONG])
def test_offsets_of_any_size_are_answered(tmp_path: Path, offset: int) -> None:
    writing = Writing(tmp_path / "store")
    writing.ask(Request.HEART_BEAT, heartbeat("c", "g", T="*"))
    writing.send("T", b"x")
    group: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    assert writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=offset, **group).code == 0
    assert writing.ask(Request.QUERY_CONSUMER_OFFSET, **group).code == (0 if offset >= 0 else 22)
    assert writing.ask(Request.PULL_MESSAGE, **pulling("T", 0, offset)).code in (0, 19, 20, 21)
    assert writing.ask(Request.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId=0, timestamp=offset).code == 0
    writing.close()
    saved = parse_config_json((tmp_path / "store/config/consumerOffset.json").read_text("utf-8"))
    # kept as committed, a negative one too (ConsumerOffsetManager#commitOffset), but none beyond the queue's end
    assert saved["offsetTable"]["T@g"] == {0: min(offset, 1)}


@pytest.mark.parametrize("field", ["flag", "sysFlag", "queueId", "reconsumeTimes", "bornTimestamp"])
@pytest.mark.parametrize("value", [INT - 1, INT, -INT, -INT - 1, LONG - 1, LONG, -LONG, -LONG - 1])
def test_a_message_with_any_number_is_answered(tmp_path: Path, field: str, value: int) -> None:
    writing = Writing(tmp_path / "store")
    answer = writing.send("T", b"x", **{field: value})
    is_long = field == "bornTimestamp"
    if not -(LONG if is_long else INT) <= value < (LONG if is_long else INT):
        assert answer.code == 1
        assert "-bit integer" in str(answer.remark)
    assert not any("Traceback" in line for line in writing.told)
    writing.close()


@pytest.mark.parametrize(
    ("delay", "is_held"),
    [(0, True), (7 * DAY, True), (-7 * DAY, True), (7 * DAY + 1, False), (-30 * DAY, False), (INT, False)],
)
def test_the_timer_log_holds_a_week_on_either_side(tmp_path: Path, delay: int, is_held: bool) -> None:
    now = 1_800_000_000_000
    units = [TimerUnit(now + delay, 0, 100, False)]
    assert fits(units, now, 1 << 20, 1000) is is_held
    assert fits(units, now, 1 << 20, 100) is (abs(delay) <= 7 * DAY // 10)
    if is_held:
        (tmp_path / "store").mkdir()
        assert write_timer_log(StoreLayout(tmp_path / "store", ()), units, now, 1 << 20) == 52


def test_a_message_for_a_far_day_survives_a_restart(tmp_path: Path) -> None:
    """Its delay does not fit the field of the timer log: the next broker reads the timer's queue again."""
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_max_delay_sec=100 * 86_400)
    writing = Writing(tmp_path / "store", config)
    assert writing.send("T", b"far", _TIMER_DELAY_SEC=str(60 * 86_400)).code == 0
    writing.step(1_000)
    writing.close()
    again = Writing(tmp_path / "store", config)
    again.now = writing.now + 60 * DAY
    for _ in range(3):
        again.step(1_000)
    assert [one.body for one in again.stored("T")] == [b"far"]
    again.close()


@pytest.mark.parametrize(("counter", "following"), [(0, 1), (LONG - 1, -LONG), (-LONG, 1 - LONG)])
def test_the_counter_of_the_timer_wraps(tmp_path: Path, counter: int, following: int) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=True)
    Writing(tmp_path / "store", config).close()
    path = tmp_path / "store/config" / CHECKPOINT_FILE
    write_timer_checkpoint(path, TimerCheckpoint(counter=counter))
    Writing(tmp_path / "store", config).close()
    assert read_timer_checkpoint(path.parent).counter == following
