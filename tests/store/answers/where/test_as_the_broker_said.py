"""`where` agrees with what a real broker said and did: its statistics, and every message it stored, by RocketMQ's view.

What is expected is made here of RocketMQ's rows alone, by other means than those of the engine.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from rmqctl.store.answers.groups import group_queues
from rmqctl.store.answers.steps import Stage, Verdict
from rmqctl.store.answers.undispatched import HALF_TOPIC, OP_TOPIC, ended_offsets
from rmqctl.store.options import Events
from tests.goldens import FOLDER, admin, truth
from tests.opened import reader
from tests.quick import shares
from tests.store.answers.where.asking import NOW, ask, steps

Row = dict[str, Any]
STORE = "broker-real"
ASKED = sorted(path.name.removesuffix(".admin.json") for path in FOLDER.glob("*.admin.json"))
"""The golden stores of brokers that were asked before they stopped."""
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TIMER = "rmq_sys_wheel_timer"
TEN_MINUTES = 600_000


def _rows(topic: str, name: str = STORE) -> list[Row]:
    return [row for row in truth(name).messages if row["topic"] == topic]


def _offsets(name: str) -> dict[tuple[str, int], dict[str, int]]:
    """By topic and queue, what the broker said that each group reads next."""
    found: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for group, said in admin(name)["consumeStats[broker,consumer,lastTimestamp]"].items():
        for queue, (_, offset, _) in said.items() if isinstance(said, dict) else ():
            topic, _, queue_id = queue.rpartition("/")
            found[topic, int(queue_id)][group] = offset
    return found


def _sent(name: str) -> list[Row]:
    """Messages in topics of users."""
    own = (SCHEDULE, TIMER, HALF_TOPIC, OP_TOPIC, "%")
    return [row for row in truth(name).messages if not row["topic"].startswith(own)]


def _origin(row: Row) -> int | None:
    text = row["properties"].get("ORIGIN_MESSAGE_ID")
    return None if text is None else int(text[16:], 16)


def _hops(name: str, prefix: str) -> dict[tuple[int | None, str], list[Row]]:
    """What lies in topics of groups, by the message that it was and by the group."""
    found: dict[tuple[int | None, str], list[Row]] = defaultdict(list)
    for row in truth(name).messages:
        if row["topic"].startswith(prefix):
            found[_origin(row), row["topic"].removeprefix(prefix)].append(row)
    return found


@pytest.mark.parametrize("share", shares(5))
@pytest.mark.parametrize("name", ASKED)
def test_every_message_and_every_group(name: str, share: slice) -> None:
    offsets, dead, retries = _offsets(name), _hops(name, "%DLQ%"), _hops(name, "%RETRY%")
    rows = _sent(name)[share]
    assert len(rows) > 60
    for row in rows:
        answer = ask(reader(name), row["topic"], row["queueId"], row["queueOffset"]).one
        assert answer.physical_offset == row["phyOffset"]
        assert [step.state for step in steps(answer, Stage.QUEUE)] == ["there"]
        assert [step.state for step in steps(answer, Stage.INDEX)] == ["there"]
        known = offsets[row["topic"], row["queueId"]]
        reached = {step.group: step for step in steps(answer, Stage.GROUP)}
        assert {group: step.group_offset for group, step in reached.items()} == known
        verdicts = {one.group: one.state for one in answer.groups}
        for group, offset in known.items():
            step = reached[group]
            assert step.distance == row["queueOffset"] - offset
            assert step.state == ("passed" if offset > row["queueOffset"] else "not-reached")
            place = row["phyOffset"], group
            assert [one.physical_offset for one in steps(answer, Stage.RETRY, group)] == [
                one["phyOffset"] for one in retries[place]
            ]
            assert [one.physical_offset for one in steps(answer, Stage.DEAD, group)] == [
                one["phyOffset"] for one in dead[place]
            ]
            expected = Verdict.UNREAD if offset <= row["queueOffset"] else Verdict.READ
            assert verdicts[group] is (Verdict.DEAD if dead[place] else expected)
        assert (answer.state is Verdict.STORED) == (not known)


@pytest.mark.parametrize("name", ASKED)
def test_every_group_in_every_queue(name: str) -> None:
    """`groups` has the ends and offsets that the broker said, of all groups that it knew of."""

    def fail(error: object) -> None:
        raise AssertionError(error)

    rows = list(group_queues(reader(name).telling(Events(damage=fail)), None, None))
    found = {(row.topic, row.queue_id, row.group): (row.max_offset, row.offset) for row in rows}
    ends = {
        queue: values[1]
        for topic in admin(name)["topicStats[min,max,lastUpdate]"].values()
        for queue, values in topic.items()
    }
    said = {
        (topic, queue_id, group): (ends[f"{topic}/{queue_id}"], offset)
        for (topic, queue_id), groups in _offsets(name).items()
        for group, offset in groups.items()
    }
    assert len(said) > 20
    assert said.items() <= found.items()


def test_retries_and_dead_letters_lead_to_the_message_that_they_were() -> None:
    for topic in ("%DLQ%g-retry", "%RETRY%g-retry"):
        for row in _rows(topic)[::6]:
            for words in ((row["phyOffset"],), (row["msgId"],), (topic, row["queueId"], row["queueOffset"])):
                assert ask(reader(STORE), *words).one.physical_offset == _origin(row)


def test_transactions() -> None:
    """Committed, rolled back and open ones, by the half messages, the marks and the committed messages."""
    (op,) = _rows(OP_TOPIC)
    ended = set(ended_offsets(reader(STORE).lookup(op["phyOffset"]).body))
    halves: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(HALF_TOPIC):
        halves[row["properties"]["UNIQ_KEY"]].append(row)
    committed = {row["properties"]["UNIQ_KEY"] for row in _rows("Pay")}
    seen = set()
    for key, copies in halves.items():
        answer = ask(reader(STORE), key).one
        expected = {Verdict.READ} if key in committed else {Verdict.PENDING}
        if key not in committed and any(row["queueOffset"] in ended for row in copies):
            expected = {Verdict.ROLLED_BACK}
        assert {answer.state} == expected, key
        seen |= expected
        prepared = {row["preparedTransactionOffset"] for row in _rows("Pay") if row["properties"]["UNIQ_KEY"] == key}
        told = steps(answer, Stage.HALF)
        assert {step.physical_offset for step in told if step.detail.startswith("committed: ")} == prepared
        folded = [step for step in told if step.state == "superseded"]
        assert len(told) - len(folded) + sum(int(step.detail.split()[0]) for step in folded) == len(copies)
    assert seen == {Verdict.READ, Verdict.PENDING, Verdict.ROLLED_BACK}


@pytest.mark.parametrize(("topic", "own"), [(SCHEDULE, "later"), (TIMER, "timer")])
def test_delays(topic: str, own: str) -> None:
    delivered = {row["properties"]["UNIQ_KEY"]: row for row in _rows("Later")}
    rows = [row for row in _rows(topic) if row["properties"]["KEYS"].startswith(own)]
    assert len(rows) == 10
    states = set()
    for row in rows:
        there = delivered.get(row["properties"]["UNIQ_KEY"])
        answer = ask(reader(STORE), row["properties"]["KEYS"], now=row["storeTimestamp"] + 1).one
        (step,) = steps(answer, Stage.DELAY)
        states.add(step.state)
        if there is not None:
            assert (step.state, step.timestamp) == ("delivered", there["storeTimestamp"])
            assert answer.physical_offset == there["phyOffset"]
            continue
        out = row["properties"].get("TIMER_OUT_MS")
        assert step.timestamp == (int(out) if out else row["storeTimestamp"] + TEN_MINUTES)
        assert (step.state, answer.state) == ("waiting", Verdict.WAITING)
        late = ask(reader(STORE), row["properties"]["KEYS"], now=NOW).one
        assert late.state is Verdict.OVERDUE
    assert states == {"delivered", "waiting"}


def test_what_other_answers_tell_agrees() -> None:
    """Each row of `halves` and `dlq`, asked for by what it shows."""
    from rmqctl.store.answers.dead_letters import dead_letters
    from rmqctl.store.answers.transactions import unresolved_halves

    def fail(error: object) -> None:
        raise AssertionError(error)

    states = {"expired": Verdict.PENDING, "committed": Verdict.READ, "ended": Verdict.ROLLED_BACK}
    found = list(unresolved_halves(reader(STORE).telling(Events(damage=fail)), NOW))
    for half in found[::3]:
        assert ask(reader(STORE), half.unique_key).one.state is states[half.state]
    for letter in list(dead_letters(reader(STORE).telling(Events(damage=fail)), None, None))[::8]:
        answer = ask(reader(STORE), letter.origin_id).one
        assert (answer.state, answer.unique_key) == (Verdict.DEAD, letter.unique_key)
