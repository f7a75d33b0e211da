"""What a broker keeps for POP beside its tables: what is handed out, and who waits."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from rmqctl.formats import properties as names
from rmqctl.formats.errors import RmqctlError, counted
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.broker.pop.orders import OrderedPops
from rmqctl.network.broker.pop.records import PopRecords
from rmqctl.network.broker.pop.revive import ReviveService
from rmqctl.network.remoting.requests import Reply, RequestError
from rmqctl.store.files import io
from rmqctl.store.pop.load import kv_entries, revive_messages
from rmqctl.store.pop.records import KV_FOLDER, KvEntry, PopCheckpoint, RecordError, revive_record

Waiter = tuple[str, str, int]
"""A topic, a group and a queue, below 0 for all queues."""


class PopService:
    """What a broker keeps for POP: what is handed out, and who waits."""

    def __init__(self, broker: WritableBroker) -> None:
        """Errors as for OrderedPops."""
        self._broker = broker
        self.records = PopRecords(broker)
        _move_entries(broker, self.records)
        self.orders = OrderedPops(broker)
        self.revive = ReviveService(broker, self.records)
        self.waiting = Counter[Waiter]()
        self.draw: Callable[[], int] = lambda: random.randrange(100)
        """Return a number below 100: where a pop begins, and whether with retries."""

    def may_wait(self, waiter: Waiter) -> bool:
        """Return whether one more may wait."""
        settings = self._broker.settings
        is_full = self.waiting[waiter] > settings.pop_polling_size
        return not is_full and self.waiting.total() < settings.max_pop_polling_size

    def wait(self, waiter: Waiter) -> None:
        """Count one that waits."""
        self.waiting[waiter] += 1

    def end_wait(self, waiter: Waiter) -> None:
        """Count one that waits no longer."""
        self.waiting[waiter] -= 1
        if not self.waiting[waiter]:
            del self.waiting[waiter]


def _move_entries(broker: WritableBroker, records: PopRecords) -> None:
    """Store checkpoints for the entries of kvStore/, as PopConsumerService#transferToFsStore, which keep `suspend`; the
    database, which is never written, gets another name. After a kill in between none is stored twice."""
    folder = broker.files.root / KV_FOLDER
    entries = [entry for _, entry in kv_entries(broker.reader) if isinstance(entry, KvEntry)]
    if not entries:
        return
    kept = f"{KV_FOLDER}: {counted(len(entries), 'message')} popped by kvStore/"
    if not broker.files.config.timer_wheel_enable:
        broker.tell(f"{kept} stay there: without a timer there is no POP")
        return
    known = {(one.group, one.topic, one.queue_id, one.start, one.popped_at) for one in _checkpoints(broker)}
    for entry in entries:
        place = (entry.group, entry.topic, entry.queue_id, entry.offset, entry.popped_at)
        own = PopCheckpoint(
            *place, broker.identity.name, entry.invisible, (0,), suspend=entry.suspend, put_again=str(entry.put_again)
        )
        revive_queue = entry.offset % max(1, broker.settings.revive_queue_num)
        if place not in known and records.hand_out(own, revive_queue) is None and records.get(own.key) is None:
            broker.tell(f"{kept} stay there: not all of their checkpoints could be stored")
            return
    broker.store.flush()
    targets = (folder.with_name(f"{KV_FOLDER}.moved{number or ''}") for number in itertools.count())
    target = next(path for path in targets if not path.exists())
    io.rename(folder, target)
    broker.tell(f"{kept} are in the revive topic now, and kvStore/ is {target.name}/")


def _checkpoints(broker: WritableBroker) -> Iterator[PopCheckpoint]:
    """Yield those that are left in the revive topic, settled or not, and in the timer."""
    for one in revive_messages(broker.reader, lambda group, topic, queue_id: None):
        with contextlib.suppress(RecordError, RmqctlError):
            record = revive_record(one.message.properties().get(names.TAGS), one.message.plain_body())
            if isinstance(record, PopCheckpoint):
                yield record


_Handler = TypeVar("_Handler", bound=Callable[..., Reply])


def refusing_with(**fields: str) -> Callable[[_Handler], _Handler]:
    """Have what a handler refuses carry the fields of its answers, as brokers do."""

    def wrapped(handler: _Handler) -> _Handler:
        @functools.wraps(handler)
        def handle(*arguments: object) -> Reply:
            try:
                return handler(*arguments)
            except RequestError as error:
                error.fields = {**fields, **error.fields}
                raise

        return handle  # type: ignore[return-value]  # it takes and gives the same

    return wrapped


class PopBroker(WritableBroker):
    """A writable broker that messages can be popped from."""

    pop: PopService
