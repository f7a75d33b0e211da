"""The geometry that a broker.conf says against that of the files; where they differ the check goes by the files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import refuse_exhausted
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.files.layout import is_file_name
from rmqctl.store.queues.consumequeue import UNIT_SIZE
from rmqctl.store.queues.queue_table import list_queues
from rmqctl.store.store_files import StoreFiles

_SAMPLED = 64
_AGREEING = 2


def without_wrong_geometry(files: StoreFiles) -> tuple[StoreFiles, list[Finding]]:
    """`files` itself if the configuration fits, else the store opened without the settings that no file fits."""
    findings: list[Finding] = []
    settings: dict[str, Any] = {}
    for setting, sizes in _found(files):
        configured = getattr(files.config, setting)
        if configured is None or not sizes:
            continue
        if setting == "mapped_file_size_consume_queue":
            configured = -(-configured // UNIT_SIZE) * UNIT_SIZE
        usual = max(sizes, key=lambda size: (sizes[size], size))
        # one file alone is more likely cut short than of another geometry
        if configured in sizes or sizes[usual] < _AGREEING:
            continue
        text = f"{_key(setting)}={configured}, but the files have {usual}"
        findings.append(Finding("RMQ-FILE-017", text, _place(files, setting), expected=configured, found=usual))
        settings[setting] = None
    findings += _index_geometry(files, settings)
    if not settings:
        return files, findings
    return StoreFiles(files.root, files.config._replace(**settings)), findings


def _found(files: StoreFiles) -> Iterator[tuple[str, Counter[int]]]:
    layout = files.layout
    yield "mapped_file_size_commit_log", _sizes(layout.commitlog)
    for setting, root in (
        ("mapped_file_size_consume_queue", layout.consumequeue),
        ("mapper_file_size_batch_consume_queue", layout.batchconsumequeue),
        ("mapped_file_size_consume_queue_ext", layout.consumequeue_ext),
    ):
        yield setting, _sizes(directory for _, _, directory in list_queues(root)[:_SAMPLED])


def _place(files: StoreFiles, setting: str) -> Path:
    layout = files.layout
    places: dict[str, Callable[[], Path]] = {
        "mapped_file_size_commit_log": lambda: layout.commitlog[0],
        "mapped_file_size_consume_queue": lambda: layout.consumequeue,
        "mapper_file_size_batch_consume_queue": lambda: layout.batchconsumequeue,
        "mapped_file_size_consume_queue_ext": lambda: layout.consumequeue_ext,
    }
    return places[setting]()


def _sizes(directories: Iterable[Path]) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                sizes.update(entry.stat().st_size for entry in entries if is_file_name(entry.name) and entry.is_file())
        except OSError as error:
            refuse_exhausted(error, directory)
            continue
    sizes.pop(0, None)
    return sizes


def _index_geometry(files: StoreFiles, settings: dict[str, Any]) -> Iterator[Finding]:
    if files.config.max_hash_slot_num is None and files.config.max_index_num is None:
        return
    configured = files.index.configured_geometry
    geometries = {file.geometry for file in files.index.files}
    if configured is None or not geometries or configured in geometries:
        return
    found = sorted(geometries)[-1]
    settings["max_hash_slot_num"] = settings["max_index_num"] = None
    yield Finding(
        "RMQ-FILE-017",
        f"maxHashSlotNum={configured.slots} and maxIndexNum={configured.entries}, but the files have "
        f"{found.slots} and {found.entries}",
        files.layout.index,
        expected=configured.file_size,
        found=found.file_size,
    )


def _key(setting: str) -> str:
    """The name of a setting in broker.conf."""
    first, *rest = setting.split("_")
    return first + "".join(word.capitalize() for word in rest)
