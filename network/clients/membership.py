"""Membership of a consumer group: what a member announces, and what the group's live members subscribe."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.hashing import java_hash
from rmqctl.formats.wording import counted
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.fastjson import bean, objects, parse_body, text_of
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.read.message_filter import SUBSCRIBE_ALL, TagFilter

CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"
_TAG = "TAG"
_POPS = "CONSUME_POP"
_OFFLINE = (int(ResponseCode.CONSUMER_NOT_ONLINE),)
_MOST_NAMED = 3


def consumer_heartbeat(
    group: str, subscriptions: Mapping[str, str], consume_from: str, message_model: str = CLUSTERING
) -> dict[str, Any]:
    """Return the heartbeat of a push consumer (HeartbeatData): `subscriptions` are tag expressions by topic.

    The hashes of the tags are part of it: brokers select by them for every member of the group.
    """
    version = time.time_ns() // 1_000_000
    wanted = []
    for topic, expression in subscriptions.items():
        tags = sorted(TagFilter(expression).tags)
        wanted.append(
            bean(
                classFilterMode=False,
                codeSet=sorted({java_hash(tag) for tag in tags}),
                expressionType=_TAG,
                subString=expression,
                subVersion=version,
                tagsSet=tags,
                topic=topic,
            )
        )
    consumer = bean(
        groupName=group,
        consumeType="CONSUME_PASSIVELY",
        messageModel=message_model,
        consumeFromWhere=consume_from,
        subscriptionDataSet=wanted,
        unitMode=False,
    )
    return {"consumerDataSet": [consumer], "producerDataSet": []}


class LiveGroup(NamedTuple):
    """The members of a group that brokers know, without one's own, and what the group subscribes.

    `subscriptions`: kind and expression by topic, without the group's retry topic, which every push consumer has.
    """

    client_ids: tuple[str, ...]
    subscriptions: Mapping[str, tuple[str, str]]
    message_model: str = ""
    consume_type: str = ""

    @property
    def members(self) -> str:
        """The number of members and the first of their ids."""
        named = ", ".join(self.client_ids[:_MOST_NAMED])
        more = len(self.client_ids) - _MOST_NAMED
        return f"{counted(len(self.client_ids), 'live member')} ({named}{f' and {more} more' if more > 0 else ''})"

    def conflict(self, wanted: Mapping[str, str], message_model: str = CLUSTERING) -> str | None:
        """Return why a member that subscribes `wanted` alone (tags by topic) would take messages from the others.

        Every member gets its share of every topic's queues, whether it reads them or not.
        """
        if not self.client_ids:
            return None
        if self.message_model not in ("", message_model):
            return f"they consume as {self.message_model}, not as {message_model}"
        if self.consume_type == _POPS:
            return "they consume by POP"
        own = {topic: (_TAG, frozenset(TagFilter(tags).tags)) for topic, tags in wanted.items()}
        theirs = {name: _comparable(*one) for name, one in self.subscriptions.items()}
        if theirs in ({}, own):
            return None
        said = ", ".join(f"{name} {expression!r}" for name, (_, expression) in sorted(self.subscriptions.items()))
        ours = ", ".join(f"{topic} {tags!r}" for topic, tags in sorted(wanted.items()))
        return f"they subscribe {said}; this one subscribes {ours}"


def _comparable(kind: str, expression: str) -> tuple[str, object]:
    if kind != _TAG:
        return kind, expression
    is_all = expression.strip() in ("", SUBSCRIBE_ALL)
    return kind, frozenset() if is_all else frozenset(map(str.strip, expression.split("||")))


def live_group(client: Client, addresses: set[str], group: str) -> LiveGroup:
    """Ask the brokers at `addresses` for the members of `group`. RemoteError where one does not answer."""
    client_ids: set[str] = set()
    found = LiveGroup((), {})
    subscriptions: dict[str, tuple[str, str]] = {}
    for address in sorted(addresses):
        fields = {"consumerGroup": group}
        answer = client.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields, allowed=_OFFLINE)
        if answer.code != ResponseCode.SUCCESS:
            continue
        content = parse_body(answer.body)
        others = {text_of(one, "clientId") for one in objects(content.get("connectionSet"))} - {client.client_id}
        if not others:
            continue
        client_ids |= others
        found = found._replace(
            message_model=text_of(content, "messageModel"), consume_type=text_of(content, "consumeType")
        )
        table = content.get("subscriptionTable")
        for topic, one in table.items() if isinstance(table, dict) else ():
            if isinstance(one, dict) and not str(topic).startswith(RETRY_PREFIX):
                subscriptions[str(topic)] = (text_of(one, "expressionType") or _TAG, text_of(one, "subString"))
    return found._replace(client_ids=tuple(sorted(client_ids)), subscriptions=subscriptions)
