"""Stores of slaves: they deliver nothing, and get what they know of deliveries from their master a minute later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features import feature_store
from tests.goldens import GoldenStore
from tests.rmqctl.looking import run


@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
@pytest.mark.parametrize("broker", ["4.9.8", "5.3.3", "5.5.0"])
def test_offsets_of_delays_that_the_master_has(
    golden_store: GoldenStore, tmp_path: Path, role: str, broker: str
) -> None:
    store, is_slave = golden_store("broker-real"), role == "SLAVE"
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerRole={role}\nmessageDelayLevel=1s 5s\n")
    (store / "config/delayOffset.json").unlink()
    (store / "config/delayOffset.json.bak").unlink()
    checked = run("check", "-s", store, "-c", conf, "--json").objects
    assert any(row["code"] == "RMQ-CFG-050" for row in checked) is not is_slave
    start = run("predict", "-s", store, "-c", conf, "--broker", broker, "--json").objects[0]
    assert any(row["file"] == "delayOffset.json" for row in start["config"]) is not is_slave
    assert (start["messages_stuck"] > 0) is not is_slave
    acting = tmp_path / "acting.conf"
    acting.write_text(f"{conf.read_text()}enableSlaveActingMaster=true\nenableRemoteEscape=true\n")
    acts = run("predict", "-s", store, "-c", acting, "--broker", broker, "--json").objects[0]
    delivers_nothing = is_slave and broker == "4.9.8"
    assert (acts["messages_stuck"] > 0) is not delivers_nothing
    (store / "config/delayOffset.json").write_text('{"offsetTable":{}}')
    start = run("predict", "-s", store, "-c", conf, "--broker", broker, "--json").objects[0]
    assert start["messages_repeated"] == (0 if is_slave else 71)
    acts = run("predict", "-s", store, "-c", acting, "--broker", broker, "--json").objects[0]
    assert acts["messages_repeated"] == (0 if delivers_nothing else 71)


@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
def test_topics_and_offsets_that_the_master_has(tmp_path: Path, role: str) -> None:
    """A slave of 5.5.0, killed before it had these: its next start hands nothing out, and has the topics soon."""
    store, conf, is_slave = feature_store("pop-fs-crash", tmp_path), tmp_path / "broker.conf", role == "SLAVE"
    conf.write_text(f"brokerRole={role}\n")
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        for path in (store / "config" / name, store / "config" / f"{name}.bak"):
            path.unlink(missing_ok=True)
    (store / "config/topics.json").write_text('{"topicConfigTable":{"TBW102":{"topicName":"TBW102"}}}')
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{}}')
    (store / "config/subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"g":{"groupName":"g"}}}')
    found = {row["code"] for row in run("check", "-s", store, "-c", conf, "--json").objects}
    assert {"RMQ-POP-006", "RMQ-CFG-006"} & found == (set() if is_slave else {"RMQ-POP-006", "RMQ-CFG-006"})
    (start,) = run("predict", "-s", store, "-c", conf, "--json").objects
    assert {row["topic"] for row in start["topics_returned"]} == (set() if is_slave else _topics(store))
    groups = run("groups", "--pop", "-s", store, "-c", conf, "--json").objects
    unordered = [row for row in groups if row["way"] != "ordered"]
    assert unordered
    assert all((row["again_at_restart"] > 0) is not is_slave for row in unordered)
    assert all(("does not name" in row["detail"]) is not is_slave for row in unordered)


def _topics(store: Path) -> set[str]:
    return {path.name for path in (store / "consumequeue").iterdir() if not path.name.startswith("rmq_sys_")}
