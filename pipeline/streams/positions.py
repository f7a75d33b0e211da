"""Where a query over several stores stands: a position for each, by the path under which it was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.streams.history import Position, position_from_json

ONLY = ""
"""The name of the position of a query over one store: that is what it is called, under whatever path it is read."""

_STORES = "stores"


def positions_as_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    """What Spark is given: the position of the only store as it is, those of several below `stores`."""
    if positions.keys() == {ONLY}:
        return positions[ONLY].as_json()
    return {_STORES: {name: position.as_json() for name, position in positions.items()}}


def positions_from_json(content: Mapping[str, Any]) -> dict[str, Position]:
    """The same back; UsageError where it is of another source."""
    stores = content.get(_STORES)
    if stores is None:
        return {ONLY: position_from_json(content)}
    if not isinstance(stores, Mapping) or not all(isinstance(one, Mapping) for one in stores.values()):
        raise UsageError(
            f"the checkpoint holds {dict(content)!r}, which are no positions in stores",
            hint="give the query a checkpoint of its own",
        )
    return {str(name): position_from_json(one) for name, one in stores.items()}
