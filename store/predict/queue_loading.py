"""Loading the consume queues as a broker does (ConsumeQueueStore#load): which there are, and what stops the start."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.hashing import parse_int
from rmqctl.store.config.config_files import load_config, topic_type
from rmqctl.store.predict.dispatch import SimulatedQueues
from rmqctl.store.predict.loading import list_in_order, load_files
from rmqctl.store.predict.rules import Rules
from rmqctl.store.store_files import StoreFiles

_BATCH = "BatchCQ"
_SIMPLE = "SimpleCQ"


class QueueLoading:
    """Loads the queues of a store. `batch_topics`: those given; else what config/topics.json says, and without such a
    file those that have batch queues on disk."""

    def __init__(self, files: StoreFiles, rules: Rules, batch_topics: Iterable[str] | None) -> None:
        self._files = files
        self._rules = rules
        known = set(batch_topics) if batch_topics is not None else _configured(files)
        self._is_configured = known is not None
        self.batch_topics = known if known is not None else set(list_in_order(files.layout.batchconsumequeue))

    def load(self, queues: SimulatedQueues, deleted: list[Path]) -> str | None:
        """Add every queue to `queues` and what goes to `deleted`; returns why the broker does not start, if so."""
        layout = self._files.layout
        roots = [(layout.consumequeue, False)]
        if self._rules.knows_batches:
            roots.append((layout.batchconsumequeue, True))
        return next((error for root, batch in roots if (error := self._load(root, batch, queues, deleted))), None)

    def _load(self, root: Path, is_batch: bool, queues: SimulatedQueues, deleted: list[Path]) -> str | None:
        table = self._files.queues
        size = table.batch_file_size() if is_batch else table.consumequeue_file_size()
        for topic in list_in_order(root):
            for name in list_in_order(root / topic):
                queue_id = parse_int(name)
                if queue_id is None:
                    continue
                error = self._wrong_type(topic, is_batch)
                if error is not None:
                    return error
                loaded = load_files([root / topic / name], size, self._rules)
                deleted += loaded.deleted
                if loaded.error is not None:
                    return loaded.error
                queues.add(topic, queue_id, is_batch, loaded.files)
        return None

    def _wrong_type(self, topic: str, is_batch: bool) -> str | None:
        if not self._rules.knows_batches or not self._is_configured or is_batch == (topic in self.batch_topics):
            return None
        should, found = (_BATCH, _SIMPLE) if is_batch else (_SIMPLE, _BATCH)
        what = f"The queue type of topic: {topic} should be {should}, but is {found}"
        return f"load exception: java.lang.RuntimeException: {what}"


def _configured(files: StoreFiles) -> set[str] | None:
    """Topics of type BatchCQ in topics.json or its backup; None without a file that can be read."""
    try:
        loaded = load_config(files.layout.config / "topics.json")
        table = {} if loaded is None else loaded.content["topicConfigTable"]
        return None if loaded is None else {topic for topic, entry in table.items() if topic_type(entry) == _BATCH}
    except (CorruptError, UnreadableError, AttributeError, KeyError, TypeError):
        return None
