"""What is asked of a broker and answered by one of its consumers (AdminBrokerProcessor#callConsumer)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from rmqctl.formats.errors import UsageError
from rmqctl.formats.hosts import parse_offset_message_id
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.query_services import frame_at
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import fastjson, parse_body, queue_of_key
from rmqctl.network.remoting.services import Caller, Promised, Reply, RequestError, Service

_ANSWERS_WITHIN_SECONDS = 10.0
_STATUS_WITHIN_SECONDS = 5.0


def get_consumer_running_info(broker: Broker, request: RemotingCommand, caller: Caller) -> Reply:
    """What a consumer says of itself."""
    return _called(request, _member(broker, request), request.fields, request.body)


def consume_message_directly(broker: Broker, request: RemotingCommand, caller: Caller) -> Reply:
    """One consumer consumes the message of an offset id, whatever the group's offsets are, and says how that went."""
    member = _member(broker, request)
    try:
        _, offset = parse_offset_message_id(fields.text(request, "msgId"))
    except UsageError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, error.message) from error
    more = {"brokerName": broker.identity.name}
    topic = broker.topics.find(request.fields.get("topic", ""))
    if topic is not None:
        more["topicSysFlag"] = str(topic.sys_flag)
    group = broker.groups.find(fields.text(request, "consumerGroup"))
    if group is not None:
        more["groupSysFlag"] = str(group["groupSysFlag"])
    return _called(request, member, {**request.fields, **more}, frame_at(broker, offset))


def get_consumer_status(broker: Broker, request: RemotingCommand, caller: Caller) -> Reply:
    """By client, how far each member of a group, or the one of `clientAddr`, says that it is in a topic."""
    name, topic = fields.text(request, "group"), fields.text(request, "topic")
    only = request.fields.get("clientAddr", "").strip()
    group = broker.clients.consumer_group(name)
    if group is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{name}]")
    asked = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": name})
    members = list(group.channels.items())
    waiting = _All(
        {
            channel.client_id: member.ask(asked, _STATUS_WITHIN_SECONDS)
            for member, channel in members
            if not only or only == channel.client_id
        }
    )

    def gathered() -> RemotingCommand:
        tables = [
            f"{json.dumps(client_id)}:{_queue_table(answer)}"
            for client_id, answer in waiting.answers()
            if answer is not None and answer.code == ResponseCode.SUCCESS and answer.body
        ]
        body = '{"consumerTable":{' + ",".join(tables) + '},"messageQueueTable":{}}'
        return RemotingCommand(ResponseCode.SUCCESS, body=body.encode("utf-8", "backslashreplace"))

    return Promised(waiting, gathered)


def _queue_table(answer: RemotingCommand) -> str:
    """Return the table in a member's answer as a body has it: keys are queues."""
    table = parse_body(answer.body).get("messageQueueTable")
    rows = table.items() if isinstance(table, dict) else ()
    queues = ((queue_of_key(key), offset) for key, offset in rows)
    return fastjson({queue: offset for queue, offset in queues if queue is not None}).decode()


class _All:
    """Answers of several members: an Awaited that has ended when each is there or is waited for no longer."""

    def __init__(self, asked: dict[str, Future[RemotingCommand | None]]) -> None:
        self._asked = asked

    def done(self) -> bool:
        """See Awaited."""
        return all(future.done() for future in self._asked.values())

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """See Awaited."""
        left = [future for future in self._asked.values() if not future.done()]
        if not left:
            told(self)
            return
        count = len(left)

        def one(_: object) -> None:
            nonlocal count
            count -= 1
            if not count:
                told(self)

        for future in left:
            future.add_done_callback(one)

    def answers(self) -> list[tuple[str, RemotingCommand | None]]:
        """Return what each has answered, by client id."""
        return [(client_id, future.result()) for client_id, future in sorted(self._asked.items())]


def _member(broker: Broker, request: RemotingCommand) -> Caller:
    """The client that is asked for, one of a group; RequestError if it is not there."""
    name, client_id = fields.text(request, "consumerGroup"), fields.text(request, "clientId")
    group = broker.clients.consumer_group(name)
    members = {} if group is None else group.channels
    found = next((one for one, channel in list(members.items()) if channel.client_id == client_id), None)
    if found is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online")
    return found


def _called(request: RemotingCommand, member: Caller, asked: Mapping[str, str], body: bytes) -> Promised:
    """The member's answer, handed on as it is."""
    done = member.ask(RemotingCommand(request.code, asked, body), _ANSWERS_WITHIN_SECONDS)

    def handed_on() -> RemotingCommand:
        answer = done.result()
        if answer is None:
            name, client_id = request.fields["consumerGroup"], request.fields["clientId"]
            raise RequestError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{name}> <{client_id}> Timeout: no answer within {_ANSWERS_WITHIN_SECONDS:g} s",
            )
        return RemotingCommand(answer.code, answer.fields, answer.body, answer.remark)

    return Promised(done, handed_on)


SERVICES: dict[int, Service[Broker]] = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: Service(
        get_consumer_running_info, "asked of the client itself; 207 where it does not answer within 10 s"
    ),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Service(
        get_consumer_status, "how far members of a group are, asked of each (221)"
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Service(
        consume_message_directly, "a message given to the client that is named, and its answer; 207 as for 307"
    ),
}
