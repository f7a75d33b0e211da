"""What RocketMQ 5.5.0 copied into tiered storage is what its truth says it stored; it is read where the store has no
more than its end."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RmqctlError
from rmqctl.output import outcome as exit_codes
from rmqctl.store.check.check import check
from rmqctl.store.config.tiered_table import TABLE
from rmqctl.store.options import UNHEARD
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.read.tiered import joined_messages, segment_name, tiered_folder, tiered_storage
from rmqctl.store.read.tiered_index import messages_with_key
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, LogGolden, log_golden, tree_state
from tests.rmqctl.looking import run
from tests.store.remote.served import served

Queue = tuple[str, int]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> LogGolden:
    return log_golden("v55-tiered", tmp_path_factory.mktemp("tiered"))


@pytest.fixture
def store(golden: LogGolden, tmp_path: Path) -> Path:
    return golden.copied_to(tmp_path / "store")


@pytest.fixture
def expired(store: Path) -> Path:
    """The store after so many messages more that the file with all of the copied ones could go."""
    lines = [json.dumps({"topic": "TopicTest", "queue_id": 1, "body": "x" * 3000 + str(n)}) for n in range(150)]
    (store.parent / "more").write_text("\n".join(lines))
    assert run("append", "-s", store, "--from", store.parent / "more").code == 0
    (store / "commitlog" / f"{0:020d}").unlink()
    return store


def _segments(store: Path, topic: str, queue_id: int, kind: str) -> list[Path]:
    return sorted(store.glob(f"tiered/*/golden/{topic}/{queue_id}/{kind}/*"), key=lambda path: path.name[8:])


def _truth(golden: LogGolden) -> dict[Queue, list[dict[str, Any]]]:
    found: dict[Queue, list[dict[str, Any]]] = {}
    for row in sorted(golden.rows("msg"), key=lambda row: row["queueOffset"]):
        if row["topic"] != "TBW102":  # topics of the system stay in the store
            found.setdefault((row["topic"], row["queueId"]), []).append(row)
    return found


def test_every_message_was_copied(golden: LogGolden) -> None:
    before = tree_state(golden.store)
    truth = _truth(golden)
    copies = tiered_storage(StoreFiles(golden.store)).queues()
    assert {(one.topic, one.queue_id) for one in copies} == set(truth)
    for copy in copies:
        found = [one.message for one in copy.messages(0, 1 << 40)]
        expected = truth[copy.topic, copy.queue_id]
        assert [one and one.queue_offset for one in found] == [row["queueOffset"] for row in expected]
        assert [one and one.store_timestamp for one in found] == [row["storeTimestamp"] for row in expected]
        assert [one and one.properties().get("UNIQ_KEY") for one in found] == [
            row["properties"].get("UNIQ_KEY") for row in expected
        ]
    assert tree_state(golden.store) == before


def test_every_key_leads_to_its_messages(golden: LogGolden) -> None:
    storage = tiered_storage(StoreFiles(golden.store))
    keys: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for row in golden.rows("msg"):
        properties = row["properties"]
        if row["topic"] == "TBW102":
            continue
        for key in {properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")} - {None, ""}:
            keys.setdefault((row["topic"], key), set()).add((row["queueId"], row["queueOffset"]))
    chosen = dict(itertools.islice(keys.items(), 0, None, 7))
    assert len(chosen) > 30
    for (topic, key), places in chosen.items():
        found = messages_with_key(storage, topic, key, UNHEARD)
        assert {(one.queue_id, one.queue_offset) for one in found} == places, (topic, key)


def test_an_expired_topic_is_read_from_its_tiered_beginning(golden: LogGolden, expired: Path) -> None:
    done = run("cat", "-s", expired, "-t", "TopicTest", "--tiered", "--json")
    rows = done.objects
    copied = Counter(row["queue_id"] for row in rows if row["physical_offset"] == -1)
    assert copied == {queue_id: len(rows) for (topic, queue_id), rows in _truth(golden).items() if topic == "TopicTest"}
    offsets = [row["queue_offset"] for row in rows if row["queue_id"] == 1]
    # the message that crosses nothing: what the removed file had of the new ones is nowhere
    assert (offsets[:9], offsets[9:]) == (list(range(9)), list(range(offsets[9], 159)))
    assert (done.code, f"{offsets[9] - 9} messages of TopicTest, queue 1, from offset 9 on" in done.err) == (1, True)
    # chosen, limited, and from both ends
    assert len(run("cat", "-s", expired, "-t", "TopicTest", "-q", 3, "--tiered", "-n", 4, "--json").objects) == 4
    last = run("cat", "-s", expired, "-t", "TopicTest", "-q", 1, "--tiered", "-n", -2, "--json").objects
    assert [row["queue_offset"] for row in last] == [157, 158]
    between = run("cat", "-s", expired, "-t", "TopicTest", "-q", 1, "--tiered", "-o", 7, "--to", 9, "--json").objects
    assert [row["queue_offset"] for row in between] == [7, 8]


def test_a_message_of_the_copy_is_found(golden: LogGolden, expired: Path) -> None:
    row = next(row for row in golden.rows("msg") if row["topic"] == "TopicTest" and row["properties"].get("KEYS"))
    place = ("-t", "TopicTest", "-q", row["queueId"], "-o", row["queueOffset"])
    by_key = ("-t", "TopicTest", "-k", row["properties"]["KEYS"].split(" ")[0])
    for question in (place, by_key):
        found = run("query", "-s", expired, *question, "--json")
        assert (found.code, "tiered storage" in found.err) == (0, True)
        assert row["queueOffset"] in {one["queue_offset"] for one in found.objects}
        assert {(one["physical_offset"], one["msg_id"]) for one in found.objects} == {(-1, None)}
    for words in (("TopicTest", row["queueId"], row["queueOffset"]), (row["properties"]["UNIQ_KEY"],)):
        (told,) = run("where", "-s", expired, *words, "--json").objects
        assert (told["state"], told["queue_offset"]) == ("stored", row["queueOffset"])
        assert "tiered storage" in told["sentence"]
        assert run("where", "-s", expired, *words).code == 0
    assert run("query", "-s", expired, "-t", "TopicTest", "-q", 1, "-o", 12).code == exit_codes.DAMAGE_OR_NOTHING


def test_what_is_where(expired: Path) -> None:
    rows = run("ls", "-s", expired, "--tiered", "-t", "TopicTest", "--json").objects
    assert [(row["queue_id"], row["tiered_min_offset"], row["tiered_max_offset"]) for row in rows] == [
        (0, 0, 7), (1, 0, 9), (2, 0, 6), (3, 0, 10),
    ]  # fmt: skip
    assert [(row["min_offset"], row["max_offset"], row["in_neither"]) for row in rows] == [
        (None, None, 0), (18, 159, 9), (None, None, 0), (None, None, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("left", ["nothing", "garbage"])
def test_without_its_table_the_copy_is_found_by_names(expired: Path, left: str) -> None:
    wanted = run("cat", "-s", expired, "-t", "%DLQ%GroupA", "--tiered", "--json").out
    for path in (expired / "config").glob(f"{TABLE}*"):
        path.write_text("{{") if left == "garbage" else path.unlink()
    assert run("cat", "-s", expired, "-t", "%DLQ%GroupA", "--tiered", "--json").out == wanted
    assert len(wanted.splitlines()) == 21


def test_the_folder_is_where_the_setting_says(expired: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "far" / "copy"
    elsewhere.parent.mkdir()
    shutil.move(expired / "tiered", elsewhere)
    asked = ("cat", "-s", expired, "-t", "TopicTest", "-q", 2, "--tiered", "--json")
    refused = run(*asked)
    assert (refused.code, "tieredStoreFilePath" in refused.err) == (exit_codes.DAMAGE_OR_NOTHING, True)
    config = tmp_path / "broker.conf"
    config.write_text(f"tieredStoreFilePath={elsewhere}\n")
    assert len(run(*asked, "-c", config).objects) == 6


def test_the_folder_may_be_on_a_server(expired: Path, tmp_path: Path) -> None:
    wanted = run("cat", "-s", expired, "-t", "TopicTest", "--tiered", "--json").out
    folder = tmp_path / "bucket"
    shutil.move(expired / "tiered", folder)
    config = tmp_path / "broker.conf"
    with served(folder) as (server, _):
        config.write_text(f"tieredStoreFilePath={server.address}\n")
        asked = ("-s", expired, "-c", config)
        assert run("cat", *asked, "-t", "TopicTest", "--tiered", "--json").out == wanted
        found = run("check", *asked, "--json").objects
        assert {row["code"] for row in found if "-TIER-" in row.get("code", "")} == {"RMQ-TIER-005"}
        assert server.bytes_read > 0


def test_a_folder_that_is_not_there_is_no_absence(expired: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"tieredStoreFilePath={tmp_path}/unmounted\n")
    for asked in (("cat", "-t", "TopicTest", "--tiered"), ("ls", "--tiered")):
        done = run(asked[0], "-s", expired, "-c", config, *asked[1:])
        assert (done.code, f"{tmp_path}/unmounted" in done.err) == (exit_codes.UNREADABLE, True)


def test_topics_whose_names_look_like_a_cluster_are_no_tiered_storage(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    assert run("append", "-s", store, "-t", "deadbeef_orders", "--body", "x").code == 0
    assert tiered_folder(StoreFiles(store)) is None
    (store / "kept" / "deadbeef_orders" / "0").mkdir(parents=True)
    assert tiered_folder(StoreFiles(store)) is None
    done = run("cat", "-s", store, "-t", "deadbeef_orders", "--tiered")
    assert (done.code, "tieredStoreFilePath" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)


def test_what_a_lost_queue_has_behind_its_copy_is_not_called_absent(store: Path) -> None:
    assert run("append", "-s", store, "-t", "OrderTopic", "--body", "newer").code == 0
    shutil.rmtree(store / "consumequeue/OrderTopic")
    done = run("cat", "--tiered", "-s", store, "-t", "OrderTopic", "--json")
    assert (len(done.objects), done.code) == (28, exit_codes.DAMAGE_OR_NOTHING)
    assert "queue 0 of 'OrderTopic'" in done.err
    assert "rmqctl recover" in done.err


def test_names_of_segments_are_those_of_rocketmq(golden: LogGolden) -> None:
    names = {path.name for path in golden.store.glob("tiered/*/golden/*/*/*/*")}
    assert len(names) > 3
    assert {segment_name(int(name[8:])) for name in names} == names


def test_a_frame_whose_crc_covers_another_place_is_good(store: Path) -> None:
    """With enabledAppendPropCRC the CRC at its end covers the place in the commitlog, which the copy overwrites."""
    config = store.parent / "broker.conf"
    config.write_text("enabledAppendPropCRC=true\n")
    body = ["--body", "x", "-q", "0"]
    assert run("append", "-s", store, "-c", config, "-t", "Sums", *body).code == 0
    (line,) = run("cat", "-s", store, "-t", "Sums", "--json", "--columns", "physical_offset,size").objects
    log = (store / "commitlog" / f"{0:020d}").read_bytes()
    frame = log[line["physical_offset"] :][: line["size"]]
    assert b"__CRC32#" in frame
    folder = next(store.glob("tiered/*/golden")) / "Sums" / "0"
    for kind, data in (
        ("COMMIT_LOG", frame[:28] + bytes(8) + frame[36:]),
        ("CONSUME_QUEUE", struct.pack(">qiq", 0, len(frame), 0)),
    ):
        (folder / kind).mkdir(parents=True)
        (folder / kind / segment_name(0)).write_bytes(data)
    (copy,) = tiered_storage(StoreFiles(store)).queues("Sums")
    (found,) = copy.messages(0, 1)
    assert (found.problem, found.message and found.message.body) == ("", b"x")
    assert "RMQ-TIER-003" not in run("check", "-s", store).out


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 6))])
def test_flipped_bytes_end_in_no_fault(store: Path, seed: int) -> None:
    lot = random.Random(seed)
    targets = [path for path in store.glob("tiered/**/*") if path.is_file()] + [store / "config" / TABLE]
    for _ in range(10):
        path = lot.choice(targets)
        old = path.read_bytes()
        at = lot.randrange(len(old))
        path.write_bytes(old[:at] + bytes([old[at] ^ 1 << lot.randrange(8)]) + old[at + 1 :])
        files = StoreFiles(store)
        try:
            storage = tiered_storage(files, UNHEARD)
            for copy in storage.queues():
                list(
                    joined_messages(
                        StoreReader(files, UNHEARD), Selection(Criteria(copy.topic, copy.queue_id)), UNHEARD
                    )
                )
            messages_with_key(storage, "TopicTest", "key1", UNHEARD)
        except RmqctlError:
            pass
        codes = {finding.code for finding in check(StoreFiles(store))}
        if path.parent.name == "COMMIT_LOG":
            assert codes & {"RMQ-TIER-002", "RMQ-TIER-003"}, (path, at)
        path.write_bytes(old)


def test_each_flipped_byte_of_an_item_is_found_or_changes_no_answer(golden: LogGolden, store: Path) -> None:
    """The seconds of an item, its last four bytes, change none."""
    keys = {(row["topic"], key) for row in golden.rows("msg") for key in row["properties"].get("KEYS", "").split()}
    lot = random.Random(5)
    asked = sorted(lot.sample(sorted(keys), 12))

    def answers() -> list[list[Any]]:
        with StoreFiles(store) as files:
            storage = tiered_storage(files, UNHEARD)
            return [messages_with_key(storage, topic, key, UNHEARD) for topic, key in asked]

    whole, found = answers(), 0
    for path in store.glob("tiered/*/*/rmq_sys_INDEX/0/INDEX/*"):
        old = path.read_bytes()
        for at in lot.sample(range(len(old)), 8):
            path.write_bytes(old[:at] + bytes([old[at] ^ 1 << lot.randrange(8)]) + old[at + 1 :])
            codes = {finding.code for finding in check(StoreFiles(store))}
            assert codes <= {"RMQ-TIER-007"}
            assert codes or answers() == whole, (path, at)
            found += len(codes)
        path.write_bytes(old)
    assert found > 8
