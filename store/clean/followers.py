"""Queues, their ext files and the index follow the commitlog's first offset (CleanConsumeQueueService)."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.wording import counted
from rmqctl.store.clean.decision import Because, FileDecision, decision_on, last_position, modified_ms, words_for
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.presence import is_file
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.queues.batch_consumequeue import UNIT_SIZE as BATCH_UNIT_SIZE
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues
from rmqctl.store.queues.unit import ext_offset
from rmqctl.store.store_files import StoreFiles


def judge_followers(files: StoreFiles, min_offset: int) -> Iterator[FileDecision]:
    """Files of queues, their ext files, and the index, by the commitlog's first offset (CleanConsumeQueueService)."""
    if min_offset <= 0:
        return
    if not has_rocksdb_queues(files.layout):
        for queue in files.queues.all():
            yield from judge_queue(queue, min_offset)
            if isinstance(queue, ConsumeQueue):
                yield from judge_ext(queue, ext_of(files, queue), min_offset)
    yield from judge_index(files.index, min_offset)


def judge_queue(queue: AnyConsumeQueue, min_offset: int) -> Iterator[FileDecision]:
    """Files whose last unit points before `min_offset` go, oldest first, never the last one.

    A last unit of zeros is damage: what the file holds is not certain, so it and what follows it stay.
    (MappedFileQueue#deleteExpiredFileByOffset)
    """
    kind = "consumequeue" if isinstance(queue, ConsumeQueue) else "batchconsumequeue"
    last = last_position(queue.files)
    stop: Because | None = None
    for position, file in enumerate(queue.files.files):
        if position >= last:
            yield decision_on(kind, file, Because.LAST if position == last else Because.PREALLOCATED)
            continue
        if stop is not None:
            yield decision_on(kind, file, stop)
            continue
        because, detail = _judge_units(queue, file, min_offset)
        stop = None if because is Because.STALE else Because.BEHIND
        yield decision_on(kind, file, because, detail)


def _judge_units(queue: AnyConsumeQueue, file: MappedFile, min_offset: int) -> tuple[Because, str]:
    if file.size != queue.files.file_size:
        return Because.DAMAGED, f"{counted(file.size, 'byte')} instead of {queue.files.file_size}"
    physical_offset = last_physical_offset(queue, file)
    if physical_offset is None:
        return Because.DAMAGED, "its last unit is empty"
    if physical_offset < min_offset:
        return Because.STALE, f"its last unit points to {physical_offset}, before {min_offset}"
    return Because.STILL_USED, f"its last unit points to {physical_offset}"


def last_physical_offset(queue: AnyConsumeQueue, file: MappedFile) -> int | None:
    """Where the last unit of a full file of `queue` points to; None where it points to nothing."""
    unit_size = UNIT_SIZE if isinstance(queue, ConsumeQueue) else BATCH_UNIT_SIZE
    # both kinds of units begin with the physical offset and the size
    head = file.read((file.size // unit_size - 1) * unit_size, 12)
    physical_offset = int.from_bytes(head[:8], "big", signed=True)
    size = int.from_bytes(head[8:], "big", signed=True)
    return None if len(head) < 12 or size <= 0 or physical_offset < 0 else physical_offset


def ext_of(files: StoreFiles, queue: ConsumeQueue) -> ConsumeQueueExt:
    """The ext queue beside `queue`, without files where there is none."""
    directory = files.layout.consumequeue_ext / queue.directory.parent.name / queue.directory.name
    ext = ConsumeQueueExt(directory, files.config.mapped_file_size_consume_queue_ext, files.descriptors)
    ext.load()
    return ext


def judge_ext(queue: ConsumeQueue, ext: ConsumeQueueExt, min_offset: int) -> Iterator[FileDecision]:
    """Ext files that end before the ext unit of the queue's first valid unit go; none where it has no ext unit."""
    if not ext.files.files:
        return
    unit = queue.unit(queue.min_offset(min_offset))
    address = ext_offset(unit.tags_code) if unit is not None and unit.is_written else None
    for file in ext.files.files:
        if file is ext.files.files[-1]:
            yield decision_on("consumequeue_ext", file, Because.LAST)
        elif address is not None and file.end_offset <= address:
            yield decision_on("consumequeue_ext", file, Because.STALE, f"the queue now begins at ext byte {address}")
        else:
            yield decision_on("consumequeue_ext", file, Because.STILL_USED, "the queue still refers to it")


def judge_index(index: IndexService, min_offset: int) -> Iterator[FileDecision]:
    """Leading index files whose last message lies before `min_offset` go, never the last.

    (IndexService#deleteExpiredFile)
    """
    known = {file.path: file for file in index.files}
    unknown = {path: detail for path, detail in index.problems if path.name.isdigit() and is_file(path)}
    paths = sorted([*known, *unknown])
    stop: Because | None = None
    for path in paths:
        detail = ""
        if path == paths[-1]:
            because = Because.LAST
        elif stop is not None:
            because = stop
        elif path in unknown:
            because, detail = Because.DAMAGED, unknown[path]
        else:
            end = known[path].header.end_physical_offset
            because = Because.STALE if end < min_offset else Because.STILL_USED
            detail = f"its last message is at {end}" + (f", before {min_offset}" if because is Because.STALE else "")
        stop = None if because is Because.STALE else Because.BEHIND
        size = path.stat().st_size
        yield FileDecision("index", path, size, None, modified_ms(path), because, detail or words_for(because))
