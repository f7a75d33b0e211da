"""Marks of a log before a position: frames that stand, few, ever further apart; and positions in a checkpoint."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.spark.history import Mark, Position, mark_before, marks_for, position_from_json, stands
from tests.pipeline.growing import FILE_SIZE, Writer
from tests.store.logs import opened


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "store")


def test_marks_are_frames_before_a_position_few_and_ever_further_apart(writer: Writer) -> None:
    writer.put_many(1000)
    log = opened(writer.folder)
    marks = marks_for(log, writer.position, writer.position)
    assert marks[0].begin == writer.offsets[-1]
    assert {mark.begin for mark in marks} <= set(writer.offsets)
    assert len(marks) < 20
    assert all(stands(log, mark) for mark in marks)
    distances = [writer.position - mark.begin for mark in marks]
    assert all(2.3 * near + FILE_SIZE / 2 > far for near, far in pairwise(distances))
    assert distances[-1] * 1.6 > writer.position


def test_marks_stay_well_spread_when_a_position_moves_on_by_little(writer: Writer) -> None:
    writer.put()
    marks: tuple[Mark, ...] = ()
    for _ in range(300):
        writer.put()
        marks = marks_for(opened(writer.folder), writer.position, writer.position, marks)
    distances = [writer.position - mark.begin for mark in marks]
    assert len(distances) > 5
    assert all(2.3 * near + 1000 > far for near, far in pairwise(distances[1:]))
    assert distances[-1] * 2.3 > writer.position


def test_the_frame_before_a_position(writer: Writer) -> None:
    writer.put_many(100)
    log = opened(writer.folder)
    end = writer.position
    for place in (0, 1, 37, 60, 99):
        offset = writer.offsets[place]
        expected = writer.offsets[place - 1] if place else None
        for position, wanted in ((offset, expected), (offset + 1, offset), (offset + 90, offset)):
            found = mark_before(log, position, end)
            assert (found.begin if found else None) == wanted
    # a frame that reaches behind what is final may still change
    found = mark_before(log, end, end - 1)
    assert found is not None
    assert found.begin == writer.offsets[-2]


@pytest.mark.parametrize(
    "position",
    [
        Position(7, None),
        Position(7),
        Position(700, (Mark(600, 100, "ab"), Mark(8, 91, "cd"))),
        Position(700, (), 3, "why"),
    ],
)
def test_positions_survive_a_checkpoint(position: Position) -> None:
    assert position_from_json(json.loads(json.dumps(position.as_json()))) == position


@pytest.mark.parametrize("content", [{}, {"physical_offset": "7"}, {"physical_offset": 0, "history": {"a": "1:b"}}])
def test_what_is_no_position_is_said(content: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        position_from_json(content)
