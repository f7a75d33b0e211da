"""Replicas of one log under a controller or in a DLedger group: which has most, and what the others lose to it.

Also a DLedger log beside its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT, DLEDGER_MAGIC
from rmqctl.store.config.config import parse_properties
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.epoch_file import Epoch, broker_epochs, broker_identity
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import read_small_file
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.walk import Blank
from rmqctl.store.native.tables import Columns
from rmqctl.store.store_files import DledgerLog, StoreFiles

# A DLedger log beside its messages: the heads of its entries, its index, and what its small files say of it.

INDEX_FILE_SIZE = 5 * 1024 * 1024 * DLEDGER_INDEX_UNIT.size
_HEAD, _UNIT = DLEDGER_ENTRY_HEAD.dtype(), DLEDGER_INDEX_UNIT.dtype()
_LARGEST_FILE = 64 * 1024
CHECKPOINT, COMMITTED = "checkpoint", "committedIndex"
"""The file that says which entry is committed, and the key of its number."""
_NO_CRC = (1 << 63) - 1

EntryRows = NDArray[np.void]


class SmallFile(NamedTuple):
    """One of DLedger's files of Java properties. `numbers`: its values that are numbers; `problem`: why it is not read,
    None for one that is, and for none at all."""

    path: Path
    texts: dict[str, str]
    problem: str | None = None

    def number(self, key: str) -> int | None:
        """Return a value, None where it is no number or is missing."""
        text = self.texts.get(key, "")
        return int(text) if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() else None


def read_small(path: Path, key: str, *, with_backup: bool = True) -> SmallFile:
    """Return what a file or, where it is damaged, its backup says; `key`: what a whole file has. UnreadableError."""
    found: SmallFile | None = None
    for candidate in (path, backup_of(path)) if with_backup else (path,):
        try:
            one = SmallFile(candidate, parse_properties(read_small_file(candidate, _LARGEST_FILE), candidate))
        except FileNotFoundError:
            continue
        except UsageError as error:
            one = SmallFile(candidate, {}, error.message)
        if one.number(key) is None:
            one = one._replace(problem=one.problem or f"{key} is missing or not a number")
        if one.problem is None:
            return one
        found = found or one
    return found or SmallFile(path, {})


class DledgerMember(NamedTuple):
    """A member's log. Entries by their numbers in the log, ends as physical offsets; None for what is not known.

    `committed`: the last entry that the member knew to be on the majority, up to 3 s old. `uncommitted`: entries after
    it, which a new leader may take back.
    """

    self_id: str
    first: int | None
    last: int | None
    last_term: int | None
    term: int | None
    vote: str | None
    committed: int | None
    end: int | None

    @property
    def uncommitted(self) -> int | None:
        """Return how many entries follow the committed one."""
        if self.last is None or self.committed is None:
            return None
        return max(0, self.last - self.committed)


def member_of(files: StoreFiles) -> DledgerMember:
    """Return what a store's DLedger log, which it has, says of itself. UnreadableError."""
    assert files.dledger is not None, "the store has no DLedger log"
    folder = files.dledger.folder.parent
    state, term = read_small(folder / CHECKPOINT, COMMITTED), read_small(folder / "currterm", "currTerm")
    entries = [file for file in files.log.files if file.holds_entries]
    first = last = None
    for file in entries:
        first = first or _edge(files.log, file, -1)
    for file in reversed(entries):
        last = last or _edge(files.log, file, 0)
    return DledgerMember(
        folder.name.removeprefix("dledger-"),
        None if first is None else first[0],
        None if last is None else last[0],
        None if last is None else last[1],
        term.number("currTerm"),
        term.texts.get("voteLeader"),
        state.number(COMMITTED),
        state.number("endIndex"),
    )


def _edge(log: MappedFileQueue, file: MappedFile, which: int) -> tuple[int, int] | None:
    """Return number and term of the first (-1) or last (0) whole entry of a file; None where it has none."""
    found: tuple[int, int] | None = None
    for heads, _ in entry_heads(log, file.start_offset, file.end_offset):
        whole = heads[is_whole(heads)]
        if len(whole):
            row = whole[0 if which else -1]
            found = int(row["entry_index"]), int(row["term"])
            if which:
                break
    return found


def is_whole(heads: EntryRows) -> NDArray[np.bool_]:
    """Return which heads have the magic and sizes of an entry."""
    sizes = heads["body_size"].astype(np.int64) + _HEAD.itemsize
    whole: NDArray[np.bool_] = (heads["magic_code"] == DLEDGER_MAGIC) & (heads["size"] == sizes)
    return whole


def entry_heads(log: MappedFileQueue, begin: int, end: int | None) -> Iterator[tuple[EntryRows, NDArray[np.int64]]]:
    """Yield the heads before the messages of [begin, end), as many as batches of the walk have, with the offsets of
    these messages. No CRC is checked. UnreadableError."""
    for record in walk_columns(log, begin, end, columns=Columns.NONE, crc_from=_NO_CRC):
        if not isinstance(record, MessageColumns):
            continue
        offsets = record.physical_offset
        first = log.find(record.begin)
        if first is None or not first.holds_entries:
            continue
        start = max(first.start_offset, record.begin - _HEAD.itemsize)
        data = np.frombuffer(log.read(start, int(offsets[-1]) - start), np.uint8)
        places = offsets - _HEAD.itemsize - start
        inside = (places >= 0) & (places + _HEAD.itemsize <= len(data))
        places = places[inside]
        rows = data[places[:, None] + np.arange(_HEAD.itemsize)]
        yield np.ascontiguousarray(rows).view(_HEAD).reshape(-1), offsets[inside]


def open_index(dledger: DledgerLog, log: MappedFileQueue) -> MappedFileQueue:
    """Return the index of a DLedger log. UnreadableError."""
    index = MappedFileQueue([dledger.folder.parent / "index"], INDEX_FILE_SIZE, log.descriptors)
    index.load()
    return index


def index_units(index: MappedFileQueue, first: int, count: int) -> EntryRows:
    """Return the units of `count` entries from number `first` on; zeros where there is no file."""
    position, end = first * _UNIT.itemsize, (first + count) * _UNIT.itemsize
    pieces = []
    while position < end:
        file = index.find(position)
        stop = end if file is None else min(end, file.end_offset)
        length = stop - position
        pieces.append((b"" if file is None else index.read(position, length)).ljust(length, b"\0"))
        position = stop
    return np.frombuffer(b"".join(pieces), _UNIT)


_COMPARED = 256


class Replica(NamedTuple):
    """One store of a group. Offsets are physical. `epochs`: terms of a DLedger log count as epochs. `confirm`: up to
    where in-sync replicas are known to have the log, None where nothing says so."""

    files: StoreFiles
    identity: str | None
    epochs: list[Epoch]
    begin: int
    end: int
    confirm: int | None

    def end_of(self, number: int) -> int:
        """Return where the epoch at a place of `epochs` ends."""
        return self.epochs[number + 1].start if number + 1 < len(self.epochs) else self.end


class Removal(NamedTuple):
    """What a replica loses when it follows `best`. `point`: up to here both have the same, None where they have no
    epoch in common; `why` says what happens instead of a truncation."""

    replica: Replica
    is_best: bool
    point: int | None
    messages: int
    bytes: int
    why: str

    def row(self) -> dict[str, Any]:
        """Return it under the names that `predict --epochs` and `diff` print."""
        one = self.replica
        return {
            "store": str(one.files.root),
            "identity": one.identity,
            "epoch": one.epochs[-1].number if one.epochs else None,
            "begin_offset": one.begin,
            "end_offset": one.end,
            "confirm_offset": one.confirm,
            "is_best": self.is_best,
            "common_end": self.point,
            "messages_removed": self.messages,
            "bytes_removed": self.bytes,
            "note": self.why or None,
        }


def replica_of(files: StoreFiles) -> Replica:
    """Return what a store says of itself as a replica. The heads of a DLedger log are read whole. UnreadableError."""
    log = files.log
    begin, end = max(log.min_offset, 0), _end_of(files)
    if files.dledger is not None:
        epochs = list(_terms(files, end))
        return Replica(files, files.dledger.folder.parent.name.removeprefix("dledger-"), epochs, begin, end, None)
    checkpoint = files.readable_checkpoint()
    confirm = None if checkpoint is None else checkpoint.confirm_physical_offset
    return Replica(files, broker_identity(files.layout), broker_epochs(files.layout), begin, end, confirm)


def _end_of(files: StoreFiles) -> int:
    """Return where the log ends before the first damage or zeros of its last file, as a broker finds it."""
    log = files.log
    file = log.last_with_data()
    if file is None:
        return max(log.min_offset, 0)
    end = file.start_offset
    for record in walk_columns(log, file.start_offset, columns=Columns.NONE):
        if not isinstance(record, MessageColumns | Blank):
            break
        end = record.end
    return end


def _terms(files: StoreFiles, end: int) -> Iterator[Epoch]:
    """Yield each term of a DLedger log with the offset of its first entry."""
    assert files.dledger is not None
    known = -1
    for heads, _ in entry_heads(files.log, files.dledger.begin, end):
        whole = heads[is_whole(heads)]
        terms = whole["term"].astype(np.int64)
        for row in np.flatnonzero(np.diff(terms, prepend=known)).tolist():
            known = int(terms[row])
            yield Epoch(known, int(whole[row]["pos"]))


def common_end(one: Replica, other: Replica) -> int | None:
    """Return up to where both have the same log by their newest common epoch, None where no epoch is in both with the
    same start. (EpochFileCache#findConsistentPoint)"""
    places = {epoch: number for number, epoch in enumerate(other.epochs)}
    for number in reversed(range(len(one.epochs))):
        place = places.get(one.epochs[number])
        if place is not None:
            return min(one.end_of(number), other.end_of(place))
    return None


def _is_one_log(one: Replica, other: Replica) -> bool:
    """Return whether the first bytes that both have are the same; True where they have none in common."""
    begin, end = max(one.begin, other.begin), min(one.end, other.end)
    length = min(_COMPARED, end - begin)
    return length <= 0 or one.files.log.read(begin, length) == other.files.log.read(begin, length)


def removals(replicas: Sequence[Replica]) -> list[Removal]:
    """Return what each replica loses if the best one becomes master: that of the newest epoch, and of these the
    longest. UnreadableError."""
    best = max(replicas, key=lambda one: (one.epochs[-1].number if one.epochs else -1, one.end))
    return [_removal(one, best) for one in replicas]


def _removal(one: Replica, best: Replica) -> Removal:
    if one is best:
        return Removal(one, True, one.end, 0, 0, "")
    if not _is_one_log(one, best):
        return Removal(one, False, None, 0, 0, "another log: `rmqctl diff` shows where they differ")
    if not one.epochs:
        return Removal(one, False, None, 0, 0, "has no epochs: copies the whole log")
    point = common_end(one, best)
    if point is None:
        return Removal(one, False, None, 0, 0, "no epoch in common: stays out until its store is emptied")
    messages = sum(
        record.rows
        for record in walk_columns(one.files.log, point, one.end, columns=Columns.NONE)
        if isinstance(record, MessageColumns)
    )
    why = f"lacks {best.end - point} bytes, which it copies" if best.end > point else ""
    return Removal(one, False, point, messages, one.end - point, why)
