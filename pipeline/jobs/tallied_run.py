"""A run of messages that a task of a check has compared, as it travels to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.check.index.compare import IndexTally
from rmqctl.store.check.queues.tally import QueuesTally
from rmqctl.store.columns.batch import Int64s
from rmqctl.store.survey.log_runs import QueueRun, Run
from rmqctl.store.survey.run_units import Units, joined_units


@dataclass(slots=True)
class TalliedRun(Run):
    """A run that was compared already. Of its queues only the rows are kept that judge what follows (see
    `check_parts.kept`).

    Where a file of the queues or of the index could not be read, the error stands beside a tally that means nothing.
    """

    queues_tally: QueuesTally = field(default_factory=QueuesTally)
    index_tally: IndexTally = field(default_factory=IndexTally)
    queues_error: UnreadableError | None = None
    index_error: UnreadableError | None = None

    def __getstate__(self) -> tuple[object, ...]:
        """Rows of queues as columns: there are two of each, and pickled apart they take longer than the comparison."""
        state = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "queues"}
        names = [(queue.topic, queue.queue_id, len(queue.slots)) for queue in self.queues]
        if not names:
            return state, names, None, None
        units = joined_units([queue.units for queue in self.queues])
        return state, names, np.concatenate([queue.slots for queue in self.queues]), units

    def __setstate__(self, packed: tuple[dict[str, Any], list[tuple[str, int, int]], Int64s, Units]) -> None:
        """What `__getstate__` gave."""
        state, names, slots, units = packed
        for name, value in state.items():
            setattr(self, name, value)
        self.queues = []
        begin = 0
        for topic, queue_id, count in names:
            end = begin + count
            self.queues.append(QueueRun(topic, queue_id, slots[begin:end], units[begin:end], None))
            begin = end

    def join(self, later: TalliedRun) -> None:
        """Add the run that begins where this one ends; it is used up."""
        self.end = later.end
        self.messages += later.messages
        self.last_message_offset = later.last_message_offset
        self.last_store_timestamp = later.last_store_timestamp
        self.unplaceable += later.unplaceable
        self.queues_tally.merge(later.queues_tally)
        self.index_tally.merge(later.index_tally)
        self.queues_error = self.queues_error or later.queues_error
        self.index_error = self.index_error or later.index_error
        known = {(queue.topic, queue.queue_id): place for place, queue in enumerate(self.queues)}
        for queue in later.queues:
            place = known.get((queue.topic, queue.queue_id))
            if place is None:
                self.queues.append(queue)
                continue
            before = self.queues[place]
            slots, units = np.concatenate([before.slots, queue.slots]), np.concatenate([before.units, queue.units])
            self.queues[place] = before._replace(slots=slots, units=units)
