"""What `offsets reset` and `dlq redrive` leave is what real brokers serve: mqadmin shows it, a consumer gets it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.output import outcome as exit_codes
from rmqctl.store import MessageStore
from tests import goldens
from tests.goldens import properties
from tests.interop import harness
from tests.interop.brokers import RealBroker, java, mqadmin, real_broker
from tests.rmqctl.looking import run

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

NAME, GROUP, TOPIC = "broker-real", "g-retry", "Events"
FILE = "config/consumerOffset.json"
BROKERS = ("5.5.0", "5.3.3", "4.9.7")
"""Versions of which there is a whole broker to be had: of 4.9.8 Maven Central has the store alone."""
CLIENTS = "5.3.3"


@contextlib.contextmanager
def _serving(version: str, folder: Path, store: Path) -> Iterator[RealBroker]:
    given = (name.partition(".") for name in properties(NAME) if name.startswith(("store.", "broker.")))
    settings = {name: properties(NAME)[f"{kind}.{name}"] for kind, _, name in given}
    with real_broker(version, folder / "real", store, settings, shut_down=True) as serving:
        yield serving


def _progress(lines: list[str]) -> dict[int, int]:
    """The group's offset by queue, as consumerProgress tells it."""
    rows = [line.split() for line in lines if line.startswith(f"{TOPIC} ")]
    return {int(row[2]): int(row[4]) for row in rows}


def _consumed(folder: Path, namesrv: str, count: int) -> list[tuple[int, str]]:
    """Physical offset and SHA-256 of the body of `count` messages that a push consumer of the group gets."""
    told = java(CLIENTS, folder, "Consume", namesrv, "push", TOPIC, GROUP, "*", str(count))
    rows = [line.split("\t") for line in told if line.startswith("message\t")]
    return [(int(row[3]), row[4]) for row in rows]


@pytest.mark.parametrize("version", BROKERS)
def test_a_broker_goes_by_the_offsets_that_were_set(version: str, tmp_path: Path) -> None:
    store = goldens.golden(NAME, tmp_path)
    times = sorted(row["storeTimestamp"] for row in goldens.truth(NAME).messages if row["topic"] == TOPIC)
    at = times[len(times) // 3]
    done = run("offsets", "reset", "-s", store, "-g", GROUP, "-t", TOPIC, "--to", at, "--yes", "--json")
    assert done.code == exit_codes.OK, done.err
    wanted = {row["queue_id"]: row["after"] for row in json.loads(done.out)["rows"]}
    assert len(set(wanted.values())) > 1
    with _serving(version, tmp_path, store) as real:
        (told,) = mqadmin(version, tmp_path, real.namesrv, f"consumerProgress -g {GROUP}")
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
    with _serving(version, tmp_path, store) as real:
        got = _consumed(tmp_path, real.namesrv, len(expected))
    assert sorted(got) == sorted(expected)


def test_lines_for_a_producer_reach_the_group_through_a_live_broker(tmp_path: Path) -> None:
    """And the next redrive notices that it was done."""
    version = "5.3.3"
    store = goldens.golden(NAME, tmp_path)
    assert run("offsets", "reset", "-s", store, "-g", GROUP, "-t", TOPIC, "--to", "latest", "--yes").code == 0
    lines = tmp_path / "again.jsonl"
    with _serving(version, tmp_path, store) as real:
        assert run("dlq", "redrive", "-s", store, "-g", GROUP, "-o", lines).code == exit_codes.OK
        sent = run("produce", "-n", real.namesrv, "--from", lines, "--json")
        assert sent.code == exit_codes.OK, sent.err
        got = _consumed(tmp_path, real.namesrv, 33)
    assert len(got) == len(set(got)) == 33
    again = run("dlq", "redrive", "-s", store, "-g", GROUP, "--dry-run", "--json")
    assert {row["state"] for row in again.objects} == {"redriven"}
