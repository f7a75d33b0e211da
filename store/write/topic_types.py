"""Which topics have batch consume queues: by the queues on disk, else by config/topics.json."""

from __future__ import annotations

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.store.config.config_files import load_config, topic_type
from rmqctl.store.store_files import StoreFiles

_BATCH = "BatchCQ"


class TopicTypes:
    """Queue types of topics. A topic has one type: the first message of a new topic settles it."""

    def __init__(self, files: StoreFiles) -> None:
        self._is_batch: dict[str, bool] = _configured(files)
        self._is_batch.update({queue.topic: queue.kind == _BATCH for queue in files.queues.all()})

    def is_batch(self, topic: str) -> bool:
        """Whether the queues of `topic` have 46-byte units."""
        return self._is_batch.get(topic, False)

    def settle(self, topic: str, is_batch: bool) -> bool:
        """Make `is_batch` the type of a new topic; whether it agrees with the type of a known one."""
        return self._is_batch.setdefault(topic, is_batch) == is_batch


def _configured(files: StoreFiles) -> dict[str, bool]:
    """What topics.json or its backup says. One that does not parse says nothing: the queues on disk still do."""
    try:
        loaded = load_config(files.layout.config / "topics.json")
        topics = () if loaded is None else loaded.content["topicConfigTable"].items()
        return {topic: topic_type(entry) == _BATCH for topic, entry in topics if topic_type(entry) is not None}
    except (CorruptError, UnreadableError, AttributeError, KeyError, TypeError):
        return {}
