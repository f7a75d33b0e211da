"""POP of ours: unmodified clients see what they see at the real broker, and that goes on from what ours leaves."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode
from rmqctl.store.config.config_files import read_config
from rmqctl.store.message_store import MessageStore
from tests.interop.brokers import SMALL, create_topic, java, mqadmin, real_broker
from tests.interop.members import wait_for
from tests.network.callers import messages, popped, with_header
from tests.network.serving import serving
from tests.quick import sample

pytestmark = pytest.mark.interop

NEWEST = "5.5.0"
TOPIC, GROUP = "Jobs", "g-work"
_SECONDS = 120
_INVISIBLE_MS = 20_000
SETTINGS = {"brokerName": "broker-a", "mappedFileSizeCommitLog": "262144", "mappedFileSizeTimerLog": "4096"}


def _said(lines: list[str]) -> list[list[str]]:
    """What the client printed, without ids."""
    return [line.split("\t")[:4] if line.startswith("popped") else line.split("\t")[:3] for line in lines if line]


def _committed(store: Path) -> int | None:
    """How far the group is on disk."""
    try:
        content = read_config(store / "config" / "consumerOffset.json")
    except CorruptError:
        return None  # a real broker is writing it
    found = (content or {}).get("offsetTable", {}).get(f"{TOPIC}@{GROUP}", {}).get(0)
    return None if found is None else int(found)


def _end(client: Client, broker: str, topic: str = TOPIC) -> int:
    """Where the queue ends."""
    answer = client.ask(broker, *with_header(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}))
    return int(answer.fields["offset"])


def _pop(client: Client, broker: str, topic: str = TOPIC, **more: Any) -> list[StoredMessage]:
    fields = {
        "consumerGroup": GROUP, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": _INVISIBLE_MS,
        "pollTime": 0, "bornTime": 0, "initMode": 0, "order": False,
    }  # fmt: skip
    answer = client.ask(broker, *with_header(RequestCode.POP_MESSAGE, fields | more), allowed=(210,))
    return [one._replace(topic=handle) for one, _, handle in popped(answer, GROUP)]


def _ack(client: Client, broker: str, topic: str, found: StoredMessage, **more: Any) -> None:
    fields = {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "offset": found.queue_offset} | more
    fields["extraInfo"] = found.topic
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME if more else RequestCode.ACK_MESSAGE
    client.ask(broker, *with_header(code, fields))


@contextlib.contextmanager
def _broker(kind: str, folder: Path, store: Path) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Addresses of ours or of a real broker over the store, and what kills it."""
    if kind != "ours":
        with real_broker(kind, folder / kind, store, SETTINGS) as real:
            yield real.namesrv, real.broker, real.process.kill
        return
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in (SMALL | SETTINGS).items()))
    how = "--recover" if store.exists() else "--create"
    with serving(store, "--writable", how, "-c", str(conf)) as served:
        yield served.namesrv, served.broker, lambda: served.end(signal.SIGKILL)


_PAIRS = [("ours", "5.5.0"), ("5.5.0", "ours"), ("ours", "5.3.3"), ("5.3.3", "ours"), ("ours", "ours")]


@pytest.mark.parametrize("pair", sample(_PAIRS, _PAIRS[:2]), ids="-".join)
def test_another_broker_goes_on_after_a_kill(pair: tuple[str, str], tmp_path: Path) -> None:
    """Nothing that was acknowledged comes again; all that was not comes again once."""
    first, second = pair
    store = tmp_path / "store"
    bodies = [b"%d" % number for number in range(10)]
    with _broker(first, tmp_path, store) as (namesrv, broker, kill):
        create_topic(namesrv, broker, TOPIC, queues=1)
        with Producer(namesrv) as producer, contextlib.closing(Client(namesrv)) as client:
            for body in bodies[:8]:
                producer.send(Message(TOPIC, body))
            wait_for(lambda: _end(client, broker) == 8, _SECONDS)
            found = _pop(client, broker)
            assert [one.body for one in found] == bodies[:8]
            for one in found[:3]:
                _ack(client, broker, TOPIC, one)
            entry = {"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "b": base64.b64encode(b"\x18").decode()}
            _, pop_time, invisible, revive_queue, *_ = found[0].topic.split(" ")
            entry |= {"rq": int(revive_queue), "pt": int(pop_time), "it": int(invisible)}
            body = json.dumps({"brokerName": "broker-a", "acks": [entry]}).encode()
            client.ask(broker, RequestCode.BATCH_ACK_MESSAGE, body=body)
            _ack(client, broker, TOPIC, found[5], invisibleTime=_INVISIBLE_MS + 5000)
            for body in bodies[8:]:
                producer.send(Message(TOPIC, body))
        wait_for(lambda: _committed(store) == 8, _SECONDS)
        kill()
    with _broker(second, tmp_path, store) as (namesrv, broker, kill):
        # the threads of a real timer give out of order what was due before the start, acknowledgements first perhaps
        is_late = second != "ours" and time.time_ns() // 1_000_000 > int(pop_time) + _INVISIBLE_MS - 2000
        got: Counter[bytes] = Counter()
        with contextlib.closing(Client(namesrv)) as client:

            def has_all() -> bool:
                for one in _pop(client, broker):
                    is_retry = one.topic.split(" ")[4] == "1"
                    _ack(client, broker, f"%RETRY%{GROUP}_{TOPIC}" if is_retry else TOPIC, one)
                    got[one.body] += 1
                return got.keys() >= {*bodies[5:]}

            wait_for(has_all, _SECONDS)
            # what comes too much comes soon
            end = time.monotonic() + 4
            while time.monotonic() < end:
                has_all()
                time.sleep(0.5)
    assert got == Counter(bodies[5:]) or is_late


def _popped(version: str, folder: Path, namesrv: str, broker: str) -> list[list[str]]:
    create_topic(namesrv, broker, TOPIC, queues=1)
    return _said(java(version, folder, "Pop", namesrv, broker, TOPIC, GROUP))


@pytest.mark.parametrize("version", sample([NEWEST, "5.3.3"], [NEWEST]))
def test_a_client_pops_from_ours_as_from_the_real_one_which_goes_on(version: str, tmp_path: Path) -> None:
    with real_broker(version, tmp_path / "real", tmp_path / "theirs", SETTINGS) as real:
        theirs = _popped(version, tmp_path, real.namesrv, real.broker)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in (SMALL | SETTINGS).items()))
    store = tmp_path / "ours"
    with serving(store, "--writable", "--create", "-c", str(conf)) as served:
        ours = _popped(version, tmp_path, served.namesrv, served.broker)
        assert served.end(signal.SIGKILL) == -signal.SIGKILL
    assert ours == theirs
    with MessageStore.open(store) as opened:
        opened.recover()  # a busy broker may have been killed before its queues had the last acknowledgements
        messages = list(opened.pop().messages())
    assert Counter(one.state for one in messages)["in-flight"] == 4, messages


@pytest.mark.parametrize("version", sample([NEWEST, "5.3.3"], [NEWEST]))
def test_a_push_consumer_whose_group_pops_gets_each_message_once(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with _broker("ours", tmp_path, store) as (namesrv, broker, kill):
        create_topic(namesrv, broker, TOPIC)
        mqadmin(version, tmp_path, namesrv, f"setConsumeMode -b {broker} -t {TOPIC} -g {GROUP} -m POP -q 8")
        with Producer(namesrv) as producer:
            for number in range(20):
                producer.send(Message(TOPIC, b"%d" % number))
        lines = java(version, tmp_path, "Assigned", namesrv, TOPIC, GROUP, "20")
        assert Counter(lines) == Counter({f"message\t{queue}": 5 for queue in range(4)})
        kill()
    with MessageStore.open(store) as opened:
        opened.recover()
        assert Counter(one.state for one in opened.pop().messages()) == {"acknowledged": 20}


_TIMES = ("popTime", "invisibleTime")


class _Script:
    """Requests of POP at one broker, and what it answers, without times."""

    def __init__(self, client: Client, broker: str, *, suspends: bool) -> None:
        self._client, self._broker, self.suspends = client, broker, suspends
        self.said: list[Any] = []

    def ask(self, code: int, **fields: Any) -> RemotingCommand:
        topic = {"consumerGroup": "g-own", "topic": "Steps", "queueId": 0}
        answer = self._client.ask(self._broker, *with_header(code, topic | fields), allowed=tuple(range(1, 300)))
        bodies = [(one.topic, one.body, one.reconsume_times) for one in messages(answer.body)]
        kept = {name: text for name, text in answer.fields.items() if name not in _TIMES}
        # of unordered pops they go in turn
        kept["reviveQid"] = str(kept.get("reviveQid") == "999")
        remark = re.sub(r"/127\.0\.0\.1:\d+", "CLIENT", answer.remark or "")
        self.said.append((code, int(answer.code), remark if answer.code not in (0, 208) else "", kept, bodies))
        return answer

    def pop(self, most: int = 2, **more: Any) -> RemotingCommand:
        fields = {"maxMsgNums": most, "invisibleTime": 20_000, "pollTime": 0, "bornTime": 0, "initMode": 0}
        return self.ask(RequestCode.POP_MESSAGE, **(fields | more))

    def ack(self, answer: RemotingCommand, offset: int, *, code: int = RequestCode.ACK_MESSAGE, **more: Any) -> None:
        said = answer.fields
        flag, queue_id, start = said["startOffsetInfo"].split(" ")
        handle = f"{start} {said['popTime']} {said['invisibleTime']} {said['reviveQid']} {flag} broker-a {queue_id}"
        topic = "%RETRY%g-own_Steps" if flag == "1" else "Steps"
        self.ask(code, **({"extraInfo": f"{handle} {offset}", "offset": offset, "topic": topic} | more))

    def offset_until_known(self) -> None:
        """The group's offset once it is set: a real broker sets it a moment after it has answered the pop."""
        count, end = len(self.said), time.monotonic() + _SECONDS
        while self.ask(RequestCode.QUERY_CONSUMER_OFFSET).fields.get("offset") in (None, "0"):
            if time.monotonic() > end:
                break
            del self.said[count:]
            time.sleep(0.1)

    def pop_until_found(self, **more: Any) -> RemotingCommand:
        """What is found in the end; only that is kept."""
        count, end = len(self.said), time.monotonic() + _SECONDS
        while (answer := self.pop(**more)).code != 0 and time.monotonic() < end:
            del self.said[count:]
            time.sleep(0.1)
        return answer


def _in_order(script: _Script) -> None:
    def pop(attempt: str, most: int = 2) -> RemotingCommand:
        return script.pop(most, order=True, attemptId=attempt)

    change = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    pop("one")
    pop("two")
    for attempt in ("one", "two"):
        script.ask(RequestCode.NOTIFICATION, pollTime=0, bornTime=0, order=True, attemptId=attempt)
    first = pop("one")
    script.ack(first, 0)
    script.ack(first, 0)
    script.ack(first, 3)
    script.ack(first, 1, code=change, invisibleTime=1_000)
    pop("two")
    time.sleep(1.5)
    second = pop("two", 1)
    # of the first pop, which is not the last one any more
    script.ack(first, 1)
    script.ack(second, 1)
    third = pop("three", 8)
    for offset in (3, 2):
        script.ack(third, offset)
        script.ask(RequestCode.QUERY_CONSUMER_OFFSET)
    pop("four")


def _in_any_order(script: _Script) -> None:
    change = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    asked = {"pollTime": 0, "bornTime": 0}
    script.ask(RequestCode.NOTIFICATION, **asked)
    first = script.pop(exp="x", expType="TAG")
    script.offset_until_known()
    second = script.pop(exp="TAGS = 'y'", expType="SQL92")
    script.ask(RequestCode.NOTIFICATION, **asked)
    script.ask(RequestCode.POLLING_INFO)
    script.ack(first, 0)
    script.ack(first, 2, code=change, invisibleTime=1_000)
    script.ack(second, 3)
    again = script.pop_until_found(most=8)
    # 5.3.3 does not know that a try may not count
    script.ack(again, 0, code=change, invisibleTime=500, **({"suspend": True} if script.suspends else {}))
    script.pop_until_found(most=8)
    script.ask(RequestCode.PEEK_MESSAGE, maxMsgNums=8)


@pytest.mark.parametrize("version", sample([NEWEST, "5.3.3"], [NEWEST]))
@pytest.mark.parametrize("script", [_in_order, _in_any_order], ids=lambda one: one.__name__)
def test_a_session_of_pops_is_answered_as_by_the_real_broker(
    script: Callable[[_Script], None], version: str, tmp_path: Path
) -> None:
    said: list[list[Any]] = []
    for kind in (version, "ours"):
        with (
            _broker(kind, tmp_path, tmp_path / f"store-{kind}") as (namesrv, broker, _),
            contextlib.closing(Client(namesrv)) as client,
        ):
            create_topic(namesrv, broker, "Steps", queues=1)
            with Producer(namesrv) as producer:
                for number, tag in enumerate("xyxy"):
                    producer.send(Message("Steps", b"%d" % number, properties={"TAGS": tag}))
            wait_for(lambda: _end(client, broker, "Steps") == 4, _SECONDS)
            one = _Script(client, broker, suspends=version == NEWEST)
            script(one)
            said.append(one.said)
    theirs, ours = said
    assert len(ours) > 10
    for expected, got in zip(theirs, ours, strict=True):
        assert got == expected


@pytest.mark.parametrize("finish", [False, True])
def test_what_is_in_flight_is_released_or_finished(finish: bool, tmp_path: Path) -> None:
    """A real broker hands out at once, or never again, what it had handed out for an hour."""
    store, hour = tmp_path / "store", 3_600_000
    bodies = [b"%d" % number for number in range(6)]
    with real_broker(NEWEST, tmp_path / "first", store, SETTINGS, shut_down=True) as real:
        create_topic(real.namesrv, real.broker, TOPIC, queues=1)
        with Producer(real.namesrv) as producer, contextlib.closing(Client(real.namesrv)) as client:
            for body in bodies:
                producer.send(Message(TOPIC, body))
            wait_for(lambda: _end(client, real.broker) == len(bodies), _SECONDS)
            found = _pop(client, real.broker, invisibleTime=hour)
            assert [one.body for one in found] == bodies
            for one in found[::2]:
                _ack(client, real.broker, TOPIC, one)
    with MessageStore.open(store) as opened:
        report = opened.end_pops(GROUP, finish=finish)
        assert (report.again, report.skipped) == ((0, 3) if finish else (3, 0))
        assert not [one for one in opened.check() if one.severity.is_alarm]
    got: Counter[bytes] = Counter()
    with (
        real_broker(NEWEST, tmp_path / "second", store, SETTINGS, shut_down=True) as real,
        contextlib.closing(Client(real.namesrv)) as client,
    ):
        end = time.monotonic() + (30 if finish else 60)
        while time.monotonic() < end and (finish or got.total() < 3):
            for one in _pop(client, real.broker, invisibleTime=hour):
                assert one.topic.split(" ")[4] == "1"
                got[one.body] += 1
                _ack(client, real.broker, f"%RETRY%{GROUP}_{TOPIC}", one)
            time.sleep(0.5)
    assert got == Counter([] if finish else bodies[1::2])
    with MessageStore.open(store) as opened:
        assert not [one for one in opened.check() if one.severity.is_alarm]
