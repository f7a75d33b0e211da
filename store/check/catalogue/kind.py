"""What a kind of finding is: its stable code, how bad it is, what it means and what to do."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

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
    """One entry of the catalogue; docs/findings.md is made of these.

    `code`: RMQ-FAMILY-NNN, never given to anything else. `title` names the state in a few words, `meaning` says what it
    means for messages and brokers, `causes` where it comes from, `action` what to do. `fix`: the command that mends it,
    None where a person has to decide; `{code}` stands for the code. `issues`: known troubles with RocketMQ,
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
