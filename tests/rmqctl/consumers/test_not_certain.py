"""Answers that depend on what is not read, or on queues that end before the log: uncertain, never absence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run

_CONFIG = StoreConfig(mapped_file_size_commit_log=262144, mapped_file_size_consume_queue=2000)


@pytest.fixture
def compacted(golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A store whose compaction log holds 40 messages of CompactTopic; those of the commitlog have expired."""
    golden = golden_store("compaction")
    made = tmp_path / "made"
    with MessageStore.open(made, "rw", _CONFIG, create=True) as opened:
        opened.put(Message(topic="Other", body=b"alive", properties={"KEYS": "o1"}))
    (log,) = (made / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[28:36] = (262144).to_bytes(8, "big")
    shutil.rmtree(made / "commitlog")
    (made / "commitlog").mkdir()
    (made / "commitlog" / f"{262144:020d}").write_bytes(data)
    unit = made / "consumequeue" / "Other" / "0" / f"{0:020d}"
    unit.write_bytes((262144).to_bytes(8, "big") + unit.read_bytes()[8:])
    shutil.rmtree(made / "index", ignore_errors=True)
    shutil.copytree(golden / "consumequeue" / "CompactTopic", made / "consumequeue" / "CompactTopic")
    shutil.copytree(golden / "compaction", made / "compaction")
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("where", "CompactTopic", "0", "195"),
        ("where", "ck0", "-t", "CompactTopic"),
        ("where", "ck0"),
        ("query", "-k", "ck0", "-t", "CompactTopic"),
        ("query", "-t", "CompactTopic", "-q", "0", "-o", "195"),
        ("cat", "-t", "CompactTopic"),
        ("ls",),
    ],
    ids=" ".join,
)
def test_what_a_compaction_log_may_hold_is_neither_expired_nor_absent(compacted: Path, words: tuple[str, ...]) -> None:
    before = tree_state(compacted)
    done = run(*words, "-s", compacted)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "the compaction log of topic 'CompactTopic' holds 40 messages, and is not read yet" in done.err
    assert f"rmqctl salvage {compacted}/compaction --to NEW" in done.err
    assert "expired" not in done.err + done.out
    assert "No message" not in done.out
    assert tree_state(compacted) == before


def test_what_a_compaction_log_cannot_hold_is_answered_as_before(compacted: Path) -> None:
    assert run("where", "Other", "0", "0", "-s", compacted).code == exit_codes.OK
    done = run("query", "-t", "Other", "-q", "0", "-o", "7", "-s", compacted)
    assert "compaction" not in done.err
    assert run("where", "CompactTopic", "0", "195", "-s", compacted, "--json").objects[0]["state"] == "unknown"


def test_a_group_before_what_the_commitlog_has_is_not_judged(compacted: Path) -> None:
    (compacted / "config").mkdir(exist_ok=True)
    (compacted / "config" / "consumerOffset.json").write_text('{"offsetTable":{"CompactTopic@g":{0:170}}}')
    done = run("groups", "-s", compacted, "--json")
    (row,) = done.objects
    assert (done.code, row["state"], row["lag"]) == (exit_codes.DAMAGE_OR_NOTHING, "unknown", None)
    assert "RMQ-OFF-002" not in run("check", "-s", compacted).out


def test_a_compaction_log_beside_the_whole_commitlog_hides_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("compaction")
    done = run("ls", "-s", store)
    assert (done.code, "not certain" in done.err) == (exit_codes.OK, False)


def test_lag_counts_what_is_in_no_queue_yet(golden_store: GoldenStore) -> None:
    """400 messages of the log are in no queue, 58 of them of TopicTest; the group is at the end of each queue file."""
    store = golden_store("crash")
    (store / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"TopicTest@g": {0: 76, 1: 62, 2: 70, 3: 98}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    done = run("groups", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert sum(row["lag"] for row in done.objects) == 58
    assert {row["state"] for row in done.objects} == {"behind"}
    assert "400 messages" in done.err
    assert "rmqctl recover" in done.err


@pytest.mark.parametrize("verb", [("ls",), ("delays",), ("dlq", "list"), ("halves",), ("where", "TopicTest", "0", "1")])
def test_answers_from_queues_that_end_before_the_log_say_so(golden_store: GoldenStore, verb: tuple[str, ...]) -> None:
    store = golden_store("crash")
    done = run(*verb, "-s", store)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "not certain" in done.err
    assert "the log goes on after its queues: 400 messages" in done.err
    assert run("recover", "-s", store, "-y").code == exit_codes.OK
    assert "not certain" not in run(*verb, "-s", store).err


def test_a_mark_that_is_in_no_queue_yet_ends_its_half_message(tmp_path: Path) -> None:
    store = tmp_path / "store"
    half, op = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    with MessageStore.open(store, "rw", _CONFIG, create=True) as opened:
        for number in (0, 1):
            keys = {"REAL_TOPIC": "Pay", "REAL_QID": "0", "PGROUP": "pg", "UNIQ_KEY": f"u{number}"}
            opened.put(Message(topic=half, body=b"x", properties=keys))
        for body in (b"0,", b"1,"):
            opened.put(Message(topic=op, body=body, properties={"TAGS": "d"}))
    queue = store / "consumequeue" / op / "0" / f"{0:020d}"
    queue.write_bytes(queue.read_bytes()[:20].ljust(2000, b"\0"))
    (store / "abort").write_bytes(b"1")
    done = run("halves", "-s", store, "--json")
    assert done.objects == []
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "1 message" in done.err
