"""JSON Schemas of what commands print, made from what they printed: types, fields, and which are always there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


@dataclass
class Shape:
    """What was seen in one place: scalars by type, a list's items, an object's fields with how often each was there."""

    scalars: set[str] = field(default_factory=set)
    items: Shape | None = None
    objects: int = 0
    fields: dict[str, tuple[Shape, int]] = field(default_factory=dict)

    def see(self, value: Any) -> None:
        """Take one more value into account."""
        if isinstance(value, Mapping):
            self.objects += 1
            for name, one in value.items():
                shape, times = self.fields.get(name, (Shape(), 0))
                shape.see(one)
                self.fields[name] = (shape, times + 1)
        elif isinstance(value, list):
            self.items = self.items or Shape()
            for one in value:
                self.items.see(one)
        else:
            self.scalars.add(_TYPES[type(value)])

    def schema(self, maps: frozenset[str], place: str = "") -> dict[str, Any]:
        """Return the JSON Schema. `maps`: places (fields joined by dots) of objects whose keys are data."""
        kinds = sorted(self.scalars - ({"integer"} if "number" in self.scalars else set()))
        found: dict[str, Any] = {}
        if self.items is not None:
            kinds.append("array")
            found["items"] = self.items.schema(maps, place)
        if self.objects:
            kinds.append("object")
            found |= self._as_map(maps, place) if place in maps else self._as_record(maps, place)
        # of what was null wherever it was looked at nothing is known
        return {"type": kinds[0] if len(kinds) == 1 else kinds, **found} if kinds and kinds != ["null"] else {}

    def _as_map(self, maps: frozenset[str], place: str) -> dict[str, Any]:
        one = Shape()
        for shape, _ in self.fields.values():
            one.merge(shape)
        return {"additionalProperties": one.schema(maps, f"{place}.*")}

    def _as_record(self, maps: frozenset[str], place: str) -> dict[str, Any]:
        below = {name: shape.schema(maps, f"{place}.{name}".lstrip(".")) for name, (shape, _) in self.fields.items()}
        always = sorted(name for name, (_, times) in self.fields.items() if times == self.objects)
        return {"properties": dict(sorted(below.items())), "required": always, "additionalProperties": False}

    def merge(self, other: Shape) -> None:
        """Take what another shape has seen into account."""
        self.scalars |= other.scalars
        if other.items is not None:
            self.items = self.items or Shape()
            self.items.merge(other.items)
        self.objects += other.objects
        for name, (shape, times) in other.fields.items():
            mine, seen = self.fields.get(name, (Shape(), 0))
            mine.merge(shape)
            self.fields[name] = (mine, seen + times)


def shape_of(values: Iterable[Any]) -> Shape:
    """The shape of all values."""
    shape = Shape()
    for value in values:
        shape.see(value)
    return shape
