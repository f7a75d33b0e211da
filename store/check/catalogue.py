"""Findings of `check`: their kinds by code, which findings.toml describes, and one finding in a store."""

from __future__ import annotations

import enum
import functools
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import told
from rmqctl.formats.notebook import as_html

FAMILIES: dict[str, str] = {
    "FILE": "Files: names, sizes, gaps, links",
    "LOG": "The commitlog: frames, tails, topics",
    "CQ": "Consume queues against the commitlog",
    "IDX": "The key index against the commitlog",
    "STATE": "How the store was left",
    "CKPT": "The checkpoint",
    "TIME": "Clocks and file times",
    "CFG": "Configuration files",
    "ACL": "Users and ACLs",
    "OFF": "Consumer and delay offsets",
    "TMR": "The timer",
    "POP": "POP consumption",
    "RDB": "RocksDB databases",
    "CMP": "Copies of compacted topics",
    "TIER": "Copies in tiered storage",
    "DLG": "DLedger logs",
    "EPO": "Epochs of a store under a controller",
}
"""Headings of the families, in the order of docs/findings.md."""

_CODE = re.compile(r"RMQ-[A-Z]{2,5}-[0-9]{3}")


class Severity(enum.StrEnum):
    """How bad a finding is. Only `ERROR` and `WARNING` are alarms: they make `rmqctl check` exit with 1."""

    ERROR = "error"
    """Messages are lost or cannot be found, or a broker does not start or would lose or misplace messages."""
    WARNING = "warning"
    """Something is wrong that costs no message by itself, or that a start of the broker mends."""
    NOTICE = "notice"
    """Worth knowing and no damage: a sound store may have it."""

    @property
    def is_alarm(self) -> bool:
        """Whether it counts as damage."""
        return self is not Severity.NOTICE


@dataclass(frozen=True, slots=True)
class Kind:
    """One table of findings.toml; docs/findings.md is generated from them.

    `code`: RMQ-FAMILY-NNN, never given to anything else. `title` names the state in a few words, `meaning` says what it
    means for messages and brokers, `causes` where it comes from, `action` what to do. `fix`: the command that fixes it,
    None if a person has to decide; `{code}` is replaced by the code. `issues`: known troubles with RocketMQ,
    "apache/rocketmq#9728" and the like.
    """

    code: str
    severity: Severity
    title: str
    meaning: str
    causes: str
    action: str
    fix: str | None = None
    issues: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _CODE.fullmatch(self.code):
            raise ValueError(f"{self.code} is not RMQ-FAMILY-NNN")

    @property
    def family(self) -> str:
        """The middle of the code."""
        return self.code.split("-")[1]

    @property
    def command(self) -> str | None:
        """The command that mends it, in full."""
        return None if self.fix is None else self.fix.replace("{code}", self.code)


@functools.cache
def catalogue() -> dict[str, Kind]:
    """Return every kind of finding by its code, in the order of docs/findings.md."""
    described = tomllib.loads(Path(__file__).with_name("findings.toml").read_text(encoding="utf-8"))
    kinds = [Kind(code=code, **_kind_fields(fields_of)) for code, fields_of in described.items()]
    order = list(FAMILIES)
    return {kind.code: kind for kind in sorted(kinds, key=lambda kind: (order.index(kind.family), kind.code))}


def _kind_fields(described: dict[str, Any]) -> dict[str, Any]:
    """Return what the file says of one kind as the fields of Kind. ValueError for an unknown severity."""
    severity, issues = Severity(described["severity"]), tuple(described.get("issues", ()))
    return {**described, "severity": severity, "issues": issues}


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
    are raw: the code that prints them sanitises them.
    """

    _repr_html_ = as_html

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
        return catalogue()[self.code]

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

    def notebook_fields(self) -> dict[str, Any]:
        """What a notebook shows of it."""
        return self.row()

    def row(self) -> dict[str, Any]:
        """The finding as one object with stable names, paths as text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["file"] = None if self.file is None else told(str(self.file))
        return {"code": self.code, "severity": str(self.severity), **values}
