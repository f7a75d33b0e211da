"""A scan for a key: which parts of the log it goes through, how much it keeps, and what damage it tells."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.query import damage_error, query_scan, uncovered_spans
from tests.store.logs import changed, damages, frame, log_of


def test_what_an_index_does_not_cover(tmp_path: Path) -> None:
    log = log_of(tmp_path, *(frame(first).ljust(1000, b"\0") for first in (1000, 2000)), first=1000)
    assert uncovered_spans(log, None) == [(1000, 3000)]
    assert uncovered_spans(log, (1000, 2900)) == [(2900, 3000)]
    assert uncovered_spans(log, (1500, 2900)) == [(1000, 1500), (2900, 3000)]
    # an index of older messages, and one that says it knows what the log has not got
    assert uncovered_spans(log, (0, 500)) == [(1000, 3000)]
    assert uncovered_spans(log, (1000, 3000)) == []
    assert uncovered_spans(log, (5000, 6000)) == [(1000, 3000)]
    empty = log_of(tmp_path / "empty", file_size=1000)
    assert uncovered_spans(empty, None) == []
    assert uncovered_spans(empty, (0, 9)) == []


def _scanned(log: MappedFileQueue, limit: int, spans: list[tuple[int, int]] | None = None) -> list[int]:
    return [one.physical_offset for one in query_scan(log, Criteria(), limit, spans=spans)]


def test_a_scan_keeps_to_its_spans_and_to_the_newest(tmp_path: Path) -> None:
    starts, made = list[int](), list[bytes]()
    for number in range(12):
        starts.append(sum(map(len, made)))
        made.append(frame(starts[-1], queue_offset=number))
    log = log_of(tmp_path, b"".join(made))
    newest = starts[::-1]
    for limit in (1, 2, 3, 5, 6, 12, 100):
        assert _scanned(log, limit) == newest[:limit]
    spans = [(0, starts[2]), (starts[4], starts[5]), (starts[9] + 1, starts[11])]
    assert _scanned(log, 100, spans) == [starts[number] for number in (10, 4, 1, 0)]
    assert _scanned(log, 100, []) == []
    assert _scanned(log, 100, [(starts[3], starts[3] + 1)]) == [starts[3]]
    told: list[int] = []
    query_scan(log, Criteria(), 1, UNHEARD._replace(progress=told.append))
    assert sum(told) == log.max_offset


def test_damage_is_told_with_its_end_and_its_size(tmp_path: Path) -> None:
    one = frame(0)
    log = log_of(tmp_path, changed(one, 90, b"\xff") + frame(len(one)))
    [damage] = damages(log)
    error = damage_error(damage)
    assert error.message.startswith(f"damaged up to {len(one)} ({len(one)} bytes): ")
    assert (error.file, error.physical_offset) == (str(log.files[0].path), 0)
    told: list[CorruptError] = []
    [found] = query_scan(log, Criteria(), 9, Events(damage=told.append))
    assert found.physical_offset == len(one)
    assert [str(one) for one in told] == [str(error)]
