"""The catalogue of findings: every kind there is, by code. The kinds stand in a module for each family or two."""

from __future__ import annotations

from collections.abc import Iterable

from rmqctl.store.check.catalogue import (
    config as catalogue_config,
)
from rmqctl.store.check.catalogue import (
    files as catalogue_files,
)
from rmqctl.store.check.catalogue import (
    followers as catalogue_followers,
)
from rmqctl.store.check.catalogue import (
    index as catalogue_index,
)
from rmqctl.store.check.catalogue import (
    log as catalogue_log,
)
from rmqctl.store.check.catalogue import (
    queues as catalogue_queues,
)
from rmqctl.store.check.catalogue import (
    state as catalogue_state,
)
from rmqctl.store.check.catalogue.kind import Kind

FAMILIES: dict[str, str] = {
    "FILE": "Files: names, sizes, gaps, links",
    "LOG": "The commitlog: frames, tails, topics",
    "CQ": "Consume queues against the commitlog",
    "IDX": "The key index against the commitlog",
    "STATE": "How the store was left",
    "CKPT": "The checkpoint",
    "TIME": "Clocks and file times",
    "CFG": "Configuration files",
    "OFF": "Consumer and delay offsets",
    "TMR": "The timer",
    "EPO": "Epochs of a store under a controller",
}
"""Headings of the families, in the order of docs/findings.md."""


def _by_code(kinds: Iterable[Kind]) -> dict[str, Kind]:
    catalogue: dict[str, Kind] = {}
    for kind in kinds:
        if kind.code in catalogue or kind.family not in FAMILIES:
            raise ValueError(f"{kind.code} stands twice in the catalogue, or its family is unknown")
        catalogue[kind.code] = kind
    order = list(FAMILIES)
    return dict(sorted(catalogue.items(), key=lambda item: (order.index(item[1].family), item[0])))


CATALOGUE: dict[str, Kind] = _by_code(
    (
        *catalogue_files.KINDS,
        *catalogue_log.KINDS,
        *catalogue_queues.KINDS,
        *catalogue_index.KINDS,
        *catalogue_state.KINDS,
        *catalogue_config.KINDS,
        *catalogue_followers.KINDS,
    )
)
"""Every kind of finding by its code, in the order of docs/findings.md."""
