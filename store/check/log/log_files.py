"""The commitlog's files as files: names, sizes, gaps, links, and what is no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import refuse_exhausted
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.log.affected import AffectedMessages
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import FileProblem, MappedFileQueue
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.store_files import StoreFiles

_BRIDGE = "rmqctl recover --bridge"


def log_file_findings(files: StoreFiles, affected: AffectedMessages) -> Iterator[Finding]:
    """Everything that can be said of the commitlog without reading messages."""
    log = files.log
    missing = files.missing_log()
    if missing is not None:
        units = affected.count(-(1 << 63), (1 << 63) - 1)
        yield Finding(
            "RMQ-FILE-010", missing, files.layout.commitlog[0], messages=units, data_lost=True if units else None
        )
    if files.dledger is not None:
        yield Finding("RMQ-FILE-050", files.dledger.said, files.dledger.folder, data_lost=False)
    for problem in log.problems:
        yield from _problem(log, problem, affected)
    for directory in log.directories:
        yield from entry_findings(directory)
    last = log.last_with_data()
    for file in log.files:
        if last is None or file.start_offset > last.start_offset:
            text = "all zeros: prepared for messages to come"
            yield Finding("RMQ-FILE-011", text, file.path, file.start_offset, bytes=file.size, messages=0)


def entry_findings(directory: Path) -> Iterator[Finding]:
    """Entries of a directory of offset-named files that are no plain files: links, directories."""
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        refuse_exhausted(error, directory)
        # absent; one that cannot be listed was told where it was loaded
        return
    for entry in found:
        path = Path(entry.path)
        if entry.is_symlink():
            yield Finding("RMQ-FILE-008", f"a link to {os.readlink(path)}", path, found="link", expected="file")
        elif entry.is_dir():
            yield Finding("RMQ-FILE-009", "a directory among the files", path, found="directory", expected="file")


def _problem(log: MappedFileQueue, problem: FileProblem, affected: AffectedMessages) -> Iterator[Finding]:
    path, detail = problem.path, problem.detail
    file = next((file for file in log.files if file.path == path), None)
    match problem.kind:
        case "stray":
            is_special = not _is_regular(path)
            yield Finding("RMQ-FILE-007" if is_special else "RMQ-FILE-001", detail, path, bytes=_size(path))
        case "unreadable":
            yield Finding("RMQ-FILE-006", detail, path, data_lost=None)
        case "empty":
            yield _empty(log, path, detail, affected)
        case "size" if file is not None:
            yield _wrong_size(log, file, detail, affected)
        case "gap" if file is not None:
            yield _gap(log, file, affected)
        case "overlap" if file is not None:
            yield Finding("RMQ-FILE-005", detail, path, file.start_offset, data_lost=None)


def _empty(log: MappedFileQueue, path: Path, detail: str, affected: AffectedMessages) -> Finding:
    """What a file of no bytes inside the log held is told of the gap, and behind the log's end by the queues. Of one
    before all that is left the units alone tell it: they look like those of expired messages."""
    begin = int(path.name)
    messages: int | None = 0
    if log.files and begin < log.files[0].start_offset:
        following = min(start for start in (*log.empty_files(), log.files[0].start_offset) if start > begin)
        messages = affected.count(begin, following)
    return Finding(
        "RMQ-FILE-003",
        detail,
        path,
        expected=log.file_size,
        found=0,
        bytes=0,
        messages=messages,
        data_lost=None if messages is None else messages > 0,
    )


def _wrong_size(log: MappedFileQueue, file: MappedFile, detail: str, affected: AffectedMessages) -> Finding:
    missing = log.file_size - file.size
    is_last = file is log.last_with_data() or file is log.files[-1]
    messages: int | None = None
    data_lost: bool | None = False
    if missing > 0:
        messages = affected.count(file.end_offset, file.start_offset + log.file_size)
        # zeros up to the cut: nothing had been written behind it
        ends_in_zeros = end_of_nonzero(file.descriptors, file.path, 0, file.size) < file.size
        data_lost = not ends_in_zeros if is_last or messages is None else messages > 0 or not ends_in_zeros
    return Finding(
        "RMQ-FILE-002",
        detail,
        file.path,
        file.start_offset,
        expected=log.file_size,
        found=file.size,
        bytes=abs(missing),
        messages=messages,
        data_lost=data_lost,
        fix=None if is_last or missing < 0 else _BRIDGE,
    )


def _gap(log: MappedFileQueue, file: MappedFile, affected: AffectedMessages) -> Finding:
    number = log.files.index(file)
    begin = log.files[number - 1].start_offset + log.file_size
    return Finding(
        "RMQ-FILE-004",
        f"the commitlog has no file for [{begin}, {file.start_offset})",
        file.path.with_name(f"{begin:020d}"),
        begin,
        expected=begin,
        found=file.start_offset,
        bytes=file.start_offset - begin,
        messages=affected.count(begin, file.start_offset),
        data_lost=True,
    )


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
