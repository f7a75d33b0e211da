"""The catalogue of findings: every kind there is, by code. The kinds stand in a module for each family or two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import told
from rmqctl.store.check.catalogue import config as catalogue_config
from rmqctl.store.check.catalogue import files as catalogue_files
from rmqctl.store.check.catalogue import files as catalogue_followers
from rmqctl.store.check.catalogue import index as catalogue_index
from rmqctl.store.check.catalogue import index as catalogue_state
from rmqctl.store.check.catalogue import log as catalogue_log
from rmqctl.store.check.catalogue import queues as catalogue_queues
from rmqctl.store.check.catalogue.kind import Kind, Severity

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
        *catalogue_state.STATE_KINDS,
        *catalogue_config.KINDS,
        *catalogue_followers.FOLLOWERS_KINDS,
    )
)
"""Every kind of finding by its code, in the order of docs/findings.md."""


# One finding: what is wrong, where, what it costs and which command mends it.

Value = str | int | None

_LOST_WITH = {
    "consumerOffset.json": "consumer offsets",
    "lmqConsumerOffset.json": "consumer offsets",
    "delayOffset.json": "delay offsets",
    "topics.json": "topic settings",
    "subscriptionGroup.json": "consumer group settings",
    "topicQueueMapping.json": "mappings of static topics",
    "consumerFilter.json": "SQL filters",
    "consumerOrderInfo.json": "states of orderly POP consumers",
    "timercheck": "positions of the timer",
}
"""What a config file holds, which is gone with it."""
_LOST_OF_FAMILY = {"CFG": "settings", "OFF": "offsets"}


@dataclass(frozen=True, slots=True)
class Finding:
    """`message` says it in a sentence; `expected` and `found` are the two values that differ, where it is about two.

    `bytes` and `messages`: how many are affected, None where that cannot be known. `data_lost`: whether what was stored
    is gone from this store for good; None where that cannot be known. `fix`: the command that mends it, that of the
    catalogue if none is given; "" (and None from then on) where that would not do. Texts and names of a store in here
    are raw: whoever prints them sanitises them.
    """

    code: str
    message: str
    file: Path | None = None
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    expected: Value = None
    found: Value = None
    bytes: int | None = None
    messages: int | None = None
    data_lost: bool | None = False
    fix: str | None = None

    def __post_init__(self) -> None:
        """KeyError for a code that the catalogue does not know."""
        if self.fix is None:
            object.__setattr__(self, "fix", self.kind.command)
        elif not self.fix:
            object.__setattr__(self, "fix", None)

    @property
    def kind(self) -> Kind:
        """Its entry in the catalogue."""
        return CATALOGUE[self.code]

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.kind.severity

    @property
    def loses(self) -> str | None:
        """What is gone for good, in the plural; None where nothing is, or where that cannot be known."""
        return self._concerned if self.data_lost is True else None

    @property
    def may_lose(self) -> str | None:
        """What is perhaps gone for good, in the plural; None where that is known."""
        return self._concerned if self.data_lost is None and self.severity.is_alarm else None

    @property
    def _concerned(self) -> str:
        named = None if self.file is None else _LOST_WITH.get(self.file.name.removesuffix(".bak"))
        return named or _LOST_OF_FAMILY.get(self.kind.family, "messages")

    def row(self) -> dict[str, Any]:
        """The finding as one object with stable names, paths as text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["file"] = None if self.file is None else told(str(self.file))
        return {"code": self.code, "severity": str(self.severity), **values}
