"""Our consumers pull from a real slave where its master suggests it, commit to the master, and go on there without."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode, parse_body
from tests.interop import replicas
from tests.interop.brokers import java, mqadmin, real_broker, rmqctl
from tests.interop.members import wait_for
from tests.interop.toolchain import BROKERS
from tests.network.callers import with_header
from tests.network.serving import ANY, serving

pytestmark = pytest.mark.interop

# more than a pull brings: the next one is the slave's
COUNT = 80
SETTINGS = {"timerWheelEnable": "false", "slaveReadEnable": "true", "defaultTopicQueueNums": "1"}
# a slave has files as large as its master's
SIZES = {key.removeprefix("store."): value for key, value in replicas.SETTINGS.items() if "enableComp" not in key}


def _end_at(client: Client, address: str) -> int:
    try:
        answer = client.ask(address, *with_header(RequestCode.GET_MAX_OFFSET, {"topic": "Read", "queueId": 0}))
    except RemoteError:
        return -1
    return int(answer.fields["offset"])


def _has_topic(client: Client, address: str) -> bool:
    """Return whether a slave has got the tables of its master, which it asks for every few seconds."""
    return b'"Read"' in client.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG).body


def _given(client: Client, address: str) -> int:
    """Return how many messages a broker has given to consumers since it started."""
    return int(parse_body(client.ask_runtime_info(address).body)["table"]["msgGetTotalTodayNow"])


@pytest.mark.parametrize("version", BROKERS)
def test_a_real_slave_is_read(version: str, tmp_path: Path) -> None:
    with real_broker(version, tmp_path / "master", tmp_path / "master-store", SETTINGS) as master:
        at = ("-n", master.namesrv)
        (made,) = mqadmin(version, tmp_path, master.namesrv, f"updateTopic -b {master.broker} -t Read -r 1 -w 1")
        assert "success" in " ".join(made)
        slave_settings = {"brokerId": "1", "brokerRole": "SLAVE", "namesrvAddr": master.namesrv}
        with real_broker(version, tmp_path / "slave", tmp_path / "store", SETTINGS | slave_settings) as slave:
            client = Client(master.namesrv)
            groups = [f"updateSubGroup -b {master.broker} -g {group} -i 1" for group in ("lite", "push")]
            mqadmin(version, tmp_path, master.namesrv, *groups)
            lines = "".join(f'{{"topic": "Read", "body": "{number}"}}\n' for number in range(COUNT))
            rmqctl("produce", *at, "--from", "-", given=lines)
            wait_for(lambda: _has_topic(client, slave.broker) and _end_at(client, slave.broker) == COUNT)
            route = client.route("Read", anew=True)
            assert route is not None
            assert route.replicas["broker-a"] == {0: master.broker, 1: slave.broker}
            before = _given(client, slave.broker)
            for group, options in (("lite", ()), ("push", ("--exec", "true"))):
                rows = rmqctl("consume", *at, "-t", "Read", "-g", group, *options)
                assert sorted(row["queue_offset"] for row in rows) == list(range(COUNT))
                given = _given(client, slave.broker)
                # a slave of 5.3.3 sends its consumers back to the master
                assert given - before >= 32, (group, given, before)
                before = given
            slave.process.kill()
            slave.process.wait()
        # the name server may not know yet that it is gone
        rmqctl("produce", *at, "--from", "-", given=lines)
        for group, options in (("lite", ()), ("push", ("--exec", "true"))):
            rows = rmqctl("consume", *at, "-t", "Read", "-g", group, *options)
            assert sorted(row["queue_offset"] for row in rows) == list(range(COUNT, 2 * COUNT))
            (row,) = [one for one in rmqctl("groups", *at, "-g", group) if one["topic"] == "Read"]
            assert (row["offset"], row["lag"]) == (2 * COUNT, 0)
        client.close()


def test_ours_suggests_a_real_slave(tmp_path: Path) -> None:
    """All messages count as old: consumers of ours and of Java pull all but their first messages from the slave."""
    version = "5.3.3"
    old = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
    conf = tmp_path / "broker.conf"
    settings = {"brokerRole": "ASYNC_MASTER", "brokerName": "broker-a", "timerWheelEnable": "false", **SIZES, **old}
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    serve_options = ("--writable", "--create", "-c", str(conf), "--ha-listen", ANY)
    with serving(tmp_path / "master-store", *serve_options) as master:
        at = ("-n", master.namesrv)
        rmqctl("topics", "create", *at, "-t", "Read", "--write-queues", "1", "--read-queues", "1")
        slave_settings = {"brokerId": "1", "brokerRole": "SLAVE", "namesrvAddr": master.namesrv, **SIZES, **old}
        with real_broker(version, tmp_path / "slave", tmp_path / "store", SETTINGS | slave_settings) as slave:
            client = Client(master.namesrv)
            lines = "".join(f'{{"topic": "Read", "body": "{number}"}}\n' for number in range(COUNT))
            rmqctl("produce", *at, "--from", "-", given=lines)
            wait_for(lambda: _has_topic(client, slave.broker) and _end_at(client, slave.broker) == COUNT)
            before = _given(client, slave.broker)
            for group, options in (("lite", ()), ("push", ("--exec", "true"))):
                rows = rmqctl("consume", *at, "-t", "Read", "-g", group, *options)
                assert sorted(row["queue_offset"] for row in rows) == list(range(COUNT))
                given = _given(client, slave.broker)
                # a pull that a busy machine asks for once more counts once more
                assert given - before >= COUNT - 32, (group, given, before)
                before = given
            for kind in ("lite", "push"):
                told = java(version, tmp_path, "Consume", master.namesrv, kind, "Read", f"java-{kind}", "*", str(COUNT))
                assert sum(line.startswith("message") for line in told) == COUNT
                given = _given(client, slave.broker)
                assert given - before >= COUNT - 64, (kind, given, before)
                before = given
            client.close()
