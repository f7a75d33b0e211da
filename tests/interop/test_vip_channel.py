"""The VIP channel, two ports below a broker's own: Java's producers send over it to `serve`, and ours to a broker."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import java, real_broker, rmqctl
from tests.interop.toolchain import BROKERS, CLIENTS
from tests.network.serving import free_pair, serving

pytestmark = pytest.mark.interop

_LISTENING = "0A"
_LOOK_SECONDS = 0.05


@contextlib.contextmanager
def _connections_to(address: str, below: int) -> Iterator[set[str]]:
    """Collect the ends, in the kernel's words, of new connections at the port so far below that of `address`."""
    port = f"{int(address.rpartition(':')[2]) - below:04X}"

    def ends() -> set[str]:
        """Return the ends of those there are; one that was closed is there for a minute."""
        tables = [Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:] for name in ("tcp", "tcp6")]
        rows = [line.split() for lines in tables for line in lines]
        return {f"{row[1]} {row[2]}" for row in rows if f":{port}" in row[1] + row[2] and row[3] != _LISTENING}

    before, found = ends(), set[str]()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            found.update(ends() - before)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
        found.update(ends() - before)


@pytest.mark.parametrize("version", CLIENTS)
def test_java_sends_over_the_vip_channel_to_serve(version: str, tmp_path: Path) -> None:
    vip = {"com_rocketmq_sendMessageWithVIPChannel": "true"}
    _, port = free_pair()
    with serving(tmp_path / "store", "--writable", "--create", "--listen", f"127.0.0.1:{port}") as served:
        with _connections_to(served.broker, 2) as found:
            lines = java(version, tmp_path, "Send", served.namesrv, "Vip", "4", **vip)
        assert found
        assert {line.split("\t")[2] for line in lines if line.startswith("sent\t")} == {"SEND_OK"}
        rows = rmqctl("consume", "-n", served.namesrv, "-t", "Vip")
        assert {row["body"] for row in rows} >= {*(f"häl-lo {number}" for number in range(4)), "COMMIT_MESSAGE"}
        assert served.end() == 0
        assert "Traceback" not in served.errors


@pytest.mark.parametrize("version", BROKERS)
def test_ours_sends_over_the_vip_channel_to_a_real_broker(version: str, tmp_path: Path) -> None:
    settings = {"timerWheelEnable": "false"}
    bodies = [f"ours {number}" for number in range(40)]
    lines = "".join(f'{{"topic": "Vip", "body": "{body}"}}\n' for body in bodies)
    with real_broker(version, tmp_path / "real", tmp_path / "store", settings) as real:
        at = ("-n", real.namesrv)
        with _connections_to(real.broker, 2) as found:
            (sent,) = rmqctl("produce", *at, "--from", "-", "--setting", "vipChannelEnabled=true", given=lines)
        assert found
        assert sent == {"sent": 40, "bad_lines": 0}
        with _connections_to(real.broker, 2) as found:
            rmqctl("produce", *at, "-t", "Vip", "--body", "plain")
            rows = rmqctl("consume", *at, "-t", "Vip")
        assert found == set()
        assert {row["body"] for row in rows} == {*bodies, "plain"}
