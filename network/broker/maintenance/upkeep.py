"""What operators ask for that changes files or half messages (cleanExpiredCQ, deleteExpiredCommitLog and others)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.formats.hosts import parse_offset_message_id
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.send.put_answers import put_and_answer
from rmqctl.network.broker.transactions import halves
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import bean, fastjson
from rmqctl.network.remoting.services import Caller, Reply, RequestError, Service
from rmqctl.store.read.frames import message_at
from rmqctl.store.write.result import PutResult

_NOT_AGAIN = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
_READ_BIT = 1 << 2


def clean_expired(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Have expired files removed, which the cleaner does every 10 s by itself."""
    if not broker.store.is_cleaning:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            "this broker removes no files, `serve --clean` would; `rmqctl clean` shows which",
        )
    return RemotingCommand(ResponseCode.SUCCESS)


def clean_unused_topics(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Queues of topics that are not configured: they stay, because log and queues have to agree."""
    known = {topic.name for topic in broker.topics.all()}
    if all(queue.topic in known for queue in broker.files.queues.all()):
        return RemotingCommand(ResponseCode.SUCCESS)
    raise RequestError(
        ResponseCode.NO_PERMISSION, "queues of deleted topics stay until their messages expire: log and queues agree"
    )


def check_half_again(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Put a half message back, so that its producer is asked again from the first time on."""
    try:
        _, offset = parse_offset_message_id(fields.text(request, "msgId"))
        stored = message_at(broker.files.log, offset)
    except (UsageError, NotFoundError, CorruptError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_AGAIN) from error
    if not stored.properties().get("REAL_TOPIC"):
        raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_AGAIN)

    def answer(_: Sequence[PutResult]) -> dict[str, str]:
        return {}

    return put_and_answer(broker, [halves.asked_about(stored, 0)], answer, always={})


def group_forbidden(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Whether a group may read a topic, after it was allowed or forbidden to."""
    group, topic = fields.text(request, "group"), fields.text(request, "topic")
    if "readable" in request.fields:
        broker.groups.forbid(group, topic, _READ_BIT, not fields.flag(request, "readable"))
        broker.save_groups()
    content = bean(group=group, readable=not broker.groups.is_forbidden(group, topic, _READ_BIT), topic=topic)
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def get_timer_metrics(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Timed messages that wait, by topic."""
    if broker.timer is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
    now = broker.clock()
    counts: dict[str, Any] = {
        topic: bean(count=count, timeStamp=now) for topic, count in sorted(broker.timer.waiting_by_topic().items())
    }
    version = bean(counter=0, stateVersion=0, timestamp=now)
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(dataVersion=version, timingCount=counts)))


SERVICES: dict[int, Service[MasterBroker]] = {
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Service(clean_expired, "0 with --clean, which removes them; else 16"),
    RequestCode.DELETE_EXPIRED_COMMITLOG: Service(clean_expired, "0 with --clean, which removes them; else 16"),
    RequestCode.CLEAN_UNUSED_TOPIC: Service(clean_unused_topics, "0 where there are none; 16 where there are"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Service(check_half_again, "the producer is asked again from the start"),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Service(group_forbidden, "whether a group may read a topic"),
    RequestCode.GET_TIMER_METRICS: Service(get_timer_metrics, "timed messages that wait, by topic", is_slow=True),
}
