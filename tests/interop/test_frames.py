"""The same requests at the real broker and at `serve --writable`, over copies of one store, answer by answer.

Codes, remarks, header fields and bodies have to be the same. Where they are not, `DIFFERENCES` says why, and
docs/network.md tells it; what differs without being listed there fails, and so does what is listed and does not differ.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.network.broker.services import SERVICES
from rmqctl.network.nameserver import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.remoting.codec import FrameDecoder, RemotingCommand, encode_frame, parse_body
from rmqctl.network.remoting.codec import RequestCode as Code
from tests.goldens import golden, properties
from tests.interop.brokers import real_broker
from tests.interop.frame_requests import BROKER, NAMESRV, Ask, session
from tests.network.serving import serving
from tests.processes import ROOT

GOLDEN = "broker-real"
SECONDS = 60


class Peer:
    """A connection to one of the two."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), SECONDS)
        self._decoder = FrameDecoder()
        self._opaque = 0

    def ask(self, one: Ask) -> RemotingCommand:
        self._opaque += 1
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in one.fields.items()
        }
        command = RemotingCommand(one.code, texts, one.body, opaque=self._opaque, version=one.version)
        self._socket.sendall(encode_frame(command))
        while True:
            answer = self._decoder.next_command()
            if answer is not None and answer.is_response:
                assert answer.opaque == self._opaque
                return answer
            if answer is None:
                data = self._socket.recv(1 << 16)
                assert data, f"{one.name}: the connection is closed"
                self._decoder.feed(data)

    def close(self) -> None:
        self._socket.close()


class Answered(NamedTuple):
    """An answer with what is the same at both in the place of addresses and times."""

    code: int
    remark: str | None
    fields: Mapping[str, str]
    body: Any


def _alike(one: Ask, answer: RemotingCommand, addresses: Mapping[str, str]) -> Answered:
    def known(text: str) -> str:
        for address, name in addresses.items():
            text = text.replace(address, name)
        return re.sub(r"127\.0\.0\.1:\d+", "CLIENT", text)

    body: Any = answer.body if one.read is None else one.read(answer.body)
    if one.read is None and body[:1] in (b"{", b"["):
        body = _sorted(parse_body(known(body.decode()).encode()), one.without)
    remark = None if answer.code == 0 else known(answer.remark or "")
    fields = {name: known(text) for name, text in answer.fields.items() if name not in one.without}
    return Answered(answer.code, remark, fields, body)


def _sorted(value: Any, without: tuple[str, ...]) -> Any:
    """The same without parts, and with lists, which Java makes of sets, in order."""
    if isinstance(value, dict):
        return {key: _sorted(one, without) for key, one in value.items() if key not in without}
    if isinstance(value, list):
        return sorted((_sorted(one, without) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


NO_EFFECT = "a request without effect here is an error; a broker answers 0"
STATUS = "remarks of sends name the status of the put and the error"
DIFFERENCES = {
    "pull without a topic": "a missing field is named; a broker reports a NullPointerException",
    "message beyond the log": "a missing message and one past the end of the log have different answers",
    "units of no queue": "units of a missing queue are refused with 1; a broker answers 0 without a body",
    "stats of all groups": "pullOffset is set for all groups; a broker leaves it 0, and the sum negative",
    "send to a missing queue": STATUS,
    "send too far away": STATUS,
    "send with a bad time": STATUS,
    "change what is no setting": "a setting that cannot be changed at run time is refused with 16; a broker answers 0",
    "status of nobody": "223 names a group without members; a broker reports a NullPointerException",
    "limit of cold data": NO_EFFECT,
    "check RocksDB": NO_EFFECT,
    "change_message_invisibletime of nothing": "a change of an invisible time names an offset that no queue has",
    "clean queues": NO_EFFECT,
    "clean the log": NO_EFFECT,
    "delete a topic of the broker": "a topic is deleted without a timer wheel too; a broker fails with 1",
}
"""Why an answer is not that of the real broker, by the name of the request; docs/network.md has the same sentences."""


OF_TIME = "the offset for a time is the first message at or after it, where 4.x takes the nearest one"
# by release: what differs from a broker of that version alone
_DIFFERENCES_OF: dict[str, dict[str, str]] = {
    "5.3.3": {},
    "5.5.0": {},
    "4.9.8": {
        # brokers run as 4.9.7 here
        "change the name server's home": "the black list is that of 4.9.8",
        "change the home": "the black list is that of 4.9.8",
        "offset of a queue at 1795218540000 UPPER": OF_TIME,
        "offset of a queue at 1900000000000 LOWER": OF_TIME,
        "send a batch to retries": "a batch for a retry topic is refused with 13, where 4.x reports a BufferUnderflow",
    },
}
# what differs from a broker of 5.x alone, by the release that it does not differ from
_ALIKE_IN = {"4.9.8": ("limit of cold data", "check RocksDB", "delete a topic of the broker")}
_POP = 200_000
# a name server of 4.x drops what it does not know
_NO_ANSWER_OF_4 = ("members", "unknown request")
# 4.x knows no delivery times, and delivers at once
_NOT_FOR_4 = ("send too far away", "send with a bad time")
# fields of headers and bodies that 4.x does not have, and passes over where it is given them
_SINCE_5_0 = (
    "attributes consumeMessageOrderly consumeTimeoutMinute enableActingMaster forbiddenTable groupRetryPolicy "
    "groupSysFlag groupTopicMap IS_SUB_CHANGE IS_SUPPORT_HEART_BEAT_V2 mappingDataVersion pullOffset topicPutTps "
    "topicQueueMappingDetailMap topicQueueMappingInfoMap topicSysFlag totalInflightDiff transactionId"
).split()


def _answers(namesrv: str, broker: str, requests: list[Ask]) -> dict[str, Answered]:
    peers = {BROKER: Peer(broker), NAMESRV: Peer(namesrv)}
    # in message ids as well
    host = "7F000001" + f"{int(broker.rpartition(':')[2]):08X}"
    addresses = {broker: "BROKER", namesrv: "NAMESRV", host: "HOST"}
    try:
        found = {}
        for one in requests:
            assert one.name not in found, one.name
            answer, until = peers[one.to].ask(one), time.monotonic() + SECONDS
            while one.end is not None and answer.fields.get("maxOffset") != one.end and time.monotonic() < until:
                time.sleep(0.05)
                answer = peers[one.to].ask(one)
            found[one.name] = _alike(one, answer, addresses)
        return found
    finally:
        for peer in peers.values():
            peer.close()


# codes of the services that no request of the session has, and why
_NOT_ASKED = {
    Code.REGISTER_BROKER: "test_real_cluster.py registers with the real one, test_name_server.py with ours",
    Code.UNREGISTER_BROKER: "the same",
    Code.BROKER_HEARTBEAT: "the same",
    Code.QUERY_DATA_VERSION: "the same",
    Code.GET_NAMESRV_CONFIG: "what each is set to",
    Code.GET_BROKER_CONFIG: "what each is set to",
    Code.END_TRANSACTION: "has no answer",
    Code.VIEW_BROKER_STATS_DATA: "rates are of moments: test_counts.py",
    Code.NOTIFY_BROKER_ROLE_CHANGED: "what controllers say",
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: "what name servers say of slaves",
    Code.SWITCH_TIMER_ENGINE: "of 5.5.0: test_operators.py",
    Code.POP_ROLLBACK: "the same",
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: "refused: test_operators.py",
    Code.GET_TIMER_CHECK_POINT: "times and positions of each: test_operators.py",
    Code.GET_TIMER_METRICS: "the same",
    Code.EXCHANGE_BROKER_HA_INFO: "what slaves ask: test_mirrored.py has real ones ask",
    Code.GET_ALL_MESSAGE_REQUEST_MODE: "the same",
}


def test_every_code_that_is_served_is_asked_for() -> None:
    asked = {one.code for one in session()}
    served = {*NAME_SERVER_SERVICES, *SERVICES}
    assert served - asked == _NOT_ASKED.keys()


def wait_for_both(namesrv: str, broker: str) -> None:
    """A broker registers a little later than it starts, and then it delivers what is due."""
    route = Ask("route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "Events"})
    delays = Ask("delays", Code.GET_ALL_DELAY_OFFSET)
    end = time.monotonic() + SECONDS
    names, messages = Peer(namesrv), Peer(broker)
    while names.ask(route).code and time.monotonic() < end:
        time.sleep(0.2)
    while parse_body(messages.ask(delays).body)["offsetTable"].get(14) != 5 and time.monotonic() < end:
        time.sleep(0.2)
    for peer in (names, messages):
        peer.close()


def test_every_difference_is_in_the_documents() -> None:
    text = " ".join((ROOT / "docs/network.md").read_text(encoding="utf-8").split())
    reasons = {*DIFFERENCES.values(), *(one for table in _DIFFERENCES_OF.values() for one in table.values())}
    assert [reason for reason in sorted(reasons) if reason.lower() not in text.lower()] == []


@pytest.mark.interop
def test_what_is_for_5x_alone_is_answered_as_by_a_broker_of_4x(tmp_path: Path) -> None:
    """POP and its assignments: clients fall back to pulls where they are told so."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs, ours = golden("v4-clean", tmp_path / "theirs"), golden("v4-clean", tmp_path / "ours")
    # POP_MESSAGE, ACK, BATCH_ACK, CHANGE_INVISIBLE_TIME, NOTIFICATION, POLLING_INFO; QUERY_ASSIGNMENT, RECALL_MESSAGE
    codes = 200050, 200051, 200151, 200053, 200054, 200055, 400, 370
    requests = [Ask(f"request {code}", code) for code in codes]
    conf = {name.removeprefix("store."): value for name, value in properties("v4-clean").items()}
    with real_broker("4.9.7", tmp_path / "real", theirs, conf) as real:
        expected = _answers(real.namesrv, real.broker, requests)
    with serving(ours, "--as", "4.9.8") as served:
        got = _answers(served.namesrv, served.broker, requests)
    assert got == expected
    assert {answer.code for answer in got.values()} == {3}


@pytest.mark.interop
@pytest.mark.parametrize(("version", "release"), [("5.3.3", "5.3.3"), ("4.9.7", "4.9.8"), ("5.5.0", "5.5.0")])
def test_answers_are_those_of_the_real_broker(version: str, release: str, tmp_path: Path) -> None:
    conf = {
        name.removeprefix("store."): value for name, value in properties(GOLDEN).items() if name.startswith("store.")
    }
    # what is due would be delivered meanwhile
    conf |= {"timerWheelEnable": "false", "transactionCheckInterval": "600000"}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs, ours = golden(GOLDEN, tmp_path / "theirs"), golden(GOLDEN, tmp_path / "ours")
    requests, known = session(), DIFFERENCES | _DIFFERENCES_OF[release]
    if release == "4.9.8":
        requests = [one for one in requests if one.name not in _NO_ANSWER_OF_4 + _NOT_FOR_4 and one.code < _POP]
        # what the real one delivers when it starts moves the messages
        requests = [one._replace(without=(*one.without, *_SINCE_5_0, "msgId")) for one in requests]
        asked = {one.name for one in requests} | _DIFFERENCES_OF[release].keys()
        known = {name: reason for name, reason in known.items() if name in asked}
    with real_broker(version, tmp_path / "real", theirs, conf) as real:
        wait_for_both(real.namesrv, real.broker)
        expected = _answers(real.namesrv, real.broker, requests)
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in conf.items()), encoding="ascii")
    with serving(ours, "--writable", "--as", release, "-c", str(file)) as served:
        wait_for_both(served.namesrv, served.broker)
        got = _answers(served.namesrv, served.broker, requests)
        assert served.end() == 0
        assert "Traceback" not in served.errors
    differing = {name: (expected[name], got[name]) for name in expected if expected[name] != got[name]}
    unexpected = [name for name in differing if name not in known]
    for name in unexpected:
        print(name, *_parts(*differing[name]), sep="\n    ")
    assert unexpected == []
    assert [name for name in known if name not in differing and name not in _ALIKE_IN.get(release, ())] == []


def _parts(theirs: Answered, ours: Answered) -> Iterator[str]:
    """What differs, shortly."""
    for part in Answered._fields:
        one, other = getattr(theirs, part), getattr(ours, part)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            for key in one.keys() | other.keys():
                if one.get(key) != other.get(key):
                    yield f"{part} {key}: theirs {str(one.get(key))[:700]}; ours {str(other.get(key))[:700]}"
        else:
            yield f"{part}: theirs {str(one)[:700]}; ours {str(other)[:700]}"
