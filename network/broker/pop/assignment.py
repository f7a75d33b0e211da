"""How groups get the messages of a topic, and which queues each member is to ask (QueryAssignmentProcessor)."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.network.broker.broker import Broker, WritableBroker
from rmqctl.network.clients.membership import BROADCASTING, CLUSTERING, Allocate, averagely, by_circle
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    ResponseCode,
    bean,
    fastjson,
    integer_of,
    parse_body,
    text_of,
)
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import ANY_QUEUE, Asked, Promised, Reply, RequestError
from rmqctl.store.config.config_files import read_config
from rmqctl.store.pop.records import RETRY_PREFIX

_FILE, _TABLE = "messageRequestMode.json", "messageRequestModeMap"
_PULL, _POP = "PULL", "POP"
_STRATEGIES: dict[str, Allocate] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
_Modes = dict[str, dict[str, Any]]


def _modes(broker: Broker) -> _Modes:
    """Return by topic and group what was set. Raises: RequestError for a damaged file."""
    if isinstance(broker, WritableBroker) and broker.request_modes is not None:
        return broker.request_modes
    try:
        content = read_config(broker.files.layout.config / _FILE)
    except (CorruptError, UnreadableError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    table = content.get(_TABLE) if isinstance(content, dict) else None
    found = {str(topic): groups for topic, groups in (table or {}).items() if isinstance(groups, dict)}
    if isinstance(broker, WritableBroker):
        broker.request_modes = found
    return found


def get_all_request_mode(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """How groups get messages, as it was set: slaves of 5.x ask."""
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson({_TABLE: _modes(broker)}))


def set_request_mode(broker: WritableBroker, header: Header, asked: Asked) -> Reply:
    """Set how a group gets the messages of a topic."""
    content = parse_body(asked.request.body)
    topic, group = text_of(content, "topic"), text_of(content, "consumerGroup")
    if topic.startswith(RETRY_PREFIX):
        raise RequestError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    if broker.topics.find(topic) is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    try:
        broker.group(group)
    except RequestError as error:
        raise RequestError(error.code, "subscription group does not exist") from error
    mode = text_of(content, "mode") or _PULL
    if mode not in (_PULL, _POP):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"mode {mode} is not known")
    known, count = _modes(broker), integer_of(content, "popShareQueueNum")
    entry = bean(consumerGroup=group, mode=mode, popShareQueueNum=count, topic=topic)
    broker.request_modes = modes = {**known, topic: {**known.get(topic, {}), group: entry}}
    written = broker.saver.save(_FILE, lambda: {_TABLE: broker.request_modes or modes})
    return Promised(written, lambda: RemotingCommand(ResponseCode.SUCCESS))


def query_assignment(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Answer which queues of a topic a member of a group is to ask, and how; no list where that is not known."""
    content = parse_body(asked.request.body)
    topic, model = text_of(content, "topic"), text_of(content, "messageModel")
    mode, shared = _mode(broker, topic, text_of(content, "consumerGroup"))
    queues = broker.queues_of(topic)
    if queues is not None and model == CLUSTERING and broker.settings.server_load_balancer_enable:
        queues = _share(broker, content, queues, None if mode == _PULL else shared)
    elif model not in (CLUSTERING, BROADCASTING):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"messageModel {model!r} is not known")
    found = None if queues is None else [bean(messageQueue=queue, mode=mode) for queue in dict.fromkeys(queues)]
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(messageQueueAssignments=found)))


def _mode(broker: Broker, topic: str, group: str) -> tuple[str, int]:
    """Return how a group gets messages, and of how many members each asks the queues of too when it pops. Where
    nothing is written, all pull."""
    if not broker.is_writable:
        return _PULL, 0
    entry = _modes(broker).get(topic, {}).get(group)
    if isinstance(entry, dict):
        return text_of(entry, "mode") or _PULL, integer_of(entry, "popShareQueueNum")
    if topic.startswith(RETRY_PREFIX):
        return _PULL, 0
    return broker.settings.default_message_request_mode, broker.settings.default_pop_share_queue_num


def _share(
    broker: Broker, content: dict[str, Any], queues: list[MessageQueue], shared: int | None
) -> list[MessageQueue] | None:
    """Return the share of one client; None where the group, the strategy or the client is not known. `shared`: as of
    `_mode`, None for a client that pulls."""
    group = broker.clients.consumer_group(text_of(content, "consumerGroup"))
    allocate = _STRATEGIES.get(text_of(content, "strategyName"))
    client_id = text_of(content, "clientId")
    if group is None or allocate is None or not client_id or not queues:
        return None
    members = sorted({channel.client_id for channel in list(group.channels.values())})
    queues = sorted(queues)
    if shared is None:
        return allocate(queues, members, client_id)
    if shared <= 0 or shared >= len(members) - 1:
        return [queue._replace(queue_id=ANY_QUEUE) for queue in queues]
    if client_id not in members:
        return []
    at = members.index(client_id)
    if len(members) > len(queues):
        return [queues[at % len(queues)]]
    others = [members[(at + step) % len(members)] for step in range(shared + 1)]
    return [queue for other in others for queue in allocate(queues, members, other)]
