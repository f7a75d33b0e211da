"""Brokers that failed or were slow, and the choice of a queue that avoids them (MQFaultStrategy)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rmqctl.network.clients.producing.publish_routes import Publish
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.remoting.fastjson import MessageQueue

_LATENCIES = (50, 100, 550, 1800, 3000, 5000, 15000)
_DURATIONS = (0, 0, 2000, 5000, 6000, 10000, 30000)
_ISOLATED = 10_000
_DETECT_SECONDS = 3.0


@dataclass
class _Fault:
    """What is known of a broker. Times are of the table's clock, in ms."""

    latency: int
    available_at: float = 0.0
    check_at: float = 0.0
    is_reachable: bool = True


class LatencyTable:
    """Latencies of brokers by name, and until when each is avoided (LatencyFaultToleranceImpl). Thread-safe."""

    def __init__(self, clock: Callable[[], float] = lambda: time.monotonic() * 1000) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._lock = threading.Lock()

    def update(self, broker: str, latency: int, duration: int, *, is_reachable: bool) -> None:
        """Record a send: its latency and for how long the broker is avoided, both in ms."""
        with self._lock:
            fault = self._faults.setdefault(broker, _Fault(latency))
            fault.latency = latency
            fault.is_reachable = is_reachable
            if duration > 0:
                fault.available_at = max(fault.available_at, self._clock() + duration)

    def is_available(self, broker: str) -> bool:
        """Return whether the broker is not avoided."""
        fault = self._faults.get(broker)
        return fault is None or self._clock() >= fault.available_at

    def is_reachable(self, broker: str) -> bool:
        """Return whether the last attempt reached the broker."""
        fault = self._faults.get(broker)
        return fault is None or fault.is_reachable

    def pick_one_at_least(self) -> str | None:
        """Return a reachable broker of the table at random, None where it has none."""
        with self._lock:
            found = [name for name, fault in self._faults.items() if fault.is_reachable]
        return random.choice(found) if found else None

    def remove(self, broker: str) -> None:
        """Forget a broker."""
        with self._lock:
            self._faults.pop(broker, None)

    def detect(self, resolve: Callable[[str], str | None], is_serving: Callable[[str], bool], interval: int) -> None:
        """Try each broker that is due; one that serves is reachable, one without an address is forgotten."""
        for name, fault in list(self._faults.items()):
            if self._clock() < fault.check_at:
                continue
            fault.check_at = self._clock() + interval
            address = resolve(name)
            if address is None:
                self.remove(name)
            elif is_serving(address):
                fault.is_reachable = True


def not_available_duration(latency: int) -> int:
    """Return for how long a broker of this latency is avoided; both in ms."""
    found = [duration for least, duration in zip(_LATENCIES, _DURATIONS, strict=True) if latency >= least]
    return found[-1] if found else 0


class FaultStrategy:
    """Choice of queues. Without sendLatencyEnable a retry avoids the last broker, and that is all."""

    def __init__(self, settings: ProducerSettings, table: LatencyTable | None = None) -> None:
        self.is_enabled = settings.send_latency_enable
        self.has_detector = settings.start_detector_enable
        self.table = table or LatencyTable()
        self._interval = settings.detect_interval
        self._ended = threading.Event()

    def select(self, publish: Publish, last: str | None, *, is_retry: bool) -> MessageQueue:
        """Return the next queue of `publish`, of another broker than `last` if there is one."""

        def is_other(queue: MessageQueue) -> bool:
            return queue.broker_name != last

        if not self.is_enabled:
            found = publish.next(is_other) or publish.next()
        else:
            if is_retry:
                publish.reset()
            found = (
                publish.next(lambda queue: self.table.is_available(queue.broker_name), is_other)
                or publish.next(lambda queue: self.table.is_reachable(queue.broker_name), is_other)
                or publish.next()
            )
        assert found is not None
        return found

    def update(self, broker: str, seconds: float, *, is_isolated: bool, is_reachable: bool) -> None:
        """Record how a send to a broker went; one that failed counts as 10 s."""
        if self.is_enabled:
            latency = int(seconds * 1000)
            duration = not_available_duration(_ISOLATED if is_isolated else latency)
            self.table.update(broker, latency, duration, is_reachable=is_reachable)

    def start_detector(self, resolve: Callable[[str], str | None], is_serving: Callable[[str], bool]) -> None:
        """Try brokers of the table every 3 s, with startDetectorEnable."""
        if not (self.is_enabled and self.has_detector):
            return

        def detect() -> None:
            while not self._ended.wait(_DETECT_SECONDS):
                self.table.detect(resolve, is_serving, self._interval)

        threading.Thread(target=detect, name="rmqctl-detector", daemon=True).start()

    def close(self) -> None:
        """End the detector."""
        self._ended.set()
