"""`rmqctl offsets lint`: nothing in what a broker wrote, and everything that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.offsets.show import OffsetProblem, lint_offsets
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.opened import store_path
from tests.rmqctl.looking import run

OF = ("-g", "g-retry", "-t", "Events")
TOPIC = "Events"
FILE = "config/consumerOffset.json"


def _lint(store: Path) -> set[tuple[str, str, Any]]:
    return {
        (row["problem"], row["topic"] or Path(row["file"]).name, row["queue_id"])
        for row in run("offsets", "lint", "-s", store, "--json").objects
    }


def test_lint_finds_nothing_in_what_a_broker_wrote() -> None:
    done = run("offsets", "lint", "-s", store_path("broker-real"))
    assert (done.code, done.out, done.err) == (exit_codes.OK, "", "nothing is wrong with the offsets\n")


def test_lint_finds_everything(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    table = {
        "Events@g-events": {"0": 24, "1": 9999, "2": -1, "3": "x", "x": 1, "77": 4},
        "Nowhere@g-pay": {"0": 1},
        "Events@g-unknown": {"0": 1},
        "%RETRY%g-gone@g-gone": {"0": 0},
        "%RETRY%g-retry@g-pay": {"0": 0},
        "no key": {"0": 1},
        "Pay@g-pay": [1],
    }
    (store / FILE).write_text(
        json.dumps({"dataVersion": {"counter": -1, "stateVersion": 0, "timestamp": 1 << 60}, "offsetTable": table}),
        encoding="utf-8",
    )
    (store / "config/delayOffset.json").write_text('{"offsetTable":{1:9999,19:1,0:3}}', encoding="utf-8")
    (store / "config/delayOffset.json.bak").write_text("", encoding="utf-8")
    found = _lint(store)
    assert found >= {
        ("backup-differs", TOPIC, 0),
        ("past-end", TOPIC, 1),
        ("negative", TOPIC, 2),
        ("malformed-offset", TOPIC, 3),
        ("malformed-entry", TOPIC, None),
        ("unknown-queue", TOPIC, 77),
        ("unknown-topic", "Nowhere", None),
        ("unknown-group", TOPIC, None),
        ("retry-without-group", "%RETRY%g-gone", None),
        ("retry-of-another", "%RETRY%g-retry", None),
        ("malformed-key", "consumerOffset.json", None),
        ("malformed-entry", "Pay", None),
        ("data-version", "consumerOffset.json", None),
        ("backup-differs", "Orders", 3),
        ("past-end", "SCHEDULE_TOPIC_XXXX", 0),
        ("unknown-level", "SCHEDULE_TOPIC_XXXX", None),
        ("malformed-entry", "SCHEDULE_TOPIC_XXXX", None),
        ("damaged", "delayOffset.json.bak", None),
    }
    assert run("offsets", "lint", "-s", store).code == exit_codes.DAMAGE_OR_NOTHING
    # a broker takes the backup instead of such a file, and so does a change
    assert run("offsets", "set", "-s", store, *OF, "-q", 0, "-o", 1, "--dry-run").code == exit_codes.OK
    (store / FILE).write_text("{", encoding="utf-8")
    assert ("damaged", "consumerOffset.json", None) in _lint(store)


def test_retry_topics_of_pop_are_the_group_s_own(golden_store: GoldenStore) -> None:
    """One for each topic that it consumes so (KeyBuilder#buildPopRetryTopic)."""
    store = golden_store("broker-real")
    table = {f"%RETRY%g-events{separator}Events@g-events": {"0": 0} for separator in "_+"}
    table["%RETRY%g-events_Events@g-pay"] = {"0": 0}
    (store / FILE).write_text(json.dumps({"offsetTable": table}), encoding="utf-8")
    rows = run("offsets", "lint", "-s", store, "--json").objects
    assert {row["group"] for row in rows if row["problem"].startswith("retry-")} == {"g-pay"}


# ---- what a file says that is damaged, and what a store says that cannot be asked

DEAD = "%DLQ%GroupA"


def _problems(store: Path, told: list[str] | None = None) -> list[OffsetProblem]:
    with StoreFiles(store) as files:
        return list(lint_offsets(files, 1_800_000_000_000, Events(note=(told if told is not None else []).append)))


def _write(store: Path, **texts: str) -> Path:
    folder = store / "config"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def _short(problems: list[OffsetProblem]) -> list[tuple[str, str, str | None, int | None, str]]:
    return [
        (one.weight, one.problem, one.topic, one.queue_id, one.detail) for one in problems if one.problem != "missing"
    ]


@pytest.mark.parametrize(
    ("text", "problem", "detail"),
    [
        ("[]", "damaged", "holds no table offsetTable"),
        ('{"offsetTable":[]}', "damaged", "no broker loads it: offsetTable is a list, not an object"),
        (
            '{"dataVersion":{"counter":"1"},"offsetTable":{}}',
            "data-version",
            "dataVersion is invalid: not three numbers",
        ),
    ],
)
def test_lint_of_a_file_of_another_shape(golden_store: GoldenStore, text: str, problem: str, detail: str) -> None:
    store = golden_store("log-gone")
    folder = _write(store, consumerOffset=text)
    [found] = [one for one in _problems(store) if one.problem != "missing"]
    assert (found.weight, found.problem, found.detail.startswith(detail)) == ("error", problem, True), found
    assert found.file == folder / "consumerOffset.json"


def test_lint_of_offsets_beside_what_is_left_of_their_queues(golden_store: GoldenStore) -> None:
    """Its first messages have expired, and one topic has queues that were never written to."""
    store = golden_store("first-gone")
    folder = _write(
        store,
        consumerOffset='{"offsetTable":{"%DLQ%GroupA@g":{0:1,"0":1},"New@g":{"3":5,"4":5,"2":0}}}',
        topics='{"topicConfigTable":{"New":{"topicName":"New","readQueueNums":4,"writeQueueNums":4}}}',
        subscriptionGroup='{"subscriptionGroupTable":{"g":{}}}',
    )
    with StoreFiles(store) as files:
        queue = files.queues.find(DEAD, 0)
        assert queue is not None
        first = queue.min_offset(files.log.min_offset)
    before = ("notice", "before-beginning", DEAD, 0, f"{first - 1} messages before the first one that is left")
    assert _short(_problems(store)) == [
        before,
        ("warning", "past-end", "New", 3, "the queue has no files: 5 messages past its end, if it is lost"),
        ("warning", "unknown-queue", "New", 4, "neither a queue nor topics.json has it"),
    ]
    # without the names of topics there is less to say, and it is said
    told: list[str] = []
    (folder / "topics.json").write_text("{", encoding="utf-8")
    assert [one[1:4] for one in _short(_problems(store, told))][-2:] == [
        ("unknown-queue", "New", 3),
        ("unknown-queue", "New", 4),
    ]
    (said,) = told
    assert said.startswith(f"{folder / 'topics.json'} is damaged")
    assert said.endswith("names are not compared with it")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ("notice", "missing", "is not there")),
        ("", ("error", "damaged", "is empty: a broker takes its backup, or starts without offsets")),
        (" \n", ("error", "damaged", "is of white space alone: a broker takes its backup, or starts without offsets")),
    ],
)
def test_absent_and_empty_are_two_answers(
    golden_store: GoldenStore, text: str | None, expected: tuple[str, str, str]
) -> None:
    store = golden_store("broker-real")
    path = store / "config" / "consumerOffset.json"
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    found = [one for one in _problems(store) if one.file == path]
    assert [(one.weight, one.problem, one.detail) for one in found] == [expected]


def test_lint_against_a_backup(golden_store: GoldenStore) -> None:
    """Only what is an offset of somebody there counts, and only where it is more."""
    store = golden_store("log-gone")
    folder = _write(
        store,
        consumerOffset='{"offsetTable":{"A@g":{"0":0,"1":0},"B@g":[1]}}',
        delayOffset='{"offsetTable":{"1":0}}',
    )
    (folder / "consumerOffset.json.bak").write_text(
        '{"offsetTable":{"A@g":{"0":3,"1":"x"},"B@g":{"0":2},"C@g":[1],"no key":{"0":9}}}', encoding="utf-8"
    )
    (folder / "delayOffset.json.bak").write_text('{"offsetTable":{"1":4,"x":1}}', encoding="utf-8")
    found = [one for one in _problems(store) if one.problem == "backup-differs"]
    smaller = "smaller than in the backup: reset, or it went back"
    assert [(one.weight, one.topic, one.queue_id, one.expected, one.detail) for one in found] == [
        ("notice", "A", 0, 3, smaller),
        ("warning", "B", 0, 2, "only the backup has it"),
        ("notice", "SCHEDULE_TOPIC_XXXX", 0, 4, smaller),
        ("warning", "SCHEDULE_TOPIC_XXXX", None, 1, "only the backup has it"),
    ]


def test_lint_of_queues_in_a_rocksdb(golden_store: GoldenStore) -> None:
    """Their ends are known; where the database cannot be read, no queue is called missing, and no end is named."""
    store = golden_store("rocksdb")
    names = '{"topicConfigTable":{"Other":{"topicName":"Other","readQueueNums":4,"writeQueueNums":4}}}'
    _write(store, consumerOffset='{"offsetTable":{"TopicTest@g":{"0":99999}}}', topics=names)
    past = ("warning", "past-end", "TopicTest", 0, "99992 messages past the end")
    assert [one for one in _short(_problems(store)) if one[2] == "TopicTest"] == [past]
    (store / "consumequeue/CURRENT").write_text("MANIFEST-000099\n")
    assert [one for one in _short(_problems(store)) if one[2] == "TopicTest"] == []
