"""Who is told what."""

from __future__ import annotations

from rmqctl.store.options import notice, tell_notices


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
    notice("one")
