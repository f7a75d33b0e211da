"""Requests as no client sends them: ours answers as the real proxy did, with few exceptions."""

from __future__ import annotations

from pathlib import Path

from tests.network.grpc.requests import SETTINGS, Raw, answers, create_typed
from tests.network.grpc.script import run
from tests.network.serving import serving

# by what is asked: why ours answers otherwise
DIFFERS = {
    "an unknown group": "a group is made as the broker's autoCreateSubscriptionGroup says, by whichever call",
    "ack: another group": "a foreign handle changes nothing; the real one acknowledges another group's message",
    "change: another group": "the same",
    "change: 20 s": "a handle whose time was changed is no more",
    "ack: with the new one": "there is none",
    "dlq: unknown topic": "a handle is good for its topic only",
    "route of dead letters": "the topic is known at once, not after a minute",
    "lite": "lite topics are not implemented",
}


def test_it_answers_as_the_real_proxy(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in {"brokerName": "broker-a", **SETTINGS}.items()))
    with serving(tmp_path / "store", "--writable", "--create", "-c", str(conf), "--grpc", "127.0.0.1:0") as served:
        assert served.grpc is not None
        create_typed(served.namesrv, served.broker)
        raw = Raw(served.grpc)
        try:
            found = dict(run(raw))
        finally:
            raw.close()
        assert served.end() == 0
        assert "failed" not in served.errors
    real = answers()
    assert found.keys() == real.keys()
    assert {label for label, one in found.items() if one != real[label]} == DIFFERS.keys()
