"""Stores in which splits cannot tell where records begin: whoever works over splits has to notice, and take files."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.log.resync import LOOK_BACK
from rmqctl.store.store_files import StoreFiles
from tests.store.logs import BODY_AT, frame, frames, log_of

MESSAGES = 3
SPLIT_IN_DECOY = 1 << 20
"""A split size at which splits begin inside the large message."""


def store_with_a_huge_decoy(folder: Path) -> tuple[StoreFiles, int]:
    """A store of which one message, at the offset returned, is larger than is looked back over, and holds messages."""
    first = frame(0, b"first")
    body_at = len(first) + BODY_AT
    inner = bytes(LOOK_BACK + 1000)
    inner += b"".join(frames([b"decoy" * 200] * 2000, body_at + len(inner)))
    data = first + frame(len(first), inner)
    log_of(folder / "commitlog", data + frame(len(data), b"last"))
    return StoreFiles(folder), len(first)
