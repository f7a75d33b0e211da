"""TLS: Java clients with tls.enable=true at `serve --tls-cert`, and our clients with --tls at the real broker."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from tests.interop.brokers import java, real_broker, rmqctl
from tests.interop.harness import VERSIONS
from tests.interop.toolchain import BROKERS
from tests.network.callers import with_header
from tests.network.certificates import certificate
from tests.network.serving import serving

pytestmark = pytest.mark.interop

BODIES = [f"häl-lo {number}" for number in range(6)] + ["j" * 20_000, "delayed", "COMMIT_MESSAGE"]
BODIES += [f"batch {number}" for number in range(3)]


@pytest.mark.parametrize("version", VERSIONS)
def test_java_clients_encrypt_and_others_do_not(version: str, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    options = ("--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    encrypted = {"tls_enable": "true"}
    with serving(tmp_path / "store", "--writable", "--create", *options) as served:
        client = Client(served.namesrv)
        client.ask(served.broker, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, {
            "topic": "Secret", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        }))  # fmt: skip
        client.close()
        sent = java(version, tmp_path, "Send", served.namesrv, "Secret", "6", **encrypted)
        assert {line.split("\t")[2] for line in sent if line.startswith("sent")} == {"SEND_OK"}
        digests = sorted(hashlib.sha256(body.encode()).hexdigest() for body in BODIES)
        for group, properties in (("encrypted", encrypted), ("plain", {})):
            arguments = ("push", "Secret", group, "*", str(len(BODIES)))
            lines = java(version, tmp_path, "Consume", served.namesrv, *arguments, **properties)
            got = [line.split("\t") for line in lines if line.startswith("message")]
            assert sorted(one[4] for one in got) == digests, group
        assert served.end() == 0
        assert "Traceback" not in served.errors


@pytest.mark.parametrize("version", BROKERS)
def test_our_clients_encrypt_at_the_real_broker(version: str, tmp_path: Path) -> None:
    with real_broker(version, tmp_path / "real", tmp_path / "store", {"timerWheelEnable": "false"}) as real:
        at = ("-n", real.namesrv, "--tls")
        for number in range(3):
            (sent,) = rmqctl("produce", *at, "-t", "Secret", "--body", "x" * 100_000 + str(number))
            assert sent["status"] == "SEND_OK"
        got = rmqctl("consume", *at, "-t", "Secret", "-g", "g")
        assert sorted(one["body"][-1] for one in got) == ["0", "1", "2"]
        assert [row["version"] for row in rmqctl("cluster", *at)] == ["V" + version.replace(".", "_")]
