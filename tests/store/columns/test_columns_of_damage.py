"""The walk in columns and the plain walk over made-up logs: strange messages, cut, flipped, with decoys, random."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import Message, Reason, StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log import column_walk as compiled_walk
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns, TopicIds
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.native.tables import Columns
from tests.formats.frames import MESSAGES, frame_of, new_message
from tests.quick import examples
from tests.store.columns.comparing import FORMS, assert_same, use_form
from tests.store.logs import STORE_HOST, blank, log_of

_EVERYTHING = Columns.ALL | Columns.TAG_KEYS
# texts that the kernels must split, compare and hash as Python does
NAMES = ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "KEY", "UNIQ_KEYS"]
WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "a",
            "b",
            "Aa",
            "BB",
            "a b a",
            "AaBB BBAa",
            "T#a T#Aa",
            "T#",
            "€",
            "𝄞𝄞",
            "ключ",
            "k" * 40,
            "9",
            "007",
            "-1",
        ]
    ),
    st.text(max_size=12),
    st.lists(st.integers(0, 90).map(str), max_size=80).map(" ".join),
    st.integers(-5, 1 << 70).map(str),
)
SEGMENTS = st.one_of(
    st.tuples(st.sampled_from(NAMES), WORDS).map("\x01".join),
    st.tuples(st.sampled_from([*NAMES, "", "__CRC32#"]), WORDS).map("".join),
    st.text(max_size=10),
)
PROPERTY_BYTES = st.one_of(
    st.lists(SEGMENTS, max_size=6).map(lambda parts: "\x02".join(parts).encode("utf-8", "ignore")),
    st.binary(max_size=40),
)
TOPICS = st.sampled_from(["T", "SCHEDULE_TOPIC_XXXX", "%RETRY%group", "темы", "t" * 16, "t" * 200, "Topic𝄞"])
STRANGE = st.builds(
    new_message,
    topic=TOPICS,
    body=st.binary(max_size=40),
    property_bytes=PROPERTY_BYTES,
    sys_flag=st.sampled_from([0, 0x4, 0x8, 0xC, 0x80]),
)
DAMAGES = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["flip", "zero", "noise", "cut", "magic"]), st.integers(0, 255)),
    max_size=4,
)


def frame(physical_offset: int, body: bytes = b"body") -> bytes:
    """A good frame for that place."""
    return frame_of(Message("T", body, properties={"KEYS": "k"}), STORE_HOST, physical_offset=physical_offset)


def _frames(messages: list[Message], begin: int, with_crc: bool) -> Iterator[bytes]:
    for message in messages:
        # a frame's length does not depend on where it stands
        made = frame_of(message, STORE_HOST, physical_offset=begin, with_property_crc=with_crc)
        begin += len(made)
        yield made


def _damaged(data: bytearray, damages: list[tuple[float, str, int]]) -> bytes:
    for where, kind, value in damages:
        at = int(where * (len(data) - 1)) if data else 0
        if kind == "flip":
            data[at : at + 1] = bytes([data[at] ^ (1 << value % 8)]) if data else b""
        elif kind == "zero":
            data[at : at + value] = bytes(len(data[at : at + value]))
        elif kind == "noise":
            data[at : at + value] = (b"\xda\xa3\x20\xa7\x01\xff" * 50)[: len(data[at : at + value])]
        elif kind == "magic":
            data[at : at + 4] = b"\xda\xa3\x20\xa7"[: len(data[at : at + 4])]
        else:
            del data[at : at + value]
    return bytes(data)


def assert_both_forms_agree(log: MappedFileQueue, window: int = 1 << 20, rows: int = 1000) -> None:
    plain = list(walk(log))
    with pytest.MonkeyPatch.context() as patch:
        for form, columns in itertools.product(FORMS, (_EVERYTHING, Columns.DISPATCH, Columns.NONE)):
            use_form(form, patch)
            assert_same(walk_columns(log, columns=columns, window=window, rows=rows), plain)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=st.lists(st.one_of(STRANGE, STRANGE, MESSAGES), min_size=1, max_size=8),
    with_crc=st.booleans(),
    damages=DAMAGES,
    window=st.sampled_from([1, 90, 112, 300, 5000]),
    rows=st.sampled_from([1, 3, 100]),
)
def test_strange_and_damaged(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[Message],
    with_crc: bool,
    damages: list[tuple[float, str, int]],
    window: int,
    rows: int,
) -> None:
    data = _damaged(bytearray(b"".join(_frames(messages, 0, with_crc))), damages)
    folder = tmp_path_factory.mktemp("log")
    assert_both_forms_agree(log_of(folder, data or b"x"), window, rows)


@pytest.mark.parametrize("keys", [62, 63, 64, 65])
@pytest.mark.parametrize("unique", ["", "UNIQ_KEY\x01u\x02"])
def test_a_tag_after_as_many_keys_as_a_row_holds(tmp_path: Path, unique: str, keys: int) -> None:
    words = " ".join(f"k{number}" for number in range(keys))
    data = b""
    for tags in ("a", "k0", "\U0001d11e", ""):
        properties = f"{unique}KEYS\x01{words}\x02TAGS\x01{tags}\x02".encode()
        data += frame_of(
            new_message(topic="T", body=b"x", property_bytes=properties), STORE_HOST, physical_offset=len(data)
        )
    assert_both_forms_agree(log_of(tmp_path, data), rows=3)


@pytest.mark.parametrize("keys", ["T#a", "x T#a", "T#b", "T#a T#a", "T#aa", "T#"])
def test_a_key_that_reads_like_the_entry_of_the_tag_is_the_only_entry(tmp_path: Path, keys: str) -> None:
    properties = f"KEYS\x01{keys}\x02TAGS\x01a\x02".encode()
    data = frame_of(new_message(topic="T", body=b"x", property_bytes=properties), STORE_HOST, physical_offset=0)
    log = log_of(tmp_path, data)
    assert_both_forms_agree(log)
    (batch,) = (one for one in walk_columns(log, columns=_EVERYTHING) if isinstance(one, MessageColumns))
    assert batch.key_is_tag.any() == ("T#a" not in keys.split(" "))


@settings(max_examples=examples(60))
@given(st.binary(min_size=1, max_size=400), st.sampled_from([50, 300]))
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes, window: int) -> None:
    assert_both_forms_agree(log_of(tmp_path_factory.mktemp("log"), data), window)


def test_frames_cut_at_every_byte(tmp_path: Path) -> None:
    whole = b"".join(_frames([Message("T", b"x" * 20, properties={"KEYS": "a b"})] * 2, 0, False))
    for length in range(1, len(whole) + 1):
        log = log_of(tmp_path / str(length), whole[:length])
        assert_same(walk_columns(log, columns=Columns.ALL), walk(log))


def test_every_bit_of_a_frame_flipped(tmp_path: Path) -> None:
    messages = [Message("Тема", b"x" * 9, properties={"KEYS": "a é", "TAGS": "t"})] * 2
    whole = b"".join(_frames(messages, 0, True))
    for bit in range(4 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        log = log_of(tmp_path / str(bit), bytes(flipped))
        assert_same(walk_columns(log, columns=Columns.ALL), walk(log))


def test_decoys(tmp_path: Path) -> None:
    """Frames inside bodies, right in every respect, behind damage of every kind."""
    decoy = frame(104, b"decoy")
    outer = frame(0, b"." * 16 + decoy + b"." * 50)
    after = frame(len(outer), b"after")
    for at in range(120):
        for value in (0, 1, 0x7F, 0xFF):
            data = bytearray(outer + after + bytes(40))
            data[at] = value
            log = log_of(tmp_path / f"{at}-{value}", bytes(data))
            assert_same(walk_columns(log, columns=Columns.ALL), walk(log))


@pytest.mark.parametrize("form", FORMS)
def test_many_keys_and_levels_that_no_kernel_reads(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    levels = [(2, "1"), (63, " 2 "), (64, "٣"), (65, "1_0"), (5000, "x"), (1, "9" * 30), (3, "0")]
    levels += [(2, "+3"), (2, "-3"), (2, "2147483648"), (2, "2147483647"), (2, "𝟏")]
    many = [{"KEYS": " ".join(map(str, range(count))), "UNIQ_KEY": "5", "DELAY": level} for count, level in levels]
    messages = [Message("SCHEDULE_TOPIC_XXXX", b"b", properties=one) for one in many]
    log = log_of(tmp_path, b"".join(_frames(messages, 0, False)))
    for rows in (1, 3, 100):
        assert_same(walk_columns(log, rows=rows), walk(log))


def test_more_topics_than_a_table_begins_with(tmp_path: Path) -> None:
    messages = [Message(f"topic-{number * 7 % 500}", b"") for number in range(1500)]
    log = log_of(tmp_path, b"".join(_frames(messages, 0, False)))
    assert_both_forms_agree(log)


def test_files_with_blanks_and_gaps(tmp_path: Path) -> None:
    size = 1000
    first = frame(0, b"1" * 200)
    third = frame(2 * size, b"3" * 300)
    last = frame(3 * size, b"4" * 300) + b"tail"
    log = log_of(tmp_path, first + blank(size - len(first)), third, third.ljust(size, b"\0"), last)
    assert_both_forms_agree(log)
    log.files[1].path.unlink()
    log.load()


@pytest.mark.parametrize("size", [5000, 70_000, 3_000_000])
def test_messages_larger_than_windows(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_walk, "_LARGEST_WINDOW", 100_000)
    messages = [Message("T", bytes(size), properties={"KEYS": "a"}), Message("U", b"small"), Message("T", b"x" * size)]
    data = b"".join(_frames(messages, 0, True))
    assert_both_forms_agree(log_of(tmp_path / "good", data), 1000)
    broken = bytearray(data)
    broken[200] ^= 1
    assert_both_forms_agree(log_of(tmp_path / "broken", bytes(broken)), 1000)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("left", [0, 10, 1000, 30_000])
def test_file_that_shrinks_under_the_walk(
    tmp_path: Path, left: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_form(form, monkeypatch)
    monkeypatch.setattr("rmqctl.store.log.walk._WINDOW", 1000)
    data = b"".join(_frames([Message("T", b"x" * 100)] * 500, 0, False))
    log = log_of(tmp_path, data)
    records = walk_columns(log, window=1000, rows=3)
    next(records)
    with log.files[0].path.open("r+b") as file:
        file.truncate(left)
    with pytest.raises(UnreadableError, match="shorter") as error:
        list(records)
    assert error.value.file == str(log.files[0].path)


@pytest.mark.parametrize("form", FORMS)
def test_file_that_is_gone_under_the_walk(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    log = log_of(tmp_path, frame(0), frame(len(frame(0))))
    records = walk_columns(log)
    next(records)
    gone = log.files[1]
    gone.path.unlink()
    # the last one is no cleaner's work: it is missing
    damage = [record for record in records if isinstance(record, Damage)]
    assert [(one.reason, one.physical_offset, one.file) for one in damage] == [
        (Reason.GAP, gone.start_offset, str(gone.path))
    ]


def test_batches_own_what_they_hold(tmp_path: Path) -> None:
    messages = [Message("T", b"body-%d" % number, properties={"KEYS": str(number)}) for number in range(100)]
    log = log_of(tmp_path, b"".join(_frames(messages, 0, False)))
    batches = [
        one for one in walk_columns(log, columns=Columns.ALL, window=400, rows=3) if isinstance(one, MessageColumns)
    ]
    bodies = [bytes(batch.body(row)) for batch in batches for row in range(batch.rows)]
    assert bodies == [message.body for message in messages]
    expected = [message for message in walk(log) if isinstance(message, StoredMessage)]
    assert [offset for batch in batches for offset in batch.physical_offset.tolist()] == [
        message.physical_offset for message in expected
    ]


def test_a_topic_that_has_no_slot_is_found_all_the_same(tmp_path: Path) -> None:
    """Names made to collide, of which the table of the walk holds a few."""
    messages = [Message(f"topic-{number % 3}", b"") for number in range(30)]
    log = log_of(tmp_path, b"".join(_frames(messages, 0, False)))
    topics = TopicIds()
    topics.slots[:] = topics.id_of(b"first")
    assert_same(walk_columns(log, columns=Columns.ALL, topics=topics), walk(log))
    assert topics.names == ["first", "topic-0", "topic-1", "topic-2"]
