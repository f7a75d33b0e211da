"""Stores of RocketMQ 5.5.0: check agrees with what it writes, and it serves what recover and append leave."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.formats.checksums import tag_key
from rmqctl.formats.message import Message
from rmqctl.store.config.config import config_from_properties
from rmqctl.store.message_store import MessageStore
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles, read_checkpoint
from tests.goldens import log_golden
from tests.interop import harness
from tests.interop.harness import NEWEST, BrokerView, Job
from tests.store.check.test_old_tails import with_an_old_tail
from tests.store.rocksdb.stores import queues, unpacked
from tests.store.v55 import messages_of_5_5, store_of_5_5

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("newest")]

SETTINGS = {
    "store.mappedFileSizeCommitLog": "262144",
    "store.mappedFileSizeConsumeQueue": "2000",
    "store.maxHashSlotNum": "500",
    "store.maxIndexNum": "2000",
    "store.enableCompaction": "false",
    "store.timerWheelEnable": "false",
}
CONFIG = config_from_properties({name.removeprefix("store."): value for name, value in SETTINGS.items()})


@pytest.fixture(scope="module")
def newest() -> None:
    """RocketMQ 5.5.0 is ready; else the test is skipped (in CI a failing fetch is an error)."""
    reason = harness.available(NEWEST)
    if reason is not None:
        pytest.skip(reason)


def _opened(store: Path, queries: Sequence[tuple[str, str]] = ()) -> BrokerView:
    """Open a store with RocketMQ, which may change nothing but its bookkeeping and its RocksDB."""
    view = harness.open_store(NEWEST, store, SETTINGS, queries)
    assert view.complaints() == []
    return view


def _alarms(store: Path) -> list[str]:
    with MessageStore.open(store, config=CONFIG) as opened:
        return [finding.message for finding in opened.check("full") if finding.severity.is_alarm]


@pytest.mark.parametrize("halt", [False, True])
def test_check_agrees_on_what_5_5_writes(tmp_path: Path, halt: bool) -> None:
    store = tmp_path / "store"
    written = harness.write_store(NEWEST, store, SETTINGS, kinds=harness.KINDS, messages=20, halt=halt)
    assert len(written) >= 100
    assert _alarms(store) == []
    if not halt:
        before = read_checkpoint(store / "checkpoint")
        assert before is not None
        assert before.logics_physical_offset > 0


@pytest.mark.parametrize("lost", ["nothing", "index", "queues", "checkpoint", "units"])
def test_5_5_serves_what_recover_leaves(tmp_path: Path, lost: str) -> None:
    store = store_of_5_5(tmp_path)
    (store / "abort").write_bytes(b"1")
    if lost == "index":
        shutil.rmtree(store / "index")
    elif lost == "queues":
        shutil.rmtree(store / "consumequeue")
    elif lost == "checkpoint":
        (store / "checkpoint").unlink()
    elif lost == "units":
        file = store / "consumequeue" / "TopicTest" / "0" / f"{0:020d}"
        with file.open("r+b") as raw:
            raw.write(bytes(2000))
    with MessageStore.open(store, config=CONFIG) as opened:
        opened.recover()
    assert _alarms(store) == []
    expected = {row["phyOffset"] for row in messages_of_5_5() if row["cq"]}
    assert {message.physical_offset for message in _opened(store).messages} == expected
    assert _alarms(store) == []


@pytest.mark.parametrize("name", ["v55-syncflush", "v55-nommap"])
def test_5_5_reads_what_append_adds_and_finds_it_by_key_and_tag(tmp_path: Path, name: str) -> None:
    store = store_of_5_5(tmp_path, name)
    bodies: dict[int, str] = {}
    with MessageStore.open(store, "rw", CONFIG) as opened:
        for number in range(300):
            properties = {"KEYS": f"ours-{number}", "TAGS": "Ours" if number % 100 == 0 else "Rest"}
            placed = opened.put(Message("TopicTest", b"%d" % number, properties=properties)).physical_offset
            assert placed is not None
            bodies[placed] = hashlib.sha256(b"%d" % number).hexdigest()
    # the tag stands in the index as a key of its own
    view = _opened(store, [("TopicTest", "ours-7"), ("TopicTest", tag_key("Ours"))])
    seen = {message.physical_offset: message.body_sha256 for message in view.messages}
    assert bodies.items() <= seen.items()
    by_key, by_tag = ([*query.physical_offsets] for query in view.queries)
    places = sorted(bodies)
    assert by_key == [places[7]]
    assert sorted(by_tag) == places[::100]
    with StoreFiles(store, CONFIG) as files:
        checkpoint = files.checkpoint()
    assert checkpoint is not None
    assert checkpoint.logics_physical_offset == places[-1]
    assert _alarms(store) == []


class _Changed(NamedTuple):
    """A change of a store. `end`: number of the first message that it cuts, None where every message stays."""

    change: Callable[[MessageStore, int], object]
    end: int | None = None
    damage: Callable[[Path], None] = lambda _: None


def _truncate(store: MessageStore, at: int) -> object:
    return store.truncate(at)


def _repair(store: MessageStore, _: int) -> object:
    report = store.repair()
    assert report.left == []
    return report


def _lose(*names: str) -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        for name in names:
            path = store / name
            path.unlink() if path.is_file() else shutil.rmtree(path)

    return damage


def _zero_units(store: Path) -> None:
    (store / "consumequeue" / "TopicTest" / "0" / f"{0:020d}").write_bytes(bytes(2000))


def _damage_index(store: Path) -> None:
    """Zero the slots and the first entries."""
    [path] = (store / "index").iterdir()
    with path.open("r+b") as file:
        file.seek(40)
        file.write(bytes(2400))


def _checkpoint_past_the_end(store: Path) -> None:
    with (store / "checkpoint").open("r+b") as file:
        file.seek(40)
        file.write((1 << 30).to_bytes(8, "big"))


CHANGES = {
    "truncate much": _Changed(_truncate, 50),
    "truncate little": _Changed(_truncate, 199),
    "truncate all": _Changed(_truncate, 0),
    "truncate without an index": _Changed(_truncate, 120, _lose("index")),
    "recover full and cut": _Changed(lambda store, _: store.recover(full=True, cut=True)),
    "repair queues": _Changed(_repair, None, _lose("consumequeue")),
    "repair one queue": _Changed(_repair, None, _zero_units),
    "repair index": _Changed(_repair, None, _damage_index),
    "repair checkpoint": _Changed(_repair, None, _checkpoint_past_the_end),
    "repair a lost checkpoint": _Changed(_repair, None, _lose("checkpoint")),
    "rebuild": _Changed(lambda store, _: store.rebuild()),
    "rebuild what is lost": _Changed(lambda store, _: store.rebuild(), None, _lose("consumequeue", "index")),
    "rebuild index": _Changed(lambda store, _: store.rebuild(queues=False), None, _lose("index")),
    "rebuild queues": _Changed(lambda store, _: store.rebuild(index=False), None, _zero_units),
    "rebuild one topic": _Changed(lambda store, _: store.rebuild(index=False, topics=["TopicTest"]), None, _zero_units),
}


def test_5_5_goes_on_with_what_every_change_leaves(tmp_path: Path) -> None:
    """By queue, key and tag; then it writes more, and all of it is found as well."""
    rows = [row for row in messages_of_5_5() if row["cq"]]
    jobs, ends = [], []
    for name, (change, number, damage) in CHANGES.items():
        store = store_of_5_5(tmp_path / name.replace(" ", "-"))
        before = read_checkpoint(store / "checkpoint")
        damage(store)
        end = 1 << 62 if number is None else rows[number]["phyOffset"]
        with MessageStore.open(store, config=CONFIG) as opened:
            change(opened, end)
        ends.append(end)
        kept = [row for row in rows if row["phyOffset"] < end]
        assert _alarms(store) == [], name
        after = read_checkpoint(store / "checkpoint")
        last = kept[-1]["phyOffset"] if kept else 0
        assert before is not None
        assert after is not None
        assert after.logics_physical_offset == last, name
        # by the key of a message that stays, by one of many and by a tag
        queries = [(rows[0]["topic"], rows[0]["properties"]["UNIQ_KEY"]), ("TopicTest", "hot")]
        jobs.append(Job(store, SETTINGS, [*queries, ("TopicTest", tag_key("TagB"))], kinds=("plain",)))
    for name, job, end, view in zip(CHANGES, jobs, ends, harness.open_many(NEWEST, jobs), strict=True):
        kept = [row for row in rows if row["phyOffset"] < end]
        written = {message.physical_offset for message in view.written}
        assert view.anomalies == [], name
        assert len(written) == 20, name
        assert {message.physical_offset for message in view.messages} == {row["phyOffset"] for row in kept} | written
        own, hot, tagged = ([*query.physical_offsets] for query in view.queries)
        assert own == [row["phyOffset"] for row in kept[:1]], name
        in_topic = [row for row in kept if row["topic"] == "TopicTest"]
        assert sorted(set(hot) - written) == [
            row["phyOffset"] for row in in_topic if "hot" in (row["keys"] or "").split()
        ], name
        assert sorted(set(tagged) - written) == [row["phyOffset"] for row in in_topic if row["tags"] == "TagB"], name
        assert _alarms(job.store) == [], name


def test_an_old_tail_comes_back_unless_it_is_repaired(tmp_path: Path) -> None:
    """apache/rocketmq#10666: recovery takes what a slave's truncation left for the end of its log."""
    for name, is_repaired in (("left", False), ("repaired", True)):
        (tmp_path / name).mkdir()
        store, end = with_an_old_tail(tmp_path / name)
        if is_repaired:
            with StoreFiles(store, CONFIG) as files:
                repair(files, only=["RMQ-EPO-004"])
            (store / "abort").touch()
        view = harness.open_store(NEWEST, store, SETTINGS)
        assert (view.load_ok, view.exception) == (True, None)
        assert (view.max_offset == end) is is_repaired


def test_5_5_serves_queue_files_beside_a_rocksdb(tmp_path: Path) -> None:
    """A switch of storeType: the files that `rebuild --queues files` made are the queues, and nothing is lost."""
    store = unpacked("rocksdb-55-only", tmp_path)
    before = {key: row["max"] for key, row in queues("rocksdb-55-only").items() if row["units"]}
    with MessageStore.open(store, config=CONFIG) as opened:
        assert opened.rebuild(queues="files", index=False).units == 400
    view = _opened(store)
    assert {(one.topic, one.queue_id): one.max_offset for one in view.queues if one.max_offset} == before
    assert _alarms(store) == []


def test_5_5_starts_with_copies_of_compacted_topics_that_were_rebuilt(tmp_path: Path) -> None:
    """Of files of another size, or without their like in the other folder, its load fails."""
    golden = log_golden("v55-compacted", tmp_path)
    store = golden.store
    (store / "config").mkdir()
    entry = {"topicName": "CompactTopic", "attributes": {"cleanup.policy": "COMPACTION"}}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"CompactTopic": entry}}))
    settings = {name: value for name, value in golden.rows("summary")[0]["config"].items() if name.startswith("store.")}
    for path in (store / "compaction" / "compactionLog").rglob("0000*94944"):
        path.unlink()  # a broker does not start with the rest
    with MessageStore.open(store) as opened:
        assert opened.rebuild(compacted=True, topics=["CompactTopic"]).units == 94
    before = {path: path.read_bytes() for path in (store / "compaction").rglob("0000*")}
    view = harness.open_store(NEWEST, store, settings)
    assert (view.load_ok, view.exception, view.anomalies) == (True, None, [])
    assert {path: path.read_bytes() for path in (store / "compaction").rglob("0000*")} == before
