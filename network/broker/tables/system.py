"""Topics and groups that every broker has (TopicConfigManager#init, SubscriptionGroupManager#init)."""

from __future__ import annotations

from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.broker.tables.settings import BrokerSettings
from rmqctl.network.broker.tables.topics import DEFAULT_TOPIC
from rmqctl.network.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from rmqctl.store.config.topic_names import ROCKSDB_TOPICS
from rmqctl.store.queues.dispatch import TIMER_TOPIC

_BOTH = PERM_READ | PERM_WRITE
_SCHEDULE_QUEUES = 18
_BENCHMARK_QUEUES = 1024
_CLUSTER_QUEUES = 16
_GROUPS = (
    "TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP CID_ONS-HTTP-PROXY CID_ONSAPI_PULL CID_ONSAPI_PERMISSION "
    "CID_ONSAPI_OWNER CID_RMQ_SYS_TRANS"
)


def system_topics(identity: BrokerIdentity, settings: BrokerSettings, *, has_timer: bool) -> list[TopicConfig]:
    """Return those of a broker of the named version, without those of services that are not offered (POP)."""
    cluster, name = identity.cluster, identity.name
    single = (
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        f"{cluster}_REPLY_TOPIC",
        *([TIMER_TOPIC] if has_timer else []),
        *(["RMQ_SYS_TRACE_TOPIC"] if settings.trace_topic_enable else []),
        *(ROCKSDB_TOPICS if identity.release.has_lite_topics else []),
    )
    topics = [TopicConfig(topic, 1, 1) for topic in single]
    topics += [
        TopicConfig("BenchmarkTest", _BENCHMARK_QUEUES, _BENCHMARK_QUEUES),
        TopicConfig("SCHEDULE_TOPIC_XXXX", _SCHEDULE_QUEUES, _SCHEDULE_QUEUES),
        TopicConfig(cluster, _CLUSTER_QUEUES, _CLUSTER_QUEUES, _inherited(settings.cluster_topic_enable)),
        TopicConfig(name, 1, 1, _inherited(settings.broker_topic_enable)),
    ]
    if settings.auto_create_topic_enable:
        queues = settings.default_topic_queue_nums
        topics.append(TopicConfig(DEFAULT_TOPIC, queues, queues, _BOTH | PERM_INHERIT))
    return topics


def _inherited(is_enabled: bool) -> int:
    """Permissions of a topic whose name is that of the cluster or the broker."""
    return (_BOTH if is_enabled else 0) | PERM_INHERIT


def system_groups() -> list[str]:
    """Groups that tools and the broker itself use."""
    return _GROUPS.split()
