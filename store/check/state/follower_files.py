"""The files of consume queues and index as files: names, sizes, gaps, links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import refuse_exhausted
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.log.log_files import entry_findings
from rmqctl.store.files.layout import StoreLayout, is_queue_name
from rmqctl.store.files.mapped_file_queue import FileProblem, MappedFileQueue
from rmqctl.store.files.presence import is_directory, is_link, status_of
from rmqctl.store.journal.kept.folder import TO_MEND
from rmqctl.store.journal.log import DAMAGED, changes
from rmqctl.store.queues.queue_table import has_rocksdb_beside_files, has_rocksdb_queues, list_queues, rocksdb_error
from rmqctl.store.store_files import StoreFiles

_CODES = {
    "stray": "RMQ-FILE-012",
    "size": "RMQ-FILE-013",
    "empty": "RMQ-FILE-014",
    "gap": "RMQ-FILE-015",
    "overlap": "RMQ-FILE-013",
    "unreadable": "RMQ-FILE-006",
}


def queue_file_findings(files: StoreFiles) -> Iterator[Finding]:
    """Everything that can be said of the queues without reading units."""
    if has_rocksdb_queues(files.layout):
        folder = rocksdb_error(files.layout).file
        text = "the consume queues are kept in a RocksDB, which is not read yet: they were not checked"
        yield Finding("RMQ-STATE-003", text, None if folder is None else Path(folder))
        return
    if has_rocksdb_beside_files(files.layout):
        text = "consume queues are kept in a RocksDB, too, which is not read yet: only those in files were checked"
        yield Finding("RMQ-STATE-003", text, files.layout.consumequeue_rocksdb)
    for queue in files.queues.all():
        yield from _of_queue(queue.topic, queue.queue_id, queue.files)
    for root in (files.layout.consumequeue, files.layout.batchconsumequeue):
        yield from _names(root)
    for topic, queue_id, directory in list_queues(files.layout.consumequeue_ext):
        ext = MappedFileQueue([directory], files.config.mapped_file_size_consume_queue_ext, files.descriptors)
        ext.load()
        yield from _of_queue(topic, queue_id, ext)


def _of_queue(topic: str, queue_id: int, files: MappedFileQueue) -> Iterator[Finding]:
    for problem in files.problems:
        yield _problem(topic, queue_id, files, problem)
    for directory in files.directories:
        for finding in entry_findings(directory):
            # a directory in there is passed over by every version
            if finding.code != "RMQ-FILE-009":
                yield finding


def _problem(topic: str, queue_id: int, files: MappedFileQueue, problem: FileProblem) -> Finding:
    expected: int | None = None
    found: int | None = None
    if problem.kind in ("size", "empty"):
        status = status_of(problem.path)
        expected, found = files.file_size, 0 if status is None else status.st_size
    return Finding(
        _CODES[problem.kind],
        problem.detail,
        problem.path,
        topic=topic,
        queue_id=queue_id,
        expected=expected,
        found=found,
    )


def _names(root: Path) -> Iterator[Finding]:
    """Directories below a topic that are no queues, and files where topics should be."""
    for topic in _entries(root):
        if _is_directory(topic):
            for queue in _entries(Path(topic.path)):
                if not (is_queue_name(queue.name) and _is_directory(queue)):
                    yield Finding("RMQ-FILE-016", "no queue by its name", Path(queue.path), topic=topic.name)
        elif not is_link(topic):
            yield Finding("RMQ-FILE-016", "no directory of a topic", Path(topic.path))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """The listing has said what it is, of a link only that it is one."""
    return is_directory(entry) if entry.is_symlink() else entry.is_dir()


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        refuse_exhausted(error, directory)
        return []


def unfinished_changes(layout: StoreLayout) -> Iterator[Finding]:
    """Changes of rmqctl that were neither finished nor taken back."""
    for change in changes(layout):
        folder = None if change.folder is None else Path(change.folder)
        if change.is_unfinished:
            text = f"the change {change.id} is {change.state}"
            # such a one cannot be resumed, only mended
            fix = "rmqctl recover" if change.state in TO_MEND else None
            yield Finding("RMQ-STATE-002", text, folder, found=change.state, expected="applied", fix=fix)
        elif change.state == DAMAGED:
            text = f"the journal of {change.id} is damaged"
            yield Finding("RMQ-STATE-002", text, folder, found=change.state, data_lost=None, fix="rmqctl log")
