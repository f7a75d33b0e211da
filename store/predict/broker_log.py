"""The broker's pass over the commitlog: file by file, frame by frame, up to where the log ends for it.

Good frames are walked as columns; where law 3 and the broker may differ, its own judgement decides (`frames`).
"""

from __future__ import annotations

import functools
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from rmqctl.formats.checksums import CRC_MASK, parse_long
from rmqctl.formats.errors import refuse_exhausted
from rmqctl.formats.layouts import (
    BLANK_FRAME,
    BLANK_MAGIC,
    DLEDGER_ENTRY_HEAD,
    INDEX_ENTRY,
    INDEX_HEADER,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.message import LARGEST_HEAD_SIZE, StoredMessage, frame_head
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import Release
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, is_file
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.implied import Run, RunRecord
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE
from rmqctl.store.log.walk import Blank, unreadable_number
from rmqctl.store.options import Events
from rmqctl.store.predict.walked import WalkedLog
from rmqctl.store.queues.rocksdb_queues import StoredQueues
from rmqctl.store.store_files import Checkpoint

# How a broker judges the bytes at a place of the log: laxer than law 3 (CommitLog#checkMessageAndReturnSize).
#
# It does not compare the physical offset with the place, checks no UTF-8 and no frame checksum. 4.9 takes a blank
# frame of any size, as it goes by the magic alone; 5.x wants it to fit into its file. Lengths in a frame are bounded
# by what is left of the file, and compared with its size when all is read. But numbers in properties that do not
# parse end the log.


_FRAME_MAGICS = (BLANK_MAGIC, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)
# the first bytes of what fills a DLedger file to its end
_FILE_END = (-1).to_bytes(4, "big", signed=True)


class FrameVerdict(NamedTuple):
    """`message`: a frame that is taken. Else `is_blank`: on to the next file. Else `size`: of a frame whose lengths do
    not add up ("half message"), -1 for anything else that ends the log. `why` is for people."""

    message: StoredMessage | None = None
    is_blank: bool = False
    size: int = -1
    why: str = ""


def judge(
    read: Callable[[int, int], bytes],
    position: int,
    end: int,
    release: Release,
    check_crc: bool,
    reads_body: bool = True,
) -> FrameVerdict:
    """What the broker makes of the bytes at `position` of a file of which [0, end) counts.

    `read` gives the bytes at a position; lengths are checked against what is left before anything is read. A body that
    is not read (`reads_body`: not by the dispatcher) has no bound but the file's end.
    """
    left = end - position
    if left <= 4:
        return FrameVerdict(why="the file is over, and no blank frame leads to the next one")
    head = read(position, min(left, LARGEST_HEAD_SIZE))
    size = int.from_bytes(head[:4], "big", signed=True)
    if len(head) < BLANK_FRAME.size or (release.compares_room and left < size):
        return FrameVerdict(why=f"size {size} is more than the {left} bytes that are left")
    magic = int.from_bytes(head[4:8], "big")
    if magic == BLANK_MAGIC:
        return FrameVerdict(is_blank=True)
    if magic != MESSAGE_MAGIC_V1 and not (release.reads_v2 and magic == MESSAGE_MAGIC_V2):
        return FrameVerdict(why=f"found a illegal magic code 0x{magic:x}")
    said = frame_head(head)
    if said is None or size < 0:
        return FrameVerdict(why=f"size {size} cannot be read")
    body_end = said.size + max(0, said.body_length)
    topic_layout = TOPIC_LENGTH_V2 if magic == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_V1
    if body_end + topic_layout.size > left or (reads_body and said.body_length > size):
        return FrameVerdict(why=f"body length {said.body_length} does not fit")
    if reads_body and size > MAXIMUM_FRAME_SIZE:
        return FrameVerdict(why=f"size {size} cannot be read")
    body = read(position + said.size, body_end - said.size) if reads_body else b""
    if check_crc and body and zlib.crc32(body) & CRC_MASK != said.body_crc:
        return FrameVerdict(why="CRC check failed")
    (topic_length,) = topic_layout.unpack_from(read(position + body_end, topic_layout.size), 0)
    topic_begin = body_end + topic_layout.size
    topic_end = topic_begin + topic_length
    if not 0 <= topic_length <= size or topic_end + PROPERTIES_LENGTH.size > left:
        return FrameVerdict(why=f"topic length {topic_length} does not fit")
    (property_length,) = PROPERTIES_LENGTH.unpack_from(read(position + topic_end, PROPERTIES_LENGTH.size), 0)
    property_length = max(0, property_length)
    property_end = topic_end + PROPERTIES_LENGTH.size + property_length
    if property_length > size or property_end > left:
        return FrameVerdict(why=f"length {property_length} of the properties does not fit")
    if property_end != size:
        return FrameVerdict(size=size, why="found a half message")
    topic = read(position + topic_begin, topic_length).decode("utf-8", "replace")
    property_bytes = (
        read(position + property_end - property_length, property_length).decode("utf-8", "replace").encode()
    )
    message = StoredMessage._make((*said[:-1], body, topic, property_bytes))
    why = unreadable_number(message, knows_batches=release.knows_batches)
    return FrameVerdict(why=why) if why else FrameVerdict(message=message, size=size)


class LogPlace(NamedTuple):
    """A byte of the log: the number of a file, and the position in it."""

    file: int
    position: int


class Taker(Protocol):
    """Who gets what is read, in the log's order."""

    def take_run(self, run: Run) -> None:
        """Messages that pass law 3 as well."""

    def take_message(self, message: StoredMessage) -> None:
        """One that only the broker takes."""


class BrokerReading:
    """Reads `log`, whose files are those that the broker loaded."""

    def __init__(
        self,
        log: MappedFileQueue,
        release: Release,
        walked: WalkedLog,
        events: Events,
        *,
        checks_crc: bool = True,
        checks_place: bool = False,
    ) -> None:
        """`checks_crc`, `checks_place`: checkCRCOnRecover, checkCommitLogOffsetOnRecover."""
        self._checks_crc = checks_crc
        self._checks_place = checks_place
        self._log = log
        self._release = release
        self._walked = walked
        self._events = events
        self.why_it_ended = ""

    def read(self, begin: LogPlace, taker: Taker) -> LogPlace:
        """Read on from `begin` to where the log ends for the broker, and return that place.

        The next file is the next one there is.
        """
        files = self._log.files
        place = begin
        while True:
            goes_on, position = self._read_file(files[place.file], place.position, taker, False)
            place = LogPlace(place.file, position)
            if not goes_on or place.file + 1 >= len(files):
                return place
            place = LogPlace(place.file + 1, 0)

    def catch_up(self, begin: int, taker: Taker) -> int:
        """Read on from the physical offset `begin` as the dispatcher of a running broker does (ReputMessageService#
        doReput); the offset at which it finds nothing more to read.

        Bodies are not read, what cannot be read is passed over to the end of its file, and a frame whose lengths do not
        add up by the size it claims. The next file is the one at the next offset: where it is missing nothing follows.
        """
        offset = begin
        while offset < self._log.max_offset:
            file = next(
                (one for one in self._log.files if 0 <= offset - one.start_offset < one.committed_position), None
            )
            if file is None:
                break
            goes_on, position = self._read_file(file, offset - file.start_offset, taker, True)
            is_over = goes_on and position < file.committed_position
            offset = file.start_offset + (file.committed_position if is_over else position)
        return offset

    def _read_file(self, file: MappedFile, position: int, taker: Taker, catching_up: bool) -> tuple[bool, int]:
        """Whether the next file follows, and where this one was left."""
        start, end = file.start_offset, file.committed_position
        while position < end:
            for record in self._records(file, position):
                if isinstance(record, Run):
                    taker.take_run(record)
                    position = record.end - start
                    continue
                if isinstance(record, Blank):
                    return True, position
                stop = end if record is None else record.end - start
                position, verdict = self._judged(file, position, stop, taker, catching_up)
                if verdict is not None:
                    self.why_it_ended = verdict.why
                    return verdict.is_blank or catching_up, position
                if position != stop:
                    break
        return catching_up, position

    def _judged(
        self, file: MappedFile, position: int, stop: int, taker: Taker, catching_up: bool
    ) -> tuple[int, FrameVerdict | None]:
        """Frames from `position` to `stop` by the broker's own judgement; with what ends the file, if anything does."""
        while position < stop:
            head, verdict = self._judge(file, position, catching_up)
            if verdict.message is None and not (catching_up and verdict.size > 0):
                return position, verdict
            if verdict.message is not None and self._is_elsewhere(file, verdict.message):
                offset = verdict.message.physical_offset
                return position, FrameVerdict(why=f"found illegal commitlog offset {offset} in {file.path}")
            if verdict.message is not None:
                taker.take_message(verdict.message)
            position += head + verdict.size
        return position, None

    def _judge(self, file: MappedFile, position: int, catching_up: bool) -> tuple[int, FrameVerdict]:
        """Return the size of an entry's head at `position`, which no broker reads, and the verdict on the frame after
        it (DLedgerCommitLog#checkMessageAndReturnSize); 0 and that on the frame there, where it has none."""
        head = 0
        if file.holds_entries and int.from_bytes(file.read(position + 4, 4), "big") not in _FRAME_MAGICS:
            if file.read(position, 4) == _FILE_END:
                return 0, FrameVerdict(is_blank=True)
            head = DLEDGER_ENTRY_HEAD.size
        verdict = judge(
            file.read,
            position + head,
            file.committed_position,
            self._release,
            check_crc=self._checks_crc and not catching_up,
            reads_body=not catching_up,
        )
        return head, verdict

    def _is_elsewhere(self, file: MappedFile, message: StoredMessage) -> bool:
        """Whether a message claims to stand in another file, and that is asked."""
        return self._checks_place and not 0 <= message.physical_offset - file.start_offset <= self._log.file_size

    def _records(self, file: MappedFile, position: int) -> Iterator[RunRecord | None]:
        """Records of one file; None at a good message that the broker does not take."""
        reached = file.start_offset + position
        for part in self._walked.alone(self._log, file, position, self._events.progress):
            refused = part.refused_by(self._release)
            if refused is None:
                yield from part.records
                reached = part.records[-1].end if part.records else reached
                continue
            yield from self._walked.up_to(self._log, file, reached, refused)
            yield None
            return


# With which file a recovery begins.

_CLEAN_STOP_FILES = 3
"""Files that are read after a clean stop where the queues do not say (CommitLog#recoverNormally)."""
_RECOVERED_FILES = 10
"""What 5.5 takes for a commitLogRecoverMaxNum that is not positive."""


@dataclass(frozen=True)
class RecoveryStart:
    """What decides where a recovery of `log` begins. `queues_end`: where the log ends by the queues, after a clean
    stop; None after a crash, where the checkpoint counts. `in_rocksdb`: the last message that index and transactions
    have, where they are in `rocksdbstore/`; None for one that has none. `beside`: what the RocksDB has beside queue
    files; an empty one is not waited for."""

    log: MappedFileQueue
    release: Release
    config: StoreConfig
    checkpoint: Checkpoint
    queues_end: int | None
    in_rocksdb: tuple[int | None, ...] = ()
    beside: StoredQueues | None = None

    def dispatched_to(self, reached: int) -> int:
        """Return the offset after which messages are dispatched, where queues have those up to `reached`: the smallest
        of all stores that have any (DefaultMessageStore#recover)."""
        stored = [one for one in self.in_rocksdb if one is not None and one > 0]
        return min([reached, *stored, *([] if self.beside is None else [self.beside.reached])])

    @functools.cached_property
    def file(self) -> int:
        """The number of the file that is read first. Frames of several files are read for it, once."""
        files = self.log.files
        last = len(files) - 1
        if self.release.starts_by_frames:
            return max(self.matching_file, len(files) - self.most_files)
        if self.queues_end is None:
            return next((number for number in range(last, -1, -1) if self._is_covered(files[number])), 0)
        if not self.release.starts_by_queues:
            return max(0, len(files) - _CLEAN_STOP_FILES)
        return next((number for number in range(last, 0, -1) if files[number].start_offset <= self.queues_end), 0)

    @property
    def most_files(self) -> int:
        """How many files 5.5 reads at most, by their order and not by what they hold."""
        return self.config.commit_log_recover_max_num or _RECOVERED_FILES

    @functools.cached_property
    def matching_file(self) -> int:
        """The number of the newest file whose first message 5.5 takes for one that the queues have, else 0. An older
        version knows no other than `file`."""
        if not self.release.starts_by_frames:
            return self.file
        return next((number for number in range(len(self.log.files) - 1, 0, -1) if self._is_matched(number)), 0)

    @property
    def goes_by_a_time(self) -> bool:
        """Whether 5.5 leaves out files after a crash because of a time alone, which may be ahead of the queues."""
        has_only_times = self.queues_end is None and self.checkpoint.logics_physical_offset <= 0
        return self.release.starts_by_frames and has_only_times and self.matching_file > 0

    @property
    def said_of_limit(self) -> str | None:
        """What is to be said where messages are in no queue because `most_files` is too small; None where it is not."""
        files, matching = len(self.log.files), self.matching_file
        if self.file <= matching:
            return None
        return (
            f"recovery reads the newest {self.most_files} of {files} files (commitLogRecoverMaxNum): messages before "
            "them that the queues lack stay out of the queues, and nothing is logged. With "
            f"commitLogRecoverMaxNum={files - matching} in broker.conf this start reads from where the queues end; "
            "`rmqctl recover` does it without"
        )

    @property
    def position(self) -> int:
        """The place in that file: its first byte but for enableAcceleratedRecovery, with which it may lie behind it."""
        if not (self.release.starts_by_frames and self.config.enable_accelerated_recovery and self.queues_end is None):
            return 0
        dispatched = self.dispatched_to(self.checkpoint.logics_physical_offset)
        return max(0, dispatched - self.log.files[self.file].start_offset)

    @property
    def error(self) -> str | None:
        """Why 5.5 does not recover, in its own words."""
        checkpoint = self.checkpoint
        is_accelerated = self.config.enable_accelerated_recovery and self.queues_end is None
        if not (self.release.starts_by_frames and is_accelerated and self.log.files):
            return None
        if checkpoint.logics_physical_offset <= 0 < checkpoint.physic_msg_timestamp:
            what = "Accelerated recovery is enabled but checkpoint's logicsPhysicalOffset is invalid"
            return f"load exception: java.lang.RuntimeException: {what}"
        if self.position > self.log.file_size:
            what = f"newPosition > limit: ({self.position} > {self.log.file_size})"
            return f"load exception: java.lang.IllegalArgumentException: {what}"
        return None

    @property
    def _covers_index(self) -> bool:
        return self.config.message_index_enable and self.config.message_index_safe

    def _is_covered(self, file: MappedFile) -> bool:
        """Whether all before the file's first message is on disk, by the times of the checkpoint (CommitLog#
        isMappedFileMatchedRecover until 5.3)."""
        covered = self.checkpoint.min_timestamp_index if self._covers_index else self.checkpoint.min_timestamp
        magics = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) if self.release.reads_v2 else (MESSAGE_MAGIC_V1,)
        head = frame_head(file.read(0, LARGEST_HEAD_SIZE))
        return head is not None and head.magic_code in magics and 0 != head.store_timestamp <= covered

    def _is_matched(self, number: int) -> bool:
        """The same in 5.5: by a first frame that is whole, the place that it claims, and no margin of time."""
        file, checkpoint = self.log.files[number], self.checkpoint
        message = judge(
            file.read, 0, file.committed_position, self.release, check_crc=self.config.check_crc_on_recover
        ).message
        if message is None or message.store_timestamp == 0:
            return False
        if self.config.duplication_enable and message.property_bytes and not has_duplicate_info(message):
            return False
        if self._covers_index and message.store_timestamp > checkpoint.index_msg_timestamp:
            return False
        if any(one is None or message.physical_offset > one for one in self.in_rocksdb):
            return False
        if self.beside is not None and 0 < self.beside.reached < message.physical_offset:
            return False
        if self.queues_end is not None:
            return message.physical_offset <= self.queues_end
        if checkpoint.logics_physical_offset > 0:
            return message.physical_offset <= checkpoint.logics_physical_offset
        return message.store_timestamp <= checkpoint.logics_msg_timestamp


_DUP_INFO = "DUP_INFO"


def duplicate_info(message: StoredMessage) -> str | None:
    """Return the property that recovery asks for with duplicationEnable=true."""
    return message.properties().get(_DUP_INFO)


def has_duplicate_info(message: StoredMessage) -> bool:
    """Return whether that property, split at "_" as Java splits, has two parts."""
    info = duplicate_info(message)
    return info is not None and len(info.rstrip("_").split("_")) == 2


# Which files a broker loads of a directory, and what it refuses to start on (MappedFileQueue#doLoad).

_LONG = 1 << 63


@dataclass(slots=True)
class Loaded:
    """`files`: (start offset, path) in the order of their names. `deleted`: what loading removes. `error`: why it
    fails, in the broker's words; None if it does not."""

    files: list[tuple[int, Path]] = field(default_factory=list)
    deleted: list[Path] = field(default_factory=list)
    error: str | None = None


def load_files(directories: Iterable[Path], file_size: int, release: Release) -> Loaded:
    """What loading the files of one queue comes to; `file_size` is the configured one. Nothing is changed."""
    return loaded_of([one for directory in directories for one in listed_files(directory)], file_size, release)


class ListedFile(NamedTuple):
    """A file as a broker lists it: File#length is 0 for one that cannot be read."""

    path: Path
    length: int
    is_directory: bool


def listed_files(directory: Path) -> list[ListedFile]:
    """List a folder; File#listFiles gives null for one that cannot be listed: nothing to load."""
    return [ListedFile(path, *_length(path)) for path in map(directory.joinpath, list_in_order(directory))]


def loaded_of(found: list[ListedFile], file_size: int, release: Release) -> Loaded:
    """What loading files comes to that were listed."""
    loaded = Loaded()
    for number, (path, length, is_directory) in enumerate(sorted(found, key=lambda one: one.path.name), start=1):
        name = path.name
        if release.tidies_listing and is_directory:
            continue
        if release.tidies_listing and length == 0 and number == len(found):
            loaded.deleted.append(path)
            continue
        if length != file_size:
            loaded.error = f"{path}\t{length} length not matched message store config value, please check it manually"
            return loaded
        start = parse_long(name)
        if start is None:
            loaded.error = number_format(name)
            return loaded
        loaded.files.append((start, path))
    return loaded


def _length(path: Path) -> tuple[int, bool]:
    """Return File#length; 0 for a path that cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return 0, False
    return status.st_size, stat.S_ISDIR(status.st_mode)


def number_format(text: str) -> str:
    """What Java says of a text that is no number."""
    return f'load exception: java.lang.NumberFormatException: For input string: "{text}"'


def list_in_order(directory: Path) -> list[str]:
    """Names in the order in which the file system lists them, as File#listFiles gives them; empty if it cannot."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except OSError as error:
        refuse_exhausted(error, directory)
        return []


# Which index files a broker destroys when it starts (IndexService#load).

_CHUNK = 65536


@dataclass(slots=True)
class IndexStart:
    """`deleted`: files that go. `resized`: files of another length than configured, which the broker extends or reads
    in part. `error`: what it cannot open."""

    deleted: list[Path] = field(default_factory=list)
    resized: list[Path] = field(default_factory=list)
    error: str | None = None


def start_index(
    service: IndexService, checkpoint: Checkpoint | None, after_crash: bool, descriptors: Descriptors
) -> IndexStart:
    """What loading does to the files in the folder of `service`. After a crash those go whose end the checkpoint does
    not cover; it covers full files only, so the newest one goes always."""
    covered = 0 if checkpoint is None else checkpoint.index_msg_timestamp
    start = IndexStart()
    for name in sorted(list_in_order(service.directory)):
        path = service.directory / name
        if parse_long(name) is None:
            continue
        if not is_file(path):
            start.error = f"load file {path} error: java.io.FileNotFoundException: {path} (Is a directory)"
            return start
        head = descriptors.read(path, 0, INDEX_HEADER.size).ljust(INDEX_HEADER.size, b"\0")
        if after_crash and int(INDEX_HEADER.unpack_from(head, 0)[1]) > covered:
            start.deleted.append(path)
        elif path.stat().st_size != service.geometry.file_size:
            start.resized.append(path)
    return start


def lost_entries(service: IndexService, deleted: list[Path], begin: int, start_offset: int) -> int:
    """Count entries of `deleted` files that are not written again, because recovery begins after their messages. Those
    of messages before `begin`, where the log begins, led nowhere."""
    lost = 0
    for file in service.files:
        if file.path not in deleted:
            continue
        for number in range(1, file.header.index_count, _CHUNK):
            data = file.read_entries(number, min(_CHUNK, file.header.index_count - number))
            entries = np.frombuffer(data, INDEX_ENTRY.dtype(), len(data) // INDEX_ENTRY.size)
            offsets = entries["physical_offset"]
            lost += int(np.count_nonzero((begin <= offsets) & (offsets < start_offset)))
    return lost
