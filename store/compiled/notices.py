"""Tells whoever asked for it that bulk work has to wait, or is slower than it could be: each sentence once; and asks
for help with compiling."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()
_helpers: list[Callable[[str, bool], bool]] = []


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


def say(sentence: str) -> None:
    """Say what a reader has to know of its answer: to the listeners, each time; without any, as a warning of the logger
    `rmqctl.store`, which Python prints to stderr where no handler is set."""
    if _listeners:
        for listener in tuple(_listeners):
            listener(sentence)
        return
    import logging  # here, because most commands never log

    logging.getLogger("rmqctl.store").warning(sentence)


def help_compiling(helper: Callable[[str, bool], bool] | None) -> None:
    """Have `helper(module, is_waited_for)` called when the kernels of a module have to be compiled: by this process,
    which waits for them, or elsewhere if the helper can. It answers whether another process is compiling. None for
    nobody."""
    _helpers[:] = [helper] if helper is not None else []


def compiling_begins(module: str) -> None:
    """The kernels of a module are about to be compiled here: others can be compiled elsewhere meanwhile."""
    for helper in _helpers:
        helper(module, True)


def is_compiled_elsewhere(module: str) -> bool:
    """Whether another process compiles the kernels of a module, and is going to keep them."""
    return any(helper(module, False) for helper in _helpers)
