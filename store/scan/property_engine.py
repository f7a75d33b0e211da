"""The columns of property strings, by the compiled twin of `plain_columns` where that can be loaded and is right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rmqctl.store.compiled.tried import loaded_once, tried_kernels
from rmqctl.store.log.columns import Bytes, Flags, Int32s, MessageColumns
from rmqctl.store.scan.arrays import Texts
from rmqctl.store.scan.schema import PropertyColumns, PropertyParts, plain_columns, strings_at

Compiled = Callable[[Bytes, Int32s, Int32s, PropertyParts], PropertyColumns | None]

_SAMPLES = (
    b"",
    b"KEYS\x01a  b\x02TAGS\x01t\x02UNIQ_KEY\x010A\x02",
    b"TAGS\x01t\x02TAGS\x01u",
    b"\x02\x01a\x02x\x01\x02",
)


def property_columns(
    batch: MessageColumns, positions: Int32s, lengths: Int32s, wanted: PropertyParts
) -> PropertyColumns:
    """The columns of the property strings at `positions` of the batch's window; compiled where numba is there."""
    assert batch.window is not None
    compiled = compiled_columns()
    made = compiled(batch.window, positions, lengths, wanted) if compiled is not None else None
    if made is not None:
        return made
    return plain_columns(strings_at(batch.window, positions, lengths), wanted)


def compiled_columns() -> Compiled | None:
    """The compiled twin; it gives None for what it leaves to the plain one. None where nothing can be compiled."""
    return _load()


@loaded_once
def _load() -> Compiled | None:
    found = tried_kernels(
        "rmqctl.store.scan.kernel_properties",
        lambda tried: _is_right(functools.partial(_columns, tried[0])),
        is_waited_for=False,
    )
    return None if found is None else functools.partial(_columns, found[0])


def _is_right(compiled: Compiled) -> bool:
    """Whether it gives what the plain twin does, tried on a few strings."""
    window = np.frombuffer(b"".join(_SAMPLES), np.uint8).copy()
    lengths = np.array([len(sample) for sample in _SAMPLES], np.int32)
    positions = (np.cumsum(lengths) - lengths).astype(np.int32)
    wanted = PropertyParts(31)
    found, expected = compiled(window, positions, lengths, wanted), plain_columns(_SAMPLES, wanted)
    return found is not None and _as_lists(found) == _as_lists(expected)


def _as_lists(columns: PropertyColumns) -> list[Any]:
    """Something that can be compared."""
    flat: list[Any] = []
    for column in columns:
        parts = column if isinstance(column, Texts) else (column,)
        flat += [None if part is None else part.tolist() for part in parts]
    return flat


def _columns(
    split: Callable[..., int], window: Bytes, positions: Int32s, lengths: Int32s, wanted: PropertyParts
) -> PropertyColumns | None:
    from rmqctl.store.scan.kernel_properties import DONE, SCRATCH_SHAPE, SPARE

    rows, total = len(positions), int(lengths.sum())
    if int((positions + lengths).max(initial=0)) + SPARE > len(window):
        window = np.concatenate([window, np.zeros(SPARE, np.uint8)])

    def data(flag: PropertyParts) -> Bytes:
        return np.empty(total + SPARE if wanted & flag else 0, np.uint8)

    def offsets(flag: PropertyParts, count: int) -> Int32s:
        made = np.empty(count + 1 if wanted & flag else 1, np.int32)
        made[0] = 0
        return made

    def present(flag: PropertyParts) -> Flags:
        return np.zeros(rows if wanted & flag else 0, np.bool_)

    unique = Texts(
        offsets(PropertyParts.UNIQUE_KEY, rows), data(PropertyParts.UNIQUE_KEY), present(PropertyParts.UNIQUE_KEY)
    )
    tags = Texts(offsets(PropertyParts.TAGS, rows), data(PropertyParts.TAGS), present(PropertyParts.TAGS))
    # every key takes a byte and a space, every property a name, a value and two separators, the last ones but these
    key_rows, keys = (
        offsets(PropertyParts.KEYS, rows),
        Texts(offsets(PropertyParts.KEYS, (total + rows) // 2), data(PropertyParts.KEYS)),
    )
    entries = (total + rows) // 4
    map_rows, map_names = (
        offsets(PropertyParts.MAP, rows),
        Texts(offsets(PropertyParts.MAP, entries), data(PropertyParts.MAP)),
    )
    map_values = Texts(offsets(PropertyParts.MAP, entries), data(PropertyParts.MAP))
    stored = Texts(offsets(PropertyParts.STORED, rows), data(PropertyParts.STORED), present(PropertyParts.STORED))
    status = split(
        window.ctypes.data, positions, lengths, int(wanted), np.empty(SCRATCH_SHAPE, np.int64),
        *_addressed(unique), *_addressed(tags), key_rows, *_addressed(keys)[:2],
        map_rows, *_addressed(map_names)[:2], *_addressed(map_values)[:2], *_addressed(stored),
    )  # fmt: skip
    if status != DONE:
        return None
    return PropertyColumns(
        _trimmed(unique, rows),
        _trimmed(tags, rows),
        key_rows,
        _trimmed(keys, int(key_rows[-1])),
        map_rows,
        _trimmed(map_names, int(map_rows[-1])),
        _trimmed(map_values, int(map_rows[-1])),
        _trimmed(stored, rows),
    )


def _addressed(made: Texts) -> tuple[Int32s, int, Flags | None]:
    return made.offsets, made.data.ctypes.data, made.present


def _trimmed(made: Texts, count: int) -> Texts:
    """The first `count` texts, without memory for what was not used."""
    if len(made.offsets) == 1:
        count = 0
    used = int(made.offsets[count])
    offsets = made.offsets[: count + 1]
    return Texts(
        offsets if 2 * len(offsets) > len(made.offsets) else offsets.copy(),
        made.data[:used] if 2 * used > len(made.data) else made.data[:used].copy(),
        made.present,
    )
