"""Dispatches what was appended as columns: whole runs of queue units and index entries instead of single messages.

The plain twin is `Follower._dispatch`. Importing this module imports numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.hashing import key_hash
from rmqctl.formats.message import StoredMessage
from rmqctl.store.columns.engine import engine
from rmqctl.store.columns.walk import walk_columns
from rmqctl.store.commitlog.walk import Blank, Damage, Empty
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Digest, Run, route
from rmqctl.store.write.dispatch.index_batches import IndexBatches, NewEntries
from rmqctl.store.write.dispatch.queue_appender import QueueAppender

# what was just written is not checked against its CRC again
_NO_CRC = 1 << 62


class Reached(NamedTuple):
    """How far the dispatch is, and how many messages further: physical offsets (-1: no message), times in ms (0: none).

    `index_timestamp`: of the last entry of an index file that became full.
    """

    position: int
    last_offset: int = -1
    last_timestamp: int = 0
    index_timestamp: int = 0
    messages: int = 0


class ColumnDispatch:
    """Used by the follower's thread only."""

    def __init__(self, files: StoreFiles, queues: QueueAppender) -> None:
        config = files.config
        self._files = files
        self._queues = queues
        self._delay_levels = config.delay_levels_to_write()
        keys = config.writes_index_files
        self._digest = Digest(self._delay_levels, keys=keys, tags=keys and files.has_tag_entries, refuses=False)
        self._index = IndexBatches(files.index)

    @staticmethod
    def is_compiled(*, is_waited_for: bool = True) -> bool:
        """Whether columns are faster here than messages. See `engine`."""
        return engine(is_waited_for=is_waited_for).walk_window is not None

    def dispatch(self, begin: int, end: int) -> Iterator[Reached]:
        """Dispatch the records that start in [begin, end), all of them readable; CorruptError where none is."""
        log, digest = self._files.log, self._digest
        records = walk_columns(log, begin, end, crc_from=_NO_CRC, columns=digest.columns, topics=digest.topics)
        for record in digest.runs(records):
            if isinstance(record, Run):
                yield self._dispatch_run(record)
            elif isinstance(record, Blank):
                yield Reached(record.end)
            else:
                raise _damaged(record)

    def _dispatch_run(self, run: Run) -> Reached:
        route(run, self._files.log, self._delay_levels, self._queues)
        entries = NewEntries(run.key_hashes, run.key_offsets, run.key_timestamps)
        full_timestamp = self._index.put(entries)
        return Reached(run.end, run.last_message_offset, run.last_store_timestamp, full_timestamp, run.messages)

    def put_keys(self, keys: Sequence[tuple[StoredMessage, str]]) -> int:
        """Add index entries of messages; the store time (ms) of the last message that filled a file, 0 if none did."""
        hashes = np.array([key_hash(message.topic, key) for message, key in keys], np.int32)
        offsets = np.array([message.physical_offset for message, _ in keys], np.int64)
        timestamps = np.array([message.store_timestamp for message, _ in keys], np.int64)
        return self._index.put(NewEntries(hashes, offsets, timestamps))

    def close(self) -> None:
        """Let go of the index file that entries were put to."""
        self._index.close()


def _damaged(record: Empty | Damage) -> CorruptError:
    detail = record.detail if isinstance(record, Damage) else "there are zeros"
    return CorruptError(
        f"what was just appended reads back damaged: {detail}",
        physical_offset=record.physical_offset,
        hint="another process or the disk has changed the file; run `rmqctl recover`",
    )
