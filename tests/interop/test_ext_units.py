"""Real brokers with enableConsumeQueueExt on stores that we recovered or cut: they find each message by queue and by
tag, and append."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.config.config import read_broker_conf, read_properties
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, truth
from tests.interop.brokers import real_broker, rmqctl
from tests.store.recover.test_recover_ext_units import (
    all_ext_files_lost,
    all_queues_lost,
    both_lost,
    end_of_a_queue_and_its_ext_units_lost,
    ext_file_of_zeros,
    middle_of_a_queue_overwritten,
)

pytestmark = pytest.mark.interop

# the broker of 4.9.8 is not published; its store is
STORES = {"5.3.3": "cqext", "4.9.7": "v4-cqext"}
TOPICS = ("TopicTest", "OrderTopic", "topic-with-dash")
QUEUES = "16"
NEW = 24
DAMAGE = (
    all_queues_lost,
    all_ext_files_lost,
    both_lost,
    end_of_a_queue_and_its_ext_units_lost,
    middle_of_a_queue_overwritten,
    ext_file_of_zeros,
)


def _places(rows: Iterable[dict[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((row["queue_id"], row["queue_offset"]) for row in rows)


def _wanted(rows: list[dict[str, Any]], topic: str, tag: str | None) -> Counter[tuple[int, int]]:
    return Counter(
        (row["queueId"], row["queueOffset"])
        for row in rows
        if row["topic"] == topic and (tag is None or row["properties"].get("TAGS") == tag)
    )


def _asked(namesrv: str, topic: str, tag: str | None) -> Counter[tuple[int, int]]:
    chosen = () if tag is None else ("--tag", tag)
    return _places(rmqctl("consume", "-n", namesrv, "-t", topic, *chosen, code=None))


def _agrees(namesrv: str, rows: list[dict[str, Any]]) -> None:
    for topic in TOPICS:
        tags = {row["properties"].get("TAGS") for row in rows if row["topic"] == topic}
        assert len(tags) > 2
        for tag in (None, "TagB", *sorted(tags - {None, "TagB"})[-1:]):  # one that is no ASCII
            assert _asked(namesrv, topic, tag) == _wanted(rows, topic, tag), (topic, tag)


@pytest.mark.parametrize("damage", [*DAMAGE, None], ids=lambda one: "cut" if one is None else one.__name__)
@pytest.mark.parametrize("version", STORES)
def test_a_real_broker_finds_all_by_queue_and_tag_and_appends(
    golden_store: GoldenStore, tmp_path: Path, version: str, damage: Callable[[Path], None] | None
) -> None:
    name = STORES[version]
    store, conf = golden_store(name), broker_conf(name, tmp_path)
    rows = truth(name).messages
    if damage is None:
        end = sorted(row["phyOffset"] for row in rows)[len(rows) * 2 // 3]
        rows = [row for row in rows if row["phyOffset"] < end]
    else:
        damage(store)
    with StoreFiles(store, read_broker_conf(conf)) as files:
        if damage is None:
            truncate(files, end)
        else:
            recover(files)
    settings = {**read_properties(conf), "enableConsumeQueueExt": "true"}
    with real_broker(version, tmp_path / "real", store, settings, shut_down=True) as real:
        for topic in TOPICS:
            sizes = ("--read-queues", QUEUES, "--write-queues", QUEUES)
            rmqctl("topics", "create", "-n", real.namesrv, "-t", topic, *sizes)
        _agrees(real.namesrv, rows)
        known = {topic: _asked(real.namesrv, topic, "TagB") for topic in TOPICS}
        for topic in TOPICS:
            lines = (json.dumps({"topic": topic, "body": str(n), "tags": "TagB"}) for n in range(NEW))
            rmqctl("produce", "-n", real.namesrv, "--from", "-", given="\n".join(lines) + "\n")
        for topic in TOPICS:
            found = _asked(real.namesrv, topic, "TagB")
            assert found.total() == known[topic].total() + NEW
            assert found >= known[topic]
            # no place is given twice
            assert max(_asked(real.namesrv, topic, None).values()) == 1
    problems = rmqctl("check", "-s", str(store), "-c", str(conf), code=None)
    assert [one for one in problems if one.get("severity") in ("error", "warning")] == []
