"""Some messages of what `append --from` reads, on their way into the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.formats.message import Message
    from rmqctl.store.columns.batch import Flags

PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
"""What tables begin with."""


class MessagePiece(NamedTuple):
    """Some items of a source that follow one another: as messages, or still as the columns of a table.

    `numbers`: from 1, one for each item that is in here; `bytes`: what was read for them. `errors`: what is wrong with
    items that could not be read, by their numbers. `plain`: of columns, all the piece was made of once more, as
    messages, which takes longer and can say what is wrong with which of them. `new`: by item whether it describes a
    message that was never stored, which gets a unique id; empty once that is done.
    """

    numbers: Sequence[int]
    bytes: int
    content: list[Message] | pa.RecordBatch
    errors: dict[int, str]
    plain: Callable[[], MessagePiece] | None = None
    new: Sequence[bool] | Flags = ()

    def without(self, places: dict[int, str]) -> MessagePiece:
        """The piece without what stands at these places, which become errors."""
        if not places:
            return self
        left = [place for place in range(len(self.numbers)) if place not in places]
        errors = self.errors | {self.numbers[place]: why for place, why in places.items()}
        content: list[Message] | pa.RecordBatch
        if isinstance(self.content, list):
            content = [self.content[place] for place in left]
        else:
            import numpy as np

            content = self.content.take(np.array(left, np.int64))  # of an empty list Arrow knows no type
        return MessagePiece([self.numbers[place] for place in left], self.bytes, content, errors)
