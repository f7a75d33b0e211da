"""Request and reply: a message that wants an answer, and the answer that a broker pushes to the one who asked
(RequestFutureHolder, MessageUtil)."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future

from rmqctl.formats import properties as names
from rmqctl.formats.compression import decompress
from rmqctl.formats.errors import CorruptError, UsageError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.sys_flag import compression_type
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import RequestError
from rmqctl.network.topic_config import CORRELATION_ID, MESSAGE_TYPE, REPLY, REPLY_TO_CLIENT, TIME_TO_LIVE, reply_topic


class Requests:
    """Requests of one client that wait for their replies. May be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[Message]] = {}

    def asking(self, message: Message, client_id: str, seconds: float) -> tuple[Message, str, Future[Message]]:
        """Return `message` as one that wants a reply, the id that ties both, and the future of the reply."""
        correlation_id, future = str(uuid.uuid4()), Future[Message]()
        more = {
            CORRELATION_ID: correlation_id,
            REPLY_TO_CLIENT: client_id,
            TIME_TO_LIVE: str(int(seconds * 1000)),
        }
        with self._lock:
            self._waiting[correlation_id] = future
        return message._replace(properties={**message.properties, **more}), correlation_id, future

    def forget(self, correlation_id: str) -> None:
        """Wait no longer for a reply."""
        with self._lock:
            self._waiting.pop(correlation_id, None)

    def received(self, command: RemotingCommand) -> RemotingCommand:
        """Take a reply that a broker pushes (326), and return what the broker is answered."""
        try:
            properties = names.parse_properties(command.fields.get("properties", "").encode("utf-8", "surrogatepass"))
            kind = compression_type(fields.integer(command, "sysFlag", 0))
            body = command.body if kind is None else decompress(command.body, kind)
            reply = Message(
                fields.text(command, "topic"), body, fields.integer(command, "queueId", 0),
                fields.integer(command, "flag", 0), properties,
            )  # fmt: skip
        except (CorruptError, UnicodeDecodeError, RequestError) as error:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"process reply message fail: {error}")
        with self._lock:
            future = self._waiting.pop(properties.get(CORRELATION_ID, ""), None)
        if future is not None:
            future.set_result(reply)
        return RemotingCommand(ResponseCode.SUCCESS)


def reply_to(request: Message | StoredMessage, body: bytes) -> Message:
    """Return the reply to a message that wants one (MessageUtil#createReplyMessage). UsageError for another message."""
    given = request.properties() if isinstance(request, StoredMessage) else request.properties
    cluster = given.get("CLUSTER")
    if cluster is None or REPLY_TO_CLIENT not in given:
        raise UsageError(f"the message wants no reply: it has no CLUSTER or no {REPLY_TO_CLIENT} property")
    kept = {name: given[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TIME_TO_LIVE) if name in given}
    return Message(reply_topic(cluster), body, properties={MESSAGE_TYPE: REPLY, **kept})
