"""Salvage: every good message of damaged, renamed or loose files goes into a new store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError, counted
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.compare.lives import Lives, Stretches, held_by, stretch_of, superseded
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import load_config, write_config
from rmqctl.store.files import io
from rmqctl.store.files.io import give_tree
from rmqctl.store.files.layout import LARGEST_OFFSET, Ownership, file_name, looks_like_store, ownership_of
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.outputs import clear_left_behind, publish, staged_directory, staging_of
from rmqctl.store.files.reading import Descriptors, is_directory, is_real_file, is_there, named
from rmqctl.store.log.columns import TopicIds
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE, UNIT_SIZE, QueueKey, QueueUnit
from rmqctl.store.salvage.carve import Carver, FrameRun, QueueSpan
from rmqctl.store.salvage.sources import Source, check_target, find_sources
from rmqctl.store.salvage.write import KeptRun, LostAndFound, Merge, Offsets, SalvageReport, SalvageWriter
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.opening import DEFAULT_COMMITLOG_FILE_SIZE
from rmqctl.store.write.writer import open_writer

_CONFIG_ALWAYS = ("topics.json", "subscriptionGroup.json")
_CONFIG_WITH_OFFSETS = ("consumerOffset.json", "delayOffset.json")


def salvage(
    paths: Sequence[Path],
    target: Path,
    *,
    config: StoreConfig | None = None,
    offsets: Offsets = "keep",
    stale: bool = False,
    events: Events = Events(),
) -> SalvageReport:
    """Put every good message of `paths` into a new store at `target`, which appears when it is complete.

    `paths`: stores, directories, files or block devices (see `find_sources`). `offsets`: "keep" gives messages their
    old queue offsets, "renumber" counts each queue from 0. `stale`: also messages that are older than those before them
    in the same file, as an earlier truncation leaves them. `config`: of the new store; sizes that it does not name are
    those of a store among `paths`. TARGET.lost-and-found.jsonl, beside the store, lists everything
    that was skipped. RefusedError for a target that exists or is in a source, UsageError, NotAStoreError,
    UnreadableError, WriteFailedError, NotFoundError without any message; the partial output is then removed.
    """
    config = config or StoreConfig()
    with named(paths[0] if paths else target):
        sources = find_sources(paths, config)
    check_target(target, paths, sources)
    rows_path = target.with_name(target.name + ".lost-and-found.jsonl")
    check_target(rows_path, [], sources)
    clear_left_behind(rows_path)
    with named(paths[0]):
        work = _Salvage(sources, _geometry(paths, sources, config), offsets, stale, events)
    with named(target), staged_directory(target) as staging, _lost_and_found(rows_path) as rows:
        work.run(staging, rows)
        work.copy_config(paths, staging)
        rows.finish()
        owner = _owner(paths)
        if owner is not None:
            give_tree(staging, owner)
            give_tree(rows.path, owner)
        publish(rows.path, rows_path)
        try:
            # last: once the store has its name there is nothing left to fail
            publish(staging, target)
        except BaseException:
            io.remove(rows_path)
            raise
    report = work.report
    report.store, report.lost_and_found = str(target), str(rows_path)
    report.causes = dict(rows.causes)
    return report


@contextlib.contextmanager
def _lost_and_found(path: Path) -> Iterator[LostAndFound]:
    """The lost and found of a salvage on its way to the name `path`; what is on its way goes where it fails."""
    rows = LostAndFound(staging_of(path))
    try:
        yield rows
    except BaseException:
        rows.close()
        if is_there(rows.path):
            io.remove(rows.path)
        raise


def _owner(paths: Sequence[Path]) -> Ownership | None:
    """Return owner and permissions of the new store: those of the first store among `paths`; None without one."""
    return next((ownership_of(path) for path in paths if looks_like_store(path)), None)


def _geometry(paths: Sequence[Path], sources: Sequence[Source], config: StoreConfig) -> StoreConfig:
    """`config` with the sizes of the first store among `paths`, else of the files; and fit to be written with."""
    config = config._replace(
        store_path_root_dir=None,
        store_path_commit_log=None,
        read_only_commit_log_store_paths=None,
        store_type="default",
        flush_disk_type="ASYNC_FLUSH",
        transient_store_pool_enable=False,
        broker_role="ASYNC_MASTER",
    )
    found: dict[str, int | None] = {}
    for path in paths:
        if is_directory(path) and looks_like_store(path):
            with contextlib.suppress(UnreadableError), StoreFiles(path) as files:
                found["mapped_file_size_commit_log"] = files.log.file_size
                found["mapped_file_size_consume_queue"] = files.queues.consumequeue_file_size()
                found["mapper_file_size_batch_consume_queue"] = files.queues.batch_file_size()
                if files.index.files:
                    found["max_hash_slot_num"], found["max_index_num"] = files.index.geometry
            break
    sizes = {source.size for source in sources if source.expected_base is not None}
    if not found and len(sizes) == 1 and max(sizes) % io.PAGE_SIZE == 0:
        found = {"mapped_file_size_commit_log": sizes.pop()}
    missing = {name: size for name, size in found.items() if size and getattr(config, name) is None}
    return config._replace(**missing)  # type: ignore[arg-type]  # the names are those of sizes


class _Salvage:
    """One salvage: carve everything, then put what was found in the order of the log."""

    def __init__(
        self, sources: list[Source], config: StoreConfig, offsets: Offsets, stale: bool, events: Events
    ) -> None:
        self._sources = sources
        self._config = config
        self._offsets: Offsets = offsets
        self._with_stale = stale
        self._events = events
        self._descriptors = Descriptors()
        self._files: list[MappedFile] = []
        self._runs: list[KeptRun] = []
        self._spans: dict[tuple[str, int], QueueSpan] = {}
        self.report = SalvageReport("", None, sources=len(sources))
        self._batch_topics: dict[str, int] = {}

    def run(self, root: Path, rows: LostAndFound) -> None:
        """Fill the empty directory `root`."""
        try:
            topics = TopicIds()
            for number, source in enumerate(self._sources):
                self._files.append(source.mapped(self._descriptors))
                self._carve(number, topics, rows)
            if not self._runs:
                raise NotFoundError(
                    "no message was found",
                    file=self._sources[0].path,
                    hint="`--stale` takes older messages too" if self.report.stale else None,
                )
            self._write(root, rows)
        finally:
            self._descriptors.close()

    def _carve(self, number: int, topics: TopicIds, rows: LostAndFound) -> None:
        source, report = self._sources[number], self.report
        report.bytes_read += source.size
        newest: dict[int, int] = {}
        carver = Carver(self._files[number], source.expected_base, topics, self._events)
        for record in carver.carve():
            if not isinstance(record, FrameRun):
                report.strange_spans += 1
                report.strange_bytes += record.end - record.begin
                rows.add(source.path, record.begin, record.end, record.reason, record.detail)
                continue
            report.found += record.messages
            report.runs += 1
            if record.first_timestamp < newest.get(record.base, 0):
                # an older message behind a newer one of the same log: left over from before the log was cut
                report.stale += record.messages
                rows.add(
                    source.path,
                    record.position,
                    record.end,
                    "stale",
                    f"{counted(record.messages, 'message')} older than those before",
                    physical_offset=record.physical_offset,
                )
                if not self._with_stale:
                    continue
            else:
                newest[record.base] = record.last_timestamp
            self._runs.append(KeptRun(record.physical_offset, number, record.position, record.end))
            for key, span in record.queues.items():
                known = self._spans.setdefault(key, span)
                if known is not span:
                    known.add(span)

    def _write(self, root: Path, rows: LostAndFound) -> None:
        config, report = self._config, self.report
        file_size = config.mapped_file_size_commit_log or DEFAULT_COMMITLOG_FILE_SIZE
        config = config._replace(mapped_file_size_commit_log=file_size)
        report.commitlog_file_size = file_size
        if self._offsets == "keep" and self._has_gaps():
            _begin_with_blank(root, file_size)
        units = (config.mapped_file_size_consume_queue or DEFAULT_FILE_SIZE) // UNIT_SIZE
        merge = Merge(self._files, self._runs)
        with contextlib.closing(open_writer(root, config, create=True)) as store:
            paths = [source.path for source in self._sources]
            lives = self._lives(merge) if self._offsets == "keep" else {}
            writer = SalvageWriter(store, self._offsets, paths, rows, report, max(1, units), lives)
            for found in merge.messages():
                writer.add(found)
            writer.finish(merge)
        report.duplicates = merge.duplicates
        self._batch_topics = writer.batch_topics
        if self._offsets == "renumber":
            report.renumbered = 0

    def _lives(self, merge: Merge) -> dict[QueueKey, Lives]:
        """Return the messages of earlier lives of queues, whose slots later messages have."""
        stretches = {key: Stretches() for key, span in self._spans.items() if span.falls}
        numbers = dict.fromkeys(stretches, 0)
        if not stretches:
            return {}
        for message in (found.message for found in merge.messages()):
            key = message.topic, message.queue_id
            listed = stretches.get(key)
            if listed is None or not has_queue_slot(message.sys_flag):
                continue
            if not 0 <= message.queue_offset < LARGEST_OFFSET:
                continue  # no queue has such a slot: it is none of a life
            unit = QueueUnit(message.queue_offset, message.physical_offset, message.total_size, 0)
            last = listed.last
            numbers[key] += last is not None and unit.queue_offset < last.slot_end
            listed.add(stretch_of(unit)._replace(life=numbers[key]))
        merge.duplicates = 0
        return {
            key: superseded(listed, held_by(None))
            for key, listed in stretches.items()
            # one that begins higher has two messages of one queue offset
            if any(later.slot_begin in range(one.slot_begin or 1) for one, later in pairwise(listed))
        }

    def _has_gaps(self) -> bool:
        return any(span.low != 0 or span.high + 1 != span.messages for span in self._spans.values())

    def copy_config(self, paths: Sequence[Path], root: Path) -> None:
        """Topics and groups of the first store among `paths`, and where its groups were, if offsets are kept."""
        names = (*_CONFIG_ALWAYS, *(_CONFIG_WITH_OFFSETS if self._offsets == "keep" else ()))
        for path in paths:
            copied = [name for name in names if _copy_config(path / "config" / name, root / "config" / name)]
            if copied:
                self.report.config_files = copied
                break
        if self._batch_topics and "topics.json" not in self.report.config_files:
            # 5.x does not start on batch queues of topics that it does not know as such
            write_config(root / "config" / "topics.json", _topics_json(self._batch_topics))
            self.report.config_files.append("topics.json")


def _begin_with_blank(root: Path, file_size: int) -> None:
    """A first commitlog file without messages. Units that fill gaps in queues say offset 0: a consumer is sent on from
    there to the next file, past every message that stood in the same one (DefaultMessageStore#getMessage)."""
    path = root / "commitlog" / file_name(0)
    for directory in (path.parent, root / "consumequeue"):
        io.make_directories(directory, flushed=True)
    io.create_file(path, file_size)
    io.write_range(path, 0, BLANK_FRAME.struct.pack(file_size, BLANK_MAGIC))
    io.flush_file(path)  # whoever appends behind it takes it for flushed
    io.flush_directory(path.parent)


def _copy_config(source: Path, target: Path) -> bool:
    if not is_real_file(source):
        return False
    try:
        loaded = load_config(source)
        if loaded is None:
            return False
        write_config(target, loaded.content)
    except (CorruptError, UnreadableError, UnicodeEncodeError):  # the last for texts that are no Unicode
        return False
    return True


def _topics_json(topics: dict[str, int]) -> dict[str, object]:
    """topics.json with batch topics, by number of queues (TopicConfigSerializeWrapper)."""
    table = {
        topic: {
            "attributes": {"queue.type": "BatchCQ"},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for topic, queues in topics.items()
    }
    return {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "topicConfigTable": table}
