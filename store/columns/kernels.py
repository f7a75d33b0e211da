"""Loads and tries the compiled kernels. Importing this module imports numba."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from formats.hosts import LOCAL_HOST
from formats.message import Message, frame_bytes, prepare_frame
from store.columns import compiling
from store.columns.batch import INTS, LONGS, Columns
from store.columns.engine import Engine, is_crc32
from store.columns.kernel_crc import compile_crc_by_tables
from store.columns.state import PADDING, SCRATCH_SHAPE, STATE_SIZE, STOPPED, State
from store.columns.topics import TopicTable


def load(isal_crc: Any, isal_notice: str | None, announce: Callable[[], None]) -> Engine:
    """The compiled walk with isal's CRC if there is one, else with tables; `announce` is called before compiling.

    Raises whatever numba raises, and AssertionError for code that gives wrong answers.
    """
    if isal_crc is not None:
        function, owner, notice = ctypes.cast(isal_crc, ctypes.c_void_p).value or 0, isal_crc, isal_notice
    else:
        with compiling.listening(announce):
            owner = compile_crc_by_tables(compiling.source_stamp("store.columns.kernel_crc"))
        function, notice = owner.address, f"CRCs are computed slowly because {isal_notice}"
        if not is_crc32(lambda address, length: int(owner.ctypes(0, address, length))):
            raise AssertionError("the compiled CRC gives wrong results")
    (walk_window,) = compiling.load_kernels(
        "store.columns.kernel_walk", lambda kernels: is_right(kernels[0], function), announce
    )
    if notice is None and not compiling.is_kept(walk_window):
        notice = "compiled code cannot be kept for the next command: set NUMBA_CACHE_DIR to a writable directory"
    return Engine(walk_window, function, notice, owner)


def is_right(walk_window: Callable[..., int], crc_function: int) -> bool:
    """Whether it walks as it should over two messages, the second one damaged."""
    topics = TopicTable()
    topics.id_of(b"Topic")
    message = Message("Topic", b"body" * 20, properties={"KEYS": "a b", "TAGS": "Tag", "UNIQ_KEY": "0A" * 16})
    parts = prepare_frame(message, LOCAL_HOST, 1, with_property_crc=True)
    first = frame_bytes(parts, 7, 0, 2)
    second = bytearray(frame_bytes(parts, 8, len(first), 2))
    second[100] ^= 1
    data = first + second
    window = np.frombuffer(data + bytes(PADDING), np.uint8).copy()
    state = np.zeros(STATE_SIZE, np.int64)
    state[State.WINDOW], state[State.LENGTH], state[State.STOP] = window.ctypes.data, len(data), len(data)
    state[State.CRC_FUNCTION], state[State.ASKED] = crc_function, int(Columns.ALL)
    state[State.TEXT], state[State.SEED], state[State.TOPIC_HINT] = topics.text.ctypes.data, topics.seed, -1
    longs, ints = np.zeros((len(LONGS), 4), np.int64), np.zeros((len(INTS), 4), np.int32)
    key_hash, key_row = np.zeros(100, np.int32), np.zeros(100, np.int32)
    scratch = np.zeros(SCRATCH_SHAPE, np.int64)
    status = walk_window(state, longs, ints, key_hash, key_row, topics.slots, topics.entries, scratch)
    found = status, int(state[State.POSITION]), int(state[State.ROW]), int(state[State.KEYS]), int(longs[1, 0])
    return found == (STOPPED, len(first), 1, 3, 7)
