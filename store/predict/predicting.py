"""Predict a start: which kind it is, and again where files were removed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rmqctl.formats.errors import CorruptError, RemovedError, UsageError
from rmqctl.formats.layouts import DLEDGER_ENTRY_HEAD, MESSAGE_MAGIC_V1
from rmqctl.formats.message import LARGEST_HEAD_SIZE, StoredMessage, frame_head
from rmqctl.store.compare.entries import EntriesEnd, committed_end
from rmqctl.store.config.config import as_a_broker_starts
from rmqctl.store.config.config_database import databases
from rmqctl.store.config.releases import RELEASES, Release
from rmqctl.store.files.layout import is_database
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.implied import QueueRun
from rmqctl.store.log.walk import walk
from rmqctl.store.options import Events
from rmqctl.store.predict.both_queues import writes_both
from rmqctl.store.predict.broker_log import BrokerReading, IndexStart, LogPlace, RecoveryStart, start_index
from rmqctl.store.predict.broker_queues import SimulatedDispatch
from rmqctl.store.predict.counting import count_behind
from rmqctl.store.predict.entries import DledgerStart, EntriesReading
from rmqctl.store.predict.prediction import Prediction, Start
from rmqctl.store.predict.rules import has_queues_in_rocksdb, refuse_what_is_not_followed
from rmqctl.store.predict.surroundings import ConfigStart
from rmqctl.store.predict.walked import WalkedLog
from rmqctl.store.queues.dispatch import FurtherSlots, QueueSlot
from rmqctl.store.queues.queue_table import list_queues, rocksdb_folder
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues, StoredQueues, stored_queues
from rmqctl.store.store_files import Checkpoint, StoreFiles

# The next start of a broker that keeps its consume queues in a RocksDB (RocksDBConsumeQueueStore)
_TWO = "load exception: java.lang.IllegalStateException: both consumequeue/ and consumequeue_rocksdb/ hold a RocksDB"


class _InRocksdb(Start):
    """A start that reads queues in a RocksDB, and ends where that is damaged."""

    _stored = StoredQueues()

    def run(self) -> Prediction:
        """Go through the start once."""
        try:
            return super().run()
        except CorruptError as error:
            return self._finished(f"load exception: RocksDBException: {error}")

    def _load_queues(self) -> str | None:
        layout = self.files.layout
        if is_database(layout.consumequeue) and is_database(layout.consumequeue_rocksdb):
            return _TWO
        self._stored = stored_queues(rocksdb_folder(layout))
        return None


class RocksdbStart(_InRocksdb):
    """One start with storeType=defaultRocksDB. Of queues nothing is cut: units past the log are written again."""

    def _load(self, config: ConfigStart) -> Prediction:
        result = self.result
        log = self._load_log()
        error = result.error or self._load_queues()
        if error is not None:
            return self._finished(error)
        self._say_what_counts()
        # clean or not, the entry of CHECKPOINT_TOPIC says where the queues end
        checkpoint = self.files.readable_checkpoint() or Checkpoint()
        start = RecoveryStart(
            log, self.release, self.files.config, checkpoint, self._stored.reached, self._reached_in_rocksdb()
        )
        if self.release.makes_rocksdb_store:
            result.warnings += self._of_rocksdb_store()
        index = start_index(
            self.files.index, self.files.readable_checkpoint(), not result.was_clean, self.files.descriptors
        )
        if log.files:
            self._recover(log, start)
        else:
            result.end_offset = 0
        self._note_index(index)
        try:
            self._note_timer()
        except CorruptError as error:
            result.warnings.append(f"what becomes of the timer's messages is not known: {error}")
        return self._finished(index.error if self.release.index_counts else self._refused_levels())

    def _say_what_counts(self) -> None:
        warnings = self.result.warnings
        if not self._stored.ends and not self._stored.reached and self.files.log.files:
            warnings.append("the RocksDB of the queues is missing or empty: this start fills it from the log")
        if list_queues(self.files.layout.consumequeue):
            warnings.append(
                "queue files beside the RocksDB are not read, and become stale: a later start with storeType=default "
                "takes them as they are. `rmqctl rebuild --queues files` makes them again first"
            )

    def _recover(self, log: MappedFileQueue, start: RecoveryStart) -> None:
        result, config, reached = self.result, self.files.config, self._stored.reached
        begin = LogPlace(start.file, 0)
        first = log.files[begin.file]
        result.start_file, result.start_offset = first.path.name, first.start_offset
        reading = BrokerReading(
            log, self.release, self.walked, self.events, checks_crc=config.check_crc_on_recover, checks_place=False
        )
        # after a clean stop the message that begins where the queues end is left out (CommitLog#recoverNormally)
        leaves_one_out = result.was_clean and start.dispatched_to(reached) == reached
        added = _counter(self, log, reached if leaves_one_out else reached - 1)
        end = reading.read(begin, added)
        end_offset = log.files[end.file].start_offset + end.position
        result.end_offset, result.end_reason = end_offset, reading.why_it_ended or None
        result.messages_lost, result.bytes_lost = count_behind(self.files.log, end_offset)
        for key, (units, last, _) in sorted(added.found.items()):
            before = self._stored.ends.get(key, 0)
            result.queues_changed.append(
                _changed(*key, (before, None if before else added.first[key]), last + 1, units)
            )
        left = _counter(self, log, -1)
        # what recovery does not read, and the one message that it leaves out
        stop = first.start_offset if start.said_of_limit is not None else reached + leaves_one_out
        for record in walk(log, reached) if stop > reached else ():
            if record.physical_offset >= min(stop, end_offset):
                break
            if isinstance(record, StoredMessage):
                left.take_message(record)
        left.note_left(result)
        if left.found and start.said_of_limit is not None:
            result.warnings.append(start.said_of_limit)
        self._truncate_log(log, end_offset)


class DledgerRocksdbStart(_InRocksdb, DledgerStart):
    """The start of a DLedger member whose queues are in a RocksDB. Units past the log are cut after a clean stop alone;
    what a recovery after a crash writes again stays."""

    def _is_matched(self, log: MappedFileQueue, number: int) -> bool:
        head = frame_head(log.files[number].read(DLEDGER_ENTRY_HEAD.size, LARGEST_HEAD_SIZE))
        if head is None or head.magic_code != MESSAGE_MAGIC_V1 or head.physical_offset > self._stored.reached:
            return False
        config, checkpoint = self.files.config, self.files.readable_checkpoint() or Checkpoint()
        covers_index = config.message_index_enable and config.message_index_safe
        is_late = covers_index and head.store_timestamp > checkpoint.index_msg_timestamp
        return not self.release.starts_by_frames or not (head.store_timestamp == 0 or is_late)

    def _follow(self, index: MappedFileQueue, end: EntriesEnd, keys: IndexStart) -> None:
        result, reached, log = self.result, self._stored.reached, self._log_to(end.end)
        goes_on = self._goes_on(log, committed_end(self.files, index, end) or 0)
        begin, stop, added = log.max_offset, 0, _counter(self, log, reached - 1)
        if not result.was_clean:
            begin, stop, _ = self._read_entries(end, added)
            added.floor = max(reached, stop) - 1
        EntriesReading(log, self, added).catch_up(goes_on, added)
        for key, (units, last, _) in sorted(added.found.items()):
            before = self._stored.ends.get(key, 0)
            first = None if before else added.first[key]
            result.queues_changed.append(_changed(*key, (before, first), last + 1, units))
        if self._stored.database is not None and result.was_clean and reached >= end.end:
            result.queues_changed += _cut_in_rocksdb(self._stored.database, end.end)
        left = _counter(self, log, reached - 1)
        for record in walk(log, max(reached, stop)) if max(reached, stop) < goes_on else ():
            if record.physical_offset >= min(goes_on, end.end):
                break
            if isinstance(record, StoredMessage):
                left.take_message(record)
        left.note_left(result)
        self._note_keys(keys, log.min_offset, begin, stop, goes_on)
        self._note_lacking(in_rocksdb=True)


def _cut_in_rocksdb(queues: RocksdbQueues, end_offset: int) -> Iterator[dict[str, Any]]:
    """Yield rows of queues_changed for queues that have units of messages from an offset on."""
    for one in queues.ends():
        queue = queues.queue(one)
        places = range(one.end - 1, -1, -1)
        kept = next((at for at in places if (unit := queue.unit(at)) and unit.physical_offset < end_offset), -1) + 1
        if kept < one.end:
            row = _changed(one.topic, one.queue_id, (one.end, None), 0, 0)
            yield row | {"max_after": kept, "units_dropped": one.end - kept}


def _counter(start: Start, log: MappedFileQueue, floor: int) -> _Counter:
    further, has_light = FurtherSlots(start.files.queues.find), start.files.config.fills_light_queues
    counter = _Counter(start.queues, log, start.release, start.levels, set(), further, has_light_queues=has_light)
    counter.floor = floor
    return counter


class _Counter(SimulatedDispatch):
    """Counts units by queue: how many, the last slot, and the physical offset of the first."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.found: dict[tuple[str, int], tuple[int, int, int]] = {}
        self.first: dict[tuple[str, int], int] = {}

    def add(self, slot: QueueSlot) -> None:
        """One unit."""
        self._note(slot.topic, slot.queue_id, 1, slot.unit.queue_offset, slot.unit.physical_offset)

    def add_units(self, run: QueueRun) -> None:
        """Units of one queue."""
        slots, places = run.slots, run.units["physical_offset"]
        self._note(run.topic, run.queue_id, len(slots), int(slots.max()), int(places[0]), int(slots.min()))

    def note_left(self, result: Prediction) -> None:
        """Note what was counted as messages that stay in no queue."""
        for key, (units, last, place) in sorted(self.found.items()):
            row = {"topic": key[0], "queue_id": key[1], "messages": units, "first_offset": self.first[key]}
            result.unqueued.append(row | {"last_offset": last, "physical_offset": place})
            result.messages_unqueued += units

    def _note(self, topic: str, queue_id: int, units: int, last: int, place: int, first: int | None = None) -> None:
        key = topic, queue_id
        count, highest, lowest = self.found.get(key, (0, last, place))
        self.found[key] = count + units, max(highest, last), lowest
        self.first.setdefault(key, last if first is None else first)


def _changed(topic: str, queue_id: int, known: tuple[int, int | None], after: int, units: int) -> dict[str, Any]:
    """Return a row of queues_changed; `known`: end before, and beginning after the start where that is known."""
    return {
        "topic": topic,
        "queue_id": queue_id,
        "max_before": known[0],
        "min_after": known[1],
        "max_after": max(known[0], after),
        "units_dropped": 0,
        "units_added": units,
        "units_misplaced": 0,
        "files_deleted": [],
    }


# how often a store is read again because files of it were removed meanwhile
_RESTARTS = 3


def predict(
    files: StoreFiles,
    broker: str,
    *,
    batch_topics: Iterable[str] | None = None,
    walked: WalkedLog | None = None,
    events: Events = Events(),
) -> Prediction:
    """What the next start of that version ("4.9.8", "5.3.3", "5.5.0") will do to the store, which is not touched.

    The configuration of `files` is taken for the broker's; sizes it does not name are those of the files.
    `batch_topics`: topics with queue.type=BatchCQ; by default those of config/topics.json. `walked`: one for the starts
    of all versions saves each of them a walk of the log. UsageError for another version, UnsupportedError for settings
    with which a start goes by other rules.
    """
    release = RELEASES.get(broker)
    if release is None:
        raise UsageError(f"the start of broker {broker!r} is not known", hint=f"known are {', '.join(RELEASES)}")
    refuse_what_is_not_followed(files.layout, files.config, release)
    if files.config.dropped:
        files = StoreFiles(files.root, as_a_broker_starts(files.config))
    kind: type[Start] = DledgerStart if files.dledger is not None else Start
    if has_queues_in_rocksdb(files.layout, files.config, release):
        kind = RocksdbStart if files.dledger is None else DledgerRocksdbStart
    walked = walked or WalkedLog()
    for _ in range(_RESTARTS):
        if kind is Start and is_database(rocksdb_folder(files.layout)):
            files = StoreFiles(files.root, files.config)
            files.use_queue_files()
        found = _of_what_is_there(files, kind(files, release, batch_topics, events, walked).run)
        if found is not None:
            return _with_homes(found, files, release)
        # files went away meanwhile: it is another store now
        files = StoreFiles(files.root, files.config)
        walked.clear()
    return kind(files, release, batch_topics, events, walked).run()


def _with_homes(found: Prediction, files: StoreFiles, release: Release) -> Prediction:
    """Return the prediction with what is to be said where a broker of storeType=default finds RocksDB."""
    layout, config = files.layout, files.config
    if not has_queues_in_rocksdb(layout, config, release):
        is_unread = not writes_both(layout, config, release)
        if is_unread and is_database(rocksdb_folder(layout)) and (config.store_type or release.is_of_4):
            found.warnings.append(
                f"{rocksdb_folder(layout).name}/ is not read, and becomes stale: a later start with "
                "storeType=defaultRocksDB goes on where it ends. Move it away if it is not wanted any more"
            )
        unread = [folder for folder in databases(layout.config) if folder.name != "rdb"]
        if unread and config.store_type and not release.is_of_4:
            names = ", ".join(f"config/{folder.name}" for folder in unread)
            found.warnings.append(
                f"{names} are read with storeType=defaultRocksDB alone: topics, groups and offsets are those of the "
                "JSON files, or none. `rmqctl export --what config` makes the files"
            )
    return found


def _of_what_is_there(files: StoreFiles, look: Callable[[], Prediction]) -> Prediction | None:
    """What `look` finds; None where files were removed while it looked."""
    log = files.log
    begin = log.min_offset
    try:
        found = look()
    except RemovedError:
        return None
    return None if log.files and log.begins_behind(begin) else found
