"""The topics met so far, numbered in the order they were met, and the hash table in which kernels look them up."""

from __future__ import annotations

import secrets
import threading

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.hashing import java_hash
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC

# A kernel gives up after this many slots, and Python's own dictionary answers: names made to collide cost no more.
MAXIMUM_PROBES = 16
# as a signed number, because kernels compute with signed 64 bits
HASH_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)
_MASK = (1 << 64) - 1
# the columns of `entries`: where the topic stands in `text`, the key hash behind `topic#`, and whether it is the
# schedule topic
TEXT_BEGIN, TEXT_LENGTH, KEY_STATE, IS_SCHEDULE = range(4)


class TopicIds:
    """`names[id]` is the topic of that id. May be shared by several walks in several threads."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.seed = secrets.randbits(63)
        self._ids: dict[bytes, int] = {}
        self._adding = threading.Lock()
        self.slots: NDArray[np.int32] = np.full(64, -1, np.int32)
        self.entries: NDArray[np.int64] = np.zeros((32, 4), np.int64)
        self.text: NDArray[np.uint8] = np.zeros(1024, np.uint8)
        self._text_used = 0

    def __len__(self) -> int:
        return len(self.names)

    def id_of(self, topic: bytes) -> int:
        """The id of a topic, which must be UTF-8; a new one for a topic not met before."""
        known = self._ids.get(topic)
        if known is not None:
            return known
        with self._adding:
            known = self._ids.get(topic)
            return self._add(topic) if known is None else known

    def _add(self, topic: bytes) -> int:
        number = len(self.names)
        name = topic.decode("utf-8")
        # arrays are replaced as they grow, never resized: a kernel may be reading the old ones in another thread
        if number >= len(self.entries):
            self.entries = np.concatenate([self.entries, np.zeros_like(self.entries)])
        used = self._text_used
        if used + len(topic) + 8 > len(self.text):
            grown = np.zeros(2 * (used + len(topic) + 8), np.uint8)
            grown[:used] = self.text[:used]
            self.text = grown
        self.text[used : used + len(topic)] = np.frombuffer(topic, np.uint8)
        # a multiple of eight, so that kernels compare whole words: what pads the last one is zero
        self._text_used = used + (len(topic) + 7 & -8)
        self.entries[number] = used, len(topic), java_hash(name + "#"), name == SCHEDULE_TOPIC
        self.names.append(name)
        self._ids[topic] = number
        if 2 * (number + 1) > len(self.slots):
            self._grow()
        else:
            self._insert(self.slots, topic, number)
        return number

    def _grow(self) -> None:
        slots: NDArray[np.int32] = np.full(4 * len(self.slots), -1, np.int32)
        for topic, number in self._ids.items():
            self._insert(slots, topic, number)
        self.slots = slots

    def _insert(self, slots: NDArray[np.int32], topic: bytes, number: int) -> None:
        place = self.hash_of(topic)
        for probe in range(MAXIMUM_PROBES):
            slot = place + probe & len(slots) - 1
            if slots[slot] < 0:
                slots[slot] = number
                return

    def hash_of(self, topic: bytes) -> int:
        """Where the search for a topic begins: the plain twin of the kernel's `topic_place`."""
        state = self.seed ^ len(topic)
        for at in range(0, len(topic), 8):
            word = int.from_bytes(topic[at : at + 8].ljust(8, b"\0"), "little")
            state = (state ^ word) * HASH_MULTIPLIER & _MASK
            state ^= state >> 32
        return state
