"""Who is told that bulk work has to wait."""

from __future__ import annotations

from rmqctl.store.compiled import available
from rmqctl.store.compiled.notices import notice, tell_notices


def test_each_listener_is_told_once() -> None:
    said: list[str] = []
    other: list[str] = []
    for listener in (said.append, said.append):
        tell_notices(listener)
        notice("slow")
        notice("slow")
    tell_notices(other.append)
    notice("slow")
    tell_notices(None)
    notice("slow")
    assert (said, other) == (["slow"], ["slow"])


def test_nobody_needs_to_listen() -> None:
    tell_notices(print)
    tell_notices(None)
    available.say_compiling("one")
