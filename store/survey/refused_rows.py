"""`refused` on columns: batches are split at messages at which a broker ends its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rmqctl.formats.message import StoredMessage
from rmqctl.store.columns.batch import ColumnRecord, MessageColumns, NeedsPlain
from rmqctl.store.columns.plain import batch_of
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.survey.refused import refused_span


def may_be_refused(batch: MessageColumns) -> Iterator[tuple[int, StoredMessage]]:
    """Yield row and message of all that could have a number that does not parse: few, if any."""
    suspects = (batch.needs_plain & int(NeedsPlain.INNER_BATCH)) != 0
    schedule = [number for number, name in enumerate(batch.topics.names) if name == SCHEDULE_TOPIC]
    if schedule:
        suspects |= np.isin(batch.topic_id, schedule) & (batch.delay_level == 0)
    for row in np.flatnonzero(suspects).tolist():
        yield row, batch.message(row)


def split_at_refused(records: Iterable[ColumnRecord]) -> Iterator[ColumnRecord]:
    """Yield the records, with refused messages as damage between the batches of the others."""
    for record in records:
        if not isinstance(record, MessageColumns):
            yield record
            continue
        spans = {row: span for row, message in may_be_refused(record) if (span := refused_span(message, record.log))}
        begin = 0
        for row, span in spans.items():
            yield from _between(record, begin, row)
            yield span
            begin = row + 1
        yield from _between(record, begin, record.rows)


def _between(batch: MessageColumns, begin: int, end: int) -> Iterator[MessageColumns]:
    """Yield rows [begin, end) of a batch, unless there are none."""
    if end - begin == batch.rows:
        yield batch
    elif end > begin:
        yield batch_of([batch.message(row) for row in range(begin, end)], batch.log, batch.topics, batch.asked)
