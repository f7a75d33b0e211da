"""Filters that DuckDB hands over, as comparisons: expressions of Arrow, taken apart.

An expression cannot be looked into in Python, but pickled: then it is a record batch, whose metadata is a list of steps
(`call`, `field_ref`, `literal`, `options`, `end`) and whose columns are the constants (Arrow's
compute/expression.cc, Expression::Serialize). The names of steps repeat, and pyarrow gives metadata as a dict, so they
are read where Arrow's C data interface has them. A form that is not known narrows nothing, and asks for every column.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.pipeline.wanted import Comparison

_Step = tuple[str, str]

_SIGNS: dict[str, Literal["=", "in", "<", ">"]] = {
    "equal": "=", "less": "<", "less_equal": "<", "greater": ">", "greater_equal": ">", "is_in": "in",
}  # fmt: skip
_ALL_HOLD = ("and", "and_kleene")
_ONE_HOLDS = ("or", "or_kleene")


class _ArrowSchema(ctypes.Structure):
    """The beginning of `struct ArrowSchema` of the C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


class _Node(NamedTuple):
    """A call with its arguments and, where it has some, its options; a field; or a constant."""

    call: str = ""
    arguments: tuple[_Node, ...] = ()
    field: str | None = None
    constant: Any = None
    options: Any = None


class Understood(NamedTuple):
    """`comparisons` have all to hold, beside what is not understood. `fields`: what is looked at; None: not known."""

    comparisons: tuple[Comparison, ...]
    fields: frozenset[str] | None


def understood(expression: pc.Expression | None) -> Understood:
    """What a filter says; of none, nothing."""
    if expression is None:
        return Understood((), frozenset())
    try:
        node = _parsed(expression)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError, StopIteration, pa.ArrowException):
        return Understood((), None)
    return Understood(tuple(_comparisons(node)), frozenset(_fields(node)))


def _parsed(expression: pc.Expression) -> _Node:
    (buffer, *_) = expression.__reduce__()[1]
    reader = pa.ipc.open_file(buffer)
    constants = reader.get_batch(0) if reader.num_record_batches else None
    steps = _steps(reader.schema)
    node = _node(next(steps), steps, constants)
    if next(steps, None) is not None:
        raise ValueError("more than one expression")
    return node


def _node(step: _Step, steps: Iterator[_Step], constants: pa.RecordBatch | None) -> _Node:
    kind, value = step
    if kind == "field_ref":
        return _Node(field=value)
    if kind in ("literal", "options") and constants is not None:
        scalar = constants.column(int(value))[0]
        return _Node(constant=scalar) if kind == "literal" else _Node(options=scalar)
    if kind != "call":
        raise ValueError(kind)
    arguments: list[_Node] = []
    options = None
    for following in steps:
        if following == ("end", value):
            return _Node(value, tuple(arguments), options=options)
        made = _node(following, steps, constants)
        if made.options is not None and not made.call:
            options = made.options
        else:
            arguments.append(made)
    raise ValueError("no end")


def _steps(schema: pa.Schema) -> Iterator[_Step]:
    """The metadata of a schema in its order: a count, then name and value of each, with their lengths before them."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    place = _ArrowSchema.from_address(pointer_of(capsule, b"arrow_schema") or 0).metadata
    texts: list[str] = []
    if place is not None:
        count = ctypes.c_int32.from_address(place).value
        place += 4
        for _ in range(2 * count):
            length = ctypes.c_int32.from_address(place).value
            texts.append(ctypes.string_at(place + 4, length).decode("utf-8"))
            place += 4 + length
    return zip(texts[::2], texts[1::2], strict=True)


def _comparisons(node: _Node) -> Iterator[Comparison]:
    if node.call in _ALL_HOLD:
        for argument in node.arguments:
            yield from _comparisons(argument)
    elif node.call in _ONE_HOLDS:
        yield from _alternatives([list(_comparisons(argument)) for argument in node.arguments])
    elif node.call == "if_else" and len(node.arguments) == 3 and _is_null(node.arguments[2]):
        # null lets nothing pass, so what holds of the second argument holds of all that passes
        yield from _comparisons(node.arguments[1])
    elif node.call in _SIGNS and node.arguments and node.arguments[0].field is not None:
        values = _values(node)
        if values is not None:
            yield Comparison(node.arguments[0].field, _SIGNS[node.call], values)


def _alternatives(sides: list[list[Comparison]]) -> Iterator[Comparison]:
    """What is sure where one of the sides holds, each with all it says: a column has one of the values that they name,
    if all of them name some."""
    first, *others = [{one.column: one.values for one in side if one.sign in ("=", "in")} for side in sides]
    for column, values in first.items():
        if all(column in other for other in others):
            more = [value for other in others for value in other[column]]
            yield Comparison(column, "in", (*values, *more))


def _is_null(node: _Node) -> bool:
    return node.constant is not None and not node.constant.is_valid


def _values(node: _Node) -> tuple[Any, ...] | None:
    try:
        if node.call == "is_in":
            return None if node.options is None else tuple(node.options["value_set"].as_py())
        if len(node.arguments) != 2 or node.arguments[1].constant is None:
            return None
        return (node.arguments[1].constant.as_py(),)
    except (ValueError, OverflowError, LookupError):  # a moment that Python's dates do not reach
        return None


def _fields(node: _Node) -> Iterator[str]:
    if node.field is not None:
        yield node.field
    for argument in node.arguments:
        yield from _fields(argument)
