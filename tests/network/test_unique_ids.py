"""Unique ids over a whole month, in several zones: as MessageClientIDSetter makes and reads them."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from rmqctl.formats.checksums import java_int
from rmqctl.network import unique_ids
from rmqctl.network.unique_ids import NextId, UniqueIds
from tests.anyday.clock import ZONES, clock_changes
from tests.unique_id import parse_unique_id

LIMIT = 1 << 31
"""Ms after the month began at which the field wraps: on the 25th at 20:31:23.648."""


@pytest.fixture(params=[*ZONES, "America/Havana", "Asia/Kathmandu"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def _at(moment_ms: int) -> tuple[str, int]:
    """The id of a moment, and its field for the time."""
    made = UniqueIds(lambda: moment_ms).next()
    return made, parse_unique_id(made).time_difference


def nearly_time(text: str, now_ms: int, zone: str) -> int:
    """What MessageClientIDSetter#getNearlyTimeFromID makes of an id, in ms: it reads the field without a sign."""
    span = int(text[-12:-4], 16)
    month = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(zone)).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    if month.timestamp() * 1000 + span >= now_ms:
        month = (month - timedelta(days=1)).replace(day=1)
    return int(month.timestamp() * 1000) + span


def _month(zone: str, year: int, month: int) -> int:
    return int(datetime(year, month, 1, tzinfo=ZoneInfo(zone)).timestamp()) * 1000


@pytest.mark.parametrize("month", range(1, 13))
def test_the_time_of_an_id_wraps_and_reads_back_over_a_month(zone: str, month: int) -> None:
    begin = _month(zone, 2026, month)
    end = _month(zone, 2026 + month // 12, month % 12 + 1)
    for moment in (begin, begin + 1, begin + LIMIT - 1, begin + LIMIT, begin + LIMIT + 1, end - 1):
        made, difference = _at(moment)
        assert len(made) == 32
        assert difference == java_int(moment - begin)
        assert (difference < 0) == (moment - begin >= LIMIT)
        assert nearly_time(made, moment + 1, zone) == moment
    assert _at(end)[1] == 0


def test_changes_of_daylight_saving_time_do_not_show(zone: str) -> None:
    """The field counts ms that have passed: at a change it neither jumps nor repeats."""
    for change in clock_changes(zone, 2026):
        before, at, after = (_at(change * 1000 + step)[1] for step in (-1, 0, 1))
        if (
            datetime.fromtimestamp(change - 1, ZoneInfo(zone)).month
            == datetime.fromtimestamp(change, ZoneInfo(zone)).month
        ):
            assert (at - before, after - at) == (1, 1)


@pytest.mark.parametrize("counter", [0, 1, 0x7FFF, 0x8000, 0xFFFF])
def test_the_counter_has_sixteen_bits_and_comes_round(counter: int) -> None:
    ids = UniqueIds(lambda: 1_800_000_000_000)
    ids.place = NextId(counter)
    first, second = ids.next(), ids.next()
    assert parse_unique_id(first).counter == counter
    assert parse_unique_id(second).counter == (counter + 1) % (1 << 16)
    assert first != second
    later = parse_unique_id(second).time_difference - parse_unique_id(first).time_difference
    assert later == (1 if counter == 0xFFFF else 0)


@pytest.mark.parametrize("process", [1, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 4_194_304])
def test_of_a_process_id_sixteen_bits_are_kept(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: process)
    assert parse_unique_id(_at(1_800_000_000_000)[0]).process_id == process & 0xFFFF


@pytest.mark.parametrize("number", [0, LIMIT - 1])
def test_the_number_of_a_producer_fits(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbits", lambda bits: number)
    assert parse_unique_id(_at(1_800_000_000_000)[0]).class_loader_hash == number


def test_ids_made_at_once_are_those_made_one_by_one() -> None:
    one_by_one, at_once = (UniqueIds(lambda: 1_800_000_000_000) for _ in range(2))
    at_once._number = one_by_one._number
    one_by_one.place = at_once.place = NextId(0xFFFE)
    assert [bytes(row).decode() for row in at_once.take(4)] == [one_by_one.next() for _ in range(4)]


def test_without_an_address_the_time_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unique_ids, "_own_address", lambda: None)
    for moment in (0, (1 << 32) - 1, 1 << 32, (1 << 41) + 5):
        assert _at(moment)[0][:8] == f"{moment & 0xFFFFFFFF:08X}"
