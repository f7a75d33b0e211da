"""What can be asked of a store, whole or broken, without changing a byte of it: the looking half of MessageStore."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.store.methods.answers import AnsweringStore

if TYPE_CHECKING:
    from rmqctl.store.check.check import CheckRun
    from rmqctl.store.check.cross import Level
    from rmqctl.store.check.ranges import Subset
    from rmqctl.store.commitlog.walk import Progress
    from rmqctl.store.dump.items import DumpItem
    from rmqctl.store.dump.recognise import FileKind
    from rmqctl.store.files.sparse_copy import Sharing
    from rmqctl.store.info.size_history import SizeHistory
    from rmqctl.store.info.usage import StoreUsage
    from rmqctl.store.journal.log import Change
    from rmqctl.store.predict import Prediction
    from rmqctl.store.predict.compatibility import VersionDifference
    from rmqctl.store.snapshot.preflight import Preflight
    from rmqctl.store.snapshot.snapshot import SnapshotReport, VerifyReport

_END_OF_TIME = (1 << 63) - 1


class ReadableStore(AnsweringStore):
    """The looks at a store. Times are in ms since 1970, sizes and physical offsets in bytes.

    Any of them raises UnreadableError for a file that cannot be read. `progress`, where a look takes it, is told the
    bytes passed, again and again.
    """

    # ---- the store itself

    def info(self, *, walk_log: bool = True, progress: Progress | None = None) -> dict[str, Any]:
        """The store at a glance: the object that `rmqctl info --json` prints. Without `walk_log` the commitlog is not
        read, and what only that tells is None."""
        from rmqctl.store.clean.writes import judge_writes
        from rmqctl.store.info.summary import info

        row = info(self.files, walk_log=walk_log, progress=progress)
        writes = judge_writes(self.files)
        return row | {"writes": writes._asdict() | {"causes": [cause._asdict() for cause in writes.causes]}}

    def topics(self, topic: str | None = None, *, progress: Progress | None = None) -> Iterator[dict[str, Any]]:
        """Topics with the sums over their queues, as rows of `rmqctl ls --json`; counted from the commitlog, as
        `source` says, where `has_queue_files` is false. NotFoundError for an unknown topic."""
        from rmqctl.store.info.summary import topic_rows, topic_rows_from_log

        if self.has_queue_files() or not self.files.log.files:
            return topic_rows(self.reader, topic)
        return topic_rows_from_log(self.files, topic, progress)

    def has_queue_files(self) -> bool:
        """Whether there are consume queues that can be read: neither lost nor in a RocksDB."""
        from rmqctl.store.info.summary import has_queue_files

        return has_queue_files(self.files)

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> Iterator[dict[str, Any]]:
        """Queues with their offsets, as rows of `rmqctl ls --queues --json`. NotFoundError for an unknown topic or
        queue, UnsupportedError for queues in a RocksDB."""
        from rmqctl.store.info.summary import queue_rows

        return queue_rows(self.reader, topic, queue_id)

    def list_files(self) -> Iterator[dict[str, Any]]:
        """Every file by what it is, as rows of `rmqctl ls --files --json`. RefusedError while it is open for writing:
        to look into `lock` would give the lock away."""
        from rmqctl.store.info.summary import file_rows

        return file_rows(self._files_at_rest())

    def disk_usage(self, *, quick: bool = False, progress: Progress | None = None) -> StoreUsage:
        """Topics by size, and the files of log, queues, index and the rest, as `rmqctl du` shows them. With `quick` the
        log is not read: sizes by the units of the queues, UnsupportedError where they are in a RocksDB."""
        from rmqctl.store.info.usage import disk_usage

        return disk_usage(self.reader, quick=quick, progress=progress)

    def size_history(self) -> SizeHistory:
        """By day: files begun, bytes cleaned, bytes that changes keep, as `rmqctl du --history` shows them."""
        from rmqctl.store.info.size_history import size_history

        return size_history(self.files)

    def check(
        self,
        level: Level | str = "default",
        *,
        subset: Subset | None = None,
        max_duration: float | None = None,
        resume: Path | None = None,
        fail_fast: bool = False,
        progress: Progress | None = None,
    ) -> CheckRun:
        """Everything that is wrong with the store: iterate over the findings, then look at the `summary`.

        `level`: quick, default or full. `subset`: only this share of the commitlog's files. `max_duration` (s): stop at
        the end of a file once it is over. `resume`: a file outside of the store that keeps how far the last check came.
        `fail_fast`: stop at the first error or warning. Another process may write to the store meanwhile; RefusedError
        where this one does.
        """
        from rmqctl.store.check.check import check

        return check(
            self._files_at_rest(),
            level,
            subset=subset,
            max_duration=max_duration,
            resume=resume,
            fail_fast=fail_fast,
            progress=progress,
        )

    def predict(self, broker: str = "5.3.3", *, progress: Progress | None = None) -> Prediction:
        """What the next start of that broker ("4.9.8" or "5.3.3") will do to the store, without doing it. UsageError
        for another version; UnsupportedError for queues in a RocksDB and settings with which a start goes by other
        rules; RefusedError while it is open for writing."""
        from rmqctl.store.predict import predict

        return predict(self._files_at_rest(), broker, progress=progress)

    def preflight(self, target: str | os.PathLike[str], properties: Mapping[str, str] | None = None) -> Preflight:
        """Return what a copy to the new directory `target` takes and what stands in its way. `properties`: of the
        broker.conf. RefusedError for a target that is there or is in a store."""
        from rmqctl.store.snapshot.preflight import preflight

        return preflight(self.files, Path(target), properties)

    def differences(self, version: str) -> list[VersionDifference]:
        """Return what RocketMQ `version` ("4.9.8", "5.3.3" or "5.5.0") does otherwise with this store. UsageError for
        another version."""
        from rmqctl.store.predict.compatibility import differences

        return differences(self.files, version)

    def probable_version(self) -> str:
        """Return the version that the files of the store come from, as far as they show it."""
        from rmqctl.store.predict.compatibility import probable_version

        return probable_version(self.files)

    def snapshot(
        self,
        target: str | os.PathLike[str],
        *,
        sharing: Sharing | str = "auto",
        hard_links: bool = False,
        progress: Progress | None = None,
    ) -> SnapshotReport:
        """Copy the store to the new directory `target`, with a manifest; also while another process writes to it.

        `sharing`: share blocks with the store where the file system can ("auto"), "always" or "never". `hard_links`:
        give full commitlog files a second name. RefusedError for a target that is there or lies in a store, and while
        this process writes; UnreadableError, WriteFailedError; then nothing is left behind.
        """
        from rmqctl.store.files.sparse_copy import Sharing
        from rmqctl.store.installed import version
        from rmqctl.store.snapshot.snapshot import take_snapshot

        return take_snapshot(
            self._files_at_rest(),
            Path(target),
            version(),
            sharing=Sharing(sharing),
            hard_links=hard_links,
            progress=progress,
        )

    @staticmethod
    def verify_snapshot(target: str | os.PathLike[str], *, progress: Progress | None = None) -> VerifyReport:
        """Hold a snapshot against its manifest; only looks. NotAStoreError where there is none, CorruptError where the
        manifest itself is not as it was written."""
        from rmqctl.store.snapshot.snapshot import verify_snapshot

        return verify_snapshot(Path(target), progress)

    @staticmethod
    def dump(path: str | os.PathLike[str], *, at: int = 0, raw: bool = False) -> tuple[FileKind, Iterator[DumpItem]]:
        """What kind of file it is, and its structures from byte `at` on, field by field; it may lie anywhere.

        `raw`: its bytes alone. UnsupportedError for a file that is only recognised, UnreadableError, StoreInUseError
        for the `lock` of a store that this process writes to: to look into it would give the lock away.
        """
        from rmqctl.store.dump.dump_file import dump_file
        from rmqctl.store.files.lock import refuse_own_lock
        from rmqctl.store.remote.address import reachable_loose

        found = reachable_loose(path)
        refuse_own_lock(found)
        return dump_file(found, at=at, raw=raw)

    # ---- the changes made to it

    def changes(self) -> list[Change]:
        """The changes made to the store by rmqctl, the oldest first. CorruptError where their history is damaged."""
        from rmqctl.store.journal.log import changes

        return changes(self.files.layout)

    def find_change(self, change_id: str) -> Change:
        """The change whose id is or begins with `change_id`. NotFoundError; RefusedError where several do."""
        from rmqctl.store.journal.log import find_change

        return find_change(self.files.layout, change_id)

    def last_change(self) -> Change | None:
        """The last change that stands, which is what `undo` takes back; None if there is none."""
        from rmqctl.store.journal.log import last_standing

        return last_standing(self.files.layout)
