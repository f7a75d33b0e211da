"""Gives unique ids to the new messages among pieces, whether these are messages or columns."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError
from rmqctl.messages.piece import MessagePiece
from rmqctl.network.unique_ids import NextId, UniqueIds

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.columns.batch import Flags


def identified(pieces: Iterable[MessagePiece], ids: UniqueIds) -> Iterator[MessagePiece]:
    """The pieces one after the other. New messages have ids as `UniqueIds.given_to` gives them, in their order."""
    return (_identified(piece, ids) for piece in pieces)


def _identified(piece: MessagePiece, ids: UniqueIds) -> MessagePiece:
    if not any(piece.new):
        return piece
    if isinstance(piece.content, list):
        new = set(compress(range(len(piece.content)), piece.new))
        messages = [ids.given_to(one) if place in new else one for place, one in enumerate(piece.content)]
        return piece._replace(content=messages, new=())
    before = ids.place
    try:
        content = _with_ids(piece.content, piece.new, ids)
    except UsageError:
        if piece.plain is None:
            raise
        return _identified(piece.plain(), ids)
    return piece._replace(content=content, plain=functools.partial(_once_more, piece, ids, before, ids.place), new=())


def _once_more(piece: MessagePiece, ids: UniqueIds, before: NextId, behind: NextId) -> MessagePiece:
    """The messages of columns with the ids that the columns have, unless others got ids since."""
    if ids.place == behind:
        ids.place = before
    return _identified(piece.plain(), ids) if piece.plain is not None else piece


def _with_ids(batch: pa.RecordBatch, new: Sequence[bool] | Flags, ids: UniqueIds) -> pa.RecordBatch:
    """UsageError for columns of properties that are not as they must be."""
    from rmqctl.store.scan.arrays import fixed_texts
    from rmqctl.store.write.bulk.arrow_added import lacking, with_property

    needing = new & lacking(batch, names.UNIQUE_KEY)
    return with_property(batch, needing, names.UNIQUE_KEY, lambda count: fixed_texts(ids.take(count)))
