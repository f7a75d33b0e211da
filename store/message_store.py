"""The store as a library: one class that wires the parts together; what it can do is in docs/library.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.files.remote import reachable
from rmqctl.store.methods.changing import OffsetStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rmqctl.formats.hosts import Host
    from rmqctl.formats.message import Message
    from rmqctl.store.clean import CleanOptions, CleanReport
    from rmqctl.store.config.config import StoreConfig
    from rmqctl.store.log.walk import Progress
    from rmqctl.store.queues.consumequeue import QueueKey
    from rmqctl.store.salvage.write import Offsets, SalvageReport
    from rmqctl.store.write.bulk.bulk import ColumnsResult
    from rmqctl.store.write.put import PendingPut, PutResult
    from rmqctl.store.write.writer import StoreWriter

Mode = Literal["r", "rw"]


class MessageStore(OffsetStore):
    """One RocketMQ store, open for reading (`r`) or for reading and writing (`rw`). A context manager.

    `r` opens any store, broken, crashed or in use by a broker, and takes no lock. All looks work on it, and so do the
    changes that mend a store at rest (`recover`, `repair`, `undo` …): each of these takes the lock by itself while it
    lasts, as the verbs of the command line do. `rw` is for messages: it takes the lock until `close`, opens only a
    store that is whole, and refuses those changes. What was put can be read once it is dispatched: see `flush`.
    """

    def __init__(self, files: StoreFiles, writer: StoreWriter | None) -> None:
        """Use `open`."""
        super().__init__(files)
        self._writer = writer
        self._put = None if writer is None else writer.put

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: Mode = "r",
        config: StoreConfig | None = None,
        *,
        create: bool = False,
        full_check: bool = False,
        allocate_ahead: bool = True,
        obey_disk_ratio: bool = False,
        clean_expired: bool = False,
        store_host: Host | None = None,
        clock: Callable[[], int] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """The store at `path`. NotAStoreError, UnreadableError; for `rw` also StoreInUseError, RefusedError,
        UnsupportedError and WriteFailedError (see `write.opening.open_for_writing`): opening never repairs.

        The rest is for `rw`. `create`: make a missing or empty directory a new store. `full_check`: check the CRCs of
        the whole log, not of its last three files. `allocate_ahead`: let a thread create the next commitlog file early.
        `obey_disk_ratio`: refuse puts from diskSpaceWarningLevelRatio on, as a broker does. `clean_expired`: remove
        expired files every cleanResourceInterval (10 s) by the broker's rules, which take young files too from a disk
        that is nearly full; off unless asked for, as a library deletes nothing by itself. `store_host`: what messages
        get as their store host; that of the last message if None, 127.0.0.1:10911 in an empty store. `clock`: ms.
        """
        root = reachable(path)
        if mode == "r":
            return cls(StoreFiles(root, config), None)
        if mode != "rw":
            raise UsageError(f"mode {mode!r} is neither 'r' nor 'rw'")
        from rmqctl.store.write.writer import open_writer

        refuse_server(root)

        writer = open_writer(
            root,
            config,
            create=create,
            full_check=full_check,
            allocate_ahead=allocate_ahead,
            obey_disk_ratio=obey_disk_ratio,
            clean_expired=clean_expired,
            store_host=store_host,
            clock=clock,
            progress=progress,
        )
        return cls(writer.files, writer)

    @staticmethod
    def salvage(
        paths: Sequence[str | os.PathLike[str]],
        target: str | os.PathLike[str],
        *,
        config: StoreConfig | None = None,
        offsets: Offsets = "keep",
        stale: bool = False,
        progress: Progress | None = None,
    ) -> SalvageReport:
        """Put every good message of `paths` (stores, folders, loose files, disk images) into a new store at `target`.

        For what no other change mends; no store has to be there to open. `offsets`: "keep" the queue offsets, or
        "renumber". `stale`: also what an earlier truncation left behind. Errors, and the lost and found beside the new
        store: see rmqctl.store.salvage.salvage.
        """
        from rmqctl.store.salvage.salvage import salvage

        sources = [Path(path) for path in paths]
        return salvage(sources, Path(target), config=config, offsets=offsets, stale=stale, progress=progress)

    # ---- writing

    @property
    def _writing(self) -> StoreWriter:
        if self._writer is None:
            raise RefusedError(
                "the store is open for reading only", file=self.files.root, hint="open it with mode='rw'"
            )
        return self._writer

    def put(self, message: Message, *, as_stored: bool = False) -> PutResult:
        """Put one message; with SYNC_FLUSH it returns when the message is on disk, or after syncFlushTimeout.

        The status says how it ended; nothing of a message that is not stored is ever visible. WriteFailedError for an
        I/O error (a full disk included) and UsageError for values that no frame can hold.

        `as_stored`: a copy of a stored message that keeps its store time and host and its properties byte for byte;
        only what its place in this store decides is made anew: queue and physical offset, and properties with those.
        """
        if as_stored:
            return self._writing.put_copy(message)
        put = self._put or self._writing.put
        return put(message)

    def put_at_once(self, messages: Sequence[Message], *, batch: bool = False) -> PendingPut:
        """Put one message, or with `batch` a classic batch, and answer at once: what waits for the disk with SYNC_FLUSH
        is told when it is there (see `tell_when_on_disk`), so that many puts share one flush. Errors as for `put`."""
        return self._writing.put_at_once(messages, batch)

    def tell_when_on_disk(self, offset: int, told: Callable[[], None]) -> None:
        """Call `told`, in a thread of the store, when everything before the physical offset is on disk; never, if a
        flush failed. For offsets that `put_at_once` gave."""
        self._writing.tell_when_on_disk(offset, told)

    def tell_arrivals(self, told: Callable[[Set[QueueKey]], None]) -> None:
        """Call `told`, in a thread of the store, with the queues (topic, queue id) that got messages, when these can be
        read. One listener; it must not take long, and not raise."""
        self._writing.tell_arrivals(told)

    def put_many(
        self, messages: Sequence[Message], *, batch: bool = False, as_stored: bool = False
    ) -> Sequence[PutResult]:
        """Put messages one after the other, waiting for the disk once; results in their order.

        `batch`: as one classic batch of one topic and queue, in one file, all of them or none. Otherwise an exception
        (see `put`) leaves the messages before it stored; and so does a status that is no judgement on the message, such
        as DISK_FULL: all messages behind it have it too, untried. `PutResult.raise_failure` makes an error of it.
        """
        return self._writing.put_many(messages, as_stored, batch)

    def put_columns(self, batch: RecordBatch, *, as_stored: bool = False) -> ColumnsResult:
        """Put the messages of an Arrow batch one after the other: as if each was put by itself, many times faster.

        The columns are those of `scan` as far as a producer sets them, with `as_stored` store time and host too, of
        which `topic` and `body` must be there. UsageError for other columns and values that no column can hold, before
        anything is stored; else as `put_many`, and no faster where flushes are synchronous or nothing is compiled.
        """
        from rmqctl.store.scan.schema import require_pyarrow

        require_pyarrow()
        return self._writing.put_columns(batch, as_stored)

    def check_message(self, message: Message, *, as_stored: bool = False) -> PutResult | None:
        """How a put of `message` would be refused, None if nothing speaks against it. Stores nothing."""
        return self._writing.check(message, as_stored)

    def check_many(self, messages: Sequence[Message], *, as_stored: bool = False) -> dict[int, str]:
        """Why messages would be refused, by their place in `messages`; {} if nothing speaks against any of them now.

        What `check_message` raises is a reason here. Stores nothing. WriteFailedError where no message is refused, but
        the store takes none.
        """
        return self._writing.check_many(messages, as_stored)

    def check_columns(self, batch: RecordBatch, *, as_stored: bool = False) -> dict[int, str]:
        """The same for the rows of an Arrow batch. UsageError where `put_columns` raises it for the whole batch."""
        from rmqctl.store.scan.schema import require_pyarrow

        require_pyarrow()
        return self._writing.check_columns(batch, as_stored)

    def advance_queue(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Give the next message of a queue this offset, for copies that keep theirs. RefusedError for one that lies
        before the queue's end. Slots that are left out get what a broker writes into them: units that point nowhere.
        """
        self._writing.advance_queue(topic, queue_id, queue_offset)

    def flush(self) -> None:
        """Wait until everything put so far is on disk and can be read by queue and key; raises what went wrong."""
        self._writing.flush()

    def wait_for_dispatch(self) -> None:
        """Wait until everything put so far can be read by queue and key; raises what went wrong."""
        self._writing.wait_for_dispatch()

    def clean(
        self,
        options: CleanOptions | None = None,
        *,
        now: int | None = None,
        change: ChangeOptions = ChangeOptions(),
    ) -> CleanReport:
        """As ChangeableStore.clean, and also while it is open for writing: messages that were put are flushed and
        dispatched first. UsageError for `now` then, as the store has its own clock."""
        if change.confirm is not None or change.journal_in is not None:
            raise UsageError("a cleaning asks nothing and keeps nothing", hint="leave out `confirm` and `journal_in`")
        if self._writer is None:
            return super().clean(options, now=now, change=change)
        if now is not None:
            raise UsageError("a store that is open for writing goes by its own clock", hint="leave out `now`")
        return self._writer.clean(options, change.dry_run)

    @property
    def is_cleaning(self) -> bool:
        """Whether expired files are removed while it is open (`clean_expired`)."""
        return self._writer is not None and self._writer.is_cleaning

    def _files_at_rest(self) -> StoreFiles:
        if self._writer is not None:
            raise RefusedError(
                "the store is open for writing", file=self.files.root, hint="close it, and open it with mode='r'"
            )
        return self.files

    # ---- the end

    def close(self) -> None:
        """Close. After writing: everything is dispatched, flushed and noted in the checkpoint, then `abort` is removed.

        If something of the store failed meanwhile, that is raised here and `abort` stays. Closing again does nothing.
        """
        if self._writer is not None:
            self._writer.close()
        else:
            self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
