"""Damages one message of a golden store, so that its checksum fails and all around it stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# of a frame with IPv4 hosts, where the body begins
_BODY = 88


def damage_body(store: Path, row: dict[str, Any]) -> None:
    """Change the first byte of the body of the message that is `row` of the truth."""
    path = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= row["phyOffset"])
    with path.open("r+b") as file:
        file.seek(row["phyOffset"] - int(path.name) + _BODY)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0xFF]))
