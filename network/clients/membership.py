"""Membership of a consumer group: what a member announces and answers, and what the group's live members subscribe."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.hashing import java_hash
from rmqctl.formats.wording import counted
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue, bean, fastjson, objects, parse_body, queue_of_key, text_of
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.read.message_filter import SUBSCRIBE_ALL, TagFilter

CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"
_TAG = "TAG"
_POPS = "CONSUME_POP"
_OFFLINE = (int(ResponseCode.CONSUMER_NOT_ONLINE),)
_MOST_NAMED = 3
_CLIENT_VERSION = "V5_3_3"


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


# ---- answers of a member to requests that brokers send it


def not_a_member(command: RemotingCommand, group: str) -> RemotingCommand:
    """Return the answer to a request that needs a member of its group with a callback, where there is none."""
    asked = command.fields.get("consumerGroup", group)
    return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{asked}> not exist in this consumer")


def offsets_to_set(command: RemotingCommand, group: str) -> dict[MessageQueue, int]:
    """Return the offsets at which queues of a topic are to begin (220); none for another group. CorruptError."""
    if command.fields.get("group") != group:
        return {}
    topic = command.fields.get("topic", "")
    table = parse_body(command.body).get("offsetTable") if command.body else None
    found = {queue_of_key(key): offset for key, offset in table.items()} if isinstance(table, dict) else {}
    return {
        queue: offset
        for queue, offset in found.items()
        if queue is not None and queue.topic == topic and isinstance(offset, int)
    }


def status_answer(command: RemotingCommand, group: str, offsets: Mapping[MessageQueue, int]) -> RemotingCommand:
    """Return the answer that says how far a member is in the queues of a topic (221)."""
    is_own, topic = command.fields.get("group") == group, command.fields.get("topic", "")
    found = {queue: offset for queue, offset in sorted(offsets.items()) if is_own and queue.topic == topic}
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(consumerTable={}, messageQueueTable=found)))


def pulled_queue_info(offset: int) -> dict[str, Any]:
    """Return the state of a queue of which nothing is held but one answer (ProcessQueueInfo)."""
    zeros = (
        "cachedMsgMinOffset", "cachedMsgMaxOffset", "cachedMsgCount", "cachedMsgSizeInMiB", "transactionMsgMinOffset",
        "transactionMsgMaxOffset", "transactionMsgCount", "tryUnlockTimes", "lastLockTimestamp",
    )  # fmt: skip
    now = time.time_ns() // 1_000_000
    return bean(
        commitOffset=offset,
        **dict.fromkeys(zeros, 0),
        locked=False,
        droped=False,
        lastPullTimestamp=now,
        lastConsumeTimestamp=now,
    )


def running_info_answer(
    command: RemotingCommand,
    client: Client,
    properties: Mapping[str, str],
    queues: Mapping[MessageQueue, Mapping[str, Any]],
    statuses: Mapping[str, Any],
    announced: list[Any],
) -> RemotingCommand:
    """Return settings, subscriptions, queues and figures of a member, with the stacks of all threads if asked for
    (307). `announced`: subscriptions as in its heartbeats."""
    wants_stacks = command.fields.get("jstackEnable", "").lower() == "true"
    always = {
        "PROP_CLIENT_VERSION": _CLIENT_VERSION,
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_NAMESERVER_ADDR": "".join(f"{one};" for one in client.name_servers),
    }
    body = bean(
        jstack=_stacks() if wants_stacks else None,
        mqPopTable={},
        mqTable={queue: queues[queue] for queue in sorted(queues)},
        properties={**always, **properties},
        statusTable=dict(statuses),
        subscriptionSet=announced,
        userConsumerInfo={},
    )
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(body))


def _stacks() -> str:
    """Return the stacks of all threads, as UtilAll#jstack lays them out."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    blocks: list[str] = []
    for number, frame in sorted(sys._current_frames().items()):
        lines = [f"{names.get(number, '?'):<40}TID: {number} STATE: RUNNABLE"]
        for entry in reversed(traceback.extract_stack(frame)):
            lines.append(f"{names.get(number, '?'):<40}{entry.name}({entry.filename}:{entry.lineno})")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
