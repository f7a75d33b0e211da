"""What a broker says of names of topics (TopicValidator): those it has for itself, and those that no topic may have."""

from __future__ import annotations

import re

from rmqctl.store.config.versions import DEFAULT_RELEASE, Release

ROCKSDB_TOPICS = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""Topics of transactions in RocksDB, which every broker of 5.5 has."""
SYSTEM_TOPICS = frozenset(
    "TBW102 SCHEDULE_TOPIC_XXXX BenchmarkTest RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRACE_TOPIC "
    "RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC SELF_TEST_TOPIC OFFSET_MOVED_EVENT CHECKPOINT_TOPIC".split()
).union(ROCKSDB_TOPICS)
NOT_ALLOWED_TO_SEND = frozenset(
    "SCHEDULE_TOPIC_XXXX RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC "
    "SELF_TEST_TOPIC OFFSET_MOVED_EVENT".split()
).union(ROCKSDB_TOPICS)
"""What a broker writes itself: it refuses producers that send to them (TopicValidator#isNotAllowedSendTopic)."""
_SYSTEM_PREFIX = "rmq_sys_"
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEGAL_TEXT = "^[%|a-zA-Z0-9_-]+$"
_LONGEST, _LONGEST_GROUP = 127, 255
MOST_QUEUES = 10_000
"""Queues for reading, and for writing, that a topic may have here."""


def is_brokers_own(topic: str) -> bool:
    """Whether every broker has the topic for itself, whatever its name and cluster are (TopicValidator#isSystemTopic).

    Topics of retries and dead letters are those of a group, and no system topics.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def has_legal_characters(name: str) -> bool:
    """Whether no character of `name` keeps a broker from taking it (TopicValidator#isTopicOrGroupIllegal)."""
    return _LEGAL.fullmatch(name) is not None


def group_problem(name: str) -> str | None:
    """Return what is wrong with the name of a group, None for a good one (Validators#checkGroup)."""
    if not name.strip():
        return "the specified group is blank"
    if len(name) > _LONGEST_GROUP:
        return f"the specified group is longer than group max length {_LONGEST_GROUP}."
    if not has_legal_characters(name):
        return f"the specified group[{name}] contains illegal characters, allowing only {_LEGAL_TEXT}"
    return None


def topic_problem(name: str, release: Release = DEFAULT_RELEASE) -> str | None:
    """What is wrong with the name of a topic, None if nothing is (TopicValidator#validateTopic of `release`)."""
    if not name.strip():
        return "The specified topic is blank."
    if not has_legal_characters(name):
        which = f": {name}," if release.has_lite_topics else ""
        return f"The specified topic{which} contains illegal characters, allowing only {_LEGAL_TEXT}"
    return "The specified topic is longer than topic max length." if len(name) > _LONGEST else None
