"""The position of a stream, as Spark keeps it in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.source.history import Mark, marks_as_json, marks_from_json

_OFFSET, _BEGIN, _HISTORY, _NOTICE = "physical_offset", "begin", "history", "notice"


class Position(NamedTuple):
    """All messages that begin before `physical_offset` have been read.

    `marks`: frames before it, the last one first (see `history`); None in an offset of older checkpoints, which say
    nothing of them. Where the micro-batch up to this position did not begin where the one before had ended, `begin` is
    where it did, and `notice` says why.
    """

    physical_offset: int
    marks: tuple[Mark, ...] | None = ()
    begin: int | None = None
    notice: str | None = None

    @property
    def next_offset(self) -> int:
        """Where reading goes on. Behind the last message and not at the position, where a blank frame or damage lies
        between: a broker that starts may put messages there."""
        return min(self.physical_offset, self.marks[0].end) if self.marks else self.physical_offset

    def as_json(self) -> dict[str, Any]:
        """What Spark is given."""
        content: dict[str, Any] = {_OFFSET: self.physical_offset}
        if self.begin is not None:
            content[_BEGIN] = self.begin
        if self.notice is not None:
            content[_NOTICE] = self.notice
        if self.marks is not None:
            content[_HISTORY] = marks_as_json(self.marks)
        return content


def position_from_json(content: Mapping[str, Any]) -> Position:
    """What Spark gives back; UsageError where it is of another source."""
    offset, begin = content.get(_OFFSET), content.get(_BEGIN)
    if type(offset) is not int or not (begin is None or type(begin) is int):
        raise UsageError(
            f"the checkpoint holds {dict(content)!r}, which is no position in a commitlog",
            hint="give the query a checkpoint of its own",
        )
    marks = marks_from_json(content[_HISTORY]) if _HISTORY in content else None
    return Position(offset, marks, begin, content.get(_NOTICE))
