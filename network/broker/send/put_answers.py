"""How puts end, as answers to who has sent (SendMessageProcessor#handlePutMessageResult)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rmqctl.formats.errors import ExhaustedError, UsageError, WriteFailedError
from rmqctl.formats.message import Message
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Reply, RequestError
from rmqctl.store.status import PutStatus
from rmqctl.store.write.result import STORED, PutResult

_CODES = {
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
# stored, but not as durable as was asked for
_REMARKS = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "flush disk timeout, maybe because of synchronous flush or slow disk.",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "flush slave timeout, maybe because of slow slave or network.",
    ResponseCode.SLAVE_NOT_AVAILABLE: "no slave is there that keeps up: the message is stored at the master alone.",
}

Answer = Callable[[Sequence[PutResult]], Mapping[str, str]]


def put_and_answer(
    broker: WritableBroker,
    messages: Sequence[Message],
    answer: Answer,
    *,
    batch: bool = False,
    always: Mapping[str, str],
) -> Reply:
    """Put, and answer with the fields that `answer` makes of the results once the message is as durable as it wants to
    be. `always`: fields of answers of any kind. RequestError where it is not stored."""
    try:
        put = broker.put(messages, batch=batch)
    except ExhaustedError as error:
        # clients try again, perhaps at another broker: there may be descriptors in a moment
        raise RequestError(ResponseCode.SYSTEM_BUSY, f"not now: {error}", always) from error
    except (UsageError, WriteFailedError) as error:
        broker.tell(f"a message for {messages[0].topic} is not stored: {error}")
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error), always) from error
    first = put.results[0]
    if first.status is not STORED and not first.status.is_stored:
        code = _CODES.get(first.status, ResponseCode.SYSTEM_ERROR)
        raise RequestError(code, f"{first.status}: {first.detail}", always)
    fields = {**always, **answer(put.results)}

    if not broker.is_waited_for(put):
        return RemotingCommand(ResponseCode.SUCCESS, fields)

    def answered(code: ResponseCode) -> RemotingCommand:
        return RemotingCommand(code, fields, remark=_REMARKS.get(code))

    return broker.when_durable(messages, put, answered)
