"""What Ctrl-C must not come between is done first, and nothing that ends a command is lost meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rmqctl.store.files.background import uninterrupted


class Ended(KeyboardInterrupt):
    """How a command's handler tells of SIGTERM."""


@pytest.fixture
def handled() -> Iterator[None]:
    def end(*_: object) -> None:
        raise Ended

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize(("number", "ends_with"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Ended)])
def test_a_signal_waits(number: signal.Signals, ends_with: type[KeyboardInterrupt]) -> None:
    done: list[bool] = []
    before = signal.getsignal(number)

    def work() -> None:
        with uninterrupted():
            signal.raise_signal(number)
            done.append(True)

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert (done, caught.type) == ([True], ends_with)
    assert signal.getsignal(number) is before
