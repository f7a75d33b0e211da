"""What `offsets reset` and `dlq redrive` leave is what real brokers serve: mqadmin shows it, a consumer gets it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from rmqctl import exit_codes
from rmqctl.formats.config_json import parse_config_json
from rmqctl.store import MessageStore
from tests import goldens
from tests.goldens import properties
from tests.interop import brokers, harness
from tests.interop.brokers import BROKERS
from tests.interop.toolchain import Unavailable, broker
from tests.rmqctl.looking import run

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq"), pytest.mark.xdist_group("brokers")]

NAME, GROUP, TOPIC = "broker-real", "g-retry", "Events"
FILE = "config/consumerOffset.json"
PROGRESS = "consumerProgress -n {} -g {}"


def _require(version: str) -> None:
    try:
        broker(version)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _progress(told: str) -> dict[int, int]:
    """The group's offset by queue, as consumerProgress tells it."""
    rows = [line.split() for line in told.splitlines() if line.startswith(f"{TOPIC} ")]
    return {int(row[2]): int(row[4]) for row in rows}


@pytest.mark.parametrize("version", BROKERS)
def test_a_broker_goes_by_the_offsets_that_were_set(version: str, tmp_path: Path) -> None:
    _require(version)
    store = goldens.golden(NAME, tmp_path)
    times = sorted(row["storeTimestamp"] for row in goldens.truth(NAME).messages if row["topic"] == TOPIC)
    at = times[len(times) // 3]
    done = run("offsets", "reset", "-s", store, "-g", GROUP, "-t", TOPIC, "--to", at, "--yes", "--json")
    assert done.code == exit_codes.OK, done.err
    wanted = {row["queue_id"]: row["after"] for row in json.loads(done.out)["rows"]}
    assert len(set(wanted.values())) > 1
    with brokers.running(version, store, properties(NAME)) as namesrv:
        told = brokers.mqadmin(version, tmp_path, PROGRESS.format(namesrv, GROUP))
    assert _progress(told) == wanted, told
    kept = parse_config_json((store / FILE).read_text(encoding="utf-8"))["offsetTable"][f"{TOPIC}@{GROUP}"]
    assert kept == wanted


@pytest.mark.parametrize("version", harness.VERSIONS)
def test_a_store_opens_as_before(version: str, tmp_path: Path) -> None:
    store = goldens.golden(NAME, tmp_path)
    before = harness.open_store(version, goldens.golden(NAME, tmp_path / "before"), properties(NAME)).complaints()
    assert run("offsets", "reset", "-s", store, "-g", GROUP, "-t", TOPIC, "--to", "earliest").code == exit_codes.OK
    view = harness.open_store(version, store, properties(NAME))
    assert view.complaints() == before


@pytest.mark.parametrize("version", BROKERS)
def test_a_consumer_of_the_group_gets_what_is_redriven(version: str, tmp_path: Path) -> None:
    _require(version)
    store = goldens.golden(NAME, tmp_path)
    assert run("offsets", "reset", "-s", store, "-g", GROUP, "-t", TOPIC, "--to", "latest", "--yes").code == 0
    done = run("dlq", "redrive", "-s", store, "-g", GROUP, "--yes", "--json")
    assert done.code == exit_codes.OK, done.err
    with MessageStore.open(store) as opened:
        expected = {
            (row["stored_offset"], hashlib.sha256(opened.message_at(row["stored_offset"]).body).hexdigest())
            for row in done.objects
        }
    assert len(expected) == 33
    with brokers.running(version, store, properties(NAME)) as namesrv:
        got = brokers.consumed(tmp_path, namesrv, TOPIC, GROUP, len(expected))
    assert sorted(got) == sorted(expected)


def test_lines_for_a_producer_reach_the_group_through_a_live_broker(tmp_path: Path) -> None:
    """And the next redrive notices that it was done."""
    version = BROKERS[0]
    _require(version)
    store = goldens.golden(NAME, tmp_path)
    assert run("offsets", "reset", "-s", store, "-g", GROUP, "-t", TOPIC, "--to", "latest", "--yes").code == 0
    lines = tmp_path / "again.jsonl"
    with brokers.running(version, store, properties(NAME)) as namesrv:
        assert run("dlq", "redrive", "-s", store, "-g", GROUP, "-o", lines).code == exit_codes.OK
        sent = run("produce", "-n", namesrv, "--from", lines, "--json")
        assert sent.code == exit_codes.OK, sent.err
        got = brokers.consumed(tmp_path, namesrv, TOPIC, GROUP, 33)
    assert len(got) == len(set(got)) == 33
    again = run("dlq", "redrive", "-s", store, "-g", GROUP, "--dry-run", "--json")
    assert {row["state"] for row in again.objects} == {"redriven"}
