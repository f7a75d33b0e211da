"""Frames checked in compiled form are those that the plain form finds, and a form that is wrong is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.hosts import LOCAL_HOST
from rmqctl.formats.message import Message, frame_bytes, prepare_frame
from rmqctl.store.compiled.extensions import load_extension
from rmqctl.store.read import good_frames as frames
from rmqctl.store.read.good_frames import WantedFrame, frame_checks, good_frames, plain_good_frames
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
    for chosen in (good_frames, frame_checks):
        chosen.cache_clear()
    yield
    for chosen in (good_frames, frame_checks):
        chosen.cache_clear()


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
    assert good_frames() is not plain_good_frames
    assert good_frames()(*tried) == plain_good_frames(*tried)


def test_places_of_any_kind_are_refused_alike(compiled: ModuleType) -> None:
    window, ((begin, size, slot),) = _log([{"KEYS": "k"}], [b"body"])
    least, most = -(1 << 63), (1 << 63) - 1
    for place in ((begin, size, slot), (begin, size + 1, slot), (begin, size - 1, slot), (begin, 0, slot),
                  (begin, -1, slot), (begin, most, slot), (begin, least, slot), (least, size, slot), (most, size, slot),
                  (begin - 1, size, slot), (begin, size, most), (begin + 1, size, slot)):  # fmt: skip
        tried = (window, BEGIN, [place], 0, 3, TOPIC)
        assert compiled.good_frames(*tried, 0) == plain_good_frames(*tried), place
    assert len(compiled.good_frames(window, BEGIN, [(begin, size, slot)], 0, 3, TOPIC, 0)) == 1
    with pytest.raises(ValueError, match="no such unit"):
        compiled.next_read(b"", 0, 1, 1)
    other_types: list[Any] = [(bytearray(window), BEGIN, []), (window, BEGIN, [(1, 2)])]
    for wrong in other_types:
        with pytest.raises(TypeError):
            compiled.good_frames(*wrong, 0, 3, TOPIC, 0)


def test_a_form_that_is_wrong_is_noticed(compiled: ModuleType) -> None:
    def careless(name: str) -> Callable[..., Any]:
        """Does not look at one bit of the first frame."""
        function = getattr(compiled, name)
        return lambda window, *others: function(window[:90] + b"b" + window[91:], *others)

    usual = {name: getattr(compiled, name) for name in ("good_frames", "good_run", "next_read")}
    assert frames._is_right(cast(ModuleType, SimpleNamespace(**usual)))
    wrong = [{name: careless(name)} for name in ("good_frames", "good_run")]
    for one in (*wrong, {"next_read": lambda *_: (0, 9)}):
        assert not frames._is_right(cast(ModuleType, SimpleNamespace(**usual | one)))


def test_without_it_the_plain_form_is_taken(chosen_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQCTL_NO_EXTENSION", "1")
    assert good_frames() is plain_good_frames
