"""A whole broker: what clients ask of it, and all that goes on by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from rmqctl.formats.message import Message
from rmqctl.network.broker.broker import wall_clock
from rmqctl.network.broker.delays import DelayService, TimerService
from rmqctl.network.broker.pop.service import PopBroker, PopService
from rmqctl.network.broker.settings import BrokerIdentity, BrokerSettings, TimerFigures
from rmqctl.network.broker.transactions import OpenTransactions
from rmqctl.network.remoting.requests import Tell
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.prepare import timer_out

_PROTECTED_MS = 180_000
_NOT_CONGESTED = BrokerSettings().timer_congest_num_each_slot


class MasterBroker(PopBroker):
    """A writable broker that delivers delayed messages, revives popped ones and sees to transactions."""

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
        # until when the timer had delivered (ms), and where the log ended then
        self._delivered: tuple[int, int] | None = None
        self.transactions = OpenTransactions(self)
        self.pop = PopService(self)
        has_timer = store.files.config.timer_wheel_enable
        self.timer = TimerService(self, self.pop.records.take) if has_timer else None
        self.steps += [self.delays.step, self.transactions.step, *([] if self.timer is None else [self.timer.step])]
        self.steps += [self.pop.orders.step, self._revive, self._protect]
        self._protected_at = elapsed()

    @property
    def is_behind(self) -> bool:
        """Whether the next step had better come soon: there is more to do than one may take."""
        return self.timer is not None and self.timer.is_behind

    def _revive(self, now: int) -> None:
        """Revive popped messages, which takes a timer: once what that has delivered can be read."""
        if self.timer is None:
            return
        if self._delivered is None:
            self._delivered = self.timer.delivered_until(now), self.written_end
        until, end = self._delivered
        if self.store.is_dispatched(end):
            self._delivered = None
            self.pop.revive.step(now, until)

    def _protect(self, now: int) -> None:
        """Disable groups that are too far behind, where that is set (BrokerController#protectBroker)."""
        if self.elapsed() - self._protected_at < _PROTECTED_MS:
            return
        self._protected_at = self.elapsed()
        falls, self.bytes_behind = self.bytes_behind, {}
        for (_, _, group), behind in falls.items():
            settings = self.groups.find(group)
            if behind > self.settings.consumer_fallbehind_threshold and settings is not None:
                settings["consumeEnable"] = False
                self.tell(f"group {group} is {behind} bytes behind and is disabled (consumerFallbehindThreshold)")

    def congestion(self, message: Message) -> str:
        """See WritableBroker (TimerMessageStore#isReject)."""
        most = self.settings.timer_congest_num_each_slot
        if self.timer is None or most == _NOT_CONGESTED:
            return ""
        out = timer_out(message.properties, self.clock(), self.timer.precision)
        count = 0 if out is None else self.timer.due_at(out)
        if count <= most or (count < 2 * most and random.random() * most > count - most):
            return ""
        return (
            f"timer message is under flow control, max num limit is {2 * most} or the current value is greater than "
            f"{most} and less than {2 * most}, trigger random flow control"
        )

    def delay_offsets(self) -> Any:
        """Return how far the levels are now, which delayOffset.json has a little later."""
        return self.delays.table()

    def timer_figures(self) -> TimerFigures:
        """Return how far the timer is; zeros without one."""
        return TimerFigures() if self.timer is None else self.timer.figures()

    def close(self) -> None:
        """Write what is not written yet."""
        self.delays.save()
        self.pop.orders.save()
        if self.timer is not None:
            self.timer.close()
        super().close()
