"""Answers that depend on what is not read, or on queues that end before the log: uncertain, never absence."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore, StoreConfig
from rmqctl.store.answers import undispatched
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log import sampled
from rmqctl.store.recover.view import looks_unrecovered
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run

_HIDDEN, _BESIDE = exit_codes.DAMAGE_IN_THE_WAY, exit_codes.DAMAGE_OR_NOTHING
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
        ("where", "unknown key", "-t", "CompactTopic"),
        ("where", "unknown key"),
        ("query", "-k", "unknown key", "-t", "CompactTopic"),
        ("cat", "-t", "CompactTopic"),
        ("ls",),
    ],
    ids=" ".join,
)
def test_what_a_compaction_log_may_hold_is_neither_expired_nor_absent(compacted: Path, words: tuple[str, ...]) -> None:
    before = tree_state(compacted)
    done = run(*words, "-s", compacted)
    assert done.code == (exit_codes.DAMAGE_OR_NOTHING if words == ("ls",) else exit_codes.DAMAGE_IN_THE_WAY)
    assert "the compaction log of topic 'CompactTopic' holds 40 messages" in done.err
    assert "rmqctl cat --compacted -t CompactTopic" in done.err
    assert "expired" not in done.err + done.out
    assert "No message" not in done.out
    assert tree_state(compacted) == before


def test_the_compaction_log_of_a_deleted_topic_leaves_the_listing_certain(compacted: Path) -> None:
    """A broker of 5.5.0 removes queues and settings of a deleted topic, and leaves its compaction log."""
    (compacted / "config").mkdir(exist_ok=True)
    (compacted / "config/topics.json").write_text('{"topicConfigTable":{"Other":{"topicName":"Other"}}}')
    shutil.rmtree(compacted / "consumequeue/CompactTopic")
    done = run("ls", "-s", compacted)
    assert (done.code, "compaction log" in done.err) == (exit_codes.OK, False), done.err
    done = run("ls", "-s", compacted, "-t", "CompactTopic")
    assert (done.code, "compaction log" in done.err) == (exit_codes.DAMAGE_IN_THE_WAY, True)


@pytest.mark.parametrize(
    "words",
    [
        ("where", "CompactTopic", "0", "195"),
        ("where", "ck5", "-t", "CompactTopic"),
        ("where", "ck5"),
        ("query", "-k", "ck5", "-t", "CompactTopic"),
        ("query", "-t", "CompactTopic", "-q", "0", "-o", "195"),
    ],
    ids=" ".join,
)
def test_what_a_compaction_log_holds_is_found(compacted: Path, words: tuple[str, ...]) -> None:
    before = tree_state(compacted)
    done = run(*words, "-s", compacted, "--json")
    assert (done.code, "the compaction log" in done.out + done.err) == (exit_codes.OK, True)
    assert 195 in {row["queue_offset"] for row in done.objects}
    assert {row["physical_offset"] for row in done.objects} <= {-1, None}
    assert tree_state(compacted) == before


def test_what_a_compaction_log_cannot_hold_is_answered_as_before(compacted: Path) -> None:
    assert run("where", "Other", "0", "0", "-s", compacted).code == exit_codes.OK
    done = run("query", "-t", "Other", "-q", "0", "-o", "7", "-s", compacted)
    assert "compaction" not in done.err
    assert run("where", "unknown key", "-s", compacted, "--json").objects[0]["state"] == "unknown"


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


@pytest.fixture
def behind(golden_store: GoldenStore) -> Path:
    """A crashed store whose queues end before physical offset 60000; groups have read on."""
    store = golden_store("broker-real")
    for file in (store / "consumequeue").glob("*/*/*"):
        units = [file.read_bytes()[at : at + 20] for at in range(0, file.stat().st_size, 20)]
        file.write_bytes(b"".join(one if int.from_bytes(one[:8], "big") < 60_000 else bytes(20) for one in units))
    (store / "abort").touch()
    return store


@pytest.mark.parametrize(
    "words", ["offsets lint", "offsets show -g g-events", "delays --due", "delays --undelivered", "groups -g g-events"]
)
def test_offsets_within_what_no_queue_has_yet_are_not_past_an_end(behind: Path, words: str) -> None:
    done = run(*words.split(), "-s", behind, "--json")
    assert (done.code, done.err.count("in no queue yet")) == (_BESIDE, 1), done.err
    assert not [row for row in done.objects if row.get("problem") == "past-end" and row["weight"] != "notice"]


def test_an_offset_is_set_within_what_no_queue_has_yet(behind: Path) -> None:
    words = ("offsets", "set", "-s", behind, "-g", "g-events", "-t", "Events", "-q", 0, "--dry-run", "--json", "-o")
    [report] = run(*words, 27).objects
    assert [(row["skipped"], row["max_offset"]) for row in report["rows"]] == [(2, 29)]
    assert run(*words, 30).code == exit_codes.REFUSED


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


@pytest.fixture
def without_a_queue(golden_store: GoldenStore) -> Path:
    """A real broker's store without the files of queue 2 of Events, and of the dead letters."""
    store = golden_store("broker-real")
    shutil.rmtree(store / "consumequeue" / "Events" / "2")
    shutil.rmtree(store / "consumequeue" / "%DLQ%g-retry")
    return store


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("query -t Events -q 2 -o 5", _HIDDEN),
        ("query -t Events -q 2 --at 2020-01-01", _HIDDEN),
        ("query -t Events --at 2020-01-01", _BESIDE),
        ("cat -t Events -q 2 --order queue", _HIDDEN),
        ("cat -t Events --order queue", _BESIDE),
        ("cat -t Events --order queue -n 3", _BESIDE),
        ("ls", _BESIDE),
        ("ls --queues -t Events", _BESIDE),
        ("ls --queues -t Events -q 2", _HIDDEN),
        ("du --quick", _BESIDE),
        ("groups -t Events", _BESIDE),
        ("dlq list", _HIDDEN),
    ],
)
def test_a_queue_without_files_whose_messages_the_log_holds_is_damage(
    without_a_queue: Path, words: str, code: int
) -> None:
    before = tree_state(without_a_queue)
    done = run(*words.split(), "-s", without_a_queue)
    assert done.code == code
    named = "queue 0 of '%DLQ%g-retry'" if "Events" not in words else "queue 2 of 'Events'"
    assert named in done.err
    assert "no files: `rmqctl recover` makes them again" in done.err
    assert tree_state(without_a_queue) == before
    if "query" in words:
        assert run(*words.split(), "--as-recovered", "-s", without_a_queue).code == exit_codes.OK


def test_what_the_lost_first_file_of_a_queue_led_to_has_not_expired(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "consumequeue" / "topic-with-dash" / "0" / f"{0:020d}").unlink()
    found = run("where", "topic-with-dash", "0", "3", "-s", store)
    assert (found.code, "expired" in found.out) == (exit_codes.OK, False)
    assert "It is stored, but no consumer can get it" in found.out
    done = run("query", "-t", "topic-with-dash", "-q", "0", "-o", "3", "-s", store)
    assert done.code == exit_codes.DAMAGE_IN_THE_WAY
    assert "queue 0 of 'topic-with-dash' lacks its message 3" in done.err
    expired = run("where", "TopicTest", "0", "3", "-s", golden_store("first-gone"))
    assert "The message has expired: the queue begins at 21 now" in expired.out


@pytest.mark.parametrize("words", ["query -t topic-with-dash -q 0 -o 3", "cat -t topic-with-dash --order queue"])
def test_an_empty_folder_of_a_queue_is_a_lost_queue(golden_store: GoldenStore, words: str) -> None:
    store = golden_store("clean")
    for file in (store / "consumequeue" / "topic-with-dash" / "0").iterdir():
        file.unlink()
    done = run(*words.split(), "-s", store)
    assert done.code == exit_codes.DAMAGE_IN_THE_WAY
    assert "queue 0 of 'topic-with-dash', which has no files: `rmqctl recover`" in done.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("ls", _BESIDE),
        ("du --quick", _BESIDE),
        ("cat -t %RETRY%GroupA --order queue -n -1", _BESIDE),
        ("query -t %RETRY%GroupA -q 0 --at 2030-01-01", _BESIDE),
    ],
)
def test_a_queue_that_lost_its_last_file_is_damage(golden_store: GoldenStore, words: str, code: int) -> None:
    store = golden_store("clean")
    assert run(*words.split(), "-s", store).code == exit_codes.OK
    max((store / "consumequeue" / "%RETRY%GroupA" / "0").iterdir()).unlink()
    done = run(*words.split(), "-s", store)
    assert done.code == code
    assert "59 messages from offset 1731551 on are missing in their queues" in done.err
    with StoreFiles(store) as files:
        assert looks_unrecovered(files)


def test_serve_sees_a_lost_queue(without_a_queue: Path, golden_store: GoldenStore) -> None:
    with StoreFiles(without_a_queue) as files:
        assert looks_unrecovered(files)
    with StoreFiles(golden_store("clean")) as files:
        assert not looks_unrecovered(files)


@pytest.mark.parametrize("queue_id", [6, 88])
def test_a_queue_that_was_never_used_is_absent(golden_store: GoldenStore, queue_id: int) -> None:
    done = run("query", "-t", "BigQueues", "-q", queue_id + 8, "-o", "0", "-s", golden_store("clean"))
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert f"topic 'BigQueues' has no queue {queue_id + 8}" in done.err


def test_a_queue_that_a_long_log_may_hold_is_not_absent(without_a_queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the ends of a log that are looked at there may be messages of the queue."""
    monkeypatch.setattr(sampled, "_WHOLE", 1024)
    monkeypatch.setattr(undispatched, "END_FOR_ONE", 1024)
    done = run("query", "-t", "Audit", "-q", "77", "-o", "0", "-s", without_a_queue)
    assert done.code == exit_codes.DAMAGE_IN_THE_WAY
    assert "only the log's first and last" in done.err


@pytest.fixture
def long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose log is read in samples. The messages of Middle, and one of Rare, are in none of its ends."""
    for name, size in (("_WHOLE", 256 << 10), ("_PLAIN", 0), ("_SAMPLE", 2048), ("_SAMPLES", 16)):
        monkeypatch.setattr(sampled, name, size)
    monkeypatch.setattr(undispatched, "END", 4096)
    monkeypatch.setattr(undispatched, "_TAIL", 4096)
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", _CONFIG, create=True) as opened:
        for number in range(1_200):
            opened.put(Message("Middle" if 300 <= number < 900 else "Other", bytes(500)))
            if number == 480:
                opened.put(Message("Rare", b"x"))
    table = {name: {"topicName": name, "readQueueNums": 1, "perm": 6} for name in ("Middle", "Other", "Rare")}
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return store


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("Middle", "queue 0 of 'Middle', which has no files"),
        (f"Middle/0/{0:020d}", "queue 0 of 'Middle', which lacks messages at its end or beginning"),
        (f"Middle/0/{10_000:020d}", "queue 0 of 'Middle', which lacks messages at its end or beginning"),
        ("Rare", "group 'g' has consumed queue 0 of 'Rare' up to offset 1, but the queue has no files"),
    ],
)
def test_what_the_middle_of_a_long_log_shows_is_lost(long_log: Path, lost: str, named: str) -> None:
    (long_log / "config/consumerOffset.json").write_text('{"offsetTable":{"Rare@g":{"0":1},"Middle@g":{"0":1}}}')
    words = [["ls"], ["ls", "--queues", "-t", lost.split("/", maxsplit=1)[0], "-q", "0"], ["du", "--quick"], ["groups"]]
    for line in words:
        assert run(*line, "-s", long_log).code == exit_codes.OK, line
    path = long_log / "consumequeue" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for line in words:
        done = run(*line, "-s", long_log)
        assert done.code in (_BESIDE, _HIDDEN), line
        assert named in done.err
    with StoreFiles(long_log) as files:
        assert looks_unrecovered(files)


@pytest.mark.parametrize(
    "words", ["query -t Pay -q 1 -o 0", "query -t Pay --at 2020-01-01", "cat -t Pay --order queue", "ls -t Pay"]
)
def test_a_topic_that_may_have_been_created_again_is_not_absent(golden_store: GoldenStore, words: str) -> None:
    """Its queues have no files, and topics.json was changed after its messages."""
    store = golden_store("broker-real")
    shutil.rmtree(store / "consumequeue" / "Pay")
    table = store / "config" / "topics.json"
    table.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{1 << 41}', table.read_text()))
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace("Pay@g-pay", "Other@g-pay"))
    done = run(*words.split(), "-s", store)
    assert done.code == exit_codes.DAMAGE_IN_THE_WAY
    assert "lost, or the topic was created again after the message at offset" in done.err
    assert "rmqctl rebuild --queues -t Pay" in done.err
    traced = run("where", "Pay", "1", "0", "-s", store)
    assert "the queue has no files: lost, or the topic was created again after the message" in traced.out
    assert "rmqctl rebuild --queues -t Pay" in traced.out
    assert "RMQ-CQ-032" in run("check", "--quick", "-s", store).out
    (store / "abort").touch()  # after a crash recover makes all queues
    assert "`rmqctl recover` does so, too" in run("where", "Pay", "1", "0", "-s", store).out
    assert run("recover", "--yes", "-s", store).code == exit_codes.OK
    assert run("query", "-t", "Pay", "-q", "1", "-o", "0", "-s", store).code == exit_codes.OK


def test_watch_looks_through_the_log_once(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = [], sampled._look

    def counted(log: MappedFileQueue, spans: list[tuple[int, int]]) -> sampled._Ends:
        looks.append(spans)
        return look(log, spans)

    monkeypatch.setattr(sampled, "_look", counted)
    run("watch", "-s", golden_store("broker-real"))
    assert len(looks) == 1


def test_verbs_agree_on_queues_without_files_that_go_on_after_the_last_change_of_topics_json(
    golden_store: GoldenStore,
) -> None:
    """A queue whose offsets go on was not deleted in between, nor was any queue of its topic."""
    store = golden_store("broker-real")
    rows = [json.loads(line) for line in run("cat", "-t", "Pay", "-s", store, "--json").out.splitlines()]
    (middle,) = (row["store_timestamp"] for row in rows if (row["queue_id"], row["queue_offset"]) == (1, 2))
    shutil.rmtree(store / "consumequeue" / "Pay")
    table = store / "config" / "topics.json"
    table.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{middle - 1}', table.read_text()))
    offsets = store / "config" / "consumerOffset.json"
    assert "past its end" not in (lint := run("offsets", "lint", "-s", store).out)
    assert "its end is not known: `rmqctl recover` makes it from the log" in lint
    offsets.write_text(re.sub(r'("Pay@g-pay":\s*)\{[^}]*\}', r"\1{0:0}", offsets.read_text()))
    for queue_id in {row["queue_id"] for row in rows}:
        traced = run("where", "Pay", queue_id, "0", "-s", store)
        assert "no consumer gets it before `rmqctl recover` writes the slot" in traced.out
        done = run("query", "-t", "Pay", "-q", queue_id, "-o", "0", "-s", store)
        assert done.code == exit_codes.DAMAGE_IN_THE_WAY
        assert "`rmqctl recover` makes them again" in done.err
    for words in (["groups", "-t", "Pay"], ["offsets", "show"], ["offsets", "show", "-t", "Pay"]):
        assert "`rmqctl recover` makes them again" in run(*words, "-s", store).err, words
    for level in ([], ["--quick"]):
        found = [json.loads(line) for line in run("check", *level, "--json", "-s", store).out.splitlines()]
        assert {row["queue_id"] for row in found if row.get("code") == "RMQ-CQ-001"} == {0, 1, 2, 3}
        assert "RMQ-CQ-032" not in {row.get("code") for row in found}
    assert re.search(r"^rmqctl_incomplete_queues.* 4.0$", run("watch", "-s", store).out, re.MULTILINE)
    assert run("recover", "--yes", "-s", store).code == exit_codes.OK
    assert json.loads(run("recover", "--yes", "--json", "-s", store).out)["queues_changed"] == 0
    assert [row["msg_id"] for row in rows] == [
        json.loads(line)["msg_id"] for line in run("cat", "-t", "Pay", "-s", store, "--json").out.splitlines()
    ]


def test_recover_makes_a_queue_whole_that_goes_on_in_later_files(tmp_path: Path) -> None:
    """Files of the log are planned one after another; the messages that go on are in the last ones."""
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", StoreConfig(mapped_file_size_commit_log=4096), create=True) as opened:
        opened.put(Message("Other", b"x"))
        for number in range(60):
            if number == 50:
                time.sleep(0.01)
            opened.put(Message("T", bytes(500)))
    times = [
        json.loads(line)["store_timestamp"] for line in run("cat", "-t", "T", "-s", store, "--json").out.splitlines()
    ]
    table = {name: {"topicName": name, "readQueueNums": 1, "perm": 6} for name in ("Other", "T")}
    content = {"topicConfigTable": table, "dataVersion": {"timestamp": times[49], "counter": 1, "stateVersion": 0}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_text(json.dumps(content))
    shutil.rmtree(store / "consumequeue" / "T")
    found = json.loads(run("recover", "--yes", "--json", "-s", store).out)
    assert (found["units_added"], found["deleted_topic_messages"]) == (60, 0)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("groups", _BESIDE),
        ("ls", _BESIDE),
        ("ls --queues", _BESIDE),
        ("du", _BESIDE),
        ("du --quick", _BESIDE),
        ("stats", _HIDDEN),
        ("where Unknown 1 3", _HIDDEN),
        ("sql 'select 1'", exit_codes.OK),
    ],
)
def test_a_store_without_a_commitlog_says_so(golden_store: GoldenStore, words: str, code: int) -> None:
    store = golden_store("broker-real")
    shutil.rmtree(store / "commitlog")
    done = run(*shlex.split(words), "-s", store)
    assert done.code == code
    assert done.err.count("there is no commitlog file below") == 1


def test_an_export_of_a_store_without_a_commitlog_is_no_empty_one(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("broker-real")
    shutil.rmtree(store / "commitlog")
    done = run("export", tmp_path / "made.jsonl", "-s", store)
    assert done.code == exit_codes.DAMAGE_IN_THE_WAY
    assert "there is no commitlog file below" in done.err
