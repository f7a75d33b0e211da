"""mqadmin asks our members of a group how and where they are, by way of a real broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.client import BrokerError, Client
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode, parse_body
from tests.interop.brokers import mqadmin, real_broker
from tests.interop.members import SECONDS, wait_for
from tests.interop.toolchain import BROKERS
from tests.network.callers import with_header
from tests.processes import start

pytestmark = pytest.mark.interop

COUNT = 6


def _members(client: Client, broker: str, group: str) -> list[str]:
    try:
        body = client.ask(
            broker,
            *with_header(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
        ).body
    except BrokerError:
        return []
    return [str(one) for one in parse_body(body)["consumerIdList"]]


def _committed(client: Client, broker: str) -> int:
    found = 0
    for queue_id in range(4):
        fields = {"consumerGroup": "asked", "topic": "Asked", "queueId": queue_id}
        answer = client.ask(
            broker,
            *with_header(RequestCode.QUERY_CONSUMER_OFFSET, fields),
            allowed=(22,),
        )
        found += int(answer.fields["offset"]) if not answer.code else 0
    return found


@pytest.mark.parametrize("version", BROKERS)
@pytest.mark.parametrize("kind", ["prints", "runs"])
def test_mqadmin_asks_a_member_of_ours(kind: str, version: str, tmp_path: Path) -> None:
    """`consume -g` without a command, and with one, which also consumes a message for an operator."""
    settings = {"timerWheelEnable": "false"}
    with real_broker(version, tmp_path / "real", tmp_path / "store", settings) as real:
        client = Client(real.namesrv)
        with Producer(real.namesrv) as producer:
            sent = [producer.send(Message("Asked", b"%d" % number)) for number in range(COUNT)]
        command = [sys.executable, "-m", "rmqctl", "consume", "-n", real.namesrv, "-t", "Asked", "-g", "asked"]
        command += ["--follow", "--json", *(("--exec", "true") if kind == "runs" else ())]
        rows = tmp_path / "rows"
        with rows.open("w") as out, start(command, seconds=SECONDS, stdout=out, stderr=subprocess.PIPE) as process:
            wait_for(lambda: len(rows.read_text(encoding="utf-8").splitlines()) == COUNT)
            # a broker of 4.x resets a group that has an offset in each queue
            wait_for(lambda: _committed(client, real.broker) == COUNT)
            (member,) = _members(client, real.broker, "asked")
            asked = {"topic": "Asked", "group": "asked"}
            where = client.ask(
                real.broker,
                *with_header(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked),
            ).body
            topic = "" if version.startswith("4") else "-t Asked"
            told = mqadmin(
                version, tmp_path, real.namesrv,
                f"consumerStatus -g asked -i {member}",
                f"queryMsgById {topic} -i {sent[0].message_ids[0]} -g asked -d {member}",
                "resetOffsetByTime -g asked -t Asked -s 0",
            )  # fmt: skip
            status, directly, _ = ("\n".join(lines) for lines in told)
            # an operator's reset reaches the running member
            wait_for(lambda: len(rows.read_text(encoding="utf-8").splitlines()) >= 2 * COUNT)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)
        client.close()
    assert "#Consumer Properties#" in status
    assert "CONSUME_PASSIVELY" in status
    assert "Asked" in status.partition("#Consumer Subscription#")[2]
    (offsets,) = parse_body(where)["consumerTable"].values()
    assert sum(offsets.values()) == COUNT
    assert ("CR_SUCCESS" in directly) is (kind == "runs"), directly
