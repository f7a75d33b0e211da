"""Entries of topics.json under other names: what the real brokers make of them, check, predict and repair say."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from tests import goldens
from tests.goldens import properties
from tests.interop.brokers import SMALL, real_broker
from tests.network.callers import with_header
from tests.quick import sample
from tests.rmqctl.looking import run

pytestmark = pytest.mark.interop

_NOT_THERE = 17


def _store(folder: Path, **named: str | None) -> Path:
    """Unpack a golden, with copies of an entry of topics.json that have these names."""
    store = goldens.golden("broker-real", folder)
    path = store / "config/topics.json"
    content = parse_config_json(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    table = content["topicConfigTable"]
    for topic, name in named.items():
        table[topic] = {**table["Pay"], "topicName": name}
    path.write_text(json.dumps(content), encoding="utf-8")
    return store


def _settings() -> dict[str, str]:
    of_store = {key.removeprefix("store."): value for key, value in properties("broker-real").items()}
    return {**SMALL, **{key: value for key, value in of_store.items() if "storePath" not in key}}


@pytest.mark.parametrize("version", sample(["5.5.0", "5.3.3", "4.9.7"], ["5.3.3"]))
def test_no_route_leads_to_a_topic_with_another_name(version: str, tmp_path: Path) -> None:
    store = _store(tmp_path / "golden", Copy="Pay")
    assert "clients find no route to Copy (Pay)" in run("predict", "-s", store).err
    for code in (_NOT_THERE, 0):
        with (
            real_broker(version, tmp_path / f"of-{code}", store, _settings(), shut_down=True) as real,
            contextlib.closing(Client(real.namesrv)) as client,
        ):
            asked = with_header(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Copy"})
            assert client.ask(real.namesrv, *asked, allowed=(0, _NOT_THERE)).code == code
        if code:
            assert run("repair", "-s", store, "--only", "RMQ-CFG-025", "-y").code == 0


@pytest.mark.parametrize("version", sample(["5.5.0", "5.3.3"], ["5.5.0"]))
def test_no_broker_of_5_starts_with_a_topic_without_a_name(version: str, tmp_path: Path) -> None:
    store = _store(tmp_path / "golden", Nameless=None)
    predicted = run("predict", "-s", store, "--broker", version)
    assert f"A broker {version} does not start." in predicted.out
    with (
        pytest.raises(AssertionError, match="NullPointerException"),
        real_broker(version, tmp_path / "refused", store, _settings()),
    ):
        pass
    (store / "abort").unlink()
    assert run("repair", "-s", store, "--only", "RMQ-CFG-026", "-y").code == 0
    with real_broker(version, tmp_path / "taken", store, _settings(), shut_down=True):
        pass
