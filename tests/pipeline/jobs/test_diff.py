"""Diffs of stores that were made different in a known way, on both engines and in splits of any size."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.output import outcome as exit_codes
from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs.diff import Diff, diff, diff_summary, work_of
from rmqctl.pipeline.jobs.diff_match import DAMAGED, SAME
from rmqctl.pipeline.splits import WHOLE_FILES
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.prepare import copy_of
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.pipeline.decoys import MESSAGES as FEW
from tests.pipeline.decoys import SPLIT_IN_DECOY, store_with_a_huge_decoy
from tests.pipeline.engines import ENGINES_BEYOND_ONE, engine_named
from tests.pipeline.patching import patch, patch_field, patch_text
from tests.quick import every
from tests.rmqctl.looking import run
from tests.store.logs import BODY_AT
from tests.store.write.writing import small, stored_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = LocalEngine(1)
Row = dict[str, Any]


def diff_of(a: Path, b: Path, split_size: int = WHOLE_FILES, **options: Any) -> Diff:
    with StoreFiles(a) as files_a, StoreFiles(b) as files_b:
        return diff(HERE, files_a, files_b, split_size=split_size, **options)


def report(a: Path, b: Path, **options: Any) -> Row:
    """The summary, which splits of any size have to come to."""
    made = []
    for split_size in (WHOLE_FILES, 30_000):
        with StoreFiles(a) as files_a, StoreFiles(b) as files_b:
            made.append(diff_summary(diff(HERE, files_a, files_b, split_size=split_size, **options), files_a, files_b))
    assert made[0] == made[1]
    return made[0]


def counts(row: Row) -> Row:
    """The counts of messages that are not zero."""
    found: Row = {}
    for name, value in row["messages"].items():
        if isinstance(value, dict):
            found |= {f"{name[:6]}:{reason}": count for reason, count in value.items() if count}
        elif value and name not in ("only_a", "only_b"):
            found[name] = value
    return found


def swapped(row: Row) -> Row:
    """The counts as they are with the stores the other way round."""
    others = {"only_a": "only_b", "only_b": "only_a"}
    return {others.get(name[:6], name[:6]) + name[6:]: count for name, count in row.items()}


MESSAGES = truth("clean").messages
TOTAL = len(MESSAGES)


@pytest.mark.parametrize("name", every(3, ["clean", "features", "v4-features", "propcrc", "lmq", "innerbatch"]))
def test_a_copy_is_the_same(name: str, golden_store: GoldenStore) -> None:
    found = report(store_path(name), golden_store(name))
    total = len(truth(name).messages)
    assert (found["same"], counts(found)) == (True, {"same": total})
    assert (found["copies_of_one_log"], found["first_divergence"]) == (True, None)
    assert found["agree_until"] == found["a"]["end_offset"] == found["b"]["end_offset"]
    assert {row["topic"]: row["messages_a"] for row in found["topics"]} == Counter(
        row["topic"] for row in truth(name).messages
    )
    for row in found["topics"]:
        assert row["digest_a"] == row["digest_b"]
        assert row["ordered_digest_a"] == row["ordered_digest_b"]


def test_a_field_that_no_checksum_covers_is_found(golden_store: GoldenStore) -> None:
    root, row = golden_store("clean"), MESSAGES[1200]
    patch_field(root, row["phyOffset"], "flag", 77)
    found = report(store_path("clean"), root)
    assert counts(found) == {"same": TOTAL - 1, "changed": 1}
    divergence = found["first_divergence"]
    assert divergence["record_offset"] == found["agree_until"] == row["phyOffset"]
    assert divergence["physical_offset"] == row["phyOffset"] + 19
    assert (divergence["a"]["record"], divergence["b"]["record"]) == ("message", "message")
    assert divergence["fields"] == ["flag"]
    assert divergence["same_again_behind"] == TOTAL - 1201
    (difference,) = found["differences"]
    assert (difference["state"], difference["fields"], difference["only"]) == ("changed", ["flag"], None)
    assert difference["a"]["msg_id"] == row["msgId"]
    topics = [one["topic"] for one in found["topics"] if one["digest_a"] != one["digest_b"]]
    assert topics == [row["topic"]]


def test_a_huge_message_of_decoys_is_compared_as_what_it_is(tmp_path: Path) -> None:
    files, offset = store_with_a_huge_decoy(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    told: list[int] = []
    with files, StoreFiles(tmp_path / "b") as copy:
        found = diff(HERE, files, copy, split_size=SPLIT_IN_DECOY, events=Events(progress=told.append))
        assert sum(told) == work_of(files, copy) == 2 * files.log.written_end()
    assert (found.is_same, found.a.messages, counts_of(found)) == (True, FEW, {SAME: FEW})
    patch(tmp_path / "b", offset, BODY_AT + 20_000, b"x")
    with StoreFiles(tmp_path / "a") as files, StoreFiles(tmp_path / "b") as copy:
        found = diff(HERE, files, copy, split_size=SPLIT_IN_DECOY)
    assert found.divergence == offset + BODY_AT + 20_000
    assert counts_of(found) == {SAME: FEW - 1, DAMAGED: 1}
    assert [(span.physical_offset, span.reason.value) for span in found.b.damage] == [(offset, "body_crc")]


def counts_of(found: Diff) -> dict[str, int]:
    """How many messages, by what became of them."""
    sums: Counter[str] = Counter()
    for (_, _, state), count in found.matched.counts.items():
        sums[state] += count
    return dict(sums)


def test_a_damaged_copy_lacks_nothing_that_damage_hides(golden_store: GoldenStore) -> None:
    found = report(store_path("clean"), store_path("crc-flip-old"))
    (span,) = found["b"]["damage"]
    assert counts(found) == {"same": TOTAL - 1, "only_a:damaged": 1}
    assert found["first_divergence"]["b"]["record"] == "damage"
    assert found["first_divergence"]["b"]["reason"] == "body_crc"
    assert found["agree_until"] == span["physical_offset"]
    assert found["first_divergence"]["same_again_behind"] > 1000
    other = report(store_path("crc-flip-old"), store_path("clean"))
    assert counts(other) == {"same": TOTAL - 1, "only_b:damaged": 1}
    # damaged alike: the same, and still damaged
    both = report(store_path("crc-flip-old"), golden_store("crc-flip-old"))
    assert both["same"]
    assert both["b"]["damaged_spans"] == 1


def test_a_missing_file_is_damage_and_a_removed_first_one_is_not() -> None:
    with StoreFiles(store_path("clean")) as files:
        size = files.log.file_size
    for name, reason in (("gap", "damaged"), ("first-gone", "cleaned")):
        found = report(store_path("clean"), store_path(name))
        there = {path.name for path in (store_path(name) / "commitlog").iterdir()}
        gone = [row for row in MESSAGES if f"{row['phyOffset'] // size * size:020}" not in there]
        assert counts(found) == {"same": TOTAL - len(gone), f"only_a:{reason}": len(gone)}
        assert found["first_divergence"] is None
    # what both cover is the same
    assert all(row["digest_a"] == row["digest_b"] for row in found["topics"])
    assert not found["same"]


def test_a_store_that_ends_earlier_is_behind(golden_store: GoldenStore) -> None:
    root, last = golden_store("clean"), MESSAGES[-41]
    with StoreFiles(root) as files:
        file = files.log.find(last["phyOffset"])
        assert file is not None
        with file.path.open("r+b") as opened:
            opened.truncate(last["phyOffset"] - file.start_offset)
            opened.truncate(file.size)
    found = report(store_path("clean"), root)
    assert counts(found) == {"same": TOTAL - 41, "only_a:behind": 41}
    assert (found["agree_until"], found["first_divergence"]) == (last["phyOffset"], None)
    assert found["b"]["end_offset"] == last["phyOffset"]
    assert [one["physical_offset_a"] for one in found["differences"]] == [row["phyOffset"] for row in MESSAGES[-41:-21]]
    assert counts(report(root, store_path("clean"))) == swapped(counts(found))


def test_a_store_without_a_log_has_nothing_in_common() -> None:
    found = report(store_path("clean"), store_path("log-gone"))
    assert counts(found) == {"only_a:absent": TOTAL}
    assert not found["copies_of_one_log"]
    assert found["b"]["end_offset"] is None


def append(root: Path, bodies: list[str], topic: str = "TopicTest", queue_id: int = 0) -> None:
    with MessageStore.open(root, "rw") as store:
        for body in bodies:
            result = store.put(Message(topic, body.encode(), queue_id=queue_id))
            assert result.status.is_stored


def test_stores_that_went_their_own_ways_part_where_the_first_of_their_own_messages_stands(tmp_path: Path) -> None:
    old = tmp_path / "old"
    with MessageStore.open(old, "rw", small(), create=True) as store:
        for number in range(50):
            store.put(Message("Topic", f"common {number}".encode(), queue_id=number % 3))
        end = store.put(Message("Topic", b"the last", queue_id=0)).physical_offset
    master, slave = tmp_path / "master", tmp_path / "slave"
    shutil.copytree(old, master)
    shutil.copytree(old, slave)
    append(master, ["of the master", "more of the master"], "Topic")
    append(slave, ["of the slave, promoted", "and more", "and more"], "Topic")
    with StoreFiles(old) as files:
        end = diff_of(old, old).a.end or 0
        assert files.log.max_offset > end
    found = report(master, slave)
    assert found["agree_until"] == end
    assert found["first_divergence"]["same_again_behind"] == 0
    assert found["first_divergence"]["a"]["queue_offset"] == found["first_divergence"]["b"]["queue_offset"] == 18
    # without unique keys what stands at one place counts as changed; the third message is no tail that is still to come
    assert counts(found) == {"same": 51, "changed": 2, "only_b:absent": 1}
    assert not found["same"]


def test_a_message_that_has_another_place_was_moved(tmp_path: Path) -> None:
    def store(name: str, keys: list[str]) -> Path:
        root = tmp_path / name
        with MessageStore.open(root, "rw", small(), create=True) as opened:
            for key in keys:
                body = f"body of {key}".encode()
                opened.put(Message("Topic", body, 0, properties={"UNIQ_KEY": key}, born_timestamp=1))
        return root

    a, b = store("a", ["k1", "k2", "k3", "k4"]), store("b", ["k1", "k3", "k2", "k5", "k6"])
    found = report(a, b, content=True)
    assert not found["copies_of_one_log"]
    assert counts(found) == {"same": 1, "replaced": 3, "moved": 2, "only_b:behind": 1}
    states = {(one["state"], one["queue_offset"]) for one in found["differences"]}
    assert states == {("replaced", 1), ("replaced", 2), ("replaced", 3), ("moved", 1), ("moved", 2), ("behind", 4)}


def test_a_store_of_other_file_sizes_with_the_same_messages_has_the_same_content(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with MessageStore.open(other, "rw", small(mapped_file_size_commit_log=100_000), create=True) as store:
        for message in stored_messages(store_path("features")):
            assert store.put(copy_of(message), as_stored=True).status.is_stored
    total = len(truth("features").messages)
    for content in (True, False):
        found = report(store_path("features"), other, content=content)
        assert (counts(found), found["same"]) == ({"same": total}, True)
        assert (found["copies_of_one_log"], found["first_divergence"]) == (False, None)
        for row in found["topics"]:
            assert (row["digest_a"], row["ordered_digest_a"]) == (row["digest_b"], row["ordered_digest_b"])
    # one message less, in the middle of its queue
    less = tmp_path / "less"
    with MessageStore.open(less, "rw", small(mapped_file_size_commit_log=100_000), create=True) as store:
        for number, message in enumerate(stored_messages(store_path("features"))):
            if number != 40:
                assert store.put(copy_of(message), as_stored=True).status.is_stored
    found = report(store_path("features"), less, content=True)
    assert not found["same"]
    assert found["messages"]["only_a"] == 1


def test_keys_that_were_exchanged_are_both_moved(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    rows = [row for row in MESSAGES if row["topic"] == "TopicTest" and "UNIQ_KEY" in row["properties"]][10:12]
    keys = [row["properties"]["UNIQ_KEY"] for row in rows]
    patch_text(root, rows[0]["phyOffset"], keys[0], keys[1])
    patch_text(root, rows[1]["phyOffset"], keys[1], keys[0])
    found = report(store_path("clean"), root)
    assert counts(found) == {"same": TOTAL - 2, "replaced": 2, "moved": 2}
    assert all("properties.UNIQ_KEY" in one["fields"] for one in found["differences"] if one["state"] == "replaced")


def test_no_more_differences_are_listed_than_asked_for_and_what_is_odd_comes_first(golden_store: GoldenStore) -> None:
    root = golden_store("first-gone")
    patch_field(root, MESSAGES[-1]["phyOffset"], "flag", 5)
    found = report(store_path("clean"), root, limit=3)
    assert [one["state"] for one in found["differences"]] == ["changed", "cleaned", "cleaned"]
    assert [one["physical_offset_a"] for one in found["differences"][1:]] == [0, MESSAGES[1]["phyOffset"]]
    assert report(store_path("clean"), root, limit=100)["messages"] == found["messages"]


@pytest.mark.parametrize(
    "names", every(3, itertools.permutations(["clean", "crash", "gap", "torn-zero", "short-middle"], 2))
)
def test_all_messages_are_accounted_for(names: tuple[str, str]) -> None:
    found = diff_of(store_path(names[0]), store_path(names[1]))
    sums: Counter[tuple[str, str]] = Counter()
    for (_, side, state), count in found.matched.counts.items():
        sums[side, state] += count
    both = sum(sums["", state] for state in ("same", "changed", "replaced"))
    for side, seen in (("a", found.a), ("b", found.b)):
        own = sum(count for (of, _), count in sums.items() if of == side)
        assert both + own == seen.messages == len(stored_messages(store_path(names["ab".index(side)])))


def test_content_leaves_out_what_brokers_add(golden_store: GoldenStore) -> None:
    root, row = golden_store("clean"), MESSAGES[33]
    patch_field(root, row["phyOffset"], "store_timestamp", row["storeTimestamp"] + 1)
    patch_field(root, row["phyOffset"], "store_host_port", 1)
    assert counts(report(store_path("clean"), root)) == {"same": TOTAL - 1, "changed": 1}
    assert not report(store_path("clean"), root)["same"]
    found = report(store_path("clean"), root, content=True)
    assert (found["same"], counts(found)) == (True, {"same": TOTAL})
    patch_field(root, row["phyOffset"], "born_timestamp", 1)
    assert counts(report(store_path("clean"), root, content=True)) == {"same": TOTAL - 1, "changed": 1}


@pytest.mark.parametrize("other", ENGINES_BEYOND_ONE)
def test_every_engine_comes_to_the_same_bytes(other: str, request: pytest.FixtureRequest) -> None:
    for names in (("clean", "crc-flip-third"), ("features", "clean")):
        made = set()
        for engine in (HERE, engine_named(other, request)):
            with StoreFiles(store_path(names[0])) as a, StoreFiles(store_path(names[1])) as b:
                made.add(json.dumps(diff_summary(diff(engine, a, b, split_size=300_000), a, b)))
        assert len(made) == 1


def test_the_command_runs_on_spark_and_prints_the_same(spark: SparkSession) -> None:
    stores = store_path("clean"), store_path("crc-flip-third")
    on_spark = run("diff", *stores, "--json")
    assert (on_spark.code, on_spark.err) == (exit_codes.DAMAGE_OR_NOTHING, "")
    assert run("diff", *stores, "--json", "--master", "in-process") == on_spark
