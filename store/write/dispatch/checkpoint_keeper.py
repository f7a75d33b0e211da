"""Keeps the checkpoint file of a store that is being written (StoreCheckpoint)."""

from __future__ import annotations

import threading
from pathlib import Path

from rmqctl.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint


class CheckpointKeeper:
    """The checkpoint's values, and the file they are written to when they changed.

    Unlike RocketMQ's, a time gets in here only after what it speaks of was fsynced.
    """

    def __init__(self, path: Path, *, keeps_logics_offset: bool = False) -> None:
        """`keeps_logics_offset`: see StoreFiles; else it stays as it is."""
        self._path = path
        self._keeps_logics_offset = keeps_logics_offset
        self._lock = threading.Lock()
        self._on_disk = read_checkpoint(path)
        self._values = self._on_disk or Checkpoint()
        # (time, physical offset) of the oldest and the last message that went back in time, until they are covered
        self._ceiling: tuple[int, int] | None = None

    @property
    def values(self) -> Checkpoint:
        """What the next `write` writes."""
        return self._values

    def set(
        self,
        *,
        physic: int = 0,
        logics: int = 0,
        index: int = 0,
        confirm: int | None = None,
        logics_offset: int | None = None,
        covered_to: int = 0,
    ) -> None:
        """Note times (ms; 0 for no news), the start of the last valid message, and that of the last message whose unit
        and frame are on disk. Not written yet.

        `covered_to`: physical offset up to which log and queues are known to be on disk.
        """
        if not self._keeps_logics_offset:
            logics_offset = None
        with self._lock:
            if self._ceiling is not None:
                timestamp, offset = self._ceiling
                if covered_to > offset:
                    self._ceiling = None
                else:
                    physic, logics = min(physic, timestamp), min(logics, timestamp)
            values = self._values
            self._values = values._replace(
                physic_msg_timestamp=physic or values.physic_msg_timestamp,
                logics_msg_timestamp=logics or values.logics_msg_timestamp,
                index_msg_timestamp=index or values.index_msg_timestamp,
                confirm_physical_offset=values.confirm_physical_offset if confirm is None else confirm,
                logics_physical_offset=values.logics_physical_offset if logics_offset is None else logics_offset,
            )

    def lower(self, timestamp: int, physical_offset: int) -> None:
        """Before a message is stored whose time (ms) lies behind that of earlier ones: see that the file on disk does
        not call it flushed, now or before it is. A recovery trusts that times only grow."""
        with self._lock:
            before = self._ceiling
            self._ceiling = (timestamp if before is None else min(timestamp, before[0]), physical_offset)
            values = self._values
            self._values = values._replace(
                physic_msg_timestamp=min(values.physic_msg_timestamp, timestamp),
                logics_msg_timestamp=min(values.logics_msg_timestamp, timestamp),
            )
        self.write()

    def write(self) -> None:
        """Write the file if anything changed; durable when this returns."""
        with self._lock:
            if self._values != self._on_disk:
                write_checkpoint(self._path, self._values)
                self._on_disk = self._values
