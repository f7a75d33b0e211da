"""The follower: walks the log behind the append position and dispatches every message to queues and index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from formats.errors import CorruptError, WriteFailedError
from formats.layouts import BLANK_FRAME, BLANK_MAGIC
from formats.message import FrameDamage, StoredMessage, decode_message
from store.config import StoreConfig
from store.dispatch import index_keys, queue_slots
from store.files.background import Background
from store.files.mapped_file import MappedFile
from store.queues.consumequeue import ConsumeQueue
from store.queues.flush import QueueFlusher
from store.store_files import StoreFiles
from store.write.running_state import RunningState

_CHUNK = 256 * 1024
# wakes are lost to nobody, so this only bounds how late an fsync of the log is noticed
_INTERVAL_MS = 20
# queues that keep a descriptor for appending
_MAXIMUM_OPEN_QUEUES = 128


class Follower:
    """Dispatches messages up to `readable_end` (ReputMessageService, spec/write-path.md 8).

    `position`: physical offset up to which everything is dispatched. `last_timestamp` (ms) and `last_offset`: store
    time and start of the last dispatched message. An error makes the store non-writeable: a queue unit that was not
    written cannot be made up for by later ones.
    """

    def __init__(
        self,
        files: StoreFiles,
        position: int,
        readable_end: Callable[[], int],
        queue_flusher: QueueFlusher,
        state: RunningState,
        is_batch_topic: Callable[[str], bool],
    ) -> None:
        self.position = position
        self.last_timestamp = 0
        self.last_offset = -1
        self.index_timestamp = 0
        self._files = files
        self._config: StoreConfig = files.config
        self._delay_levels = files.config.delay_levels()
        self._readable_end = readable_end
        self._queue_flusher = queue_flusher
        self._state = state
        self._is_batch_topic = is_batch_topic
        self._open_queues: OrderedDict[tuple[str, int], ConsumeQueue] = OrderedDict()
        self._condition = threading.Condition()
        self._thread = Background("reput", self.dispatch_all, _INTERVAL_MS, state.fail)
        state.on_failure(self._notify)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread where it is."""
        self._thread.stop()

    def wake(self) -> None:
        """There is more to dispatch."""
        self._thread.wake()

    def wait_for(self, offset: int, timeout: float | None = None) -> bool:
        """Wait until everything before `offset` is dispatched; False after `timeout` seconds or if the store failed."""
        if self.position >= offset:
            return True
        self._thread.wake()
        with self._condition:
            self._condition.wait_for(lambda: self.position >= offset or self._state.failure is not None, timeout)
        return self.position >= offset

    def dispatch_all(self) -> None:
        """Dispatch whatever is readable now. One thread at a time."""
        while self._dispatch_chunk():
            self._notify()

    def _notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _dispatch_chunk(self) -> bool:
        """Dispatch some of what is readable; whether there was anything."""
        end = self._readable_end()
        file = self._files.log.find(self.position) if self.position < end else None
        if file is None:
            return False
        start = self.position
        data = file.read(start - file.start_offset, min(_CHUNK, end - start))
        at = 0
        while at + BLANK_FRAME.size <= len(data):
            size, magic = BLANK_FRAME.unpack_from(data, at)
            if magic == BLANK_MAGIC:
                self.position = file.end_offset
                return True
            if at + size > len(data):
                if at or len(data) < min(_CHUNK, end - start):
                    break
                data = file.read(start - file.start_offset, size)
            self._dispatch(self._decode(file, data, at, start + at))
            at += size
            self.position = start + at
        return self.position > start

    def _decode(self, file: MappedFile, data: bytes, at: int, physical_offset: int) -> StoredMessage:
        try:
            return decode_message(data, at, file.end_offset - physical_offset, physical_offset, check_crc=False)
        except FrameDamage as damage:
            raise CorruptError(
                f"what was just appended reads back damaged: {damage.detail}",
                file=file.path,
                physical_offset=physical_offset,
                hint="another process or the disk has changed the file; run `rmqctl recover`",
            ) from damage

    def _dispatch(self, message: StoredMessage) -> None:
        is_batch = self._is_batch_topic(message.topic)
        for slot in queue_slots(message, self._delay_levels, is_batch):
            queue = self._files.queues.find_or_create(slot.topic, slot.queue_id, slot.is_batch)
            if slot.is_batch != (queue.kind == "BatchCQ"):
                raise WriteFailedError(
                    f"a message for a {'batch' if slot.is_batch else 'simple'} queue, but the queue is {queue.kind}",
                    file=queue.directory,
                    physical_offset=message.physical_offset,
                )
            queue.append(slot.unit)
            self._queue_flusher.wrote(queue.files.files[-1].path)
            if isinstance(queue, ConsumeQueue):
                self._keep_open((slot.topic, slot.queue_id), queue)
        if self._config.message_index_enable:
            for key in index_keys(message):
                self._put_key(message, key)
        self.last_offset = message.physical_offset
        self.last_timestamp = message.store_timestamp

    def _put_key(self, message: StoredMessage, key: str) -> None:
        index = self._files.index
        if index.put(message.topic, key, message.physical_offset, message.store_timestamp):
            # full: its times may go to the checkpoint once it is on disk
            index.files[-1].close()
            self.index_timestamp = message.store_timestamp

    def release(self) -> None:
        """Close the descriptors of queues without flushing; for a store that failed."""
        while self._open_queues:
            self._open_queues.popitem()[1].release()

    def _keep_open(self, key: tuple[str, int], queue: ConsumeQueue) -> None:
        self._open_queues[key] = queue
        self._open_queues.move_to_end(key)
        if len(self._open_queues) > _MAXIMUM_OPEN_QUEUES:
            self._open_queues.popitem(last=False)[1].release()
