"""Derives layouts and field descriptions from the construct schemas, so that no layout is written twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from construct import Bytes, Construct, ConstructError, Container, FormatField, IfThenElse, Renamed, Struct

from rmqctl.formats.layout import Layout


class SchemaField(NamedTuple):
    """One field of a schema, flattened: `code` is a struct code, or None where the size is not fixed."""

    name: str
    code: str | None
    size: int | None
    type_name: str
    doc: str


# construct's own format characters are native-size dependent (`>l` is 4 bytes for struct but 8 for numpy), so the
# code is taken from signedness and size.
_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}


def _integer_code(field: FormatField) -> str:
    code = _SIGNED[field.sizeof()]
    return code if field.fmtstr[-1].islower() else code.upper()


def schema_fields(schema: Construct, choices: Mapping[str, bool] | None = None) -> Iterator[SchemaField]:
    """Fields of `schema`, all of which have names, in order; nested structures are flattened with `_`.

    `choices` answers the schema's conditions by field name (`{"born_host": True}` takes the first branch); a field
    with a condition that is not answered has neither code nor size.
    """
    for member in schema.subcons:
        yield from _flatten(member.name, member, _doc(member), choices or {})


def _doc(member: Construct) -> str:
    return str(getattr(member, "docs", "") or "")


def _flatten(name: str, member: Construct, doc: str, choices: Mapping[str, bool]) -> Iterator[SchemaField]:
    member = _bare(member)
    if isinstance(member, IfThenElse):
        if name not in choices:
            yield SchemaField(name, None, None, _variants(member), doc)
            return
        yield from _flatten(name, member.thensubcon if choices[name] else member.elsesubcon, doc, choices)
    elif isinstance(member, FormatField):
        yield SchemaField(name, _integer_code(member), member.sizeof(), f"i{member.sizeof() * 8}", doc)
    elif isinstance(member, Struct):
        for inner in member.subcons:
            yield from _flatten(f"{name}_{inner.name}", inner, f"{doc}: {_doc(inner)}", choices)
    elif isinstance(member, Bytes) and not callable(member.length):
        yield SchemaField(name, f"{member.length}s", member.length, f"{member.length} bytes", doc)
    else:
        yield SchemaField(name, None, None, "bytes", doc)


def _variants(member: IfThenElse) -> str:
    sizes = sorted({member.thensubcon.sizeof(), member.elsesubcon.sizeof()})
    return " or ".join(str(size) for size in sizes) + " bytes"


def derive_layout(name: str, schema: Construct, choices: Mapping[str, bool] | None = None) -> Layout:
    """The longest fixed prefix of `schema` as a Layout; asserts that construct agrees about its size."""
    fields: list[tuple[str, str, int, int]] = []
    offset = 0
    for field in schema_fields(schema, choices):
        if field.code is None or field.size is None:
            break
        fields.append((field.name, field.code, offset, field.size))
        offset += field.size
    layout = Layout(name, tuple(fields), _order(schema))
    assert layout.size == offset, f"layout {name}: struct says {layout.size} bytes, the schema {offset}"
    return layout


def _bare(member: Construct) -> Construct:
    """Return a member without its name and description."""
    while isinstance(member, Renamed):
        member = member.subcon
    return member


def _order(schema: Construct) -> str:
    """Return the byte order of a schema's integers, "<" or ">": all of them have the same."""
    integers = map(_bare, schema.subcons)
    orders = {one.fmtstr[0] for one in integers if isinstance(one, FormatField) and one.sizeof() > 1}
    assert len(orders) <= 1, "integers of a schema differ in their byte order"
    return orders.pop() if orders else ">"


def derive_field(name: str, schema: Construct, field: str, choices: Mapping[str, bool] | None = None) -> Layout:
    """Return the Layout of one field that follows bytes of variable length."""
    for found in schema_fields(schema, choices):
        if found.name == field and found.code is not None and found.size is not None:
            return Layout(name, ((field, found.code, 0, found.size),))
    raise KeyError(field)


class ParsedField(NamedTuple):
    """One field as found in bytes: `offset` and `size` in bytes from the start of the structure."""

    name: str
    offset: int
    size: int
    value: Any
    doc: str


def explain(schema: Struct, data: bytes) -> tuple[list[ParsedField], str | None]:
    """Parse `data` field by field. Returns what could be read and, where it broke off, construct's reason.

    For forensic output only: it is slow, and unlike `Struct.parse` keeps what was read before the damage.
    """
    import io

    stream = io.BytesIO(data)
    context = Container(_params=Container(), _parsing=True, _building=False, _sizing=False)
    context._root = context
    found: list[ParsedField] = []
    for member in schema.subcons:
        start = stream.tell()
        try:
            value = member._parsereport(stream, context, "")
        except (ConstructError, OverflowError, MemoryError) as error:
            reason = str(error).strip().splitlines()[-1] if str(error) else type(error).__name__
            return found, f"{member.name}: {reason}"
        context[member.name] = value
        found.append(ParsedField(member.name, start, stream.tell() - start, value, _doc(member)))
    return found, None
