"""What can be asked of the messages of a store, one by one and many: the half of ReadableStore that reads the log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rmqctl.store.commitlog.walk import Progress
    from rmqctl.store.export.export import ExportReport, Target
    from rmqctl.store.export.selected import LinesOfColumns
    from rmqctl.store.export.writers import Compression
    from rmqctl.store.queues.offset_by_time import Boundary
    from rmqctl.store.read.get import GetResult
    from rmqctl.store.read.key_query import QueryResult
    from rmqctl.store.read.lookup import FindResult
    from rmqctl.store.read.message_filter import Criteria
    from rmqctl.store.read.selection import OnDamage, Order, Selection

_START_OF_TIME, _END_OF_TIME = -(1 << 63), (1 << 63) - 1


class ReadableMessages:
    """Looks at messages. Times are in ms since 1970, sizes and physical offsets in bytes; see ReadableStore."""

    def __init__(self, files: StoreFiles) -> None:
        self.files = files
        self.reader = StoreReader(files)

    def _files_at_rest(self) -> StoreFiles:
        """The files, for what must not happen while this process writes to them."""
        return self.files

    # ---- single messages

    def get(self, topic: str, queue_id: int, offset: int, limit: int = 32, tags: str | None = None) -> GetResult:
        """Messages of a queue from queue offset `offset` on, with RocketMQ's status and the next offset; see
        StoreReader.get. UnsupportedError for queues in a RocksDB, UsageError for malformed `tags`."""
        return self.reader.get(topic, queue_id, offset, limit, tags)

    def query(
        self,
        topic: str,
        key: str,
        begin: int = _START_OF_TIME,
        end: int = _END_OF_TIME,
        limit: int = 32,
        *,
        tags: str | None = None,
        grep: str | None = None,
        index_type: str = "K",
        scan: bool = False,
        progress: Progress | None = None,
    ) -> QueryResult:
        """Messages with a key, stored between `begin` and `end` (ms), newest first. `tags` ('TagA || TagB') and `grep`,
        a regular expression, choose among them as in Criteria. What stood in the way of a complete answer is in
        `damaged`. `index_type` "T": messages whose TAGS value is `key` instead. With `scan` the commitlog is searched
        where the index does not reach or is damaged; without it NotIndexedError if there is no index."""
        return self.reader.query(
            topic, key, begin, end, limit, tags=tags, grep=grep, index_type=index_type, scan=scan, progress=progress
        )

    def lookup(self, message_id: str) -> StoredMessage:
        """The message that a broker's offset id names; NotFoundError, CorruptError, UsageError."""
        from rmqctl.store.read.lookup import lookup_offset_id

        return lookup_offset_id(self.files, message_id)

    def message_at(self, physical_offset: int) -> StoredMessage:
        """The message whose frame begins exactly there; NotFoundError or CorruptError say what stands there instead."""
        return self.reader.lookup(physical_offset)

    def find(
        self, text: str, topic: str | None = None, *, scan: bool = False, progress: Progress | None = None
    ) -> FindResult:
        """The messages that some id means: a broker's offset id, else a unique key. NotFoundError, CorruptError;
        NotIndexedError without an index unless `scan` lets the commitlog be searched."""
        return self.reader.find(text, topic, scan=scan, progress=progress)

    def offset_at(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = "lower") -> int:
        """Queue offset for a time in ms: the first message at or after it (`lower`), or the last one at or before it
        (`upper`). NotFoundError for a queue that does not exist."""
        return self.reader.offset_at(topic, queue_id, timestamp, boundary)

    # ---- many messages

    def messages(
        self,
        criteria: Criteria | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        order: Order = "log",
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Iterator[StoredMessage]:
        """Messages one by one, in order of the log or queue by queue: what `cat` prints.

        `begin` and `end` (not included) are physical offsets in order of the log, queue offsets in order of the queues.
        Damage is told to `on_damage` and passed; without it the first is raised in its place (CorruptError). `tell`
        gets a sentence for messages that a cleaner removes before they are read; without it the logger `rmqctl.store`
        gets a warning. In order of the queues NotFoundError for an unknown topic or queue, UnsupportedError for queues
        in a RocksDB.
        """
        return self.reader.messages(
            _selection(criteria, begin, end), order, on_damage=on_damage or raised, progress=progress, tell=tell
        )

    def last_messages(
        self,
        count: int,
        criteria: Criteria | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        order: Order = "log",
        on_damage: OnDamage | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> list[StoredMessage]:
        """Return the last `count` of `messages`, in the same order. Only the end of the log or of the queues is read,
        as far as needed. Damage there, what a cleaner removed before it was read, and errors are reported as by
        `messages`."""
        selection = _selection(criteria, begin, end)
        return self.reader.last_messages(selection, count, order, on_damage=on_damage or raised, tell=tell)

    def follow(
        self,
        criteria: Criteria | None = None,
        begin: int | None = None,
        *,
        on_damage: OnDamage | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Generator[list[StoredMessage], None, None]:
        """Messages as another process stores them, in lists as they come, without end: `cat --follow`.

        Each comes once, from physical offset `begin` on, else from now on, also where files roll, are removed or their
        broker restarts. `tell` gets a sentence where messages went unread or the log was cut back. RefusedError where
        this process writes to the store; NotAStoreError once it is gone.
        """
        from rmqctl.store.follow.follow import follow

        refuse_server(self._files_at_rest().root)
        return follow(self.reader, _selection(criteria, 0, None).criteria, begin, on_damage or raised, tell or silent)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        criteria: Criteria | None = None,
        views: bool = True,
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Generator[RecordBatch, None, None]:
        """Messages in the order they were stored as pyarrow.RecordBatch, with these columns (None: all, see
        rmqctl.store.scan.schema), of physical offsets [begin, end). A column that is not asked for costs nothing.

        `criteria`: only messages that meet them. `views`: bodies as `binary_view` over the memory they were read
        into; else as `binary`. Damage is told to `on_damage` and passed; without it the first is raised in its place.
        `tell` as for `messages`. UnsupportedError without pyarrow, UsageError for a name of no column.
        """
        from rmqctl.store.scan.scan import Scan

        scan = Scan(self.files.log, columns, begin, end, criteria=criteria, views=views)
        return scan.batches(on_damage, progress, tell)

    def export(
        self,
        target: str | os.PathLike[str] | Target,
        criteria: Criteria | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        compression: Compression = "zstd",
        lines: LinesOfColumns | None = None,
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
    ) -> ExportReport:
        """Write messages of physical offsets [begin, end) into a file that appears when it is complete.

        The ending of a path says the format; a `Target` says it itself, and may be a directory by topic and day.
        Parquet and Arrow take `columns`; CSV and JSON Lines are made by `lines`
        (rmqctl.messages.message_lines.MessageLines). Errors: see rmqctl.store.export.selected.export_selected.
        """
        from rmqctl.store.export.export import Target, format_of
        from rmqctl.store.export.selected import export_selected

        if not isinstance(target, Target):
            target = Target(Path(target), format_of(Path(target)))
        selection = _selection(criteria, begin, end)
        return export_selected(
            self.files, target, selection, columns, compression, lines, on_damage=on_damage, progress=progress
        )


def _selection(criteria: Criteria | None, begin: int, end: int | None) -> Selection:
    from rmqctl.store.read.message_filter import Criteria
    from rmqctl.store.read.selection import Selection

    return Selection(criteria or Criteria(), begin, end)


def now_ms() -> int:
    """The clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


def silent(_: str) -> None:
    """Nobody asked to be told."""


def raised(error: Exception) -> None:
    """What is done about damage that nobody wants to be told."""
    raise error
