"""The consumer groups of a store: those configured, and any other as a broker would create it."""

from __future__ import annotations

import re
from typing import Any

from rmqctl.network.broker.tables.config_table import config_table
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.fastjson import bean
from rmqctl.network.remoting.services import FAQ, RequestError, Tell
from rmqctl.store.config.config_files import next_version
from rmqctl.store.config.versions import DEFAULT_RELEASE, Release
from rmqctl.store.store_files import StoreFiles

# Validators: letters, digits and % | _ -
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_MOST_GROUPS = 100_000
# MixAll#isSysConsumerGroup
_SYSTEM_PREFIX = "CID_RMQ_SYS_"


def default_group(name: str) -> dict[str, Any]:
    """The settings of a group that nobody configured (SubscriptionGroupConfig)."""
    return bean(
        attributes={},
        brokerId=0,
        consumeBroadcastEnable=True,
        consumeEnable=True,
        consumeFromMinEnable=True,
        consumeMessageOrderly=False,
        consumeTimeoutMinute=15,
        groupName=name,
        groupRetryPolicy={"type": "CUSTOMIZED"},
        groupSysFlag=0,
        notifyConsumerIdsChangedEnable=True,
        retryMaxTimes=16,
        retryQueueNums=1,
        whichBrokerWhenConsumeSlowly=1,
    )


def is_legal_group(name: str) -> bool:
    """Whether a group can have this name (Validators#checkGroup)."""
    return _LEGAL.fullmatch(name) is not None


class GroupTable:
    """Settings of groups by name, as objects of subscriptionGroup.json."""

    FILE = "subscriptionGroup.json"

    def __init__(
        self,
        files: StoreFiles,
        tell: Tell,
        *,
        is_written: bool = False,
        may_create: bool = True,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        """A damaged subscriptionGroup.json is told, and its groups are then as if nobody had configured them; but where
        it `is_written` it is a CorruptError. `may_create`: clients may come with groups that nobody has heard of."""
        found = config_table(
            files,
            self.FILE,
            "subscriptionGroupTable",
            tell,
            "no settings of consumer groups are known",
            is_written=is_written,
        )
        table, self.data_version, self._content = found
        forbidden = self._content.get("forbiddenTable")
        self._forbidden: dict[str, dict[str, int]] = {
            str(group): {str(topic): bits for topic, bits in topics.items() if isinstance(bits, int)}
            for group, topics in (forbidden.items() if isinstance(forbidden, dict) else ())
            if isinstance(topics, dict)
        }
        self.may_create = may_create
        self._checks_names = not release.is_of_4
        self._groups: dict[str, dict[str, Any]] = {
            name: {**default_group(name), **one}
            for name, one in table.items()
            if isinstance(name, str) and isinstance(one, dict)
        }

    def find(self, name: str) -> dict[str, Any] | None:
        """Settings of a group; None if nobody has heard of it."""
        return self._groups.get(name)

    def find_or_default(self, name: str) -> dict[str, Any]:
        """Settings of a group that a client comes with: known from then on, as if the broker had created it
        (SubscriptionGroupManager#findSubscriptionGroupConfig). RequestError for a name that none can have."""
        found = self._groups.get(name)
        if found is None:
            is_legal = is_legal_group(name) or not self._checks_names
            may_create = self.may_create or name.startswith(_SYSTEM_PREFIX)
            if not may_create or not is_legal or len(self._groups) >= _MOST_GROUPS:
                remark = f"subscription group [{name}] does not exist, \n{FAQ}"
                raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            found = self._groups[name] = default_group(name)
        return found

    def names(self) -> list[str]:
        """All groups, by name."""
        return sorted(self._groups)

    def put(self, name: str, settings: dict[str, Any]) -> None:
        """Have a group with these settings; what they leave out is as it is by default."""
        self._groups[name] = {**default_group(name), **settings}

    def is_forbidden(self, group: str, topic: str, bit: int) -> bool:
        """Whether an operator has taken a permission in a topic from a group."""
        return bool(self._forbidden.get(group, {}).get(topic, 0) & bit)

    def forbid(self, group: str, topic: str, bit: int, is_forbidden: bool) -> None:
        """Take a permission in a topic from a group, or give it back."""
        topics = self._forbidden.setdefault(group, {})
        topics[topic] = topics.get(topic, 0) & ~bit | (bit if is_forbidden else 0)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._forbidden[group]

    def forbidden(self) -> dict[str, dict[str, int]]:
        """What is forbidden, by group and topic."""
        return {group: dict(topics) for group, topics in sorted(self._forbidden.items())}

    def remove(self, name: str) -> None:
        """Forget a group."""
        self._groups.pop(name, None)

    def content(self, now: int) -> dict[str, Any]:
        """What subscriptionGroup.json is to hold, as a new version of `now` (ms)."""
        self.data_version = next_version(self.data_version, now)
        content = {**self._content, "forbiddenTable": self.forbidden()}
        return {**content, "dataVersion": self.data_version, "subscriptionGroupTable": self.all()}

    def all(self) -> dict[str, dict[str, Any]]:
        """Settings of all groups."""
        return dict(sorted(self._groups.items()))
