"""The search behind damage: what it finds, that it never costs more than in proportion to the file, and the whole walk
on random damage."""

from __future__ import annotations

import functools
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqctl.formats.checksums import crc32_shift
from rmqctl.formats.message import FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log import search as frame_search
from rmqctl.store.log import walk as walk_module
from rmqctl.store.log.search import FrameSearch
from rmqctl.store.log.walk import walk
from tests.formats.frames import crc32_definition
from tests.opened import reader
from tests.quick import examples
from tests.store.logs import BODY_AT, blank, changed, frame, frames, is_tiling, log_of, span, spans

MEBIBYTE = 1 << 20


def _search(tmp_path: Path, data: bytes, start_offset: int = 0) -> FrameSearch:
    path = tmp_path / str(start_offset).zfill(20)
    path.write_bytes(data)
    return FrameSearch(MappedFile(path, start_offset, len(data), Descriptors()), len(data))


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_shifted_crc_combines_two(first: bytes, second: bytes) -> None:
    combined = crc32_shift(crc32_definition(first), len(second)) ^ crc32_definition(second)
    assert combined == crc32_definition(first + second)


def test_shifted_crc_of_a_long_piece() -> None:
    long = bytes(range(256)) * 40_000
    assert crc32_shift(zlib.crc32(b"head"), len(long)) ^ zlib.crc32(long) == zlib.crc32(b"head" + long)


@pytest.mark.parametrize("front", [1, 7, 8, 4000, 4089, 4093, 4094, 4095, 4096, 40_000])
def test_next_good_at_any_place(tmp_path: Path, front: int) -> None:
    data = b"g" * front + frame(1000 + front)
    assert _search(tmp_path, data, 1000).next_good(1) == front
    assert _search(tmp_path, data, 1000).next_good(front) == front
    assert _search(tmp_path, data, 1000).next_good(front + 1) is None
    assert _search(tmp_path, b"g" * front + blank(20)).next_good(0) == front
    assert _search(tmp_path, b"g" * front + blank(20, 19)).next_good(0) is None


@pytest.mark.parametrize("size", [0, 1, 4, 7, 8, 50])
def test_nothing_good(tmp_path: Path, size: int) -> None:
    assert _search(tmp_path, b"g" * size).next_good(0) is None


def _verdict(check: Any) -> tuple[Reason, str] | None:
    try:
        check()
    except FrameDamage as damage:
        return damage.reason, damage.detail
    return None


LARGE = frame(50, bytes(range(256)) * 700, with_property_crc=True, properties={"TAGS": "a"})


@settings(max_examples=examples(120), deadline=None)
@example(3, 45, False)  # a size that leaves less than a topic
@example(87, 28, False)  # a body length that leaves less than a topic
@given(st.integers(0, len(LARGE) - 1), st.integers(1, 255), st.booleans())
def test_large_frames_are_judged_alike_without_reading_them(
    tmp_path_factory: pytest.TempPathFactory, at: int, bits: int, in_head_or_tail: bool
) -> None:
    """The plain check decodes the whole frame, the other one takes CRCs from prefixes of the file (law 8)."""
    if in_head_or_tail:
        at = at % 120 if at % 2 else len(LARGE) - 1 - at % 60
    data = b"g" * 50 + changed(LARGE, at, bytes([LARGE[at] ^ bits])) + b"g" * 100_000
    folder = tmp_path_factory.mktemp("large")
    plain = _verdict(lambda: decode_message(data, 50, len(data) - 50, 50))
    search = _search(folder, data)
    head = data[50:162]
    found = _verdict(lambda: search._check_by_prefixes(50, head, struct.unpack_from(">i", data, 50)[0]))
    assert (found is None) == (plain is None)
    if found is not None and plain is not None and found[0] != plain[0]:
        # the checks come in another order: both are right, and both leave the size of the frame credible
        assert {found[0], plain[0]} <= {Reason.BODY_CRC, Reason.PROPERTY_CRC, Reason.TOPIC, Reason.PROPERTIES}


def test_large_good_frame_is_found_by_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_search, "_READ_IN_VAIN", 0)
    monkeypatch.setattr(frame_search, "_SMALL_FRAME", 0)
    whole = b"g" * 50 + LARGE + b"g" * 10
    assert _search(tmp_path, whole).next_good(0) == 50
    assert _search(tmp_path, changed(whole, 60_000, b"??")).next_good(0) is None
    # the queue id is covered by the property CRC alone
    assert _search(tmp_path, changed(whole, 50 + 12, b"\1")).next_good(0) is None


# --- cost: bytes read and frames decoded stay in proportion to the file ----------------------------------------------


class Cost:
    """Counts what a walk reads and decodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes_read = 0
        self.calls: Counter[str] = Counter()
        read, decode = Descriptors.read, decode_message

        def counting_read(descriptors: Descriptors, path: Path, position: int, length: int) -> bytes:
            data = read(descriptors, path, position, length)
            self.bytes_read += len(data)
            self.calls["read"] += 1
            return data

        def counting_decode(*arguments: Any, **named: Any) -> StoredMessage:
            self.calls["decode"] += 1
            return decode(*arguments, **named)

        monkeypatch.setattr(Descriptors, "read", counting_read)
        monkeypatch.setattr(walk_module, "decode_message", counting_decode)
        monkeypatch.setattr(frame_search, "decode_message", counting_decode)


def _magics(size: int) -> bytes:
    return struct.pack(">I", 0xDAA320A7) * (size // 4)


def _heads(size: int, claim: int, period: int) -> bytes:
    """Every `period` bytes the head of a message that knows its place and claims a body of `claim` bytes."""
    data = bytearray(size)
    empty = frame(0, b"")
    for at in range(0, size - len(empty), period):
        head = bytearray(empty)
        struct.pack_into(">i", head, 0, min(claim, size - at))
        struct.pack_into(">q", head, 28, at)
        struct.pack_into(">i", head, 84, min(claim, size - at) - len(empty))
        data[at : at + period] = head[:period].ljust(period, b"x")
    return bytes(data)


def _nested(size: int) -> bytes:
    """Heads of messages that all end together with the file, with the same topic: every length of each is right."""
    data = bytearray(_heads(size, size, 92))
    tail = frame(0, b"")[BODY_AT:]
    data[-len(tail) :] = tail
    return bytes(data)


def _bad_and_good(size: int, bad_claim: int) -> bytes:
    """A bad frame that claims `bad_claim` bytes and a good one, in turns."""
    data = bytearray()
    while len(data) < size:
        bad = bytearray(frame(len(data), b"bad"))
        struct.pack_into(">i", bad, 0, bad_claim)
        data += bad
        data += frame(len(data), b"good")
    return bytes(data)


def _into_zeros(size: int) -> bytes:
    """Frames with a wrong CRC, each of which would end in the long zeros before the last byte."""
    data = bytearray()
    while len(data) < size // 2:
        claim = size * 3 // 4 - len(data)
        bad = bytearray(frame(len(data), b"b"))
        struct.pack_into(">i", bad, 0, claim)
        struct.pack_into(">h", bad, len(bad) - 2, 1)
        data += bad
    return bytes(data).ljust(size - 1, b"\0") + b"x"


HOSTILE = {
    "magics": _magics,
    "heads that claim much": lambda size: _heads(size, size // 2, 92),
    "heads that claim little": lambda size: _heads(size, 60_000, 92),
    "nested frames": _nested,
    "bad and good frames": lambda size: _bad_and_good(size, 90),
    "bad frames that claim much": lambda size: _bad_and_good(size, size // 2),
    "frames that end in zeros": _into_zeros,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_cost_is_in_proportion_to_the_file(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the file costs about twice as much, and no byte is read more than some hundred times."""
    monkeypatch.setattr(frame_search, "_READ_IN_VAIN", 256 * 1024)
    monkeypatch.setattr(frame_search, "_SMALL_FRAME", 4096)
    costs: list[tuple[int, int]] = []
    for size in (MEBIBYTE // 4, MEBIBYTE // 2):
        log = log_of(tmp_path / str(size), HOSTILE[what](size))
        with monkeypatch.context() as patch:
            cost = Cost(patch)
            found = spans(log)
        assert is_tiling(found, 0, log.files[0].size)
        costs.append((cost.bytes_read, cost.calls["decode"] + cost.calls["read"]))
        assert cost.bytes_read < 400 * size
        assert cost.calls["decode"] < size // 8
    (small_bytes, small_calls), (large_bytes, large_calls) = costs
    assert large_bytes < 2.6 * small_bytes + MEBIBYTE
    assert large_calls < 2.6 * small_calls + 1000


def test_repeated_magics_are_not_even_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path, _magics(8 * MEBIBYTE))
    cost = Cost(monkeypatch)
    assert [kind for kind, _, _ in spans(log)] == ["size"]
    assert cost.calls["decode"] < 100  # where a window ends before the offset
    assert cost.bytes_read < 4 * 8 * MEBIBYTE


# --- random damage of a golden file ------------------------------------------------------------------------------


@functools.cache
def _original() -> tuple[bytes, list[tuple[int, int]]]:
    """The first bytes of a golden's log, up to a message's end, and its messages."""
    log = reader("features").files.log
    messages = [record for record in walk(log) if isinstance(record, StoredMessage)][:40]
    data = log.files[0].path.read_bytes()[: messages[-1].end]
    return data + bytes(300), [(message.physical_offset, message.end) for message in messages]


@st.composite
def _mutations(draw: st.DrawFn) -> bytes:
    data = bytearray(_original()[0])
    for _ in range(draw(st.integers(1, 4))):
        at: int = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(("flip", "bytes", "zeros", "copy", "number", "cut", "insert"))):
            case "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "bytes":
                piece = draw(st.binary(max_size=40))
                data[at : at + len(piece)] = piece
            case "zeros":
                length = draw(st.integers(1, 3000))
                data[at : at + length] = bytes(min(length, len(data) - at))
            case "copy":
                source, length = draw(st.integers(0, len(data))), draw(st.integers(0, 600))
                piece = bytes(data[source : source + length])
                data[at : at + len(piece)] = piece
            case "number":
                first, _ = draw(st.sampled_from(_original()[1]))
                field = draw(st.sampled_from((0, 4, 28, 36, 84)))
                if first + field + 4 <= len(data):
                    struct.pack_into(">i", data, first + field, draw(st.integers(-5, 2000)))
            case "cut":
                del data[max(1, at) :]
            case "insert":
                data[at:at] = draw(st.binary(max_size=10))
    return bytes(data)


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(_mutations())
def test_random_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    original, places = _original()
    log = log_of(tmp_path_factory.mktemp("log"), data)
    records = list(walk(log))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk_module, "_WINDOW", 500)
        patch.setattr(frame_search, "_FIRST_WINDOW", 64)
        assert list(walk(log)) == records
    assert is_tiling([span(record) for record in records], 0, len(data))
    found: dict[int, StoredMessage] = {}
    for record in records:
        if isinstance(record, StoredMessage):
            found[record.physical_offset] = record
            whole = decode_message(data, record.physical_offset, len(data) - record.physical_offset,
                                   record.physical_offset)  # fmt: skip
            assert whole == record
    for first, end in places:
        if data[first:end] == original[first:end] and first not in found:
            # an untouched message is only missed where a frame before it, good by all rules, covers it
            assert any(message.physical_offset < first < message.end for message in found.values()) or _is_covered(
                records, first, data
            )
    # nothing good appears where nothing was stored, and no checked byte of a good message differs
    assert {(message.physical_offset, message.end) for message in found.values()} <= set(places)
    for message in found.values():
        intact = decode_message(original, message.physical_offset, message.total_size, message.physical_offset)
        assert message.body == intact.body


def _is_covered(records: list[Any], first: int, data: bytes) -> bool:
    """Whether a damaged frame that leads on to a framed place, or the file's end, spans `first`."""
    for _, begin, end in map(span, records):
        if begin < first < end:
            claimed = struct.unpack_from(">i", data, begin)[0] if begin + 4 <= len(data) else 0
            return bool(claimed == end - begin)
    return False


def test_messages_between_damages_are_all_found(tmp_path: Path) -> None:
    made = frames([bytes([number]) * 50 for number in range(61)])
    data = b"".join(changed(one, 4, b"????") if number % 2 else one for number, one in enumerate(made))
    found = spans(log_of(tmp_path, data))
    assert [kind for kind, _, _ in found] == [*["message", "magic"] * 30, "message"]


def test_without_checksums_the_rest_of_a_frame_is_judged(tmp_path: Path) -> None:
    whole = frame(1000, b"body" * 50)
    _search(tmp_path, changed(whole, BODY_AT, b"?"), 1000).check(0, check_crc=False)
    with pytest.raises(FrameDamage) as caught:
        _search(tmp_path, changed(whole, BODY_AT, b"?"), 1000).check(0)
    assert caught.value.reason is Reason.BODY_CRC
    for at, reason in ((4, Reason.MAGIC), (28, Reason.POSITION), (BODY_AT - 4, Reason.LENGTHS)):
        with pytest.raises(FrameDamage) as caught:
            _search(tmp_path, changed(whole, at, b"\x7f"), 1000).check(0, check_crc=False)
        assert caught.value.reason is reason
