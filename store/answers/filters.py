"""What consumer groups filter by, as far as a broker keeps it: clients tell it their filters, and most stay unwritten.

Kept are expressions that are no tags (config/consumerFilter.json, ConsumerFilterManager) and those that were set with a
group (`subscriptionDataSet` in config/subscriptionGroup.json, SubscriptionGroupConfig). A push consumer's tags are in
neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.store.read.message_filter import TagFilter

FILTER_FILE = "consumerFilter.json"
FILTER_TABLE = "filterDataByTopic"
_TAG = "TAG"


class KnownFilter(NamedTuple):
    """What a group takes of a topic, and what says so. `tags` is None for an expression that is no tags (SQL92)."""

    expression: str
    tags: TagFilter | None
    source: str


class KnownFilters:
    """The filters of all groups."""

    def __init__(self, groups: Mapping[Any, Any], by_topic: Mapping[Any, Any], given: str | None = None) -> None:
        """`groups`: the subscriptionGroupTable; `by_topic`: the FILTER_TABLE of FILTER_FILE. `given`: tags that whoever
        asks says the groups take, which count before anything kept. UsageError for tags that are none."""
        self._given = None if given is None else KnownFilter(given, TagFilter(given), "as given")
        self._groups = groups
        self._by_topic = by_topic

    def of(self, group: str, topic: str) -> KnownFilter | None:
        """What `group` takes of `topic`; None where nobody knows."""
        return self._given or self._of_subscription(group, topic) or self._kept(group, topic)

    def _of_subscription(self, group: str, topic: str) -> KnownFilter | None:
        listed = _mapping(self._groups.get(group)).get("subscriptionDataSet")
        for one in listed if isinstance(listed, list) else ():
            if _mapping(one).get("topic") == topic:
                return _filter(_mapping(one), "subscriptionGroup.json")
        return None

    def _kept(self, group: str, topic: str) -> KnownFilter | None:
        by_group = _mapping(_mapping(self._by_topic.get(topic)).get("groupFilterData"))
        return _filter(_mapping(by_group.get(group)), FILTER_FILE)


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _filter(entry: Mapping[Any, Any], source: str) -> KnownFilter | None:
    expression = entry.get("expression")
    if not isinstance(expression, str):
        return None
    if entry.get("expressionType") not in (_TAG, None):
        return KnownFilter(expression, None, source)
    try:
        return KnownFilter(expression, TagFilter(expression), source)
    except UsageError:  # which a broker refuses as well (FilterAPI#buildSubscriptionData)
        return None
