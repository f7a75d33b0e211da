"""Which rung of the ladder does the walk: compiled with isal's CRC, compiled with our own CRC, or plain Python."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.hosts import LOCAL_HOST
from rmqctl.formats.message import Message, frame_bytes, prepare_frame
from rmqctl.store.columns.batch import INTS, LONGS, Columns
from rmqctl.store.columns.state import PADDING, SCRATCH_SHAPE, STATE_SIZE, STOPPED, WalkState
from rmqctl.store.columns.topics import TopicIds
from rmqctl.store.compiled.available import NO_ISAL, is_crc32, is_little, isal_crc, why_plain
from rmqctl.store.compiled.notices import notice
from rmqctl.store.compiled.tried import LOOK_AGAIN, NotKept, announcing

_KERNELS = "rmqctl.store.columns.kernel_walk"
_loading = threading.Lock()


class WalkEngine(NamedTuple):
    """What walks a window. `walk_window` is None on the plain rung; `crc_function` is an address, owned by `owner`."""

    walk_window: Callable[..., int] | None
    crc_function: int
    notice: str | None
    owner: object = None


_loaded: dict[tuple[str | None, bool], WalkEngine] = {}


def speed_notice() -> str | None:
    """Why bulk work is slower here than it could be, as one sentence for people; None where it is not.

    Loads the engine if nothing has done so before: ask when bulk work begins, not at start.
    """
    return engine().notice


def engine(*, is_waited_for: bool = True) -> WalkEngine:
    """The highest rung that works here and that the environment allows; says why it is not higher (`notices`).

    Unless it `is_waited_for`, this waits while another process compiles the walk.
    """
    if is_little():
        return WalkEngine(None, 0, None)
    key = why_plain(), _is_isal_forbidden()
    while True:
        with _loading, contextlib.suppress(NotKept):
            loaded = _loaded[key] = _loaded.get(key) or _load(*key, announcing(_KERNELS, is_waited_for))
            break
        time.sleep(LOOK_AGAIN)
    if loaded.notice is not None:
        notice(loaded.notice)
    return loaded


def crc_function() -> int:
    """Address of the CRC that kernels call: isal's, for which no walk is loaded, or the engine's."""
    function, _ = _isal(_is_isal_forbidden())
    return engine().crc_function if function is None else _address(function)


def _is_isal_forbidden() -> bool:
    return os.environ.get(NO_ISAL) == "1"


def _isal(is_forbidden: bool) -> tuple[Any, str | None]:
    """isal's CRC, or why it is not used."""
    return (None, f"{NO_ISAL}=1 is set") if is_forbidden else isal_crc()


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _load(why: str | None, no_isal: bool, announce: Callable[[], None]) -> WalkEngine:
    if why is not None:
        return WalkEngine(None, 0, f"whole logs are read slowly because {why}")
    function, slower = _isal(no_isal)
    try:
        return load(function, slower, announce)
    except Exception as error:  # noqa: BLE001 - numba and LLVM raise anything; the plain rung does the same work
        detail = str(error).partition("\n")[0][:200]
        why = f"its kernels cannot be compiled here ({type(error).__name__}: {detail})"
        return WalkEngine(None, 0, f"whole logs are read slowly because {why}")


def load(isal: Any, isal_notice: str | None, announce: Callable[[], None]) -> WalkEngine:
    """The compiled walk with isal's CRC if there is one, else with tables; `announce` is called before compiling.

    Raises whatever numba raises, and AssertionError for code that gives wrong answers.
    """
    from rmqctl.store.compiled import compiling
    from rmqctl.store.compiled.kernel_crc import compile_crc_by_tables

    if isal is not None:
        function, owner, notice = _address(isal), isal, isal_notice
    else:
        with compiling.listening(announce):
            owner = compile_crc_by_tables(compiling.source_stamp("rmqctl.store.compiled.kernel_crc"))
        function, notice = owner.address, f"CRCs are computed slowly because {isal_notice}"
        if not is_crc32(lambda address, length: int(owner.ctypes(0, address, length))):
            raise AssertionError("the compiled CRC gives wrong results")
    (walk_window,) = compiling.load_kernels(_KERNELS, lambda kernels: is_right(kernels[0], function), announce)
    if notice is None and not compiling.is_kept(walk_window):
        notice = "compiled code cannot be kept for the next command: set NUMBA_CACHE_DIR to a writable directory"
    return WalkEngine(walk_window, function, notice, owner)


def is_right(walk_window: Callable[..., int], crc_function: int) -> bool:
    """Whether it walks as it should over two messages, the second one damaged."""
    topics = TopicIds()
    topics.id_of(b"Topic")
    message = Message("Topic", b"body" * 20, properties={"KEYS": "a b", "TAGS": "Tag", "UNIQ_KEY": "0A" * 16})
    parts = prepare_frame(message, LOCAL_HOST, 1, with_property_crc=True)
    first = frame_bytes(parts, 7, 0, 2)
    second = bytearray(frame_bytes(parts, 8, len(first), 2))
    second[100] ^= 1
    data = first + second
    window = np.frombuffer(data + bytes(PADDING), np.uint8).copy()
    state = np.zeros(STATE_SIZE, np.int64)
    state[WalkState.WINDOW], state[WalkState.LENGTH], state[WalkState.STOP] = window.ctypes.data, len(data), len(data)
    state[WalkState.CRC_FUNCTION], state[WalkState.ASKED] = crc_function, int(Columns.ALL | Columns.TAG_KEYS)
    state[WalkState.TEXT], state[WalkState.SEED], state[WalkState.TOPIC_HINT] = topics.text.ctypes.data, topics.seed, -1
    longs, ints = np.zeros((len(LONGS), 4), np.int64), np.zeros((len(INTS), 4), np.int32)
    key_hash, key_row = np.zeros(100, np.int32), np.zeros(100, np.int32)
    scratch = np.zeros(SCRATCH_SHAPE, np.int64)
    status = walk_window(state, longs, ints, key_hash, key_row, topics.slots, topics.entries, scratch)
    found = (
        status,
        int(state[WalkState.POSITION]),
        int(state[WalkState.ROW]),
        int(state[WalkState.KEYS]),
        int(longs[1, 0]),
    )
    return found == (STOPPED, len(first), 1, 4, 7)
