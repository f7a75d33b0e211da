"""Requests of POP that hold anything: each is answered, what was handed out stays as it is, and the store whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.requests import Promised
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import Peer, Writing, wait_for_end
from tests.network.test_hostile_requests import A_BUG
from tests.quick import examples

CODES = (*range(Request.POP_MESSAGE, Request.POLLING_INFO + 1), Request.BATCH_ACK_MESSAGE)
ENDS = [0, 1, -1, 3, 4, 999, 60_000, 1 << 31, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 64]
NUMBERS = st.sampled_from(ENDS).map(str) | st.text(max_size=3)
LIKELY = {
    "consumerGroup": ["h", "new", "a b", "", "h@T"],
    "topic": ["T", "None", "%RETRY%g_T", "%RETRY%h", "rmq_sys_REVIVE_LOG_DefaultCluster", "../x", ""],
    "queueId": ["-1", "0", "1", "-2147483648"], "maxMsgNums": ["1", "32", "-1"], "pollTime": ["0", "1000", "-1"],
    "invisibleTime": ["0", "1000", "259200000", "-5"], "bornTime": ["0"], "initMode": ["0", "1", "7"],
    "order": ["true", "false", "x"], "offset": ["0", "1", "2"], "suspend": ["true", ""],
    "attemptId": ["", "one", "\ud800"],
    "expType": ["TAG", "SQL92", "ELSE", ""], "exp": ["*", "a > 1", "((((", "x || y"], "liteTopic": ["", "l"],
}  # fmt: skip
_MAY_BE = "RMQ-TMR-051", "RMQ-POP-007"
FIELDS = st.fixed_dictionaries(
    {name: st.sampled_from(values) for name, values in LIKELY.items()} | {"extraInfo": st.just("")}
)


def _handles(said: dict[str, str]) -> st.SearchStrategy[str]:
    """Handles that are like the ones that were handed out, in some part at least not the same."""
    real = ["0", said["popTime"], said["invisibleTime"], said["reviveQid"], "0", "broker-a", "0", "0"]
    parts = st.tuples(*(st.just(one) | NUMBERS for one in real)).map(" ".join)
    return parts | st.text(max_size=9) | st.just(" " * 20)


def _acks(said: dict[str, str]) -> st.SearchStrategy[bytes]:
    numbers: dict[str, Any] = {"so": 0, "pt": int(said["popTime"]), "it": 60_000, "q": 0, "rq": int(said["reviveQid"])}
    values: st.SearchStrategy[Any] = st.sampled_from(ENDS) | st.none() | st.text(max_size=3) | st.just([]) | st.floats()
    entry = st.fixed_dictionaries(
        {name: st.just(one) | values for name, one in numbers.items()}
        | {
            "c": st.sampled_from(["h", "", None]),
            "t": st.sampled_from(["T", "", 3]),
            "r": st.sampled_from(["0", "1", 9]),
        }
        | {"b": st.sampled_from(["AQ==", "", "!", "/" * 4000, None])}
    )
    body = st.fixed_dictionaries({"brokerName": st.sampled_from(["broker-a", "x", None]), "acks": st.lists(entry)})
    return body.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=20)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def _ask(writing: Writing, said: dict[str, str], data: st.DataObject) -> None:
    code = data.draw(st.sampled_from(CODES))
    fields = data.draw(FIELDS) | {"extraInfo": data.draw(_handles(said))}
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=2)):
        fields[name] = data.draw(NUMBERS)
    if data.draw(st.integers(0, 9)) == 0:
        del fields[data.draw(st.sampled_from(sorted(fields)))]
    request = RemotingCommand(code, fields, data.draw(_acks(said)) if code == Request.BATCH_ACK_MESSAGE else b"")
    reply = writing.processor.reply(request, Peer())
    for _ in range(3):
        if isinstance(reply, Promised):
            wait_for_end(reply.done)
        if not isinstance(reply, RemotingCommand):
            assert reply is not None
            reply = reply.answer()
            writing.now += 2_000
    assert not isinstance(reply, RemotingCommand) or not A_BUG.match(reply.remark or ""), reply
    if data.draw(st.integers(0, 20)) == 0:
        writing.step(500)


def test_hostile_requests_leave_what_others_have_popped_alone(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", StoreConfig(mapped_file_size_commit_log=1 << 20))
    for number in range(4):
        assert writing.send("T", b"%d" % number, 0).code == 0
    writing.store.wait_for_dispatch()
    # the group that has popped is none of those that the others name
    fields: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": 0,
        "maxMsgNums": 2,
        "invisibleTime": 3_600_000,
    }
    said = writing.ask(Request.POP_MESSAGE, **fields, pollTime=0, bornTime=0, initMode=0).fields
    held = dict(writing.master.pop.records._known)
    _ask(writing, dict(said))
    assert {key: one for key, one in writing.master.pop.records._known.items() if key.group == "g"} == held
    assert next(iter(held.values())).acked == 0
    assert writing.master.offsets.find("g", "T", 0) == 2
    writing.close()
    with MessageStore.open(tmp_path / "store") as opened:
        # its clock is ahead of that of the machine, and groups pop a queue in order and not
        assert [one for one in opened.check() if one.severity.is_alarm and one.code not in _MAY_BE] == []
