"""How a check walks the log and feeds its cross checks: in this process, or however a caller does it instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from rmqctl.store.check.cross import CrossCheck, Level
from rmqctl.store.check.index.index import IndexCheck
from rmqctl.store.check.log.log_walk import Walked, walk_range
from rmqctl.store.check.queues.queues import QueueCheck
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.queues.queue_table import has_rocksdb_queues
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Digest


class WalkOrder(NamedTuple):
    """What is the same for all stretches of a pass.

    `digest` numbers the topics. `is_full`: as at Level.FULL. `doubtful_from`: see `survey/settling.py`. `progress` is
    told the bytes passed.
    """

    digest: Digest
    is_full: bool
    doubtful_from: int
    progress: Progress | None


class Walker(Protocol):
    """What a pass over a store asks for. First `cross_checks`, then `walk` for each stretch, in order."""

    def cross_checks(self, files: StoreFiles, level: Level, is_live: bool) -> list[CrossCheck]:
        """The cross checks, which understand the runs that `walk` gives."""

    def walk(self, files: StoreFiles, begin: int, end: int, order: WalkOrder) -> Iterator[Walked]:
        """[begin, end) of the log in pieces, in order; `begin` is where a frame starts.

        Runs of several files may be told as one where they have nothing but blanks between them, no message is older
        than the one before it, and all of them begin before `order.doubtful_from`.
        """


class InProcess:
    """The walk over both cores of this machine, each run compared as it comes."""

    def cross_checks(self, files: StoreFiles, level: Level, is_live: bool) -> list[CrossCheck]:
        """See Walker."""
        checks: list[CrossCheck] = [IndexCheck(files, is_live=is_live)]
        if files.dledger is not None:
            return []  # units and entries lead into a log that is not read
        if not has_rocksdb_queues(files.layout):
            checks.insert(0, QueueCheck(files))
        return checks

    def walk(self, files: StoreFiles, begin: int, end: int, order: WalkOrder) -> Iterator[Walked]:
        """See Walker."""
        return walk_range(files.log, begin, end, order.digest, is_full=order.is_full, progress=order.progress)
