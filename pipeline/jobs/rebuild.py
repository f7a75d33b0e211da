"""Makes queues and index anew by tasks: one pass over the log, one over what it implies, then a swap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rmqctl.formats.errors import NotFoundError
from rmqctl.pipeline.engine.engine import Engine
from rmqctl.pipeline.engine.scratch import scratch_folder
from rmqctl.pipeline.engine.shuffle import ShuffleReader
from rmqctl.pipeline.jobs.rebuild_parts import (
    Implied,
    KeyRange,
    Keys,
    MadeQueue,
    Passed,
    RebuildOrder,
    imply,
    write_index,
    write_queues,
)
from rmqctl.pipeline.splits.over_splits import run_over_splits
from rmqctl.pipeline.splits.splits import SPLIT_SIZE
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files import io
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_service import index_file_name_after
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.plan import Agree, Install, Plan
from rmqctl.store.queues.batch_consumequeue import BatchConsumeQueue
from rmqctl.store.recover.mend.queue_files import plan_empty_ext
from rmqctl.store.recover.rebuild import RebuildReport, plan_gone_queues, plan_index, queue_root
from rmqctl.store.recover.rebuild import rebuild as rebuild_in_process
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_survey import new_survey

# bytes of the log for each bucket of queues: what one task of the second pass writes
_BUCKET = 256 * 1024 * 1024
_MOST_BUCKETS = 1024


def rebuild_with(
    engine: Engine,
    files: StoreFiles,
    *,
    queues: bool = True,
    index: bool = True,
    topics: list[str] | None = None,
    dry_run: bool = False,
    keeps: bool = True,
    arguments: list[str] | None = None,
    journal_in: Path | None = None,
    split_size: int = SPLIT_SIZE,
    progress: Progress | None = None,
    agree: Agree | None = None,
) -> RebuildReport:
    """The `rebuild` of store/recover with the work done by tasks: the same arguments, errors, journal and bytes.

    What is staged lies beside the store, in a folder that all machines have to see. A dry run is done in this process.
    """
    work = _Rebuild(engine, split_size)
    return rebuild_in_process(
        files,
        queues=queues,
        index=index,
        topics=topics,
        dry_run=dry_run,
        keeps=keeps,
        arguments=arguments,
        journal_in=journal_in,
        progress=progress,
        agree=agree,
        work=work,
    )


class _Rebuild:
    """The work of a rebuild, see rmqctl.store.recover.rebuild.RebuildWork."""

    def __init__(self, engine: Engine, split_size: int) -> None:
        self._engine = engine
        self._split_size = split_size

    def __call__(
        self,
        files: StoreFiles,
        journal: Journal,
        plan: Plan,
        with_queues: bool,
        with_index: bool,
        topics: list[str] | None,
        progress: Progress | None,
    ) -> RebuildReport:
        report = RebuildReport()
        with scratch_folder(journal.folder / "scratch") as scratch:
            order = _order(files, with_queues, with_index, topics, scratch)
            results = self._imply(files, order, progress)
            _survey(files, results, report)
            asides = [result.aside for result in results]
            made = self._write_queues(files, order, asides, journal.staging, plan) if with_queues else []
            self._count_queues(files, order, made, plan, report)
            if with_index:
                report.index_files_rebuilt = self._write_index(files, order, results, journal.staging, plan)
        return report

    def _imply(self, files: StoreFiles, order: RebuildOrder, progress: Progress | None) -> list[Implied]:
        task = partial(imply, order)
        return run_over_splits(
            self._engine, "rebuild: reading the log", task, files, split_size=self._split_size, progress=progress
        )

    def _write_queues(
        self, files: StoreFiles, order: RebuildOrder, asides: Sequence[str], staging: Path, plan: Plan
    ) -> list[MadeQueue]:
        """Write the queues and plan their swaps."""
        task = partial(write_queues, order, asides)
        buckets = self._engine.run("rebuild: writing queues", task, range(order.buckets))
        made = sorted(one for bucket in buckets for one in bucket)
        for one in made:
            if one.directory is not None:
                relative = topic_directory(Path(queue_root(one.is_batch)), one.topic) / str(one.queue_id)
                io.make_directories((staging / relative).parent)
                io.rename(Path(order.scratch, one.directory), staging / relative)
                plan.add(Install(staging / relative, files.layout.root / relative))
        return made

    def _count_queues(
        self,
        files: StoreFiles,
        order: RebuildOrder,
        made: Sequence[MadeQueue],
        plan: Plan,
        report: RebuildReport,
    ) -> None:
        """The report's numbers about queues; plan that the others go. NotFoundError for a topic without messages."""
        if not order.with_queues:
            return
        counted = Counter({(one.topic, one.queue_id): one.units for one in made})
        report.topics = sorted({topic for topic, _ in counted})
        missing = sorted((order.topics or frozenset()) - set(report.topics))
        if missing:
            raise NotFoundError(
                f"the commitlog holds no message of topic {missing[0]!r}", hint="`rmqctl ls --topics` lists the topics"
            )
        unmade = {(one.topic, one.queue_id) for one in made if one.directory is None}
        report.kept_queues = plan_gone_queues(
            files.queues, counted.keys() - unmade, order.topics, plan, files.log.min_offset
        )
        plan_empty_ext(files.queues, plan, order.topics)
        report.slot_conflicts = sum(one.conflicts + one.twice for one in made)
        report.deleted_topic_messages = sum(one.deleted for one in made)
        report.queues_rebuilt = len(counted)
        report.units = counted.total() - sum(one.conflicts for one in made)

    def _write_index(
        self, files: StoreFiles, order: RebuildOrder, results: Sequence[Implied], staging: Path, plan: Plan
    ) -> int:
        """Write the index files, each with the name that RocketMQ would have given it, and plan the swap; how many."""
        scratch, folder = Path(order.scratch), staging / "index"
        io.make_directories(folder)
        parts = list(key_ranges([(result.aside, result.keys) for result in results], order.geometry.entries - 1))
        written = self._engine.run("rebuild: writing the index", partial(write_index, order), parts)
        name = ""
        with Descriptors() as descriptors:
            for ranges, path in zip(parts, written, strict=True):
                reader = ShuffleReader(scratch / ranges[0].aside, order.buckets + 1, descriptors)
                _, _, timestamps = Keys(reader, order.buckets).read(ranges[0].begin, ranges[0].begin + 1)
                name = index_file_name_after(int(timestamps[0]), name)
                io.rename(scratch / path, folder / name)
        plan.add(plan_index(files, folder, len(written)))
        return len(written)


def key_ranges(asides: Sequence[tuple[str, int]], per_file: int) -> Iterator[list[KeyRange]]:
    """For each index file the keys that it gets, of splits that have put aside so many: prefix sums, cut."""
    ranges: list[KeyRange] = []
    room = per_file
    for aside, keys in asides:
        begin = 0
        while begin < keys:
            taken = min(room, keys - begin)
            ranges.append(KeyRange(aside, begin, begin + taken))
            begin, room = begin + taken, room - taken
            if not room:
                yield ranges
                ranges, room = [], per_file
    if ranges:
        yield ranges


def _order(
    files: StoreFiles, with_queues: bool, with_index: bool, topics: list[str] | None, scratch: Path
) -> RebuildOrder:
    length = max(0, files.log.max_offset - max(files.log.min_offset, 0))
    queues = files.queues
    batch_queues = frozenset(
        (queue.topic, queue.queue_id)
        for queue in (queues.all() if with_queues else ())
        if isinstance(queue, BatchConsumeQueue)
    )
    return RebuildOrder(
        files.config.delay_levels_to_write(),
        with_queues,
        with_index,
        with_index and files.has_tag_entries,
        frozenset(topics) if topics else None,
        batch_queues,
        queues.consumequeue_file_size() if with_queues else 0,
        queues.batch_file_size() if with_queues else 0,
        files.index_to_mend.geometry,
        str(scratch.absolute()),
        min(_MOST_BUCKETS, -(-length // _BUCKET) or 1),
        str(files.root.absolute()),
        files.config,
    )


def _survey(files: StoreFiles, results: Sequence[Implied], report: RebuildReport) -> None:
    """What the report says of the log."""
    survey = new_survey(files.log, 0, tolerant=True)
    for result in results:
        report.unplaceable_messages += result.unplaceable
        for record in result.records:
            if isinstance(record, Passed):
                survey.pass_messages(*record)
            else:
                survey.pass_other(record)
    survey.finish()
    report.messages = survey.messages
    report.damaged_spans = len(survey.tolerated)
