"""Why rows could not be stored, before any of them is: single messages are looked at only where they may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.store.columns.frame_columns import Frame
from rmqctl.store.write.bulk.bulk_rows import BulkRows
from rmqctl.store.write.result import PutResult

Check = Callable[[Message], PutResult | None]
"""How a put would be refused; None if nothing speaks against it. (MessageStore.check_message)"""


def refused_rows(rows: BulkRows, check: Check) -> dict[int, str]:
    """Why rows of `rows`, which are judged, would be refused; rows that would be stored are not in it.
    WriteFailedError where the store takes none at all now.

    What a store asks of a usual row it asks of its topic: one row speaks for all usual ones of that topic. What it
    asks of numbers and sizes is looked at in `BulkRows.judge`, which is the plain twin's work for the rest.
    """
    usual = np.flatnonzero(rows.usual)
    topics = rows.columns[Frame.TOPIC, usual]
    _, firsts = np.unique(topics, return_index=True)
    refused = refused_messages(usual[firsts].tolist(), rows.message, check)
    for row, why in list(refused.items()):
        refused.update(dict.fromkeys(usual[topics == rows.columns[Frame.TOPIC, row]].tolist(), why))
    refused.update(refused_messages(np.flatnonzero(~rows.usual).tolist(), rows.message, check))
    return dict(sorted(refused.items()))


def refused_messages(numbers: Iterable[int], message: Callable[[int], Message], check: Check) -> dict[int, str]:
    """The plain twin: each message by itself."""
    refused: dict[int, str] = {}
    for number in numbers:
        try:
            answer = check(message(number))
        except UsageError as error:
            refused[number] = error.message
            continue
        if answer is not None:
            answer.raise_failure()
            refused[number] = f"{answer.status}: {answer.detail}"
    return refused
