"""`rmqctl purge`: topics go with queues, settings and offsets; an undo brings them back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import format_config_json, parse_config_json
from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run

_ENTRY = {"order": False, "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}


def _config(store: Path, name: str = "topics.json") -> dict[Any, Any]:
    found = parse_config_json((store / "config" / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def _write_topics(store: Path, content: dict[Any, Any]) -> None:
    (store / "config" / "topics.json").write_text(format_config_json(content), encoding="utf-8")


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    """A store whose topics.json lost Audit, which has 21 messages, and names a topic that was never used."""
    made = golden_store("broker-real")
    content = _config(made)
    del content["topicConfigTable"]["Audit"]
    content["topicConfigTable"]["Unused"] = {"topicName": "Unused", **_ENTRY}
    _write_topics(made, content)
    return made


def _codes(store: Path) -> dict[str, str | None]:
    rows = run("check", "-s", store, "--json").objects
    return {row["code"]: row["topic"] for row in rows if "code" in row}


def test_a_topic_goes_and_comes_back(store: Path) -> None:
    before, offsets = tree_state(store), _config(store, "consumerOffset.json")["offsetTable"]
    shown = run("purge", "-s", store, "-t", "Events", "--dry-run", "--json")
    assert shown.code == exit_codes.OK, shown.err
    assert tree_state(store) == before
    done = run("purge", "-s", store, "-t", "Events", "-y", "--json")
    assert done.code == exit_codes.OK, done.err
    (row,) = done.objects[0]["topics"]
    assert row == shown.objects[0]["topics"][0]
    assert (row["queues"], row["messages"], row["configured"]) == (8, 237, True)
    assert not (store / "consumequeue" / "Events").exists()
    assert "Events" not in _config(store)["topicConfigTable"]
    kept = _config(store, "consumerOffset.json")["offsetTable"]
    assert kept == {key: queues for key, queues in offsets.items() if not key.startswith("Events@")}
    assert len(kept) < len(offsets)
    assert run("undo", "-s", store, "-y").code == exit_codes.OK
    assert tree_state(store) == before


def test_orphans_are_queues_without_settings_and_settings_without_messages(store: Path) -> None:
    done = run("purge", "-s", store, "--orphans", "-y", "--json")
    assert done.code == exit_codes.OK, done.err
    found = {(row["topic"], row["messages"]) for row in done.objects[0]["topics"]}
    assert found == {("Audit", 21), ("Read-Only", 0), ("Unused", 0)}
    table = _config(store)["topicConfigTable"]
    assert {"Unused", "Audit", "Read-Only"}.isdisjoint(table)
    assert {"Events", "Orders", "DefaultCluster", "broker-a", "%RETRY%g-orders"} <= table.keys()
    again = run("purge", "-s", store, "--orphans")
    assert (again.code, "no topic is orphaned" in again.err) == (exit_codes.OK, True)


def test_a_topic_that_delayed_messages_are_for_is_used(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Later")
    names = {row["topic"] for row in run("purge", "-s", store, "--orphans", "--dry-run", "--json").objects[0]["topics"]}
    assert "Later" not in names


def test_unread_messages_are_asked_for(store: Path) -> None:
    before = tree_state(store)
    done = run("purge", "-s", store, "-t", "Events")
    assert done.code == exit_codes.REFUSED
    assert "237 messages that consumers cannot get any more" in done.err
    assert tree_state(store) == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("-t", "SCHEDULE_TOPIC_XXXX", "-y"), exit_codes.REFUSED),
        (("-t", "Nowhere", "-y"), exit_codes.DAMAGE_OR_NOTHING),
        ((), exit_codes.USAGE),
        (("-t", "Events", "--orphans"), exit_codes.USAGE),
    ],
)
def test_what_is_not_purged(store: Path, arguments: tuple[str, ...], code: int) -> None:
    before = tree_state(store)
    assert run("purge", "-s", store, *arguments).code == code
    assert tree_state(store) == before


def test_a_crashed_store_is_recovered_first(store: Path) -> None:
    (store / "abort").touch()
    done = run("purge", "-s", store, "-t", "Events", "-y")
    assert (done.code, "rmqctl recover" in done.err) == (exit_codes.REFUSED, True)


def test_orphans_need_the_configuration(store: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).unlink()
    done = run("purge", "-s", store, "--orphans", "-y")
    assert (done.code, "rmqctl purge -t TOPIC" in done.err) == (exit_codes.REFUSED, True)


def test_a_removed_topic_is_no_damage(store: Path) -> None:
    assert _codes(store) == {"RMQ-CFG-006": "Audit"}
    assert run("repair", "-s", store, "--only", "RMQ-CFG-006", "--json").code == exit_codes.OK
    assert not (store / "consumequeue" / "Audit").exists()
    assert run("check", "-s", store).code == exit_codes.OK
    (finding,) = [row for row in run("check", "-s", store, "--json").objects if "code" in row]
    assert (finding["code"], finding["severity"], finding["messages"]) == ("RMQ-CFG-043", "notice", 21)
    start = run("predict", "-s", store, "--json")
    assert start.code == exit_codes.OK
    assert (start.objects[0]["messages_unqueued"], start.objects[0]["topics_returned"]) == (0, [])


def test_a_lost_queue_of_a_configured_topic_is_damage(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Orders")
    assert {"RMQ-CQ-001", "RMQ-CQ-002"} & _codes(store).keys()
    assert run("predict", "-s", store, "--json").objects[0]["messages_unqueued"] == 60


def test_predict_lists_what_a_start_after_a_crash_brings_back(store: Path) -> None:
    assert run("repair", "-s", store, "--only", "RMQ-CFG-006", "--json").code == exit_codes.OK
    (store / "abort").touch()
    found = run("predict", "-s", store, "--json").objects[0]["topics_returned"]
    assert found == [{"topic": "Audit", "queues": 1, "messages": 21, "units_added": 21}]
    shown = run("predict", "-s", store)
    assert "Audit" in shown.out


@pytest.fixture
def library_store(tmp_path: Path) -> Path:
    """A store that a library wrote, without config/: messages of A, B, A, B, each of one queue."""
    made = tmp_path / "store"
    config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
    with MessageStore.open(made, "rw", config=config, create=True) as opened:
        for topic in "ABAB":
            opened.put(Message(topic, topic.encode()))
    return made


@pytest.mark.parametrize("removed", [("B",), ("A", "B")], ids=" ".join)
def test_removed_topics_are_no_damage_where_topics_json_names_none(
    library_store: Path, removed: tuple[str, ...]
) -> None:
    before = tree_state(library_store)
    wanted = [word for topic in removed for word in ("-t", topic)]
    done = run("purge", "-s", library_store, *wanted, "-y")
    # a broker that finds no unit dispatches the whole log again; else it goes on from the last unit
    returned = list(removed) if len(removed) == 2 else []
    assert (done.code, "the next start of a broker makes these queues again" in done.err) == (0, bool(returned))
    checked = run("check", "-s", library_store, "--json")
    assert checked.code == exit_codes.OK, checked.out
    found = [(row["code"], row["topic"], row["messages"]) for row in checked.objects if "code" in row]
    assert found == [("RMQ-CFG-043", topic, 2) for topic in removed]
    start = run("predict", "-s", library_store, "--broker", "5.3.3", "--json").objects[0]
    assert (start["messages_unqueued"], [row["topic"] for row in start["topics_returned"]]) == (0, returned)
    (library_store / "abort").touch()
    start = run("predict", "-s", library_store, "--broker", "5.3.3", "--json").objects[0]
    assert [(row["topic"], row["messages"]) for row in start["topics_returned"]] == [(one, 2) for one in removed]
    (library_store / "abort").unlink()
    assert run("undo", "-s", library_store, "-y").code == exit_codes.OK
    assert tree_state(library_store) == before


def test_a_store_is_written_after_a_purge(library_store: Path) -> None:
    assert run("purge", "-s", library_store, "-t", "A", "-t", "B", "-y").code == exit_codes.OK
    for topic in "BA":
        done = run("append", "-s", library_store, "-t", topic, "--body", "new", "--json")
        assert (done.code, done.objects[0]["queue_offset"]) == (exit_codes.OK, 0), done.err
    checked = run("check", "-s", library_store, "--json")
    assert (checked.code, [row["code"] for row in checked.objects if "code" in row]) == (0, ["RMQ-CQ-030"])
    # messages from before the topics were created again have no slot, and need none
    start = run("predict", "-s", library_store, "--json")
    assert (start.code, start.objects[0]["messages_unqueued"], start.objects[0]["topics_returned"]) == (0, 0, [])


def test_a_lost_topics_json_stays_a_finding_after_a_purge(store: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).unlink()
    assert run("purge", "-s", store, "-t", "Audit", "-y").code == exit_codes.OK
    codes = _codes(store)
    assert {"RMQ-CFG-043": "Audit", "RMQ-CFG-050": None}.items() <= codes.items()
    assert "RMQ-CQ-001" not in codes


def test_a_topic_that_is_created_again_after_a_purge_begins_at_zero(store: Path) -> None:
    assert run("purge", "-s", store, "-t", "Events", "-y").code == exit_codes.OK
    assert run("topics", "create", "-s", store, "-t", "Events", "-y").code == exit_codes.OK
    checked = run("check", "-s", store, "--json")
    found = [(row["code"], row["severity"], row["messages"]) for row in checked.objects if row.get("topic") == "Events"]
    assert (checked.code, found) == (exit_codes.OK, [("RMQ-CQ-032", "notice", 237)])
    assert run("predict", "-s", store, "--json").objects[0]["messages_unqueued"] == 0
    place = run("where", "-s", store, "Events", "1", "0", "--json").objects[0]
    assert "superseded" in str(place)
    before = tree_state(store)
    recovered = run("recover", "-s", store, "-y", "--json").objects[0]
    assert (recovered["units_added"], recovered["deleted_topic_messages"]) == (0, 237)
    assert tree_state(store) == before
    done = run("append", "-s", store, "-t", "Events", "-q", "0", "--body", "new", "--json")
    assert (done.code, done.objects[0]["queue_offset"]) == (exit_codes.OK, 0), done.err
    # queue 0 leads to a message of the new life; the other queues have none yet
    checked = run("check", "-s", store, "--json")
    rows = {row["code"]: row["messages"] for row in checked.objects if row.get("topic") == "Events"}
    assert (checked.code, set(rows), sum(rows.values())) == (exit_codes.OK, {"RMQ-CQ-030", "RMQ-CQ-032"}, 237)
    assert run("predict", "-s", store, "--json").objects[0]["messages_unqueued"] == 0
    again = run("append", "-s", store, "-t", "Events", "-q", "1", "--body", "new", "--json")
    assert (again.code, again.objects[0]["queue_offset"]) == (exit_codes.OK, 0), again.err


def test_a_recovery_after_a_crash_dispatches_what_was_purged_as_a_broker_does(store: Path) -> None:
    assert run("purge", "-s", store, "-t", "Events", "-y").code == exit_codes.OK
    assert run("topics", "create", "-s", store, "-t", "Events", "-y").code == exit_codes.OK
    (store / "abort").touch()
    assert run("recover", "-s", store, "-y", "--json").objects[0]["units_added"] == 237


def test_a_lost_queue_of_a_topic_that_has_earlier_messages_elsewhere_is_damage(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Events" / "1")
    assert run("topics", "create", "-s", store, "-t", "Later2", "-y").code == exit_codes.OK
    assert {"RMQ-CQ-001", "RMQ-CQ-002"} & _codes(store).keys()
    assert run("append", "-s", store, "-t", "Events", "--body", "new").code == exit_codes.REFUSED
    assert run("recover", "-s", store, "-y").code == exit_codes.OK
    assert "RMQ-CQ-001" not in _codes(store)


def test_all_queues_lost_is_damage_though_topics_json_is_newer(store: Path) -> None:
    assert run("topics", "create", "-s", store, "-t", "Later2", "-y").code == exit_codes.OK
    for path in (store / "consumequeue").iterdir():
        shutil.rmtree(path)
    assert run("check", "-s", store).code == exit_codes.DAMAGE_OR_NOTHING
    recovered = run("recover", "-s", store, "--queue-file-size", 2000, "-y", "--json")
    assert recovered.objects[0]["units_added"] > 700


def test_the_only_topics_of_a_store_are_created_again_after_a_purge(library_store: Path) -> None:
    assert run("purge", "-s", library_store, "-t", "A", "-t", "B", "-y").code == exit_codes.OK
    assert run("topics", "create", "-s", library_store, "-t", "A", "-y").code == exit_codes.OK
    checked = run("check", "-s", library_store, "--json")
    found = [(row["code"], row["topic"], row["messages"]) for row in checked.objects if "code" in row]
    assert (checked.code, found) == (exit_codes.OK, [("RMQ-CFG-043", "B", 2), ("RMQ-CQ-032", "A", 2)])
    done = run("append", "-s", library_store, "-t", "A", "--body", "new", "--json")
    assert (done.code, done.objects[0]["queue_offset"]) == (exit_codes.OK, 0), done.err


def test_a_purged_topic_that_is_written_again_is_deleted_no_more(store: Path) -> None:
    """What purge recorded is of the messages before it: a queue lost since is damage, and the topic is unconfigured."""
    assert run("purge", "-s", store, "-t", "Orders", "-y").code == exit_codes.OK
    written = run("append", "-s", store, "-t", "Orders", "-q", "0", "--key", "again", "--body", "new", "--json")
    assert written.code == exit_codes.OK, written.err
    assert _codes(store)["RMQ-CFG-006"] == "Orders"
    shutil.rmtree(store / "consumequeue" / "Orders")
    assert {"RMQ-CQ-001", "RMQ-CQ-002"} & _codes(store).keys()
    assert "rmqctl recover" not in run("where", "-s", store, "order-0").out
    lost = run("where", "-s", store, "again")
    assert (lost.code, "before `rmqctl recover` writes the slot" in lost.out) == (exit_codes.OK, True), lost.out
    assert run("recover", "-s", store, "-y", "--json").objects[0]["units_added"] == 1


def test_a_key_of_a_topic_that_only_the_log_knows_is_found(store: Path) -> None:
    assert run("purge", "-s", store, "-t", "Orders", "-y").code == exit_codes.OK
    found = run("query", "-s", store, "-k", "order-0", "--json")
    assert (found.code, len(found.objects)) == (exit_codes.OK, 3), found.err


def test_a_repair_that_moves_a_queue_leaves_no_finding_of_it(store: Path) -> None:
    (store / "consumequeue" / "Audit" / "0" / f"{0:020}").unlink()
    done = run("repair", "-s", store, "--only", "RMQ-CFG-006", "-y", "--json").objects[0]
    assert (done["mended"], done["left"]) == ({"RMQ-CFG-006": 1}, [])
