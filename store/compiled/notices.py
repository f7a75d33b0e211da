"""Tells whoever asked for it that bulk work has to wait, or is slower than it could be: each sentence once."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()


def tell_notices(listener: Callable[[str], None] | None) -> None:
    """Have `listener` called with sentences for people when bulk work begins that something keeps back; None for
    nobody. A new listener is told everything once."""
    wanted = [listener] if listener is not None else []
    if wanted != _listeners:
        _listeners[:] = wanted
        _said.clear()


def notice(sentence: str) -> None:
    """Tell it, unless it was told."""
    if _listeners and sentence not in _said:
        _said.add(sentence)
        for listener in tuple(_listeners):
            listener(sentence)
