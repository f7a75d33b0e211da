"""Tells whoever asked for it what somebody who waits has to know: each sentence once."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()


def tell_notices(listener: Callable[[str], None] | None) -> None:
    """Have `listener` called with sentences for people; None for nobody. A new listener is told everything once."""
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
