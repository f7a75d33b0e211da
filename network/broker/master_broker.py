"""A whole broker: what clients ask of it, and all that goes on by itself."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.network.broker.broker import WritableBroker, wall_clock
from rmqctl.network.broker.delays import DelayService, TimerService
from rmqctl.network.broker.settings import BrokerIdentity, TimerFigures
from rmqctl.network.broker.transactions import OpenTransactions
from rmqctl.network.remoting.requests import Tell
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.message_store import MessageStore


class MasterBroker(WritableBroker):
    """A writable broker that delivers delayed messages and sees to transactions."""

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity,
        tell: Tell,
        clock: Callable[[], int] = wall_clock,
        properties: dict[str, str] | None = None,
        elapsed: Callable[[], int] = monotonic_ms,
    ) -> None:
        """Everything goes on where the store's files say; errors as for WritableBroker."""
        super().__init__(store, identity, tell, clock, properties, elapsed)
        self.delays = DelayService(self)
        self.transactions = OpenTransactions(self)
        self.timer = TimerService(self) if store.files.config.timer_wheel_enable else None
        self.steps += [self.delays.step, self.transactions.step, *([] if self.timer is None else [self.timer.step])]

    @property
    def is_behind(self) -> bool:
        """Whether the next step had better come soon: there is more to do than one may take."""
        return self.timer is not None and self.timer.is_behind

    def timer_figures(self) -> TimerFigures:
        """Return how far the timer is; zeros without one."""
        return TimerFigures() if self.timer is None else self.timer.figures()

    def close(self) -> None:
        """Write what is not written yet."""
        self.delays.save()
        if self.timer is not None:
            self.timer.close()
        super().close()
