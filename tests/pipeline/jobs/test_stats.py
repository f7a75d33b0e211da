"""The statistics of stores: against what RocketMQ says of the goldens, against plain counts, on both engines."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.output import outcome as exit_codes
from rmqctl.pipeline.engine import Engine, LocalEngine
from rmqctl.pipeline.jobs.stats import (
    Stats,
    StatsRequest,
    bundle_stats,
    dimensions_of,
    find_duplicates,
    group_rows,
    stats,
    stats_summary,
)
from rmqctl.pipeline.splits import WHOLE_FILES, of_bundle, plan_splits, split_columns
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.pipeline.decoys import MESSAGES, SPLIT_IN_DECOY, store_with_a_huge_decoy
from tests.pipeline.engines import ENGINES_BEYOND_ONE, engine_named
from tests.pipeline.patching import patch_field, patch_text
from tests.quick import every, goldens_of, sample
from tests.rmqctl.looking import run
from tests.store.light_queues import runs_ahead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = ("clean", "features", "v4-features", "propcrc", "cqext", "broker-real", "longtopic")
HERE = LocalEngine(1)
HOUR = 3_600_000
Row = dict[str, Any]


def stats_of(
    root: Path, request: StatsRequest | None = None, split_size: int = WHOLE_FILES, engine: Engine = HERE
) -> Stats:
    with StoreFiles(root) as files:
        return stats(engine, files, request or StatsRequest(), split_size=split_size)


def rows_of(root: Path, *by: str, **chosen: Any) -> list[Row]:
    return group_rows(stats_of(root, StatsRequest(dimensions_of(by), **chosen)))


def summary_of(root: Path, **how: Any) -> Row:
    with StoreFiles(root) as files:
        return stats_summary(stats_of(root, **how), files.log)


def host_of(row: Row) -> str:
    """The producer's address as we write it: Java writes IPv6 in full."""
    address = ip_address(row["bornHost"].lstrip("/").rpartition(":")[0].strip("[]"))
    return str(address) if address.version == 4 else f"[{address}]"


def known_key(row: Row, by: Iterable[str]) -> tuple[Any, ...]:
    """The group of a message, from RocketMQ's words about it."""
    made = {
        "topic": row["topic"],
        "queue": row["queueId"],
        "tag": row["tags"],
        "host": host_of(row),
        "hour": row["storeTimestamp"] // HOUR * HOUR,
        "day": row["storeTimestamp"] // (24 * HOUR) * 24 * HOUR,
    }
    return tuple(made[name] for name in by)


def in_histogram(bars_of: list[Row], values: list[int]) -> bool:
    """Whether every bar has as many messages as there are values in it, and all values are in one."""
    counted = [sum(bar["at_least"] <= value <= bar["at_most"] for value in values) for bar in bars_of]
    return counted == [bar["messages"] for bar in bars_of] and sum(counted) == len(values)


@pytest.mark.parametrize("name", goldens_of(WHOLE))
@pytest.mark.parametrize(
    "by", [("topic",), ("topic", "queue"), ("tag",), ("host", "hour"), ("topic", "tag", "host", "day")]
)
def test_groups_are_what_rocketmq_says_of_the_messages(name: str, by: tuple[str, ...]) -> None:
    known = defaultdict(list)
    for row in truth(name).messages:
        known[known_key(row, by)].append(row)
    found = {tuple(list(row.values())[: len(by)]): row for row in rows_of(store_path(name), *by)}
    assert found.keys() == known.keys()
    for key, row in found.items():
        messages = known[key]
        stored = [one["storeTimestamp"] for one in messages]
        sizes = [one["storeSize"] for one in messages]
        delays = [one["storeTimestamp"] - one["bornTimestamp"] for one in messages]
        assert (row["messages"], row["bytes"]) == (len(messages), sum(sizes))
        assert (row["first_store_timestamp"], row["last_store_timestamp"]) == (min(stored), max(stored))
        assert (row["smallest"], row["largest"]) == (min(sizes), max(sizes))
        assert (row["shortest_delay"], row["longest_delay"]) == (min(delays), max(delays))
        assert in_histogram(row["sizes"], sizes)
        assert in_histogram(row["delays"], delays)
        assert row["p99_delay"] >= sorted(delays)[int(0.99 * (len(delays) - 1))]


@pytest.mark.parametrize("name", goldens_of([*WHOLE, "lmq", "innerbatch", "v4-cqext"]))
def test_queue_offsets_are_those_of_rocketmqs_queues(name: str) -> None:
    found = {(queue["topic"], queue["queue_id"]): queue for queue in stats_of(store_path(name)).queues}
    known = {(row["topic"], row["queueId"]): (row["min"], row["max"]) for row in truth(name).queues if row["max"]}
    assert found.keys() == known.keys()
    for queue, numbers in found.items():
        assert (numbers["min_offset"], numbers["max_offset"]) == known[queue]
        assert (numbers["missing"], numbers["repeated"]) == (0, 0)


def test_hosts_are_addresses_without_ports() -> None:
    found = {row["producer_host"]: row["messages"] for row in rows_of(store_path("clean"), "host")}
    known = Counter(map(host_of, truth("clean").messages))
    assert found == known
    hosts = {row["producer_host"] for row in rows_of(store_path("features"), "host", topic="Ipv6Topic")}
    assert any(host.startswith("[") and host.endswith("]") for host in hosts), hosts


def test_a_topic_and_a_stretch_of_time() -> None:
    messages = [row for row in truth("clean").messages if row["topic"] == "TopicTest"]
    begin, end = messages[50]["storeTimestamp"], messages[150]["storeTimestamp"]
    (row,) = rows_of(store_path("clean"), "topic", topic="TopicTest", begin=begin, end=end)
    assert row["messages"] == sum(begin <= one["storeTimestamp"] <= end for one in messages)
    # a stretch of time has no holes of its own
    assert row["missing_offsets"] == 0
    assert rows_of(store_path("clean"), "topic", topic="nothing") == []


def test_the_largest_group_comes_first_and_hours_come_in_order() -> None:
    sizes = [row["bytes"] for row in rows_of(store_path("clean"), "topic")]
    assert sizes == sorted(sizes, reverse=True)
    queues = [(row["topic"], row["queue_id"]) for row in rows_of(store_path("clean"), "queue")]
    assert queues == sorted(queues)
    times = [row["hour_timestamp"] for row in rows_of(store_path("clean"), "hour", "tag")]
    assert times == sorted(times)


def test_what_nothing_is_counted_by() -> None:
    with pytest.raises(UsageError, match="nothing is counted by 'size'"):
        stats_of(store_path("clean"), StatsRequest(("size",)))


def test_a_store_without_a_log_has_nothing() -> None:
    found = summary_of(store_path("log-gone"))
    assert (found["messages"], found["topics"], found["sizes"]) == (0, [], [])
    assert found["duplicates"] == {"messages": 0, "keys": 0, "stored_again_by_design": 0, "first": []}


def test_a_huge_message_of_decoys_is_counted_as_what_it_is(tmp_path: Path) -> None:
    files, offset = store_with_a_huge_decoy(tmp_path / "store")
    told: list[int] = []
    with files:
        found = stats(
            HERE, files, StatsRequest(("topic",)), split_size=SPLIT_IN_DECOY, events=Events(progress=told.append)
        )
        length = files.log.max_offset
    assert sum(told) == length
    assert (sum(row["messages"] for row in found.groups), found.damage.spans) == (MESSAGES, 0)
    assert sum(row["bytes"] for row in found.groups) == length > offset


def test_holes_and_repeats_of_queue_offsets(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    queue = [row for row in truth("clean").messages if (row["topic"], row["queueId"]) == ("TopicTest", 1)]
    assert [row["queueOffset"] for row in queue] == list(range(len(queue)))
    for number in (10, 11):
        patch_field(root, queue[number]["phyOffset"], "queue_offset", 5)
    (row,) = [row for row in rows_of(root, "queue") if (row["topic"], row["queue_id"]) == ("TopicTest", 1)]
    assert (row["missing_offsets"], row["repeated_offsets"]) == (2, 2)
    (odd,) = summary_of(root)["queue_offsets"]["first"]
    assert (odd["missing_spans"], odd["repeated_spans"]) == ([[10, 11]], [[5, 5]])
    assert (odd["min_offset"], odd["max_offset"]) == (0, len(queue))


def test_a_message_that_lists_a_light_queue_twice_makes_no_hole(tmp_path: Path) -> None:
    queue = runs_ahead(tmp_path / "store")
    assert summary_of(queue.parents[3])["queue_offsets"] == {
        "queues": 2, "missing": 0, "repeated": 0, "uneven_queues": 0, "first": []
    }  # fmt: skip
    with StoreFiles(queue.parents[3]) as files:
        several = stats(HERE, files, StatsRequest(), split_size=300)
    assert several.queues == stats_of(queue.parents[3]).queues


def test_a_queue_offset_that_damage_made_huge_is_only_a_number(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    for number, value in enumerate((-(1 << 63), (1 << 63) - 1)):
        patch_field(root, truth("clean").messages[number]["phyOffset"], "queue_offset", value)
        patch_field(root, truth("clean").messages[number]["phyOffset"], "store_timestamp", value)
    found = summary_of(root)
    assert found["messages"] == len(truth("clean").messages)
    assert found["queue_offsets"]["missing"] > 1 << 59
    assert found["clock"]["jumps"] == 1


def splits_that_begin_at(row: dict[str, Any]) -> int:
    """A size of splits of which one begins at this message, and not earlier."""
    return int(row["phyOffset"]) // 20


def test_jumps_of_the_clock_have_a_place_and_a_size(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    rows = truth("clean").messages
    first, second = rows[700], rows[1900]
    patch_field(root, first["phyOffset"], "store_timestamp", first["storeTimestamp"] + 5_000_000)
    patch_field(root, second["phyOffset"], "store_timestamp", second["storeTimestamp"] - 9_000_000)
    found = summary_of(root)["clock"]
    assert found["jumps"] == 2
    back = first["storeTimestamp"] + 5_000_000 - rows[701]["storeTimestamp"]
    assert found["largest"] == [
        {
            "milliseconds": rows[1899]["storeTimestamp"] - second["storeTimestamp"] + 9_000_000,
            "physical_offset": second["phyOffset"],
            "from_timestamp": rows[1899]["storeTimestamp"],
            "to_timestamp": second["storeTimestamp"] - 9_000_000,
        },
        {
            "milliseconds": back,
            "physical_offset": rows[701]["phyOffset"],
            "from_timestamp": first["storeTimestamp"] + 5_000_000,
            "to_timestamp": rows[701]["storeTimestamp"],
        },
    ]
    by_topic = {row["topic"]: row["clock_jumps"] for row in rows_of(root, "topic") if row["clock_jumps"]}
    assert by_topic == Counter([second["topic"], rows[701]["topic"]])
    # wherever splits begin, between the two messages too
    whole = summary_of(root)
    for later in (rows[701], second):
        assert summary_of(root, split_size=splits_that_begin_at(later)) == whole
    in_future = summary_of(root, request=StatsRequest(now=max(row["storeTimestamp"] for row in rows)))
    assert in_future["clock"]["in_future"] == 1


def test_duplicates_are_counted_in_their_topic_and_shown_with_their_places(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    by_topic = defaultdict(list)
    for row in truth("clean").messages:
        if "UNIQ_KEY" in row["properties"]:
            by_topic[row["topic"]].append(row)

    def give(topic: str, number: int, like: str, like_number: int) -> None:
        old, new = by_topic[topic][number], by_topic[like][like_number]
        keys = [one["properties"]["UNIQ_KEY"] for one in (old, new)]
        patch_text(root, old["phyOffset"], keys[0], keys[1])

    give("TopicTest", 7, "TopicTest", 3)
    give("TopicTest", 9, "TopicTest", 3)
    give("OrderTopic", 5, "OrderTopic", 4)
    give("%RETRY%GroupA", 2, "%RETRY%GroupA", 1)
    give("TBW102", 2, "TopicTest", 3)  # another topic: how a delayed or retried message comes to have an old key
    found = summary_of(root)["duplicates"]
    assert (found["messages"], found["keys"], found["stored_again_by_design"]) == (3, 2, 1)
    expected = [
        ("TopicTest", [by_topic["TopicTest"][number]["phyOffset"] for number in (3, 7, 9)]),
        ("OrderTopic", [by_topic["OrderTopic"][number]["phyOffset"] for number in (4, 5)]),
    ]
    expected.sort(key=lambda item: item[1])
    assert [(one["topic"], one["physical_offsets"]) for one in found["first"]] == expected
    of_test = next(one for one in found["first"] if one["topic"] == "TopicTest")
    assert of_test["unique_key"] == by_topic["TopicTest"][3]["properties"]["UNIQ_KEY"]
    assert of_test["messages"] == 3
    assert {row["topic"]: row["duplicates"] for row in rows_of(root, "topic") if row["duplicates"]} == {
        "TopicTest": 2,
        "OrderTopic": 1,
        "%RETRY%GroupA": 1,
    }
    again = [("TopicTest", 7), ("TopicTest", 9), ("OrderTopic", 5), ("%RETRY%GroupA", 2)]
    hosts = Counter(host_of(by_topic[topic][number]) for topic, number in again)
    assert {row["producer_host"]: row["duplicates"] for row in rows_of(root, "host") if row["duplicates"]} == hosts
    assert summary_of(root, split_size=40_000) == summary_of(root)


def test_duplicates_are_the_same_in_any_number_of_partitions(golden_store: GoldenStore, monkeypatch: Any) -> None:
    root = golden_store("clean")
    messages = truth("clean").messages
    rows = [row for row in messages if row["topic"] == "OrderTopic" and "UNIQ_KEY" in row["properties"]]
    for number in range(1, 40, 3):
        patch_text(
            root, rows[number]["phyOffset"], rows[number]["properties"]["UNIQ_KEY"], rows[0]["properties"]["UNIQ_KEY"]
        )
    whole = summary_of(root)
    assert (whole["duplicates"]["messages"], whole["duplicates"]["keys"]) == (13, 1)
    monkeypatch.setattr("rmqctl.pipeline.jobs.stats.PARTITION_BYTES", 100_000)
    assert summary_of(root) == whole
    with StoreFiles(root) as files:
        task = partial(bundle_stats, StatsRequest(), 7)
        parts = [of_bundle(task, [split])[1] for split in plan_splits(files, 50_000)]
    assert {len(part) for part in parts} == {7}
    found = [find_duplicates(1, pieces)["repeats"][0].to_pylist() for pieces in zip(*parts, strict=True)]
    assert [one for one in found if one] == [[{"d0": "OrderTopic", "repeats": 13}]]


@pytest.mark.parametrize("rows", [200])
def test_short_runs_come_to_the_same(golden_store: GoldenStore, monkeypatch: Any, rows: int) -> None:
    root = golden_store("broker-real")
    messages = truth("broker-real").messages
    for number in (40, 41, 90):
        patch_field(root, messages[number]["phyOffset"], "store_timestamp", 1_000_000 * number)
        patch_field(root, messages[number + 1]["phyOffset"], "queue_offset", 5)
    chosen = StatsRequest(dimensions_of(("queue", "hour")))
    whole, by_group = summary_of(root), group_rows(stats_of(root, chosen))
    assert whole["clock"]["jumps"] >= 2
    assert whole["queue_offsets"]["repeated"] >= 1
    # a batch of the walk is taken whole, so only short windows make short runs
    monkeypatch.setattr("rmqctl.pipeline.jobs.stats.RUN_ROWS", rows)
    monkeypatch.setattr("rmqctl.pipeline.jobs.stats.split_columns", partial(split_columns, rows=rows))
    assert summary_of(root) == whole
    assert group_rows(stats_of(root, chosen)) == by_group


@pytest.mark.parametrize(
    "name", sample(["gap", "crc-flip-third", "torn-zero", "short-middle", "v4-crc-flip-old"], ["gap", "torn-zero"])
)
def test_damage_is_counted_and_named(name: str) -> None:
    from rmqctl.store.log.walk import Damage, walk

    with StoreFiles(store_path(name)) as files:
        known = [record for record in walk(files.log) if isinstance(record, Damage)]
    found = summary_of(store_path(name))["damage"]
    assert (found["spans"], found["bytes"]) == (len(known), sum(span.end - span.physical_offset for span in known))
    assert [(one["physical_offset"], one["reason"]) for one in found["first"]] == [
        (span.physical_offset, span.reason.value) for span in known
    ]


@pytest.mark.parametrize("name", goldens_of(["features", "gap", "crc-flip-old", "torn-zero", "lmq", "innerbatch"]))
@pytest.mark.parametrize("split_size", sample([12_000, 33_333, 1 << 20], [33_333]))
def test_any_split_size_comes_to_the_same(name: str, split_size: int) -> None:
    request = StatsRequest(dimensions_of(("queue", "tag", "host", "hour")))
    found, whole = (stats_of(store_path(name), request, size) for size in (split_size, WHOLE_FILES))
    assert group_rows(found) == group_rows(whole)
    assert summary_of(store_path(name), split_size=split_size) == summary_of(store_path(name))


@pytest.mark.parametrize("other", ENGINES_BEYOND_ONE)
@pytest.mark.parametrize("name", every(2, ["features", "gap"]))
def test_every_engine_comes_to_the_same_bytes(name: str, other: str, request: pytest.FixtureRequest) -> None:
    dimensions = dimensions_of(("queue", "tag", "host", "hour"))
    made = set()
    for engine in (HERE, engine_named(other, request)):
        with StoreFiles(store_path(name)) as files:
            by_group = stats(engine, files, StatsRequest(dimensions), split_size=100_000)
            whole = stats(engine, files, StatsRequest(), split_size=100_000)
            made.add(json.dumps([group_rows(by_group), stats_summary(whole, files.log)]))
    assert len(made) == 1


def test_the_command_runs_on_spark_and_prints_the_same(spark: SparkSession) -> None:
    store = store_path("features")
    for arguments in ((), ("--by", "queue,tag", "--json")):
        on_spark = run("stats", "-s", store, *arguments)
        assert (on_spark.code, on_spark.err) == (exit_codes.OK, "")
        assert run("stats", "-s", store, "--master", "in-process", *arguments) == on_spark
