"""`groups`, `where`, `delays`, `halves` and `dlq` on the store of a real broker say what mqadmin said while it ran.

Real clients made the messages: retried, given up, delayed by level and by the timer, committed, rolled back, committed
when they were asked for, and such that nobody has answered for; and taken by POP, with every end that has.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from tests.interop.brokers import RealBroker, java, mqadmin, real_broker
from tests.network.callers import with_header
from tests.rmqctl.looking import run

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
SUFFIX = "-real"
PLAIN, PAY, ORDERED = f"Plain{SUFFIX}", f"Pay{SUFFIX}", f"Ordered{SUFFIX}"
GROUP, TRACKED, TAG = f"plain{SUFFIX}", "tracked", "Tag0"
POPPED, POPPING = f"Popped{SUFFIX}", f"popping{SUFFIX}"
RETRIES = f"%RETRY%{POPPING}_{POPPED}"
HALF, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
# what consumers get until everything was delivered, retried, given up and committed
_COUNT = 45
_LEVEL = 9
_SECONDS = 3_600
_LIMIT = 60
# transactions that nobody answers for are not given up meanwhile; and how one ended is written down before it is asked
# for, else the broker asks, and what was rolled back may be committed
SETTINGS = {"transactionCheckMax": "1000", "transactionTimeOut": "4000", "transactionOpBatchInterval": "200"}


class Told:
    """What was sent (kind -> columns), and what the broker said of it: mqadmin's lines by command, numbers by name, and
    how many messages wait in the timer, by topic."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.sent: dict[str, list[list[str]]] = {}
        with real_broker(VERSION, folder / "real", self.store, SETTINGS, shut_down=True) as real:
            self._fill(real, folder)
            self._ask(real, folder)

    def _fill(self, real: RealBroker, folder: Path) -> None:
        # retries too: consumers look for a topic that is not there every 30 s only, and mqadmin looks for groups there
        topics = (PLAIN, PAY, ORDERED, POPPED, f"%RETRY%{GROUP}", f"%RETRY%{POPPING}")
        client = Client(real.namesrv)
        for topic in topics:
            count = 1 if topic.startswith("%") or topic == POPPED else 4
            queues = {"readQueueNums": count, "writeQueueNums": count, "perm": 6, "topicFilterType": "SINGLE_TAG"}
            queues |= {"topic": topic, "defaultTopic": "TBW102", "topicSysFlag": 0, "order": False}
            client.ask(real.broker, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, queues))
        _wait(lambda: all(client.route(topic, anew=True) is not None for topic in topics))
        client.close()
        lines = java(VERSION, folder, "Produce", real.namesrv, SUFFIX, str(_COUNT))
        lines += java(VERSION, folder, "Leaves", real.namesrv, PLAIN, str(_LEVEL), str(_SECONDS))
        popped = java(VERSION, folder, "Pop", real.namesrv, real.broker, POPPED, POPPING)
        assert f"popped\trevived\t{POPPED}\t1" in popped, popped
        lines += popped
        for columns in (line.split("\t") for line in lines):
            if columns[0] == "sent":
                self.sent.setdefault(columns[1], []).append(columns[2:])
        # a commit may come twice: the broker asks until it knows
        got = {tuple(columns[2:4]) for columns in (line.split("\t") for line in lines) if columns[0] == "got"}
        self.was_rolled_back = ("ROLLBACK_MESSAGE", "0") not in got
        assert got >= {("again 0", "1"), ("dead 0", "1"), ("COMMIT_MESSAGE", "0"), ("UNKNOW", "0")}, sorted(got)
        ids = [line[2] for line in self.sent["sync"]]
        self.tracks: dict[tuple[str, str], str] = {}
        for line in java(VERSION, folder, "Track", real.namesrv, PLAIN, TRACKED, TAG, *ids):
            columns = line.split("\t")
            if columns[0] == "track":
                self.tracks[columns[1], columns[2]] = columns[3]

    def _ask(self, real: RealBroker, folder: Path) -> None:
        unique, offset_id = self.sent["sync"][0][1:3]
        self.by_id = [
            f"queryMsgById -t {PLAIN} -i {offset_id}",
            f"queryMsgByUniqueKey -t {PLAIN} -i {unique}",
        ]
        self.by_key = f"queryMsgByKey -t {PLAIN} -k key0"
        topics = (PLAIN, PAY, ORDERED, SCHEDULE, f"%DLQ%{GROUP}", f"%RETRY%{GROUP}")
        commands = [
            *self.by_id,
            self.by_key,
            *(f"topicStatus -t {topic}" for topic in topics),
            *(f"consumerProgress -g {group}" for group in (GROUP, TRACKED, POPPING)),
            f"brokerConsumeStats -b {real.broker}",
        ]
        client = Client(real.namesrv)

        def runtime() -> dict[str, str]:
            found = client.ask(real.broker, RequestCode.GET_BROKER_RUNTIME_INFO).body
            return {name: str(value) for name, value in json.loads(found)["table"].items()}

        _wait(lambda: runtime().get("timerOffsetBehind") == "0")
        said = mqadmin(VERSION, folder, real.namesrv, *commands)
        self.said = dict(zip(commands, said, strict=True))
        self.numbers = runtime()
        metrics = json.loads(client.ask(real.broker, _GET_TIMER_METRICS).body)["timingCount"]
        self.timing = {topic: int(one["count"]) for topic, one in metrics.items() if int(one["count"])}
        client.close()

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Begin and end of each queue, as topicStatus has them."""
        lines = [line.split() for line in self.said[f"topicStatus -t {topic}"]]
        return {int(line[1]): (int(line[2]), int(line[3])) for line in lines if line[0] == "broker-a"}

    def unique(self, kind: str) -> set[str]:
        """Unique keys of what was sent so."""
        return {line[1] for line in self.sent[kind]}


_GET_TIMER_METRICS = 61


def _wait(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _LIMIT
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return Told(tmp_path_factory.mktemp("agree"))


def _rows(told: Told, *arguments: str) -> list[dict[str, Any]]:
    done = run(*arguments, "-s", told.store, "--json")
    assert done.code == 0, done.err
    return done.objects


def _where(told: Told, *words: str) -> dict[str, Any]:
    (found,) = _rows(told, "where", *words)
    return found


def unread(row: dict[str, Any]) -> int | None:
    """Return the lag as mqadmin counts it: without what is in flight by POP."""
    return None if row["lag"] is None else row["lag"] - (row["in_flight"] or 0)


def test_groups(told: Told) -> None:
    """consumerProgress and brokerConsumeStats: end, offset and lag of every queue."""
    rows = _rows(told, "groups")
    known = {(row["group"], row["topic"], row["queue_id"]): row for row in rows}
    compared = Counter[str]()
    for group in (GROUP, TRACKED, POPPING):
        for line in map(str.split, told.said[f"consumerProgress -g {group}"]):
            if len(line) > 6 and line[2].isdigit():
                row = known[group, line[0], int(line[2])]
                # mqadmin counts from 0 where no offset is kept, and where nothing was ever stored
                if (row["offset"] is not None or line[4] != "0") and (row["max_offset"] is not None or line[3] != "0"):
                    assert [row["max_offset"], row["offset"], unread(row)] == [int(one) for one in line[3:6]], row
                    compared[group] += 1
    (stats,) = [lines for command, lines in told.said.items() if command.startswith("brokerConsumeStats")]
    for line in map(str.split, stats):
        # the broker's own group goes on with the half topic until it stops
        if len(line) > 6 and line[3].isdigit() and not line[1].startswith("CID_"):
            row = known[line[1], line[0], int(line[3])]
            assert [row["max_offset"], row["offset"], unread(row)] == [int(one) for one in line[4:7]], row
            compared["all"] += 1
    assert min(compared[GROUP], compared[TRACKED]) >= 4
    # the topic, and what was not acknowledged in time
    assert compared[POPPING] == 2
    assert compared["all"] >= 12


def test_where_finds_what_mqadmin_finds(told: Told) -> None:
    unique, offset_id = told.sent["sync"][0][1:3]
    by_id, by_unique = _where(told, offset_id), _where(told, unique)
    by_key = _where(told, "key0", "-t", PLAIN)
    assert by_id["physical_offset"] == by_unique["physical_offset"] == by_key["physical_offset"]
    for command in told.by_id:
        fields = {
            name.strip(): value.strip() for name, _, value in (line.partition(":") for line in told.said[command])
        }
        assert fields["CommitLog Offset"] == str(by_id["physical_offset"])
        assert (fields["Queue ID"], fields["Queue Offset"]) == (str(by_id["queue_id"]), str(by_id["queue_offset"]))
    keyed = [line.split() for line in told.said[told.by_key] if line.startswith(unique)]
    assert keyed == [[unique, str(by_key["queue_id"]), str(by_key["queue_offset"])]]


def test_where_says_of_every_path_how_it_went(told: Told) -> None:
    def states(kind: str) -> list[str]:
        return [
            _where(told, line[1], "-g", GROUP if kind != "pay" else f"pay{SUFFIX}")["state"] for line in told.sent[kind]
        ]

    assert states("again") == ["read"]
    assert states("dead") == ["dead"]
    assert set(states("delayed")) == {"read"}
    # commit, rollback, and committed when it was asked for
    assert states("pay") == ["read", "rolled-back" if told.was_rolled_back else "read", "read"]
    assert set(states("level")) == set(states("timer")) == {"waiting"}
    assert set(states("open")) == {"pending"}
    for _, unique, offset_id, *_ in told.sent["sync"]:
        found = _where(told, offset_id, "-g", TRACKED, "--tag", TAG)
        expected = {"CONSUMED": "read", "CONSUMED_BUT_FILTERED": "filtered"}[told.tracks[offset_id, TRACKED]]
        assert (found["unique_key"], found["state"]) == (unique, expected)


def test_where_says_what_became_of_what_was_taken_by_pop(told: Told) -> None:
    def found(kind: str) -> list[dict[str, Any]]:
        return [_where(told, line[1]) for line in told.sent[kind]]

    def groups(kind: str) -> list[str]:
        return [step["state"] for one in found(kind) for step in one["evidence"] if step["stage"] == "group"]

    every = [one for kind in ("acked", "revived", "longer", "half", "flying", "left") for one in found(kind)]
    # no group is made up of the name of the retry topic
    assert {group["group"] for one in every for group in one["groups"]} == {POPPING}
    assert groups("acked") == ["passed"] * 2
    assert groups("longer") == ["in-flight"]
    assert groups("half") == ["passed", "in-flight"]
    assert groups("flying") == ["in-flight"] * 2
    assert groups("left") == ["not-reached"] * 2
    (again,) = found("revived")
    assert again["state"] == "read"
    (retry,) = [step for step in again["evidence"] if step["stage"] == "retry"]
    assert (retry["topic"], retry["state"]) == (RETRIES, "read")
    assert run("offsets", "lint", "-s", told.store).code == 0


def test_delays(told: Told) -> None:
    """scheduleMessageOffset of the broker, and what its timer counts by topic (timermetrics)."""
    rows = _rows(told, "delays")
    levels = {row["level"]: row for row in rows if row["kind"] == "level"}
    assert {level - 1: (row["min_offset"], row["max_offset"]) for level, row in levels.items()} == {
        queue: place for queue, place in told.ends(SCHEDULE).items() if place[1]
    }
    for level, row in levels.items():
        offset, end = told.numbers[f"scheduleMessageOffset_{level}"].split(",")
        assert (row["offset"], row["max_offset"]) == (int(offset), int(end))
    waiting = levels[_LEVEL]
    assert (waiting["state"], waiting["pending"], waiting["target_topic"]) == ("waiting", 3, PLAIN)
    timed = [row for row in rows if row["kind"] == "timer"]
    counts: Counter[str] = Counter()
    for row in timed:
        counts[row["target_topic"]] += row["pending"]
    # what was handed out by POP and what was acknowledged goes through the timer, too
    assert counts == told.timing
    assert {topic: count for topic, count in counts.items() if not topic.startswith("rmq_sys_REVIVE_LOG_")} == {
        PLAIN: 3
    }
    now = time.time() * 1000
    assert all(now < row["first_due_timestamp"] <= now + _SECONDS * 1000 for row in timed)


def test_halves(told: Told, tmp_path: Path) -> None:
    """Only those that nobody has answered for; the broker has asked for them in vain."""
    settings = tmp_path / "broker.conf"
    settings.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    rows = _rows(told, "halves", "-c", str(settings))
    pending = [row for row in rows if row["state"] == "pending"]
    assert {row["unique_key"] for row in pending} == told.unique("open")
    assert {(row["producer_group"], row["target_topic"]) for row in pending} == {("opens", PLAIN)}
    # what was answered while the broker asked, which goes on asking
    assert {row["unique_key"] for row in rows} - told.unique("open") <= told.unique("pay")


def test_dead_letters(told: Told) -> None:
    rows = _rows(told, "dlq", "list")
    assert len(rows) == sum(end - begin for begin, end in told.ends(f"%DLQ%{GROUP}").values())
    (row,) = rows
    (dead,) = told.sent["dead"]
    assert (row["group"], row["origin_topic"], row["unique_key"]) == (GROUP, PLAIN, dead[1])
    assert row["origin_id"] == dead[2]
