"""How far the consumer groups have come (ConsumerOffsetManager). What clients commit is kept in memory."""

from __future__ import annotations

from rmqctl.network.broker.config_table import config_table
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.services import RequestError, Tell
from rmqctl.store.store_files import StoreFiles

_SEPARATOR = "@"
# what clients may make us remember
_MOST_OFFSETS = 1_000_000


class ConsumerOffsets:
    """Offsets by topic, group and queue: of the next message to be consumed. Negative ones are none."""

    def __init__(self, files: StoreFiles, tell: Tell) -> None:
        """Starts with what consumerOffset.json holds; if that is damaged it is told, and no group has come anywhere."""
        table, self.data_version = config_table(
            files, "consumerOffset.json", "offsetTable", tell, "no offset of a consumer group is known"
        )
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str, int], int] = {}
        self._committed = 0
        for key, queues in table.items():
            # three parts are offsets of a broadcasting group, which belong to its clients
            parts = str(key).split(_SEPARATOR)
            if len(parts) == 2 and isinstance(queues, dict):
                self._offsets[parts[0], parts[1]] = {
                    int(queue_id): offset
                    for queue_id, offset in queues.items()
                    if str(queue_id).isdecimal() and isinstance(offset, int)
                }

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
        queues[queue_id] = offset

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep how far a group has pulled, which is further than what it has consumed."""
        if len(self._pulled) < _MOST_OFFSETS:
            self._pulled[group, topic, queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has pulled or, if that is further, consumed; 0 if neither."""
        return max(self._pulled.get((group, topic, queue_id), 0), self.find(group, topic, queue_id) or 0)

    def topics_of(self, group: str) -> list[str]:
        """Topics that a group has offsets of."""
        return sorted(topic for topic, other in list(self._offsets) if other == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of a topic."""
        return sorted(group for other, group in list(self._offsets) if other == topic)

    def groups(self) -> list[str]:
        """Groups that have any offset."""
        return sorted({group for _, group in list(self._offsets)})

    def as_table(self) -> dict[str, dict[int, int]]:
        """All offsets as consumerOffset.json has them."""
        return {f"{topic}{_SEPARATOR}{group}": dict(queues) for (topic, group), queues in list(self._offsets.items())}
