"""Frames checked in compiled form are those of the plain form, and those that decode_message finds good."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqctl.formats.checksums import PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.message import LOCAL_HOST, FrameDamage, Message, decode_message, frame_bytes, prepare_frame
from rmqctl.store.native import good_frames as native
from rmqctl.store.read.frames import AHEAD, NEAR, end_of_near
from tests.store.native.forms import compiled_form, plain_form

BEGIN = 1000
TOPIC = b"\x05Topic"
FORMS = ("plain", "compiled")
Wanted = tuple[int, int, int]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Any:
    """Each form in turn."""
    return (plain_form if request.param == "plain" else compiled_form)("good_frames")


def _log(properties: list[dict[str, str]], bodies: list[bytes]) -> tuple[bytes, list[Wanted]]:
    """Messages of queue 3 one after the other, and where they are."""
    window, wanted = b"", list[Wanted]()
    for number, (one, body) in enumerate(zip(properties, bodies, strict=False)):
        message = Message("Topic", body, 3, properties=one)
        frame = frame_bytes(prepare_frame(message, LOCAL_HOST, 77), number, BEGIN + len(window), 77)
        wanted.append((BEGIN + len(window), len(frame), number))
        window += frame
    return window, wanted


def _units(wanted: list[Wanted]) -> bytes:
    return b"".join(CONSUMEQUEUE_UNIT.struct.pack(place, size, 0) for place, size, _ in wanted)


def by_schema(
    window: bytes, begin: int, wanted: list[Wanted], number: int, queue_id: int, topic: bytes
) -> list[tuple[bytes, bytes]]:
    """What `good_frames` is to find, by `decode_message` and one look at what makes a frame an unusual one."""
    found: list[tuple[bytes, bytes]] = []
    for physical_offset, size, queue_offset in wanted[number:]:
        at = physical_offset - begin
        if not 0 <= at <= at + size <= len(window) or size < 91:
            break
        try:
            message = decode_message(window, at, size, physical_offset)
        except FrameDamage:
            break
        stored = message.property_bytes
        tail = stored[-PROPERTY_CRC_SIZE:]
        if (
            (message.total_size, message.queue_offset, message.queue_id) != (size, queue_offset, queue_id)
            or message.magic_code != 0xDAA320A7
            or message.topic.encode() != topic[1:]
            or message.sys_flag & (SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
            or (tail.startswith(PROPERTY_CRC_NAME) and tail.endswith(b"\x02"))
        ):
            break
        found.append((window[at : at + size], stored))
    return found


PROPERTIES = st.dictionaries(st.sampled_from(["KEYS", "TAGS", "__CRC32#"]), st.sampled_from(["a", "ä", "1234567890"]))
LOGS = st.builds(_log, st.lists(PROPERTIES, min_size=1, max_size=4), st.lists(st.binary(max_size=40), min_size=4))


@given(LOGS, st.lists(st.tuples(st.integers(0, 600), st.integers(1, 255)), max_size=2), st.integers(0, 5),
       st.integers(0, 1200))  # fmt: skip
def test_frames_are_good_that_the_schema_finds_good(
    log: tuple[bytes, list[Wanted]], flips: list[tuple[int, int]], number: int, end: int
) -> None:
    whole, wanted = log
    window = bytearray(whole if end > 600 else whole[:end])
    for place, bits in flips:
        if place < len(window):
            window[place] ^= bits
    tried = (bytes(window), BEGIN, wanted, number, 3, TOPIC)
    pairs = by_schema(*tried)
    run = (bytes(window), BEGIN, _units(wanted), number, 0, 3, TOPIC)
    for one in (plain_form("good_frames"), native):
        assert one.good_frames(*tried) == pairs
        assert one.good_run(*run) == (b"".join(frame for frame, _ in pairs), len(pairs))


def test_every_bit_of_a_frame_is_looked_at(form: Any) -> None:
    """But those that may be anything: flag, times, hosts, counts, and bits that no checksum covers."""
    whole, wanted = _log([{"KEYS": "ä"}, {"TAGS": "b"}], [b"body" * 5, b"other"])
    for place in range(len(whole)):
        window = bytearray(whole)
        window[place] ^= 1 << place % 8
        tried = (bytes(window), BEGIN, wanted, 0, 3, TOPIC)
        assert form.good_frames(*tried) == by_schema(*tried), place


# numbers at which lengths and places run over, and those at which frames lie
INT64 = st.sampled_from([0, 1, -1, BEGIN, BEGIN - 1, -(1 << 63), (1 << 63) - 1]) | st.integers(BEGIN - 9, BEGIN + 900)
INT32 = st.sampled_from([0, 1, -1, -(1 << 31), (1 << 31) - 1]) | st.integers(0, 300)


@given(st.data())
def test_units_of_any_kind_give_the_same_and_end_nothing(data: st.DataObject) -> None:
    """Whatever a queue says: places before, within, across and behind the window, and sizes of all kinds."""
    count = data.draw(st.integers(0, 4))
    window, wanted = _log([{"KEYS": "k"}] * count, [bytes(range(place, 40)) for place in range(count)])
    for _ in range(data.draw(st.integers(0, 2))):
        wanted.insert(data.draw(st.integers(0, len(wanted))), (data.draw(INT64), data.draw(INT32), 0))
    units = _units(wanted)
    # the last one may be cut off
    units = units[: len(units) - data.draw(st.sampled_from([0, 20, 3]))] if units else units
    cut = data.draw(st.integers(0, len(window)) | st.just(len(window)))
    begin, slot, queue_id = data.draw(INT64 | st.just(BEGIN)), data.draw(INT64), data.draw(INT64 | st.just(3))
    number, topic = data.draw(st.integers(0, 6)), data.draw(st.sampled_from([TOPIC, b"", TOPIC * 100]))
    run = (window[:cut], begin, units, number, slot, queue_id, topic)
    assert native.good_run(*run) == plain_form("good_frames").good_run(*run)
    places = (window[:cut], begin, wanted, number, queue_id, topic)
    assert native.good_frames(*places) == plain_form("good_frames").good_frames(*places)
    most = data.draw(INT64)
    assert native.fitting(units, most) == plain_form("good_frames").fitting(units, most)


@given(st.binary(max_size=700), st.binary(max_size=130), st.integers(-2, 9), INT64, INT64, INT64, st.binary(max_size=9))
@example(b"a" * 300, bytes(6) + b"\x03\xe8\0\0\0\x80" + bytes(8), 0, -(1 << 63), 0, 0, b"")
def test_bytes_of_any_kind_end_nothing(
    window: bytes, units: bytes, number: int, begin: int, slot: int, queue_id: int, topic: bytes
) -> None:
    count = len(units) // CONSUMEQUEUE_UNIT.size
    places = list(CONSUMEQUEUE_UNIT.struct.iter_unpack(units[: count * CONSUMEQUEUE_UNIT.size]))
    run = (window, begin, units, number, slot, queue_id, topic)
    both = (plain_form("good_frames"), native)
    for one in both:
        if number < 0:
            with pytest.raises(ValueError, match="no such unit"):
                one.good_run(*run)
        if not 0 <= number < count:
            with pytest.raises(ValueError, match="no such unit"):
                one.next_read(units, number, NEAR, AHEAD)
    assert native.fitting(units, begin) == plain_form("good_frames").fitting(units, begin)
    if number >= 0:
        assert native.good_run(*run) == plain_form("good_frames").good_run(*run)
    if 0 <= number < count:
        found = native.next_read(units, number, NEAR, AHEAD)
        assert found == plain_form("good_frames").next_read(units, number, NEAR, AHEAD)
        expected = end_of_near(places, number)
        assert found[0] == places[number][0]
        assert found[1] <= expected or found[1] == -1 or expected < found[0]


def _at_the_limits(beyond: int) -> list[list[Wanted]]:
    """Frames that one read still reaches, or those that it does not reach any more."""
    return [[(0, 9, 0), (9 + NEAR + beyond, 9, 1)], [(9, 9, 0), (18, AHEAD - 9 + beyond, 1)]]


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_read_reaches_what_is_near(form: Any, beyond: int) -> None:
    for wanted in _at_the_limits(beyond):
        begin, end = form.next_read(_units(wanted), 0, NEAR, AHEAD)
        assert (begin, end) == (wanted[0][0], end_of_near(wanted, 0))
        assert (end > wanted[0][0] + 9) is (beyond == 0)


def test_the_first_fits_whatever_its_size(form: Any) -> None:
    units = _units([(0, 5, 0), (5, 7, 1), (12, 1, 2)])
    assert [form.fitting(units, most) for most in (0, 4, 5, 11, 12, 13, 99)] == [1, 1, 1, 1, 2, 3, 3]
    assert form.fitting(b"", 5) == 0


def test_a_run_of_the_longest_frames_is_given_whole(form: Any) -> None:
    window, wanted = _log([{"KEYS": "k"}] * 3, [bytes(1 << 20)] * 3)
    run = (BEGIN, _units(wanted), 0, 0, 3, TOPIC)
    # what was read without a gap is given as it is: a pull of 256 KiB is copied once less
    frames, count = form.good_run(window, *run)
    assert count == 3
    assert frames is window
    assert form.good_run(window[:-1], *run) == (window[: 2 * len(window) // 3], 2)
    # a gap is left out, and frames in another order are given in that of the queue
    places = [wanted[2], wanted[0]]
    slots = [(wanted[2][0], wanted[2][1], 2), (wanted[0][0], wanted[0][1], 0)]
    assert [len(form.good_frames(window, BEGIN, [one], 0, 3, TOPIC)) for one in slots] == [1, 1]
    assert form.good_run(window, BEGIN, _units(places), 0, 2, 3, TOPIC) == (window[2 * len(window) // 3 :], 1)


def test_frames_in_another_order_are_given_in_that_of_the_queue(form: Any) -> None:
    message = Message("Topic", b"body", 3)
    parts = prepare_frame(message, LOCAL_HOST, 77)
    size = parts.total_size
    places = [BEGIN + number * size for number in (2, 0, 3, 1)]
    by_place = {place: frame_bytes(parts, slot, place, 77) for slot, place in enumerate(places)}
    window = b"".join(by_place[place] for place in sorted(places))
    units = _units([(place, size, 0) for place in places])
    assert form.good_run(window, BEGIN, units, 0, 0, 3, TOPIC) == (b"".join(by_place[one] for one in places), 4)


@pytest.mark.parametrize("flag", [SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6])
def test_a_frame_that_says_it_has_a_longer_host_is_not_usual(form: Any, flag: int) -> None:
    window, wanted = _log([{"KEYS": "k"}], [b"body"])
    changed = window[:36] + flag.to_bytes(4, "big") + window[40:]
    assert len(form.good_frames(window, BEGIN, wanted, 0, 3, TOPIC)) == 1
    assert form.good_frames(changed, BEGIN, wanted, 0, 3, TOPIC) == []


def test_frames_without_a_body_and_without_properties_are_usual(form: Any) -> None:
    window, wanted = _log([{}, {"KEYS": "k"}, {}], [b"", b"", b"body"])
    found = form.good_frames(window, BEGIN, wanted, 0, 3, TOPIC)
    assert [properties for _, properties in found] == [b"", b"KEYS\x01k\x02", b""]
    assert b"".join(frame for frame, _ in found) == window


def test_properties_of_less_than_no_bytes_make_no_frame_smaller(form: Any) -> None:
    """All lengths add up to the size that such a frame claims."""
    window, [(begin, size, slot)] = _log([{}], [b"body"])
    for less in (1, 2, 5):
        changed = (size - less).to_bytes(4, "big") + window[4:-2] + (-less).to_bytes(2, "big", signed=True)
        for end in (size - less, size):
            assert form.good_frames(changed[:end], BEGIN, [(begin, size - less, slot)], 0, 3, TOPIC) == []


def test_other_types_are_refused(form: Any) -> None:
    window, wanted = _log([{"KEYS": "k"}], [b"body"])
    for wrong in ([(1, 2)], [(1, 2, 3, 4)], [None]):
        with pytest.raises((TypeError, ValueError)):
            form.good_frames(window, BEGIN, wrong, 0, 3, TOPIC)
    assert form.good_frames(window, BEGIN, wanted, 0, 3, TOPIC)


def test_hostile_bytes_of_a_frame_end_nothing() -> None:
    """Lengths in a frame that lead out of it, of every kind."""
    draw = random.Random(5)
    whole, wanted = _log([{"KEYS": "k"}] * 2, [b"body" * 9] * 2)
    for _ in range(3000):
        window = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            at = draw.choice([0, 4, 12, 20, 28, 36, 84, 88 + 36, len(whole) // 2 - 9, draw.randrange(len(whole) - 8)])
            length = draw.choice([1, 2, 4, 8])
            window[at : at + length] = draw.choice([bytes(length), b"\xff" * length, b"\x7f" + b"\xff" * (length - 1)])
        tried = (bytes(window[: draw.choice([len(whole), draw.randrange(len(whole))])]), BEGIN, wanted, 0, 3, TOPIC)
        assert native.good_frames(*tried) == plain_form("good_frames").good_frames(*tried) == by_schema(*tried)
