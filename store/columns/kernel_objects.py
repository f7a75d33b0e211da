"""What kernels reach Python objects with: functions of CPython's stable ABI, which take and give addresses of objects,
and loads of what stands at the same place in every object of a type.

Only a kernel that is called with the GIL held may use them (see `native`). References are borrowed unless it is said
that they are new: what is reached lives as long as what it was reached through. A function that fails leaves an
exception behind, which the kernel clears before it calls anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from store.columns.compiling import inner
from store.columns.kernel_memory import store_word, word_at
from store.columns.native import BYTES_AT, ITEMS_AT, SIZE_AT, TYPE_AT

_OBJECT = _ADDRESS = _SIZE = types.int64
_alloca_once: Any = cast(Any, cgutils).alloca_once


def _function(name: str, signature: Any) -> Callable[..., int]:
    return cast(Callable[..., int], cast(Any, types).ExternalFunction(name, signature))


int_of_object = _function("PyLong_AsLongLong", types.int64(_OBJECT))
"""-1 with an exception for what is no number or does not fit."""
new_int = _function("PyLong_FromLongLong", _OBJECT(types.int64))
text_address = _function("PyUnicode_AsUTF8AndSize", _ADDRESS(_OBJECT, _ADDRESS))
"""text_address(text, size): where its UTF-8 form lies, whose size is written to `size`; 0 with an exception for what is
no text, or half a surrogate pair."""
found_in_dict = _function("PyDict_GetItemWithError", _OBJECT(_OBJECT, _OBJECT))
"""0 for what is not in there; with an exception for a key that cannot be one."""
next_of_dict = _function("PyDict_Next", types.int32(_OBJECT, _ADDRESS, _ADDRESS, _ADDRESS))
"""next_of_dict(dict, position, key, value): 0 at the end. `position` begins at 0."""
_attribute = _function("PyObject_GetAttr", _OBJECT(_OBJECT, _OBJECT))
set_attribute = _function("PyObject_SetAttr", types.int32(_OBJECT, _OBJECT, _OBJECT))
_call = _function("PyObject_CallNoArgs", _OBJECT(_OBJECT))
new_tuple = _function("PyType_GenericAlloc", _OBJECT(_OBJECT, _SIZE))
"""new_tuple(type, size): a tuple of a type that is made as tuples are, empty; 0 with an exception. Python code can run
here."""
fill_tuple = _function("PyTuple_SetItem", types.int32(_OBJECT, _SIZE, _OBJECT))
"""Set an item of a tuple that nobody has seen yet; the reference is its own from now on."""
release = _function("Py_DecRef", types.void(_OBJECT))
"""Gives up a new reference."""
_retain = _function("Py_IncRef", types.void(_OBJECT))
has_failed = _function("PyErr_Occurred", _OBJECT())
forget_failure = _function("PyErr_Clear", types.void())
take_buffer = _function("PyObject_GetBuffer", types.int32(_OBJECT, _ADDRESS, types.int32))
"""take_buffer(object, buffer, flags): 0 if `buffer`, of BUFFER_WORDS words, is filled in: the address first."""
give_buffer_back = _function("PyBuffer_Release", types.void(_ADDRESS))

_clock = _function("clock_gettime", types.int32(types.int32, _ADDRESS))

BUFFER_WORDS = 10
WRITABLE = 1
# where things stand in objects: `native.is_possible` looks whether they do
_TYPE_AT, _SIZE_AT, _ITEMS_AT, _BYTES_AT = TYPE_AT, SIZE_AT, ITEMS_AT, BYTES_AT


def _words(typing_context: Any, count: Any) -> Any:
    if not isinstance(count, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        place = _alloca_once(builder, word, size=ir.Constant(word, cast(Any, count).literal_value))
        return builder.ptrtoint(place, word)

    return types.int64(count), generate


words_of_stack = cast(Any, intrinsic(_words))
"""The address of so many words (a literal), which are gone when the kernel returns. Not zeroed."""


def _fence(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("release")
        return context.get_dummy_value()

    return types.void(), generate


writes_before = cast(Any, intrinsic(_fence))
"""What is written before this call is seen before what is written behind it."""


@inner
def milliseconds_now() -> int:
    """Now, in ms since 1970, as `time.time_ns` tells it."""
    seconds = words_of_stack(2)
    _clock(0, seconds)
    return word_at(seconds) * 1000 + word_at(seconds + 8) // 1_000_000


@inner
def object_at(table: int, number: int) -> int:
    """An object of those that a kernel is bound to, or of its arguments."""
    return word_at(table + 8 * number)


@inner
def borrowed(reference: int) -> int:
    """What a new reference refers to, given up: something else must refer to it, too, for as long as it is used."""
    release(reference)
    return reference


@inner
def retained(thing: int) -> int:
    """A new reference: what a kernel gives back, or puts into an object, is one."""
    _retain(thing)
    return thing


@inner
def type_of(thing: int) -> int:
    """Its type."""
    return word_at(thing + _TYPE_AT)


@inner
def item_of_tuple(thing: int, place: int) -> int:
    """An item of a tuple, or of a tuple of a derived type, that has so many."""
    return word_at(thing + _ITEMS_AT + 8 * place)


@inner
def is_tuple_of(thing: int, kind: int, size: int) -> bool:
    """Whether it is of this type, which is derived from tuple, with so many items: made by `tuple.__new__` it can have
    fewer."""
    return word_at(thing + _TYPE_AT) == kind and word_at(thing + _SIZE_AT) == size


@inner
def bytes_size(thing: int) -> int:
    """The length of what is of type bytes."""
    return word_at(thing + _SIZE_AT)


@inner
def bytes_address(thing: int) -> int:
    """Where the bytes lie of what is of type bytes."""
    return thing + _BYTES_AT


@inner
def attribute_of(thing: int, name: int) -> int:
    """An attribute that is there, and that `thing` refers to."""
    return borrowed(_attribute(thing, name))


@inner
def int_attribute_of(thing: int, name: int) -> int:
    """An attribute that is there, and a number of 64 bits."""
    attribute = _attribute(thing, name)
    value = int_of_object(attribute)
    release(attribute)
    return value


@inner
def answer_of(function: int) -> int:
    """What a call without arguments gives back, which something else must refer to, too; 0 with an exception."""
    answer = _call(function)
    if answer:
        release(answer)
    return answer


@inner
def exact_int(thing: int, int_type: int, failed: int) -> int:
    """The value of an int of 64 bits; where `thing` is none, or of a type derived from it, the word at `failed` becomes
    1. Runs no code of Python's."""
    value = 0
    if type_of(thing) == int_type:
        value = int_of_object(thing)
        if value != -1 or not has_failed():
            return value
        forget_failure()
    store_word(failed, 1)
    return value
