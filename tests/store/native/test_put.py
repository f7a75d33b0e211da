"""The fast path of a put in both forms: the bytes of the slow path, or nothing done."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.layouts import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_INNER_BATCH, TRANSACTION_MASK
from rmqctl.formats.message import LOCAL_HOST, NO_PROPERTIES, Host, Message, frame_bytes, prepare_frame
from tests.store.native.forms import compiled_form, plain_form

HOST = Host(b"\x0a\0\0\x01", 77)
LIKE = Message("Topic", b"body" * 20, 3, 4, {"KEYS": "ä"}, born_host=HOST, reconsume_times=5)
UNUSUAL = TRANSACTION_MASK | SYS_FLAG_INNER_BATCH | SYS_FLAG_BORN_HOST_V6
NOW = 1_700_000_000_000
BEFORE = 5
START = 1000


class Told(str):
    """A text whose methods are asked."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise AssertionError("code of Python's runs in a put")


class Log:
    """A window with everything around it, in one of the forms. `size`: bytes of the map, of which `limit` are room."""

    def __init__(self, form: Any, size: int = 4096, limit: int | None = None) -> None:
        self.target = bytearray(size)
        self.file = SimpleNamespace(wrote_position=BEFORE, committed_position=BEFORE, store_timestamp=0)
        self.next_offset = form.NextOffset(8)
        self.follower = SimpleNamespace(is_idle=False, wake=lambda: self.woken.append(True))
        self.woken: list[bool] = []
        self.left: list[tuple[Message, bool]] = []
        self.io: Any = SimpleNamespace(observer=None)
        self.now = NOW
        self.is_busy = False
        self.names = {"KEYS": b"KEYS\x01"}
        self.state = form.PutState(NOW - 1)
        self.state.open_window(self.file, self.target, size if limit is None else limit, START)
        topics = {"Topic": (b"\x05Topic", {3: self.next_offset})}
        self.puts = form.OrdinaryPuts(
            form.PutParts(
                topics, self.names, self._learn, self.state, lambda: self.is_busy, self.io, lambda: self.now,
                self.follower, self._leave, LOCAL_HOST, len(LIKE.body), UNUSUAL, tuple, "stored",
            )
        )  # fmt: skip

    def _learn(self, properties: Any) -> None:
        for name in properties:
            if isinstance(name, str) and name.startswith("NEW"):
                self.names[name] = f"{name}\x01".encode()

    def _leave(self, message: Message, as_stored: bool) -> str:
        self.left.append((message, as_stored))
        return "slow"

    def put(self, message: Any) -> Any:
        return self.puts.put(message)

    def is_untouched(self) -> bool:
        """Whether nothing was done."""
        file = self.file
        positions = (file.wrote_position, file.committed_position, file.store_timestamp, self.next_offset.value)
        return positions == (BEFORE, BEFORE, 0, 8) and not any(self.target) and self.state.last_timestamp == NOW - 1


@pytest.fixture(params=["plain", "compiled"])
def form(request: pytest.FixtureRequest) -> Any:
    """Each form in turn."""
    return (plain_form if request.param == "plain" else compiled_form)("put")


def wanted(message: Message, queue_offset: int = 8, physical_offset: int = START + BEFORE) -> bytes:
    """The frame of the slow path."""
    born = NOW if message.born_timestamp is None else message.born_timestamp
    return frame_bytes(prepare_frame(message, LOCAL_HOST, born), queue_offset, physical_offset, NOW)


def test_it_puts_what_the_slow_path_would(form: Any) -> None:
    log, end = Log(form), BEFORE
    for count, one in enumerate((LIKE, LIKE._replace(body=b"", flag=-1), LIKE._replace(properties={}, queue_id=3),
                                 LIKE._replace(properties=NO_PROPERTIES), LIKE._replace(born_timestamp=-5),
                                 LIKE._replace(properties={"NEW1": "a", "KEYS": "", "NEW2": "b"}))):  # fmt: skip
        log.now = NOW
        frame = wanted(one, 8 + count, START + end)
        assert log.put(one) == ("stored", 8 + count, START + end, "", LOCAL_HOST)
        assert bytes(log.target[end : end + len(frame)]) == frame
        end += len(frame)
        assert (log.file.wrote_position, log.file.committed_position) == (end, end)
        assert (log.file.store_timestamp, log.state.last_timestamp) == (NOW, NOW)
    assert not any(log.target[end:])
    assert not any(log.target[:BEFORE])
    assert not log.left


REFUSED: list[dict[str, Any]] = [
    {"topic": "Other"}, {"topic": None}, {"topic": Told("Topic")}, {"queue_id": 1}, {"queue_id": True},
    {"queue_id": None}, {"queue_id": 3.0}, {"flag": 1 << 31}, {"flag": -(1 << 31) - 1}, {"flag": 1 << 70},
    {"flag": 1.0}, {"flag": True}, {"sys_flag": 4}, {"sys_flag": 16}, {"sys_flag": None},
    {"reconsume_times": -(1 << 31) - 1}, {"born_timestamp": 1 << 63}, {"born_timestamp": -(1 << 63) - 1},
    {"born_timestamp": ""}, {"prepared_transaction_offset": b""}, {"prepared_transaction_offset": 1 << 63},
    {"body": "text"}, {"body": bytearray(5)}, {"body": bytes(81)}, {"born_host": None},
    {"born_host": Host(bytes(16), 77)}, {"born_host": tuple.__new__(Host, (bytearray(4), 77))},
    {"born_host": Host(bytes(4), 1 << 31)},
    {"born_host": (bytes(4), 77)}, {"born_host": tuple.__new__(Host, (bytes(4),))}, {"properties": {"OTHER": ""}},
    {"properties": {"KEYS": "\x02"}}, {"properties": {"KEYS": "\ud800"}}, {"properties": {"KEYS": None}},
    {"properties": {"KEYS": Told("a")}}, {"properties": {"KEYS": "x" * 40_000}}, {"properties": {5: "x"}},
    {"properties": {b"": "b"}}, {"properties": ()}, {"properties": None},
    {"property_bytes": b""}, {"store_timestamp": 0}, {"store_host": LOCAL_HOST},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_not_ordinary_or_not_known_is_left(form: Any, number: int) -> None:
    log, one = Log(form), LIKE._replace(**REFUSED[number])
    assert log.put(one) == "slow"
    assert log.puts.put_if_ordinary(one) is None
    assert len(log.left) == 1
    assert log.left[0][0] is one
    assert log.left[0][1] is False
    assert log.is_untouched()


def test_what_only_looks_like_a_message_is_left(form: Any) -> None:
    class Derived(Message):
        pass

    log = Log(form)
    others: list[Any] = [tuple.__new__(Message, ("Topic", b"")), (*LIKE,), LIKE[:3], Derived(*LIKE), None, "text", []]
    for one in others:
        assert log.put(one) == "slow"
    assert log.is_untouched()


@pytest.mark.parametrize("case", ["closed", "dropped", "time", "observed", "busy", "limit", "map"])
def test_where_nothing_is_put_now(form: Any, case: str) -> None:
    size = BEFORE + len(wanted(LIKE))
    log = Log(form, 4096, size)
    if case == "closed":
        log.state.close_window()
    elif case == "dropped":
        log.state.drop_window()
    elif case == "time":
        log.now = NOW - 2
    elif case == "observed":
        log.io.observer = print
    elif case == "busy":
        log.is_busy, log.state.begin_in_lock = True, 0
    elif case == "limit":
        log.state.open_window(log.file, log.target, size - 1, START)
    if case == "map":  # a limit that is wrong: an error, nothing beyond the end, and no frame
        log = Log(form, size - 1, size)
        with pytest.raises(IndexError):
            log.put(LIKE)
        assert log.file.wrote_position == BEFORE
        assert not any(log.target[: BEFORE + 8])
        return
    assert log.put(LIKE) == "slow"
    assert log.is_untouched()
    log.state.open_window(log.file, log.target, size, START)
    log.now, log.is_busy, log.io.observer = NOW, False, None
    assert log.put(LIKE)[0] == "stored"


def test_whoever_is_busy_for_a_short_time_is_waited_for(form: Any) -> None:
    log = Log(form)
    log.state.begin_in_lock = 0
    with log.state.lock:
        thread = threading.Thread(target=log.put, args=(LIKE,))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert log.is_untouched()
    thread.join(60)
    assert log.next_offset.value == 9


def test_a_map_that_may_not_be_written_opens_no_window(form: Any) -> None:
    log = Log(form)
    with open("/proc/self/exe", "rb") as file:
        closed = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
    for mapped in (closed, b"read only" * 99):
        with pytest.raises((BufferError, TypeError, ValueError)):
            log.state.open_window(SimpleNamespace(), mapped, 99, 0)
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        log.state.open_window(SimpleNamespace(), closed, 99, 0)
    assert log.put(LIKE) == "slow"


def test_a_window_that_is_dropped_lets_its_map_be_closed(form: Any) -> None:
    log, mapped = Log(form), mmap.mmap(-1, 4096)
    file = SimpleNamespace(wrote_position=0)
    log.state.open_window(file, mapped, 4000, 0)
    assert log.put(LIKE)[0] == "stored"
    with pytest.raises(BufferError):
        mapped.close()
    log.state.open_window(file, mapped, 4096, 0)
    assert log.state.window.limit == 4096
    log.state.drop_window()
    mapped.close()
    assert log.state.window is None


def test_it_wakes_the_follower_and_hands_on_what_that_raises(form: Any) -> None:
    log = Log(form)
    log.follower.is_idle = True
    log.put(LIKE)
    assert log.woken == [True]

    def interrupted() -> None:
        raise KeyboardInterrupt

    log.follower.wake = interrupted
    with pytest.raises(KeyboardInterrupt):
        log.put(LIKE)
    assert log.next_offset.value == 10
    log.follower.is_idle = False
    assert log.put(LIKE)[1] == 10


def test_an_error_of_a_clock_or_of_the_slow_path_is_handed_on(form: Any) -> None:
    log = Log(form)
    log.now = "now"  # type: ignore[assignment]
    with pytest.raises(TypeError):
        log.put(LIKE)
    assert log.is_untouched()
    log.now = NOW
    assert log.put(LIKE)[0] == "stored"


def test_no_reference_is_lost_or_kept(form: Any) -> None:
    log, value, body = Log(form, 1 << 20), "value" * 9, b"body" * 9
    one = Message("Topic", body, 3, 70_000, {"KEYS": value}, born_timestamp=10**12, born_host=HOST)
    refused = [one._replace(**changes) for changes in ({"flag": 1 << 40}, {"sys_flag": 4}, {"body": bytes(90)})]
    refused.append(one._replace(properties={"KEYS": value, "OTHER": value}))
    watched = [one, value, body, HOST, one.properties, one.flag, one.born_timestamp, log.file, log.state, log.puts]
    assert log.put(one)[0] == "stored"
    # what earlier tests left in cycles may refer to the same objects
    gc.collect()
    before = list(map(sys.getrefcount, watched))
    answers = [log.put(one) for _ in range(200)]
    offsets = [answer[2] for answer in answers]
    del answers
    # the list's, and that of the call; the last one is that of the variable of the loop as well
    assert {sys.getrefcount(offsets[place]) for place in range(199)} == {2}
    del offsets
    for _ in range(200):
        assert [log.puts.put_if_ordinary(bad) for bad in refused] == [None] * len(refused)
    assert list(map(sys.getrefcount, watched)) == before


VALUES = st.sampled_from(["a", "k1 k2", "", "ö€😀", "x\x01y", "7", "\x02", "\ud800", "x" * 32_760])
MESSAGES = st.lists(
    st.builds(
        LIKE._replace,
        body=st.binary(max_size=90),
        flag=st.sampled_from([0, 5, -1, (1 << 31) - 1, -(1 << 31), 1 << 31]),
        properties=st.dictionaries(st.sampled_from(["KEYS", "NEW1", "NEWÄ", "OTHER"]), VALUES, max_size=3),
        sys_flag=st.sampled_from([0, 0, 1, 2, 4, 1 << 30, -1]),
        born_timestamp=st.sampled_from([None, 0, -1, NOW, (1 << 63) - 1, -(1 << 63), 1 << 63]),
        born_host=st.sampled_from([HOST, Host(b"\1\2\3\4", -1), Host(bytes(16), 5)]),
        prepared_transaction_offset=st.sampled_from([0, 9, -1, (1 << 63) - 1, -(1 << 63), 1 << 63]),
    ),
    max_size=12,
)


@given(MESSAGES, st.integers(200, 1500))
def test_both_forms_put_the_same(messages: list[Message], size: int) -> None:
    logs = [Log(plain_form("put"), size), Log(compiled_form("put"), size)]
    for one in messages:
        before = logs[0].file.wrote_position
        answers = [log.put(one) for log in logs]
        assert answers[0] == answers[1]
        if answers[0] != "slow":
            frame = wanted(one, answers[0][1], answers[0][2])
            assert logs[0].target[before : before + len(frame)] == frame
            assert logs[0].file.wrote_position == before + len(frame)
        assert logs[0].target == logs[1].target
        assert not any(logs[0].target[logs[0].file.wrote_position :])
        assert [log.file.wrote_position for log in logs] == [logs[0].file.wrote_position] * 2
