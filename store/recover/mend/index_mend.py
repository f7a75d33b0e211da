"""The key index of a store being recovered: is it whole, and if not, new files beside the store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.recover.mend.gone import IsGone
from rmqctl.store.recover.mend.index_build import IndexBuilder
from rmqctl.store.recover.mend.index_compare import EntryComparison, IndexSet, IndexUnsound, TagRule
from rmqctl.store.survey.log_runs import Run

OnRun = Callable[[Run], None]


class IndexRecovery:
    """Learns the keys of the log run by run.

    Where there is no index, new files are written at once. Where there is one it is compared, and only if it is not
    as it should be the log is read a second time. `directory` is where new files go, None to write none. Runs come with
    the keys of tags, for which `tags` is the rule.
    """

    def __init__(
        self,
        service: IndexService,
        descriptors: Descriptors,
        is_gone: IsGone,
        directory: Callable[[], Path] | None,
        is_wanted: bool,
        tags: TagRule,
    ) -> None:
        self._service = service
        self._descriptors = descriptors
        self._is_gone = is_gone
        self._directory = directory
        self._is_wanted = is_wanted
        self._tags = tags
        self._comparison = EntryComparison(service, descriptors, is_gone)
        is_there = bool(service.files) and not service.problems
        self._builder = IndexBuilder(service.geometry, directory if is_wanted and not is_there else None)
        self.staged: list[Path] = []

    @property
    def geometry(self) -> Geometry:
        """Of the files that the keys fill."""
        return self._builder.geometry

    @property
    def names(self) -> list[str]:
        """Of the files that the keys fill, whether they are made or not."""
        return self._builder.names

    @property
    def full_file_end_timestamp(self) -> int:
        """Store time of the last entry of the last full file (checkpoint index_msg_timestamp), 0 if none is full."""
        return self._builder.full_file_end_timestamp

    def add(self, run: Run) -> None:
        """The log holds this run."""
        if self._is_wanted:
            self._comparison.add(self._tags.implied(run), run.end)
        self._builder.add(*run.keys(with_tags=self._tags.are_written))

    def finish(self, read_again: Callable[[OnRun], None]) -> bool:
        """Whether the index is whole; if not, `staged` has new files. `read_again` gives the runs once more."""
        if not self._is_wanted:
            return True
        comparison = self._comparison
        comparison.finish()
        self.staged = self._builder.finish()
        if comparison.is_same:
            return True
        if not self._service.files or self._service.problems:
            return False
        return self._look_closely(read_again)

    def _look_closely(self, read_again: Callable[[OnRun], None]) -> bool:
        """Compare as sets, and write new files on the way: most likely they are needed."""
        entries: IndexSet | None = None
        if not self._comparison.is_broken:
            with contextlib.suppress(IndexUnsound):
                entries = IndexSet(self._service, self._descriptors, self._is_gone)
        if entries is None and self._directory is None:
            return False
        builder = IndexBuilder(self._service.geometry, self._directory)

        def on_run(run: Run) -> None:
            if entries is not None:
                entries.add(self._tags.implied(run))
            builder.add(*run.keys(with_tags=self._tags.are_written))

        try:
            read_again(on_run)
            self.staged = builder.finish()
        finally:
            builder.close()
        if entries is not None:
            entries.finish()
            if entries.is_same:
                for path in self.staged:
                    io.remove(path)
                self.staged = []
                return True
        return False

    def discard(self) -> None:
        """Give up what was written while runs were added."""
        for path in self._builder.finish():
            io.remove(path)

    def close(self) -> None:
        """Give up what is not complete."""
        self._builder.close()
