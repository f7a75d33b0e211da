"""Which mend is for which finding: by its code, or by the command that the catalogue names."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.recover.report import Part


class Mend(enum.Enum):
    """A way to mend findings. The first kinds are parts of one recovery."""

    LOG = "log"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    MOVE_AWAY = "move away"
    CONFIG = "config"
    OFFSETS = "offsets"
    CHECKSUM = "checksum"


RECOVERY = {
    Mend.LOG: Part.LOG,
    Mend.QUEUES: Part.QUEUES,
    Mend.INDEX: Part.INDEX,
    Mend.CHECKPOINT: Part.CHECKPOINT,
}
"""The mends that one recovery makes, and which of its parts each is."""
_BY_CODE = {
    "RMQ-FILE-001": Mend.MOVE_AWAY,
    "RMQ-FILE-007": Mend.MOVE_AWAY,
    "RMQ-FILE-009": Mend.MOVE_AWAY,
    "RMQ-FILE-012": Mend.MOVE_AWAY,
    "RMQ-FILE-013": Mend.QUEUES,
    "RMQ-FILE-014": Mend.QUEUES,
    "RMQ-FILE-015": Mend.QUEUES,
    "RMQ-LOG-021": Mend.CHECKSUM,
    "RMQ-CFG-001": Mend.CONFIG,
    "RMQ-CFG-003": Mend.CONFIG,
    "RMQ-CFG-004": Mend.CONFIG,
    "RMQ-OFF-001": Mend.OFFSETS,
    "RMQ-OFF-003": Mend.OFFSETS,
    "RMQ-OFF-007": Mend.OFFSETS,
}
_BY_FAMILY = {"CQ": Mend.QUEUES, "IDX": Mend.INDEX, "CKPT": Mend.CHECKPOINT}
_RECOVERING = ("rmqctl recover", "rmqctl rebuild", "rmqctl repair")


def mend_of(finding: Finding) -> Mend | None:
    """The mend for a finding, None where a person has to decide or another command is for it."""
    known = _BY_CODE.get(finding.code)
    if known is not None:
        return known
    if finding.fix is None or not finding.fix.startswith(_RECOVERING) or "--cut" in finding.fix:
        return None
    # what lies in the log decides what queues and index have to hold, so it takes them along
    return Mend.LOG if "--bridge" in finding.fix else _BY_FAMILY.get(finding.kind.family, Mend.LOG)


def is_chosen(finding: Finding, only: Iterable[str]) -> bool:
    """Whether a finding is to be mended. Offsets of consumers are a decision: their codes have to be named."""
    chosen = frozenset(only)
    if chosen:
        return finding.code in chosen
    return mend_of(finding) not in (None, Mend.OFFSETS)
