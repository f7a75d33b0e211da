"""Whatever a request holds, it gets an answer that says what is wrong with it: nobody stumbles over it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.network.broker.services import SERVICES, services_of
from rmqctl.network.nameserver import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.nameserver import NameServer
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.requests import Processor, Promised, WhenReadOnly
from rmqctl.store.message_store import MessageStore
from tests import opened
from tests.network.callers import Asking, Peer, Writing, wait_for_end
from tests.quick import examples

NAMES = (
    "topic group consumerGroup producerGroup clientID queueId queueOffset maxMsgNums sysFlag commitOffset offset "
    "suspendTimeoutMillis subVersion subscription expressionType key maxNum beginTimestamp endTimestamp timestamp "
    "index count boundaryType isOrder topicList cluster clusterName brokerName brokerId brokerAddr compressed "
    "bodyCrc32 namespace"
).split()
NUMBERS = st.integers(-1, 40).map(str)
GROUPS = st.sampled_from(["g-events", "g-retry", "new"])
LIKELY = {
    "topic": st.sampled_from(["Events", "Orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%g-retry", "Nowhere"]),
    "consumerGroup": GROUPS,
    "group": GROUPS,
    "subscription": st.sampled_from(["*", "", "pay", "a || b"]),
    "expressionType": st.sampled_from(["TAG", "SQL92"]),
}
VALUES = st.one_of(
    st.sampled_from(
        ["Events", "%RETRY%g-retry", "g-events", "broker-b", "", "../..", "*", "a || b", "true", "\x00\ud800"]
    ),
    st.sampled_from(
        [0, 1, -1, 3, 29, 30, 32, 1 << 31, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 64]
    ).map(str),
    st.text(max_size=5),
)
KEYS = (
    "clientID clientId consumerGroup consumerDataSet producerDataSet groupName subscriptionDataSet subscriptionData "
    "topic subString subVersion expressionType withoutSub mqSet queueId topicConfigSerializeWrapper topicConfigTable "
    "Events"
).split()
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["Events", "g"])
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)
BODIES = st.one_of(st.binary(max_size=20), JSON.map(lambda value: json.dumps(value).encode()))
A_BUG = re.compile(r"\w*(Error|Exception): ")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_request_is_answered(data: st.DataObject) -> None:
    asking = _Shared.asking()
    server = NameServer(lambda: 0)
    name_server: Processor[NameServer] = Processor(server, NAME_SERVER_SERVICES, asking.told.append)
    for _ in range(3):
        is_broker = data.draw(st.booleans())
        processor: Processor[Any] = asking.processor if is_broker else name_server
        code = data.draw(st.sampled_from(sorted(services_of(writable=False) if is_broker else NAME_SERVER_SERVICES)))
        fields = {name: data.draw(LIKELY.get(name, NUMBERS)) for name in NAMES}
        fields |= data.draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
        for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=2)):
            fields.pop(name, None)
        reply = processor.reply(RemotingCommand(code, fields, data.draw(BODIES)), Peer())
        answer = reply if reply is None or isinstance(reply, RemotingCommand) else reply.answer()
        assert answer is not None
        assert not A_BUG.match(answer.remark or ""), answer.remark


_WRITING = sorted(code for code, one in SERVICES.items() if one.when_read_only is not WhenReadOnly.SERVED)
WRITTEN = (
    "a b c d e f g h i j k l m n topic group groupName consumerGroup producerGroup queueId offset commitOffset flag "
    "timestamp isForce delayLevel unitMode maxReconsumeTimes commitLogOffset tranStateTableOffset commitOrRollback "
    "attributes readQueueNums writeQueueNums fromTransactionCheck defaultTopic defaultTopicQueueNums sysFlag perm "
    "bornTimestamp properties reconsumeTimes batch cleanOffset"
).split()
OFFSETS = st.sampled_from(["0", "1", "300", "-1", str((1 << 63) - 1)])
PROPERTIES = st.lists(
    st.sampled_from(
        ["TAGS\x01x", "DELAY\x012", "DELAY\x01x", "TRAN_MSG\x01true", "PGROUP\x01P", "REAL_TOPIC\x01T", "REAL_QID\x01x",
         "KEYS\x01k", "UNIQ_KEY\x01u", "TIMER_DELAY_SEC\x013", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01x", "INNER_NUM\x012",
         "WAIT\x01false", "\x01", "__CRC32#\x01x"]
    ), max_size=4,
).map("\x02".join)  # fmt: skip
TOPICS = st.sampled_from(["T", "%RETRY%g", "%DLQ%g", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "../x", "", "New"])
LIKELY_WRITTEN = {
    "b": TOPICS, "topic": TOPICS, "i": PROPERTIES, "properties": PROPERTIES, "offset": OFFSETS,
    "commitLogOffset": OFFSETS,
    "commitOrRollback": st.sampled_from(["0", "8", "12"]), "group": st.sampled_from(["g", "P", "a b"]),
    "c": st.just("TBW102"), "defaultTopic": st.just("TBW102"), "m": st.sampled_from(["false", "false", "true"]),
    "batch": st.just("false"), "producerGroup": st.just("P"), "attributes": st.sampled_from(["", "+a=b,-c", "x"]),
}  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def _ask_to_write(writing: Writing, data: st.DataObject) -> None:
    for _ in range(3):
        code = data.draw(st.sampled_from(_WRITING))
        fields = {name: data.draw(LIKELY_WRITTEN.get(name, NUMBERS)) for name in WRITTEN}
        fields |= data.draw(st.dictionaries(st.sampled_from(WRITTEN), VALUES, max_size=2))
        for name in data.draw(st.lists(st.sampled_from(WRITTEN), max_size=2)):
            fields.pop(name, None)
        reply = writing.processor.reply(RemotingCommand(code, fields, data.draw(BODIES)), Peer())
        if isinstance(reply, Promised):
            wait_for_end(reply.done)
        answer = reply if reply is None or isinstance(reply, RemotingCommand) else reply.answer()
        assert answer is not None
        assert not A_BUG.match(answer.remark or ""), answer.remark
        if data.draw(st.integers(0, 5)) == 0:
            writing.step(30_000)


def test_every_request_that_writes_is_answered_and_the_store_stays_whole(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store")
    _ask_to_write(writing)
    writing.step(30_000)  # delay levels get an offset when they are looked at
    writing.close()
    with MessageStore.open(tmp_path / "store") as store:
        # its clock is that of the test, requests may ask for queues that no consumer reads, and a broker stores a body
        # as it came where a client calls it compressed and it is not
        expected = ("RMQ-TIME-003", "RMQ-CFG-042", "RMQ-LOG-032")
        assert [one for one in store.check() if one.code not in expected] == []


class _Shared:
    """One broker for all examples: opening a store for each would cost more than asking it."""

    _asking: Asking | None = None

    @classmethod
    def asking(cls) -> Asking:
        if cls._asking is None:
            cls._asking = Asking(opened.store_path("broker-real"))
        return cls._asking
