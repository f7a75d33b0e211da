"""How far the consumer groups have come (ConsumerOffsetManager)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqctl.network.broker.tables.config_table import config_table
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.services import RequestError, Tell
from rmqctl.store.answers.config_offsets import LMQ_TABLE, OFFSET_TABLE, light_offsets, offset_key, offsets_of
from rmqctl.store.config.config_files import next_version
from rmqctl.store.config.homes import LMQ_OFFSETS, offsets_home
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.store_files import StoreFiles

_SEPARATOR = "@"
# what clients may make us remember
_MOST_OFFSETS = 1_000_000


class ConsumerOffsets:
    """Offsets by topic, group and queue: of the next message to be consumed. Negative ones are none."""

    def __init__(self, files: StoreFiles, tell: Tell, *, is_written: bool = False) -> None:
        """Starts with what consumerOffset.json holds, or lmqConsumerOffset.json where the broker uses that one; if that
        is damaged it is told, and no group has come anywhere; a CorruptError where it `is_written`."""
        home = offsets_home(files.layout.config, files.config)
        if home.note:
            tell(home.note)
        self.FILE = home.path.name
        found = config_table(
            files,
            self.FILE,
            OFFSET_TABLE,
            tell,
            "no offset of a consumer group is known",
            is_written=is_written,
        )
        table, self.data_version, self._content = found
        if home.is_lmq:
            table = {**table, **light_offsets(self._content)}
        self.has_changed = False
        self._others: dict[str, Any] = {}
        self._resets: dict[tuple[str, str, int], int] = {}
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str, int], int] = {}
        self._committed = 0
        for key, queues in table.items():
            # offsets of a broadcasting group belong to its clients
            owner = offset_key(key)
            if owner is not None and not owner.is_broadcast and isinstance(queues, dict):
                self._offsets[owner.topic, owner.group] = offsets_of(queues)
            else:
                self._others[str(key)] = queues

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that `group` committed; None if it did not."""
        offset = self._offsets.get((topic, group), {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep an offset, a smaller one than before too. RequestError where too many are kept already."""
        queues = self._offsets.setdefault((topic, group), {})
        if queue_id not in queues:
            if self._committed >= _MOST_OFFSETS:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_OFFSETS} offsets are kept in memory"
                )
            self._committed += 1
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.has_changed = True

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep how far a group has pulled, which is further than what it has consumed."""
        if len(self._pulled) < _MOST_OFFSETS:
            self._pulled[group, topic, queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has pulled or, if that is further, consumed; 0 if neither."""
        return max(self._pulled.get((group, topic, queue_id), 0), self.find(group, topic, queue_id) or 0)

    def pulled_table(self) -> dict[str, dict[int, int]]:
        """How far groups have pulled, by topic and group, as `as_table` has offsets."""
        found: dict[str, dict[int, int]] = {}
        for (group, topic, queue_id), offset in list(self._pulled.items()):
            found.setdefault(f"{topic}{_SEPARATOR}{group}", {})[queue_id] = offset
        return found

    def topics_of(self, group: str) -> list[str]:
        """Topics that a group has offsets of."""
        return sorted(topic for topic, other in list(self._offsets) if other == group)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Offsets of a group in a topic, by queue."""
        return dict(self._offsets.get((topic, group), {}))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of a topic."""
        return sorted(group for other, group in list(self._offsets) if other == topic)

    def groups(self) -> list[str]:
        """Groups that have any offset."""
        return sorted({group for _, group in list(self._offsets)})

    def as_table(self) -> dict[str, dict[int, int]]:
        """All offsets as consumerOffset.json has them."""
        return {f"{topic}{_SEPARATOR}{group}": dict(queues) for (topic, group), queues in list(self._offsets.items())}

    # ---- where offsets are kept for good

    def clamp(self, end: Callable[[str, int], int]) -> list[str]:
        """Set offsets beyond the `end` of their queue back to it; a line for each. A log that lost its end gives those
        offsets to other messages."""
        told: list[str] = []
        for (topic, group), queues in self._offsets.items():
            for queue_id, offset in queues.items():
                last = end(topic, queue_id)
                if offset > last:
                    told.append(f"{group} was at {offset} of {topic} queue {queue_id}, which ends at {last}: set back")
                    queues[queue_id] = last
                    self.has_changed = True
        return told

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a group to an offset, and have its next pull begin there."""
        self.commit(group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the next pull of a group begins where it was set to: until then members commit what is past."""
        return (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the next pull of a group has to begin, once; None if nobody has set it."""
        return self._resets.pop((group, topic, queue_id), None)

    def remove(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget the offsets of a topic, or of a group."""
        for key in [key for key in self._offsets if topic == key[0] or group == key[1]]:
            del self._offsets[key]
            self.has_changed = True

    def content(self, now: int, end: Callable[[str, int], int]) -> dict[str, Any]:
        """What consumerOffset.json is to hold, as a new version of `now` (ms). No offset beyond the `end` of its queue,
        whatever clients commit."""
        self.data_version = next_version(self.data_version, now)
        self.has_changed = False
        table: dict[str, Any] = {}
        topics: dict[str, list[str]] = {}
        for (topic, group), queues in sorted(self._offsets.items()):
            offsets = {queue_id: min(offset, end(topic, queue_id)) for queue_id, offset in sorted(queues.items())}
            table[f"{topic}{_SEPARATOR}{group}"] = offsets
            topics.setdefault(group, []).append(topic)
        content = {
            **self._content,
            "dataVersion": self.data_version,
            "groupTopicMap": topics,
            "offsetTable": {**table, **self._others},
        }
        if self.FILE == LMQ_OFFSETS:
            light = [key for key in table if key.partition(_SEPARATOR)[2].startswith(LMQ_PREFIX)]
            content[LMQ_TABLE] = {key: table[key].get(0, 0) for key in light}
            content[OFFSET_TABLE] = {key: queues for key, queues in content["offsetTable"].items() if key not in light}
        return content
