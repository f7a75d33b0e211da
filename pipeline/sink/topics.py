"""Topics of messages that were written, in topics.json: without it a broker has messages and no route to them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rmqctl.formats.errors import CorruptError
from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.broker.tables.settings import BrokerSettings
from rmqctl.network.broker.tables.system import system_topics
from rmqctl.network.topic_config import TopicConfig, topic_from_bean
from rmqctl.store.config.config_files import next_version, read_config, write_config
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.queues.batch_consumequeue import BatchConsumeQueue
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.store_files import StoreFiles

_FILE = "topics.json"
_TABLE, _VERSION = "topicConfigTable", "dataVersion"
_OF_BATCHES = {"queue.type": "BatchCQ"}


def require_topics(layout: StoreLayout) -> None:
    """CorruptError or UnreadableError if topics could not be added to topics.json."""
    _content(layout)


def add_topics(files: StoreFiles, queues: Mapping[str, int]) -> None:
    """See to it that topics.json has these topics with so many queues at least. What is configured stays but for that;
    topics that every broker has are as it makes them. WriteFailedError, and as `require_topics`."""
    content = _content(files.layout)
    batch_topics = {queue.topic for queue in files.queues.all() if isinstance(queue, BatchConsumeQueue)}
    table = content.get(_TABLE)
    table = table if isinstance(table, dict) else {}
    brokers_own = {topic.name: topic for topic in system_topics(BrokerIdentity(), BrokerSettings(), has_timer=True)}
    changed = {}
    for name, count in sorted(queues.items()):
        if name.startswith(LMQ_PREFIX):
            continue
        found = table.get(name)
        if isinstance(found, dict):
            topic = topic_from_bean(name, found)
        else:
            attributes = _OF_BATCHES if name in batch_topics else {}
            topic = brokers_own.get(name) or TopicConfig(name, count, count, attributes=attributes)
        if found is None or min(topic.read_queue_nums, topic.write_queue_nums) < count:
            reads, writes = max(topic.read_queue_nums, count), max(topic.write_queue_nums, count)
            bean = topic._replace(read_queue_nums=reads, write_queue_nums=writes).as_bean()
            changed[name] = {**(found if isinstance(found, dict) else {}), **bean}
    if changed:
        version = content.get(_VERSION)
        version = next_version(version if isinstance(version, dict) else {}, int(time.time() * 1000))
        write_config(files.layout.config / _FILE, {**content, _VERSION: version, _TABLE: {**table, **changed}})


def _content(layout: StoreLayout) -> dict[Any, Any]:
    path = layout.config / _FILE
    content = read_config(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise CorruptError("holds no topics", file=path, hint="mend the file, or move it away")
    return content
