"""Frames checked in compiled form are those that the plain form finds, and a form that is wrong is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqctl.formats.hosts import LOCAL_HOST
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, FRAME_HEAD_44, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.message import Message, frame_bytes, prepare_frame
from rmqctl.store.compiled.extensions import load_extension
from rmqctl.store.read import frames
from rmqctl.store.read.frames import (
    PLAIN,
    WantedFrame,
    compiled_checks,
    frame_checks,
    plain_good_frames,
    plain_good_run,
)
from tests.store.same_files import require_lock_of_python

BEGIN = 1000
TOPIC = b"\x05Topic"


@pytest.fixture
def compiled() -> ModuleType:
    require_lock_of_python()
    module, why = load_extension("rmqctl.store.read.frame_checks", "checks", frames._SOURCES, lambda _: True)
    assert module is not None, why
    return module


@pytest.fixture
def chosen_anew() -> Iterator[None]:
    frame_checks.cache_clear()
    yield
    frame_checks.cache_clear()


def _log(properties: list[dict[str, str]], bodies: list[bytes]) -> tuple[bytes, list[WantedFrame]]:
    """Messages of queue 3 one after the other, and where they are."""
    window, wanted = b"", list[WantedFrame]()
    for number, (one, body) in enumerate(zip(properties, bodies, strict=False)):
        message = Message("Topic", body, 3, properties=one)
        frame = frame_bytes(prepare_frame(message, LOCAL_HOST, 77), number, BEGIN + len(window), 77)
        wanted.append((BEGIN + len(window), len(frame), number))
        window += frame
    return window, wanted


PROPERTIES = st.dictionaries(st.sampled_from(["KEYS", "TAGS", "__CRC32#"]), st.sampled_from(["a", "ä", "1234567890"]))


@given(
    st.lists(PROPERTIES, min_size=1, max_size=4),
    st.lists(st.binary(max_size=40), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 600), st.integers(1, 255)), max_size=1),
    st.integers(-1, 5),
    st.integers(0, 700),
)
def test_both_forms_find_the_same(
    properties: list[dict[str, str]], bodies: list[bytes], flips: list[tuple[int, int]], number: int, end: int
) -> None:
    require_lock_of_python()
    window, wanted = _log(properties, bodies)
    changed = bytearray(window if end > 600 else window[:end])
    for place, bits in flips:
        if place < len(changed):
            changed[place] ^= bits
    tried = (bytes(changed), BEGIN, wanted, max(0, number), 3, TOPIC)
    assert frame_checks() is not PLAIN
    pairs = plain_good_frames(*tried)
    assert frame_checks().good_frames(*tried) == pairs
    run = (bytes(changed), BEGIN, _units(wanted), max(0, number), 0, 3, TOPIC)
    assert frame_checks().good_run(*run) == plain_good_run(*run) == (b"".join(one for one, _ in pairs), len(pairs))


def _units(wanted: list[WantedFrame], rest: bytes = b"") -> bytes:
    """Their units of a queue, and the beginning of another one."""
    return b"".join(CONSUMEQUEUE_UNIT.struct.pack(place, size, 0) for place, size, _ in wanted) + rest


# numbers at which lengths and places run over, and those at which frames lie
INT64 = st.sampled_from([0, 1, -1, BEGIN, BEGIN - 1, -(1 << 63), (1 << 63) - 1]) | st.integers(BEGIN - 9, BEGIN + 900)
INT32 = st.sampled_from([0, 1, -1, -(1 << 31), (1 << 31) - 1]) | st.integers(0, 300)


@given(st.data())
def test_units_of_any_kind_give_the_same_and_end_nothing(data: st.DataObject) -> None:
    """Whatever a queue says: places before, within, across and behind the window, and sizes of all kinds."""
    require_lock_of_python()
    count = data.draw(st.integers(0, 4))
    window, wanted = _log([{"KEYS": "k"}] * count, [bytes(range(place, 40)) for place in range(count)])
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(wanted)))
        wanted.insert(place, (data.draw(INT64), data.draw(INT32), 0))
    units = _units(wanted)
    # the last one may be cut off
    units = units[: len(units) - data.draw(st.sampled_from([0, 20]))] if units else units
    cut = data.draw(st.integers(0, len(window)) | st.just(len(window)))
    run = (window[:cut], data.draw(INT64 | st.just(BEGIN)), units, data.draw(st.integers(0, 6)), data.draw(INT64),
           data.draw(INT64 | st.just(3)), data.draw(st.sampled_from([TOPIC, b"", TOPIC * 100])))  # fmt: skip
    assert frame_checks().good_run(*run) == plain_good_run(*run)
    most = data.draw(INT64)
    assert frame_checks().fitting(units, most) == PLAIN.fitting(units, most)


@given(st.binary(max_size=700), st.binary(max_size=130), st.integers(-2, 9), INT64, INT64, INT64, st.binary(max_size=9))
@example(b"a" * 300, bytes(6) + b"\x03\xe8\0\0\0\x80" + bytes(8), 0, -(1 << 63), 0, 0, b"")
def test_bytes_of_any_kind_end_nothing(
    window: bytes, units: bytes, number: int, begin: int, slot: int, queue_id: int, topic: bytes
) -> None:
    require_lock_of_python()
    checks, count = frame_checks(), len(units) // CONSUMEQUEUE_UNIT.size
    whole = units[: count * CONSUMEQUEUE_UNIT.size]
    assert checks.fitting(units, begin) == PLAIN.fitting(whole, begin)
    if number < 0:
        for refused in (checks.good_run, PLAIN.good_run):
            with pytest.raises(ValueError, match="no such unit"):
                refused(window, begin, whole, number, slot, queue_id, topic)
    else:
        tried = (begin, units, number, slot, queue_id, topic)
        assert checks.good_run(window, *tried) == plain_good_run(window, begin, whole, *tried[2:])
    if 0 <= number < count:
        place, end = checks.next_read(units, number)
        expected = PLAIN.next_read(whole, number)
        assert place == expected[0]
        assert end <= expected[1] or end == -1 or expected[1] < place
    else:
        for refuses in (checks.next_read, PLAIN.next_read):
            with pytest.raises(ValueError, match="no such unit"):
                refuses(whole, number)


def test_a_run_of_the_longest_frames_is_given_whole(compiled: ModuleType) -> None:
    window, wanted = _log([{"KEYS": "k"}] * 3, [bytes(1 << 20)] * 3)
    run = (window, BEGIN, _units(wanted), 0, 0, 3, TOPIC)
    assert compiled_checks(compiled).good_run(*run) == (window, 3) == plain_good_run(*run)
    assert compiled_checks(compiled).good_run(window[:-1], *run[1:]) == (window[: 2 * len(window) // 3], 2)
    # what was read without a gap is given as it is: a pull of 256 KiB is copied once less
    assert compiled_checks(compiled).good_run(*run)[0] is window
    gap = _units([wanted[0], *wanted[2:]])
    assert compiled_checks(compiled).good_run(window, BEGIN, gap, 0, 0, 3, TOPIC) == plain_good_run(
        window, BEGIN, gap, 0, 0, 3, TOPIC
    )
    sizes = [size for _, size, _ in wanted]
    for most in (0, sizes[0], 2 * sizes[0] - 1, 2 * sizes[0], sum(sizes)):
        fits = max(1, most // sizes[0])
        assert compiled_checks(compiled).fitting(run[2], most) == PLAIN.fitting(run[2], most) == fits


def test_places_of_any_kind_are_refused_alike(compiled: ModuleType) -> None:
    window, ((begin, size, slot),) = _log([{"KEYS": "k"}], [b"body"])
    least, most = -(1 << 63), (1 << 63) - 1
    for place in ((begin, size, slot), (begin, size + 1, slot), (begin, size - 1, slot), (begin, 0, slot),
                  (begin, -1, slot), (begin, most, slot), (begin, least, slot), (least, size, slot), (most, size, slot),
                  (begin - 1, size, slot), (begin, size, most), (begin + 1, size, slot)):  # fmt: skip
        tried = (window, BEGIN, [place], 0, 3, TOPIC)
        assert compiled.good_frames(0, *tried) == plain_good_frames(*tried), place
    assert len(compiled.good_frames(0, window, BEGIN, [(begin, size, slot)], 0, 3, TOPIC)) == 1
    other_types: list[Any] = [(bytearray(window), BEGIN, []), (window, BEGIN, [(1, 2)])]
    for wrong in other_types:
        with pytest.raises(TypeError):
            compiled.good_frames(0, *wrong, 0, 3, TOPIC)


def test_a_form_that_is_wrong_is_noticed(compiled: ModuleType) -> None:
    def careless(name: str) -> Callable[..., Any]:
        """Does not look at one bit of the first frame."""
        function = getattr(compiled, name)
        return lambda crc, window, *others: function(crc, window[:90] + b"b" + window[91:], *others)

    usual = {name: getattr(compiled, name) for name in ("good_frames", "good_run", "next_read", "fitting")}
    assert frames._is_right(cast(ModuleType, SimpleNamespace(**usual)))
    wrong: dict[str, Callable[..., Any]] = {name: careless(name) for name in ("good_frames", "good_run")}
    wrong |= {"next_read": lambda *_: (0, 9), "fitting": lambda *_: 1}
    for name, one in wrong.items():
        assert not frames._is_right(cast(ModuleType, SimpleNamespace(**usual | {name: one})))


def test_without_it_the_plain_form_is_taken(chosen_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQCTL_NO_EXTENSION", "1")
    assert frame_checks() is PLAIN


@pytest.mark.parametrize("flag", [SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6])
def test_a_frame_that_says_it_has_a_longer_host_is_not_usual(flag: int) -> None:
    """Nothing else of it is another: no checksum covers the flags."""
    window, wanted = _log([{"KEYS": "k"}], [b"body"])
    place = wanted[0][0] - BEGIN + FRAME_HEAD_44.offset("sys_flag")
    changed = window[:place] + flag.to_bytes(4, "big") + window[place + 4 :]
    for checks in (PLAIN, frame_checks()):
        assert len(checks.good_frames(window, BEGIN, wanted, 0, 3, TOPIC)) == 1
        assert checks.good_frames(changed, BEGIN, wanted, 0, 3, TOPIC) == []


def test_frames_without_a_body_and_without_properties_are_usual() -> None:
    window, wanted = _log([{}, {"KEYS": "k"}, {}], [b"", b"", b"body"])
    for checks in (PLAIN, frame_checks()):
        found = checks.good_frames(window, BEGIN, wanted, 0, 3, TOPIC)
        assert [properties for _, properties in found] == [b"", b"KEYS\x01k\x02", b""]
        assert b"".join(frame for frame, _ in found) == window


def test_properties_of_less_than_no_bytes_make_no_frame_smaller() -> None:
    """All lengths add up to the size that such a frame claims."""
    window, [(begin, size, slot)] = _log([{}], [b"body"])
    for less in (1, 2, 5):
        changed = (size - less).to_bytes(4, "big") + window[4:-2] + (-less).to_bytes(2, "big", signed=True)
        for checks in (PLAIN, frame_checks()):
            for end in (size - less, size):
                assert checks.good_frames(changed[:end], BEGIN, [(begin, size - less, slot)], 0, 3, TOPIC) == []
