"""A compiled form that is wrong anywhere is not taken: each way of being wrong that a test can think of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store.compiled.extensions import load_extension
from rmqctl.store.read import frames
from tests.store.same_files import require_lock_of_python

UNIT = CONSUMEQUEUE_UNIT.size
NAMES = ("good_frames", "good_run", "next_read", "fitting")


@pytest.fixture(scope="module")
def usual() -> dict[str, Callable[..., Any]]:
    require_lock_of_python()
    module, why = load_extension("rmqctl.store.read.frame_checks", "checks", frames._SOURCES, lambda _: True)
    assert module is not None, why
    return {name: getattr(module, name) for name in NAMES}


def _is_taken(functions: dict[str, Callable[..., Any]]) -> bool:
    return frames._is_right(cast(ModuleType, SimpleNamespace(**functions)))


def _checks(usual: dict[str, Callable[..., Any]]) -> Iterator[tuple[str, dict[str, Callable[..., Any]]]]:
    """Forms that check frames in a wrong way, each by both functions."""

    def both(what: str, wrong: Callable[..., Any]) -> Iterator[tuple[str, dict[str, Callable[..., Any]]]]:
        # arguments: crc, window, begin, wanted or units, number[, slot], queue id, topic
        for name in ("good_frames", "good_run"):
            yield f"{what}, {name}", {name: lambda *given, name=name: wrong(usual[name], name == "good_run", *given)}

    def nothing(is_run: bool) -> Any:
        return (b"", 0) if is_run else []

    for queue_id in (3, 4):
        yield from both(
            f"queue {queue_id} whatever is asked for",
            lambda check, _, *given, queue_id=queue_id: check(*given[:-2], queue_id, given[-1]),
        )
    for number in (0, 1):
        yield from both(
            f"nothing from number {number} on",
            lambda check, is_run, *given, number=number: nothing(is_run) if given[4] == number else check(*given),
        )
    yield from both("the first frame again", lambda check, _, *given: check(*given[:4], 0, *given[5:]))
    yield from both("no more than one", lambda check, is_run, *given: _first(check(*given), is_run, 1))
    yield from both(
        "the frames in the order of the log",
        lambda check, is_run, *given: check(*given[:3], _sorted(given[3], is_run), *given[4:]),
    )
    for nudge in (-1, 1):
        yield from both(
            f"another place by {nudge}",
            lambda check, _, *given, nudge=nudge: check(*given[:2], given[2] + nudge, *given[3:]),
        )
    yield from both("whatever topic", lambda check, _, *given: check(*given[:-1], b"\x05Topic"[:1] + b"Topik"))


def _first(found: Any, is_run: bool, count: int) -> Any:
    if not is_run:
        return found[:count]
    return (found[0][: len(found[0]) // max(found[1], 1)], count) if found[1] > count else found


def _sorted(wanted: Any, is_run: bool) -> Any:
    if not is_run:
        return sorted(wanted)
    return b"".join(sorted(wanted[at : at + UNIT] for at in range(0, len(wanted), UNIT)))


def test_checks_that_are_wrong_in_any_way_are_not_taken(usual: dict[str, Callable[..., Any]]) -> None:
    assert _is_taken(usual)
    tried = 0
    for what, wrong in _checks(usual):
        assert not _is_taken(usual | wrong), what
        tried += 1
    assert tried > 15


def test_a_bit_that_is_not_looked_at_is_noticed_wherever_it_is(usual: dict[str, Callable[..., Any]]) -> None:
    seen: list[bytes] = []

    def watched(*given: Any) -> Any:
        seen.append(given[1])
        return usual["good_frames"](*given)

    assert _is_taken(usual | {"good_frames": watched})
    whole = seen[-1]
    assert len(whole) > 300
    # each byte is another one once, and another bit of it than of its neighbours
    flips = [int.from_bytes(one, "big") ^ int.from_bytes(whole, "big") for one in seen if one != whole]
    assert len(flips) == len(whole)
    assert all(flip.bit_count() == 1 for flip in flips)
    assert {(flip.bit_length() - 1) // 8 for flip in flips} == set(range(len(whole)))
    assert {(flip.bit_length() - 1) % 8 for flip in flips} == set(range(8))
    for place in range(2, len(whole), 5):
        for name in ("good_frames", "good_run"):

            def careless(crc: int, window: bytes, *given: Any, name: str = name, place: int = place) -> Any:
                kept = whole[place : place + 1] if len(window) == len(whole) else window[place : place + 1]
                return usual[name](crc, window[:place] + kept + window[place + 1 :], *given)

            # what may be anything in a good frame is nobody's concern: of these the bytes themselves are told
            assert not _is_taken(usual | {name: careless}), (name, place)


def test_reads_and_counts_that_are_wrong_by_one_are_not_taken(usual: dict[str, Callable[..., Any]]) -> None:
    def next_read(near: int = 0, ahead: int = 0, place: int = 0, end: int = 0) -> dict[str, Callable[..., Any]]:
        def wrong(*given: Any) -> tuple[int, int]:
            begin, stop = usual["next_read"](given[0] + near, given[1] + ahead, *given[2:])
            return begin + place, stop + end

        return {"next_read": wrong}

    for nudge in (-1, 1):
        for part in ("near", "ahead", "place", "end"):
            assert not _is_taken(usual | next_read(**{part: nudge})), (part, nudge)
        assert not _is_taken(
            usual | {"fitting": lambda units, most, nudge=nudge: usual["fitting"](units, most + nudge)}
        )
        assert not _is_taken(
            usual | {"fitting": lambda units, most, nudge=nudge: usual["fitting"](units, most) + nudge}
        )
    # of the first unit only, or of the second only
    for number in (0, 1):
        assert not _is_taken(
            usual | {"next_read": lambda *given, number=number: usual["next_read"](*given[:-1], number)}
        )
    # whatever order the frames are in
    assert not _is_taken(
        usual | {"next_read": lambda *given: usual["next_read"](*given[:2], _sorted(given[2], True), given[3])}
    )
    assert not _is_taken(usual | {"fitting": lambda units, most: max(2, usual["fitting"](units, most))})
    assert not _is_taken(usual | {"fitting": lambda units, most: len(units) // UNIT})
