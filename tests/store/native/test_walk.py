"""The walk over a window: compiled and plain say the same as decode_message, on damaged input too."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.message import FrameDamage, Message, StoredMessage, decode_message
from rmqctl.store.log.columns import TopicIds
from rmqctl.store.native.tables import INTS, KEYS_OF_A_ROW, LONGS, NEW_TOPIC, STOPPED, WINDOW_END, Columns
from tests.formats.frames import MESSAGES, frame_of
from tests.goldens import GoldenStore
from tests.quick import examples
from tests.store.columns.test_columns_of_damage import DAMAGES, STRANGE, _damaged, _frames
from tests.store.logs import STORE_HOST
from tests.store.native.forms import compiled_form, plain_form
from tests.store.native.walks import Walked, walked

_EVERYTHING = Columns.ALL | Columns.TAG_KEYS
_SETS = (Columns.NONE, Columns.HEAD, Columns.DISPATCH, _EVERYTHING)
_HEAD = [name for name, group in LONGS.items() if group == Columns.HEAD]


def _decoded(data: bytes, base: int, check_crc: bool) -> list[StoredMessage]:
    """What decode_message says: the good messages from the begin on."""
    found: list[StoredMessage] = []
    position = 0
    while position < len(data):
        try:
            message = decode_message(data, position, len(data) - position, base + position, check_crc)
        except FrameDamage:
            break
        found.append(message)
        position += message.total_size
    return found


def _both(data: bytes, base: int, asked: Columns, rows: int, crc_from: int = 0) -> Walked:
    """The walk by both forms, which say the same and what decode_message says."""
    found = walked(plain_form("walk"), data, base, asked, rows, crc_from)
    assert walked(compiled_form("walk"), data, base, asked, rows, crc_from) == found
    if crc_from in (0, 1 << 62):
        messages = _decoded(data, base, crc_from == 0)
        assert [row[0] for row in found.longs] == [message.physical_offset for message in messages]
        assert [row[0] for row in found.ints] == [message.total_size for message in messages]
        assert found.position == sum(message.total_size for message in messages)
        if asked & Columns.HEAD:
            for name in _HEAD:
                at = list(LONGS).index(name)
                assert [row[at] for row in found.longs] == [getattr(message, name) for message in messages]
        if asked & Columns.TOPIC:
            at = list(INTS).index("topic_id")
            assert [found.topics[row[at]] for row in found.ints] == [message.topic for message in messages]
    return found


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=st.lists(st.one_of(STRANGE, STRANGE, MESSAGES), min_size=1, max_size=6),
    with_crc=st.booleans(),
    damages=DAMAGES,
    base=st.sampled_from([0, 1, 1 << 40]),
    rows=st.sampled_from([1, 3, 100]),
    asked=st.sampled_from(_SETS),
    crc_from=st.sampled_from([0, 300, 1 << 62]),
)
def test_strange_and_damaged(
    messages: list[Message],
    with_crc: bool,
    damages: list[tuple[float, str, int]],
    base: int,
    rows: int,
    asked: Columns,
    crc_from: int,
) -> None:
    data = _damaged(bytearray(b"".join(_frames(messages, base, with_crc))), damages)
    _both(data, base, asked, rows, crc_from)


@settings(max_examples=examples(100))
@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    _both(data, 0, _EVERYTHING, 4)


def test_every_byte_of_a_window_cut_off_and_changed() -> None:
    messages = [Message("Тема", b"x" * 9, properties={"KEYS": "a é", "TAGS": "t", "UNIQ_KEY": "u" * 9})] * 2
    whole = b"".join(_frames(messages, 0, True))
    assert len(_both(whole, 0, _EVERYTHING, 4).longs) == 2
    for at in range(len(whole)):
        # memory of exactly that size: a sanitizer sees what is read behind it
        _both(whole[:at], 0, _EVERYTHING, 4)
        for value in (0, 0x7F, 0x80, 0xFF):
            _both(whole[:at] + bytes([value]) + whole[at + 1 :], 0, _EVERYTHING, 4)


@pytest.mark.parametrize("name", ["broker-real", "features", "lmq", "innerbatch", "v4-clean", "longtopic", "crash"])
def test_goldens_and_their_damage(golden_store: GoldenStore, name: str) -> None:
    chosen = random.Random(name)
    for path in sorted((golden_store(name) / "commitlog").iterdir()):
        data = path.read_bytes()[: 1 << 16]
        base = int(path.name)
        assert bool(_both(data, base, _EVERYTHING, 50).longs) == any(data)
        for _ in range(8):
            changed = bytearray(data)
            changed[chosen.randrange(8000) % len(data)] ^= 1 << chosen.randrange(8)
            _both(bytes(changed), base, chosen.choice(_SETS), 50)


def test_lengths_at_the_edges_of_their_fields() -> None:
    frame = bytearray(frame_of(Message("T", b"body", properties={"KEYS": "k"}), STORE_HOST, physical_offset=0))
    body_length, topic_length, properties_length = 84, 88 + 4, len(frame) - 9
    for at, width in ((0, 4), (body_length, 4), (topic_length, 1), (properties_length, 2)):
        for value in (0, 1, 5, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            changed = frame[:at] + (value & (1 << 8 * width) - 1).to_bytes(width, "big") + frame[at + width :]
            _both(bytes(changed), 0, _EVERYTHING, 4)


def test_arrays_that_are_too_small_are_no_memory_error() -> None:
    data = frame_of(Message("T", b"body"), STORE_HOST, physical_offset=0)
    for form in (plain_form("walk"), compiled_form("walk")):
        walk = form.WindowWalk(int(Columns.HEAD), 0, 5)
        walk.write_into(np.zeros((1, 4), np.int64), np.zeros((1, 4), np.int32), *np.zeros((2, 100), np.int32))
        table = np.full(64, -1, np.int32), np.zeros((32, 4), np.int64), np.zeros(64, np.uint8)
        with pytest.raises(IndexError):
            walk.walk(data, len(data), 0, *table)


def test_how_a_walk_ends() -> None:
    data = frame_of(Message("T", b"body"), STORE_HOST, physical_offset=0)
    assert _both(data, 0, Columns.HEAD, 4).status == WINDOW_END
    assert _both(data + bytes(100), 0, Columns.HEAD, 4).status == STOPPED
    assert _both(data + data[:50], 0, Columns.HEAD, 4).status == WINDOW_END


@pytest.mark.parametrize("form", [plain_form, compiled_form])
def test_topics_that_another_thread_adds_meanwhile_are_new(form: Callable[[str], ModuleType]) -> None:
    """The table of slots is shared: it may name topics that lie beyond the entries, or the text, of this call."""
    data = b"".join(_frames([Message(f"Topic{number}", b"") for number in range(100)], 0, False))
    topics = TopicIds()
    held = []
    for message in _decoded(data, 0, False):
        held.append((topics.entries, topics.text))
        topics.id_of(message.topic.encode())
    ends = topics.entries[:100, 0] + topics.entries[:100, 1]
    for entries, text in held:
        walk = form("walk").WindowWalk(int(Columns.TOPIC), 1 << 62, topics.seed)
        hashes, rows = np.zeros(KEYS_OF_A_ROW, np.int32), np.zeros(KEYS_OF_A_ROW, np.int32)
        walk.write_into(np.zeros((len(LONGS), 200), np.int64), np.zeros((len(INTS), 200), np.int32), hashes, rows)
        status = walk.walk(data, len(data), 0, topics.slots, entries, text)
        assert status in (NEW_TOPIC, WINDOW_END)
        assert walk.row <= min(len(entries), np.count_nonzero(ends <= len(text)))
