"""`where` and `groups` on a store that real clients filled by every path, held against what mqadmin says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.steps import Stage, Verdict, Whereabouts
from rmqctl.store.message_store import MessageStore
from tests.interop.test_served_writable import CONF, OWN, _create, _java
from tests.network.serving import serving
from tests.rmqctl.looking import run

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

VERSION = "5.3.3"
SUFFIX = "-where"
PLAIN, PAY = f"Plain{SUFFIX}", f"Pay{SUFFIX}"
GROUP, TRACKED, TAG = f"plain{SUFFIX}", "tracked", "Tag0"
# what consumers get until everything was delivered, retried, given up and committed
_COUNT = 45


class Filled:
    """The store, what was sent (kind -> columns), what mqadmin said by command, and who consumed what (id -> type)."""

    def __init__(self, folder: Path) -> None:
        conf = folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in (CONF | OWN).items()), encoding="ascii")
        self.path = folder / "store"
        self.sent: dict[str, list[list[str]]] = {}
        with serving(self.path, "--writable", "--create", "-c", str(conf)) as served:
            _create(served, PLAIN, f"Ordered{SUFFIX}", PAY)
            for line in _java(VERSION, folder, "Produce", served.namesrv, SUFFIX, str(_COUNT)):
                if line[0] == "sent":
                    self.sent.setdefault(line[1], []).append(line[2:])
            ids = [line[2] for line in self.sent["sync"]]
            told = _java(VERSION, folder, "Track", served.namesrv, PLAIN, TRACKED, TAG, *ids)
            self.consumed = [line[1:] for line in told if line[0] == "consumed"]
            self.tracks = {(line[1], line[2]): line[3] for line in told if line[0] == "track"}
            unique, offset_id = self.sent["sync"][0][1:3]
            self.commands = [
                f"queryMsgById -t {PLAIN} -i {offset_id}",
                f"queryMsgByUniqueKey -t {PLAIN} -i {unique}",
                f"queryMsgByKey -t {PLAIN} -k key0",
                f"consumerProgress -g {GROUP}",
                f"consumerProgress -g {TRACKED}",
            ]
            self.said: dict[str, list[str]] = {}
            shown: list[str] = []
            lines = [f"{command} -n {served.namesrv}" for command in self.commands]
            for columns in _java(VERSION, folder, "Admin", *lines):
                text = "\t".join(columns)
                if text.startswith("== "):
                    shown = self.said.setdefault(text.removeprefix("== ").partition(" -n ")[0], [])
                else:
                    shown.append(text)
            assert served.end() == 0
            assert "Traceback" not in served.errors


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("where"))


@pytest.fixture
def store(filled: Filled) -> Iterator[MessageStore]:
    with MessageStore.open(filled.path) as opened:
        yield opened


def _states(answer: Whereabouts, stage: Stage, group: str | None = None) -> list[str]:
    return [step.state for step in answer.evidence if step.stage is stage and group in (None, step.group)]


def test_every_path(filled: Filled, store: MessageStore) -> None:
    """Consumed, retried, given up, delayed, committed, rolled back, and committed only when it was asked for."""

    def asked(kind: str, number: int = 0) -> Whereabouts:
        (answer,) = store.where(filled.sent[kind][number][1])
        return answer

    assert asked("sync").state is Verdict.READ
    again = asked("again")
    assert again.state is Verdict.READ
    assert _states(again, Stage.RETRY, GROUP) == ["read"]
    dead = asked("dead")
    assert (dead.state, dead.topic) == (Verdict.DEAD, PLAIN)
    assert _states(dead, Stage.RETRY, GROUP) == ["read"]
    assert _states(dead, Stage.DEAD, GROUP) == ["given-up"]
    delayed = asked("delayed")
    assert (delayed.state, delayed.topic) == (Verdict.READ, PLAIN)
    assert _states(delayed, Stage.DELAY) == ["delivered"]
    # LocalTransactionState.values(): commit, rollback, unknown
    committed, rolled_back, unknown = (asked("pay", number) for number in range(3))
    assert (committed.state, committed.topic, _states(committed, Stage.HALF)) == (Verdict.READ, PAY, ["committed"])
    assert (rolled_back.state, _states(rolled_back, Stage.HALF)) == (Verdict.ROLLED_BACK, ["rolled-back"])
    assert (unknown.state, unknown.topic) == (Verdict.READ, PAY)
    assert "committed" in _states(unknown, Stage.HALF)


def test_who_has_consumed_it_is_what_mqadmin_says(filled: Filled, store: MessageStore) -> None:
    """messageTrackDetail of messages that a group with a tag takes and passes over."""
    expected = {"CONSUMED": Verdict.READ, "CONSUMED_BUT_FILTERED": Verdict.FILTERED}
    seen = set()
    assert [columns[1] for columns in filled.consumed] == ["0"]
    for _, unique, offset_id, *_ in filled.sent["sync"]:
        track = filled.tracks[offset_id, TRACKED]
        (answer,) = store.where(offset_id, groups=[TRACKED], tags=TAG)
        assert (answer.unique_key, answer.state) == (unique, expected[track])
        # of a group that is not connected mqadmin knows nothing; its offset is in the store all the same
        assert filled.tracks[offset_id, GROUP] == "NOT_ONLINE"
        seen.add(track)
    assert seen == expected.keys()


def _field(lines: list[str], name: str) -> str:
    (value,) = [line.removeprefix(f"{name}:").strip() for line in lines if line.startswith(f"{name}:")]
    return value


def test_mqadmin_finds_the_same_messages(filled: Filled, store: MessageStore) -> None:
    unique, offset_id = filled.sent["sync"][0][1:3]
    (by_id,), (by_unique,) = store.where(offset_id), store.where(unique)
    (by_key,) = store.where("key0", topic=PLAIN)
    assert by_id.physical_offset == by_unique.physical_offset == by_key.physical_offset
    for command in filled.commands[:2]:
        lines = filled.said[command]
        assert _field(lines, "CommitLog Offset") == str(by_id.physical_offset)
        assert (_field(lines, "Queue ID"), _field(lines, "Queue Offset")) == (
            str(by_id.queue_id),
            str(by_id.queue_offset),
        )
    keyed = [line.split() for line in filled.said[filled.commands[2]] if line.startswith(unique)]
    assert keyed == [[unique, str(by_key.queue_id), str(by_key.queue_offset)]]


@pytest.mark.parametrize("group", [GROUP, TRACKED])
def test_groups_are_as_far_as_mqadmin_says(filled: Filled, group: str) -> None:
    lines = [line.split() for line in filled.said[f"consumerProgress -g {group}"]]
    said = {
        (line[0], int(line[2])): tuple(map(int, line[3:6])) for line in lines if len(line) > 6 and line[2].isdigit()
    }
    assert len(said) >= 4
    rows: list[dict[str, Any]] = run("groups", "-s", filled.path, "-g", group, "--json").objects
    known = {(row["topic"], row["queue_id"]): row for row in rows if row["offset"] is not None}
    for place, (end, offset, lag) in said.items():
        # mqadmin counts from 0 where no offset is kept
        if place in known or offset:
            row = known[place]
            assert (row["max_offset"], row["offset"], row["lag"]) == (end, offset, lag), json.dumps(row)


def test_ids_of_messages_are_the_broker_s(filled: Filled, store: MessageStore) -> None:
    message: StoredMessage = store.lookup(filled.sent["sync"][0][2])
    assert message.properties()["UNIQ_KEY"] == filled.sent["sync"][0][1]
