"""`rmqctl append` does what producer and broker would: unique ids, and no message where a broker takes none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rmqctl.looking import run


@pytest.fixture
def new_store(tmp_path: Path) -> tuple[Path, Path]:
    """A place for a store, and a broker.conf with small files for it."""
    config = tmp_path / "small.conf"
    config.write_text("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=50\n")
    return tmp_path / "store", config


def test_new_messages_get_unique_ids_and_copies_keep_what_they_have(
    new_store: tuple[Path, Path], tmp_path: Path
) -> None:
    store, config = new_store
    where = ("-s", store, "-c", config, "--create")
    lines = tmp_path / "lines"
    stored = {"topic": "T", "body": "copied", "msg_id": "7F00000100002A9F0000000000000000", "properties": {"KEYS": "k"}}
    carried = {"topic": "T", "body": "carried", "properties": {"UNIQ_KEY": "mine"}}
    fresh = {"topic": "T", "body": "new", "properties": {"KEYS": "k"}}
    lines.write_text("".join(json.dumps(one) + "\n" for one in (stored, carried, fresh, fresh)))
    assert run("append", *where, "--from", lines)[0] == 0
    assert run("append", *where, "--from", lines, "--no-unique-key")[0] == 0
    assert run("append", *where, "-t", "T", "--body", "one", "--no-unique-key")[0] == 0
    found = [one["properties"] for one in run("cat", "-s", store, "--json").objects]
    first, second = found[2].pop("UNIQ_KEY"), found[3].pop("UNIQ_KEY")
    assert first != second
    assert found == [{"KEYS": "k"}, {"UNIQ_KEY": "mine"}, {"KEYS": "k"}, {"KEYS": "k"}] * 2 + [{}]


def test_what_a_broker_would_not_take_needs_a_flag(new_store: tuple[Path, Path]) -> None:
    store, config = new_store
    where = ("append", "-s", store, "-c", config, "--create", "--body", "x")
    assert run(*where, "-t", "Known", "-q", "99")[0] == 0, "nobody can say without a topics.json"
    topics = {"topicConfigTable": {"Known": {"topicName": "Known", "readQueueNums": 4, "writeQueueNums": 2}}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps(topics))
    code, _, err = run(*where, "-t", "Known", "-q", "4")
    assert (code, "0 to 3" in err, "--anywhere" in err) == (5, True, True)
    assert run(*where, "-t", "Known", "-q", "3")[0] == 0
    assert run(*where, "-t", "Known", "-q", "4", "--anywhere")[0] == 0
    code, _, err = run(*where, "-t", "Other")
    assert (code, "topics.json has no topic 'Other'" in err) == (0, True)
    code, _, err = run(*where, "-t", "SCHEDULE_TOPIC_XXXX")
    assert (code, "no producer may send" in err) == (5, True)
    code, _, err = run(*where, "-t", "no topic!")
    assert (code, "no broker takes a topic" in err) == (5, True)
    code, _, err = run(*where, "-t", "SCHEDULE_TOPIC_XXXX", "--anywhere")
    assert (code, "has no DELAY" in err) == (2, True)
    assert len(run("cat", "-s", store, "--json").objects) == 4
