"""The consumer groups of a store: those configured, and any other as a broker would create it. Nothing is written."""

from __future__ import annotations

import re
from typing import Any

from rmqctl.network.broker.config_table import config_table
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.fastjson import bean
from rmqctl.network.remoting.services import RequestError, Tell
from rmqctl.store.store_files import StoreFiles

# Validators: letters, digits and % | _ -
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_MOST_GROUPS = 100_000


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


class GroupTable:
    """Settings of groups by name, as objects of subscriptionGroup.json."""

    def __init__(self, files: StoreFiles, tell: Tell) -> None:
        """A damaged subscriptionGroup.json is told, and its groups are then as if nobody had configured them."""
        table, self.data_version = config_table(
            files, "subscriptionGroup.json", "subscriptionGroupTable", tell, "no settings of consumer groups are known"
        )
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
            if not _LEGAL.fullmatch(name) or len(self._groups) >= _MOST_GROUPS:
                raise RequestError(
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist"
                )
            found = self._groups[name] = default_group(name)
        return found

    def names(self) -> list[str]:
        """All groups, by name."""
        return sorted(self._groups)

    def all(self) -> dict[str, dict[str, Any]]:
        """Settings of all groups."""
        return dict(sorted(self._groups.items()))
