"""What kernels write properties with that are dicts of texts. Plain twin: `property_text.property_writer`."""

from __future__ import annotations

from store.columns.compiling import inner
from store.columns.kernel_memory import byte_at, copy_bytes, set_byte, store_word, word_at
from store.columns.kernel_objects import (
    bytes_address,
    bytes_size,
    forget_failure,
    found_in_dict,
    item_of_tuple,
    next_of_dict,
    text_address,
    type_of,
    words_of_stack,
)
from store.write.put_context import Kinds, places_of

# numbers, not names: numba's cache would not notice that an imported constant changed
_PROPERTY_END = 2
UNKNOWN, TOO_LONG, UNUSUAL = -1, -2, -3
"""What stands for a length where there is none."""
_UNKNOWN, _TOO_LONG, _UNUSUAL = UNKNOWN, TOO_LONG, UNUSUAL
_NO_PROPERTIES, _TEXT_TYPE, _DICT_TYPE = places_of(Kinds, "no_properties", "text_type", "dict_type")


@inner
def write_properties(kinds: int, properties: int, names: int, target: int, room: int) -> int:
    """Write the stored form of `properties` to address `target`, which has `room` bytes; how many they are.

    `names`: a dict of the names that may come, each with its stored bytes and the separator behind them. UNUSUAL for
    what is neither a dict nor the default; UNKNOWN for other names, and for values that are no text or hold a
    separator; TOO_LONG for what does not fit. Runs no code of Python's, which names of a type derived from str could.
    """
    if properties == item_of_tuple(kinds, _NO_PROPERTIES):
        return 0
    if type_of(properties) != item_of_tuple(kinds, _DICT_TYPE):
        return _UNUSUAL
    text_type = item_of_tuple(kinds, _TEXT_TYPE)
    position = words_of_stack(4)
    key, value, length = position + 8, position + 16, position + 24
    store_word(position, 0)
    at, end = target, target + room
    while next_of_dict(properties, position, key, value):
        name = found_in_dict(names, word_at(key)) if type_of(word_at(key)) == text_type else 0
        text = text_address(word_at(value), length) if name else 0
        if text == 0:
            forget_failure()
            return _UNKNOWN
        name_size, text_size = bytes_size(name), word_at(length)
        if name_size + text_size + 1 > end - at:
            return _TOO_LONG
        copy_bytes(at, bytes_address(name), name_size)
        at += name_size
        separators = 0
        for place in range(text_size):
            separators |= byte_at(text + place) == _PROPERTY_END
        if separators:
            return _UNKNOWN
        copy_bytes(at, text, text_size)
        at += text_size
        set_byte(at, _PROPERTY_END)
        at += 1
    return at - target
