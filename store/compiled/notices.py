"""Tells whoever asked for it that bulk work has to wait, or is slower than it could be: each sentence once; and has
helped whoever compiles."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()
_helpers: list[Callable[[str], None]] = []


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


def help_compiling(helper: Callable[[str], None] | None) -> None:
    """Have `helper` called, once, with the name of the first module whose kernels this process has to compile: others
    are going to be needed, and can be compiled elsewhere meanwhile. None for nobody."""
    _helpers[:] = [helper] if helper is not None else []


def compiling_begins(module: str) -> None:
    """The kernels of a module are about to be compiled."""
    while _helpers:
        _helpers.pop()(module)
