"""Which rung of the ladder does the walk: compiled with isal's CRC, compiled with our own, or plain Python."""

from __future__ import annotations

from collections.abc import Callable

_announce: list[Callable[[str], None]] = []


def announce_compilation(announce: Callable[[str], None] | None) -> None:
    """Have `announce` called with a sentence for people when kernels are about to be compiled; None for nobody."""
    _announce[:] = [announce] if announce is not None else []


def speed_notice() -> str | None:
    """Why bulk work is slower here than it could be, as one sentence for people; None where it is not."""
    return None
