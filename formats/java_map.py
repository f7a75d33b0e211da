"""The order in which a java.util.HashMap gives its keys: that of the properties which RocketMQ writes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rmqctl.formats.hashing import java_hash

PARSED = 128
"""Buckets of a map made of a property string (MessageDecoder#string2messageProperties)."""
BUILT = 16
"""Buckets of a map that properties are put into one by one (Message#putProperty)."""


def in_java_order(properties: Mapping[str, str], buckets: int = PARSED) -> dict[str, str]:
    """`properties`, given in the order in which they were put, in the order in which a HashMap has them."""
    return {name: properties[name] for name in _ordered(tuple(properties), buckets)}


@lru_cache(maxsize=4096)
def _ordered(names: tuple[str, ...], buckets: int) -> tuple[str, ...]:
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return tuple(sorted(names, key=lambda name: _bucket(name, buckets)))


def _bucket(name: str, buckets: int) -> int:
    spread = java_hash(name) & 0xFFFFFFFF
    return (spread ^ spread >> 16) & buckets - 1
