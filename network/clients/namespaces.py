"""Names of topics and groups within a namespace (NamespaceUtil)."""

from __future__ import annotations

from rmqctl.store.answers.dead_letters import DLQ_PREFIX, RETRY_PREFIX
from rmqctl.store.config.topic_names import is_brokers_own

_SEPARATOR = "%"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
INSTANCE_ID = "INSTANCE_ID"
"""Property of a message that was sent within a namespace."""


def with_namespace(namespace: str, name: str) -> str:
    """Return the name of a topic or group as brokers know it. System names have no namespace."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, rest = _parts(name)
    return name if rest.startswith(namespace + _SEPARATOR) else f"{prefix}{namespace}{_SEPARATOR}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """Return the name without the namespace; a name of another namespace is left as it is."""
    prefix, rest = _parts(name)
    if not namespace or _is_system(name) or not rest.startswith(namespace + _SEPARATOR):
        return name
    return prefix + rest[len(namespace) + 1 :]


def _parts(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return is_brokers_own(name) or name.startswith(_SYSTEM_GROUP_PREFIX)
