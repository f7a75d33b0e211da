"""Loads the copies of compacted topics as a broker that starts does, without changing them (CompactionStore#load)."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.config.releases import Release
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.files.reading import is_directory
from rmqctl.store.predict.broker_log import Loaded, list_in_order, load_files
from rmqctl.store.read.compacted import COMPACTION, LOGS, QUEUES, FileSizes, file_sizes
from rmqctl.store.store_files import StoreFiles

_OF_JAVA = "load exception: java.lang.NumberFormatException: "
_LARGEST_ID = (1 << 31) - 1


def refused_by_compaction(files: StoreFiles, release: Release) -> str | None:
    """Return why a broker does not load the copies, so that it does not start; None if it does, or does not look.

    A broker that was killed during a compaction leaves files that it does not load.
    """
    root = files.layout.root / COMPACTION
    sizes = None if release.is_of_4 or not files.config.enable_compaction else file_sizes(files)
    if sizes is None:
        return None
    for topic in list_in_order(root / LOGS):
        for queue_id in list_in_order(topic_directory(root / LOGS, topic)):
            folder = topic_directory(root / LOGS, topic) / queue_id
            if is_directory(folder):
                why = _refused(folder, topic_directory(root / QUEUES, topic), sizes, release)
                if why is not None:
                    return f"load compactionLog {topic}:{queue_id} exception: {why}"
    return None


def _refused(logs: Path, of_topic: Path, sizes: FileSizes, release: Release) -> str | None:
    """Return why the copy of one queue is not loaded (CompactionLog.TopicPartitionLog#init)."""
    if not (logs.name.isascii() and logs.name.isdigit()) or int(logs.name) > _LARGEST_ID:
        return _number_format(logs.name)
    queues = of_topic / str(int(logs.name))
    if not is_directory(queues):  # an error in its log, and no more
        return None
    log = load_files([logs], sizes.log, release)
    if log.error is not None:
        return _said(log, "load log exception")
    queue = load_files([queues], sizes.queue, release)
    if queue.error is not None:
        return _said(queue, "load consume queue exception")
    names = [{path.name for _, path in loaded.files} for loaded in (log, queue)]
    for loaded, others, text in (
        (log, names[1], "log file mismatch with consumeQueue file"),
        (queue, names[0], "consumeQueue file mismatch with log file"),
    ):
        alone = next((path for _, path in loaded.files if path.name not in others), None)
        if alone is not None:
            return f"{text} {alone}"
    return None


def _said(loaded: Loaded, failed: str) -> str:
    """Return what a broker says of files that do not load, and what its log says of a wrong size."""
    error = loaded.error or ""
    return error.removeprefix(_OF_JAVA) if error.startswith(_OF_JAVA) else f"{failed}: {error}"


def _number_format(text: str) -> str:
    return f'For input string: "{text}"'
