"""Runs of messages and what they imply, held against the plain dispatch of one message after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import key_hash
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import is_inner_batch
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.implied import Digest, QueueRun, Run, route
from rmqctl.store.log.survey import LogSurvey, new_survey, survey_runs
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, QueueSlot, index_keys, queue_slots
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import examples, goldens_of, sample
from tests.store.columns.comparing import FORMS, use_form
from tests.store.logs import blank, frame, log_of
from tests.store.survey.plain_survey import survey_log

LEVELS = (1000, 5000, 10_000)


class _Target:
    """Takes slots as they come. A queue that got a batch unit first is a batch queue, as in `QueuesMend`."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[QueueUnit]] = {}
        self.batches: set[tuple[str, int]] = set()

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in self.batches

    def add(self, slot: QueueSlot) -> None:
        key = (slot.topic, slot.queue_id)
        if key not in self.queues and slot.is_batch:
            self.batches.add(key)
        self.queues.setdefault(key, []).append(slot.unit)

    def add_units(self, run: QueueRun) -> None:
        for number in range(len(run.slots)):
            self.add(QueueSlot(run.topic, run.queue_id, run.unit(number), False))


class _Found:
    """What a survey passes on."""

    def __init__(self, log: MappedFileQueue) -> None:
        self.log = log
        self.target = _Target()
        self.keys: list[tuple[int, int, int]] = []
        self.unplaceable = 0

    def on_message(self, message: StoredMessage) -> None:
        batch = self.target.is_batch_topic(message.topic, message.queue_id)
        for slot in queue_slots(message, LEVELS, batch):
            self.target.add(slot)
        self.keys += [
            (key_hash(message.topic, key), message.physical_offset, message.store_timestamp)
            for key in index_keys(message)
        ]
        self.unplaceable += not is_safe_topic(message.topic)

    def on_run(self, run: Run) -> None:
        route(run, self.log, LEVELS, self.target)
        arrays = run.key_hashes, run.key_offsets, run.key_timestamps
        self.keys += zip(*(array.tolist() for array in arrays), strict=True)
        self.unplaceable += run.unplaceable

    def said(self) -> tuple[Any, ...]:
        return self.target.queues, self.keys, self.unplaceable


def assert_same(log: MappedFileQueue, start: int, *, tolerant: bool) -> LogSurvey:
    """Both surveys of a log find the same and pass on the same."""
    plain, runs = (new_survey(log, start, tolerant=tolerant) for _ in range(2))
    one, other = _Found(log), _Found(log)
    survey_log(plain, log, one.on_message)
    survey_runs(runs, log, Digest(LEVELS), other.on_run)
    assert runs == plain
    assert other.said() == one.said()
    return plain


@pytest.mark.parametrize("form", sample(["compiled", "plain"], ["compiled"]))
@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_goldens(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    log = reader(name).files.log
    for start in (0, 2097152):
        assert_same(log, start, tolerant=False)
    assert_same(log, 0, tolerant=True)


TOPICS = st.sampled_from(["A", "B", SCHEDULE_TOPIC, "../up", "%RETRY%g", "%LMQ%x", "long" * 40])
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        names.TAGS: st.sampled_from(["t", "other"]),
        names.KEYS: st.sampled_from(["k", "a b a", "  ", "é x"]),
        names.UNIQUE_KEY: st.sampled_from(["k", "0A" * 16]),
        names.DELAY: st.sampled_from(["1", "3", "0", "-1", "x", "99", " 2"]),
        names.INNER_NUM: st.sampled_from(["3", "0", "y"]),
        names.INNER_MULTI_DISPATCH: st.sampled_from(["%LMQ%x", "A,B", "%LMQ%x,../up", "B"]),
        names.INNER_MULTI_QUEUE_OFFSET: st.sampled_from(["4", "4,5", "x,5", "7"]),
    },
)
MESSAGES = st.fixed_dictionaries(
    {
        "topic": TOPICS,
        "body": st.sampled_from([b"", b"body", b"x" * 300]),
        "queue_id": st.sampled_from([0, 1, 2, 7, -1, 70_000]),
        "queue_offset": st.one_of(st.integers(0, 9), st.integers(-(1 << 63), (1 << 63) - 1)),
        # prepared, committed, rolled back, inner batch
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12, 0x80 | 0x40]),
        "store_timestamp": st.one_of(st.just(1_700_000_000_000), st.integers(-(1 << 63), (1 << 63) - 1)),
        "properties": PROPERTIES,
    }
)
# what happens to a frame: nothing, a flipped byte, zeros, a cut
DAMAGE = st.sampled_from(["", "", "", "", "", "flip", "zeros", "garbage"])


def _files(made: list[tuple[dict[str, Any], str]], per_file: int) -> list[bytes]:
    size = 1 << 14
    files: list[bytes] = []
    for first in range(0, max(1, len(made)), per_file):
        data, start = b"", len(files) * size
        for own, what in made[first : first + per_file]:
            data += _damaged(frame(start + len(data), **own), what)
        files.append(data + blank(size - len(data)) if first + per_file < len(made) else data.ljust(size, b"\0"))
    return files


def _damaged(data: bytes, what: str) -> bytes:
    if what == "flip":
        return data[:90] + bytes([data[90] ^ 1]) + data[91:]
    if what == "zeros":
        return bytes(len(data))
    return data + b"garbage" if what == "garbage" else data


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(MESSAGES, DAMAGE), max_size=20),
    st.integers(3, 8),
    st.sampled_from([0, 1 << 14, 1 << 40]),
    st.booleans(),
)
def test_any_log(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[tuple[dict[str, Any], str]],
    per_file: int,
    start: int,
    tolerant: bool,
) -> None:
    log = log_of(tmp_path_factory.mktemp("log"), *_files(made, per_file))
    assert_same(log, start, tolerant=tolerant)
    log.descriptors.close()


def test_there_is_something_of_every_kind() -> None:
    """The goldens have messages that take the plain way."""
    found = {"batch": 0, "multi": 0, "delay": 0}
    for name in GOLDENS:
        for record in _messages(name):
            found["batch"] += is_inner_batch(record.sys_flag)
            found["multi"] += names.INNER_MULTI_QUEUE_OFFSET in record.properties()
            found["delay"] += record.topic == SCHEDULE_TOPIC
    assert min(found.values()) > 0


def _messages(name: str) -> Iterator[StoredMessage]:
    log = reader(name).files.log
    messages: list[StoredMessage] = []
    survey_log(new_survey(log, 0, tolerant=True), log, messages.append)
    yield from messages


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_asked_for_is_left_out(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    log = reader("clean").files.log
    for wanted in ({"queues": False}, {"keys": False}):
        runs: list[Run] = []
        survey_runs(new_survey(log, 0), log, Digest(LEVELS, **wanted), runs.append)
        assert sum(run.messages for run in runs) == 2500
        assert any(run.queues for run in runs) == ("queues" not in wanted)
        for run in runs:
            assert len({len(run.key_hashes), len(run.key_offsets), len(run.key_timestamps)}) == 1
        assert any(len(run.key_offsets) for run in runs) == ("keys" not in wanted)


def test_an_interrupt_ends_the_survey() -> None:
    log = reader("clean").files.log

    def interrupted(run: Run) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        survey_runs(new_survey(log, 0), log, Digest(LEVELS), interrupted)
