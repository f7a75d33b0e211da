"""What a person and Prometheus see of a running server, and that nobody who asks for it gets more or holds others."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from rmqctl.commands.wire.serve import _traffic_line
from rmqctl.network.ha.master import encode_report
from rmqctl.network.remoting.server import Seen, Traffic
from rmqctl.network.watching import http_answer
from rmqctl.store.message_store import MessageStore
from tests.network.serving import ANY, serving
from tests.rmqctl.looking import run


def test_a_line_tells_what_happened_and_is_silent_where_nothing_did() -> None:
    before = Seen(1, 10, 1000, 2000, 0)
    assert _traffic_line(before, before, 1.0) is None
    now = Seen(2, 40, 3000, 5_000_000, 1)
    assert _traffic_line(before, now, 2.0) == ("2 connections, 15 requests/s, 1000 B/s in, 2.4 MiB/s out, 1 pull held")
    assert _traffic_line(now, now._replace(connections=1), 1.0) == (
        "1 connection, 0 requests/s, 0 B/s in, 0 B/s out, 1 pull held"
    )


def test_clients_make_no_labels() -> None:
    traffic = Traffic()
    for code in (11, 11, 99_999, -5, 123_456):
        traffic.request(code)
    assert dict(traffic.requests) == {11: 2, -1: 3}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 "),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 "),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
        (b"\r\n\r\n", b"HTTP/1.1 400 "),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400 "),
    ],
)
def test_other_requests_get_no_page(head: bytes, status: bytes) -> None:
    answer = http_answer(head, lambda: "the page\n")
    assert answer.startswith(status)
    assert answer.endswith(b"the page\n") == (b" 200 " in status)


def test_the_page_and_the_log_of_a_real_server(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", create=True):
        pass
    with serving(tmp_path / "s", "--writable", "--metrics", ANY, "--ha-listen", ANY) as served:
        assert served.metrics is not None
        assert served.slaves is not None
        host, _, port = served.metrics.rpartition(":")
        with socket.create_connection((host, int(port))) as silent:
            assert run("produce", "-n", served.namesrv, "-t", "T", "--body", "one").code == 0
            # who asks for nothing holds nobody else
            page = urllib.request.urlopen(f"http://{served.metrics}/metrics", timeout=30).read().decode()
            silent.sendall(b"x" * 20_000)  # and no head is as long as this
        sent = 'rmqctl_requests_total{server="broker",code="310",request="SEND_MESSAGE_V2"} 1'
        assert sent in page.splitlines()
        assert re.search(r"^rmqctl_commitlog_end_offset [1-9]", page, re.MULTILINE)
        line = re.compile(r"# (HELP|TYPE) rmqctl_\w+ .+|rmqctl_\w+(\{[^}]*\})? \d+")
        assert [one for one in page.splitlines() if not line.fullmatch(one)] == []
        assert {"rmqctl_slaves 0", "# TYPE rmqctl_slave_lag_bytes gauge"} <= set(page.splitlines())
        _require_lag_of_slaves(served.metrics, served.slaves)
        connection = http.client.HTTPConnection(served.metrics, timeout=30)
        connection.request("HEAD", "/metrics")
        assert connection.getresponse().read() == b""
        connection.close()
        assert served.process.stderr is not None
        told = json.loads(served.process.stderr.readline())
        assert served.end() == 0
    assert set(told) == {"time", "seconds", "connections", "requests", "bytes_in", "bytes_out", "held"}
    assert told["requests"] > 0


def _require_lag_of_slaves(metrics: str, master: str) -> None:
    """One has nothing yet, one says nothing, one has all and 7 bytes less."""

    def page() -> dict[str, int]:
        text = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30).read().decode()
        samples = (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
        return {name: int(value) for name, _, value in samples}

    end = page()["rmqctl_commitlog_end_offset"]
    host, _, port = master.rpartition(":")
    with contextlib.ExitStack() as slaves:
        names = []
        for report in (1, None, end - 7):
            slave = slaves.enter_context(socket.create_connection((host, int(port))))
            slave.sendall(b"" if report is None else encode_report(report))
            names.append(f'{{slave="127.0.0.1:{slave.getsockname()[1]}"}}')
        limit = time.monotonic() + 60
        wanted = {"rmqctl_slaves": 3}
        wanted |= {f"rmqctl_slave_lag_bytes{names[0]}": end - 1, f"rmqctl_slave_lag_bytes{names[2]}": 7}
        wanted |= {f"rmqctl_slave_unsent_bytes{names[number]}": 0 for number in (0, 2)}
        while not wanted.items() <= (found := page()).items():
            assert time.monotonic() < limit, found
            time.sleep(0.05)
        assert not any(name.endswith(names[1]) for name in found)
