"""How a put of rows ended: columns of offsets, and single results only for those that are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np

from rmqctl.formats.hosts import Host
from rmqctl.store.columns.batch import Int64s
from rmqctl.store.columns.frame_columns import HOST_TABLE
from rmqctl.store.write.result import STORED, PutResult


class CopiedHosts(NamedTuple):
    """Store hosts that messages brought along: by row a place in `packed`, where that of HOST_TABLE is the store's."""

    numbers: Int64s
    packed: list[bytes]

    def host(self, row: int) -> Host | None:
        """That of a row; None for the store's own."""
        number = int(self.numbers[row])
        one = self.packed[number]
        return Host(one[:4], int.from_bytes(one[4:], "big", signed=True)) if number > HOST_TABLE else None


class ColumnsResult(NamedTuple):
    """How a put of rows ended. -1 stands in both columns of offsets where a row is not stored; `refused` says why.

    `answers`: by row, those of messages that took the slow path. `copied_hosts`: of copies.
    """

    queue_offset: Int64s
    physical_offset: Int64s
    answers: dict[int, PutResult]
    copied_hosts: CopiedHosts | None = None

    @classmethod
    def of(cls, rows: int, copied_hosts: CopiedHosts | None = None) -> ColumnsResult:
        """That of `rows` rows none of which is stored yet."""
        return cls(np.full(rows, -1, np.int64), np.full(rows, -1, np.int64), {}, copied_hosts)

    @property
    def refused(self) -> dict[int, PutResult]:
        """Why rows are not stored."""
        return {row: answer for row, answer in self.answers.items() if not answer.status.is_stored}

    @property
    def stored(self) -> int:
        """Rows that are in the log."""
        return int(np.count_nonzero(self.physical_offset >= 0))

    @property
    def first_physical_offset(self) -> int | None:
        """Where the first stored row stands; None if there is none."""
        offsets = self.physical_offset[self.physical_offset >= 0]
        return int(offsets[0]) if len(offsets) else None

    def note(self, row: int, answer: PutResult) -> None:
        """A row was put as a message, and this is how it ended."""
        self.answers[row] = answer
        if answer.physical_offset is not None and answer.queue_offset is not None:
            self.physical_offset[row], self.queue_offset[row] = answer.physical_offset, answer.queue_offset

    def give_up(self, row: int, answer: PutResult) -> None:
        """The store could not take a row: it and all behind it are not stored, for this reason."""
        self.answers.update(dict.fromkeys(range(row, len(self.physical_offset)), answer))

    def results(self, store_host: Host) -> Sequence[PutResult]:
        """The same as one result for each row."""
        return _Results(self, store_host)


class _Results(Sequence[PutResult]):
    """Results are made when they are looked at: most callers look at few of many."""

    def __init__(self, found: ColumnsResult, store_host: Host) -> None:
        self._found = found
        self._store_host = store_host

    def __len__(self) -> int:
        return len(self._found.physical_offset)

    def _one(self, row: int) -> PutResult:
        answer = self._found.answers.get(row)
        if answer is not None:
            return answer
        queue_offset, physical_offset = int(self._found.queue_offset[row]), int(self._found.physical_offset[row])
        copied = self._found.copied_hosts
        host = None if copied is None else copied.host(row)
        return PutResult(STORED, queue_offset, physical_offset, "", host or self._store_host)

    @overload
    def __getitem__(self, index: int) -> PutResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[PutResult]: ...

    def __getitem__(self, index: int | slice) -> PutResult | list[PutResult]:
        rows = range(len(self))[index]
        return self._one(rows) if isinstance(rows, int) else [self._one(row) for row in rows]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's
