"""Producers say how their transactions end (EndTransactionProcessor)."""

from __future__ import annotations

from collections.abc import Sequence

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmqctl.network.broker import transactions as halves
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.send import put_and_answer
from rmqctl.network.remoting.codec import RemotingCommand, ResponseCode
from rmqctl.network.remoting.headers import EndTransaction
from rmqctl.network.remoting.requests import Asked, Reply, RequestError
from rmqctl.store.answers import undispatched as half_topics
from rmqctl.store.read.frames import message_at
from rmqctl.store.write.put import PutResult


def end_transaction(broker: MasterBroker, header: EndTransaction, asked: Asked) -> Reply:
    """Commit a half message or roll it back; an answer that is neither changes nothing."""
    how = header.commit_or_rollback
    if how not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        return RemotingCommand(ResponseCode.SUCCESS)
    half = _half_message(broker, header)
    _require_time(broker, header, half)
    transactions = broker.transactions
    if transactions.is_ended(half.queue_offset):
        return RemotingCommand(ResponseCode.SUCCESS)
    if how == TRANSACTION_ROLLBACK:
        transactions.end(half.queue_offset)
        return RemotingCommand(ResponseCode.SUCCESS)
    properties = half.properties()
    topic, queue_id = properties.get(names.REAL_TOPIC), whole_number(properties.get(names.REAL_QUEUE_ID, ""))
    if topic is None or queue_id is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "the half message does not say which topic it is for")

    message = halves.committed(half, topic, queue_id)

    def end(_: Sequence[PutResult]) -> dict[str, str]:
        broker.see_to_topic(message)
        transactions.end(half.queue_offset)
        return {}

    return put_and_answer(broker, [message], end, always={})


def _half_message(broker: MasterBroker, header: EndTransaction) -> StoredMessage:
    """Return the half message of the request; RequestError without one, or for another one."""
    offset = header.commit_log_offset
    try:
        half = message_at(broker.files.log, offset)
    except (NotFoundError, CorruptError) as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"Find prepared transaction message failed: {error.message}"
        ) from error
    if (
        half.topic != half_topics.HALF_TOPIC
        or half.properties().get(half_topics.PRODUCER_GROUP) != header.producer_group
    ):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half


def _require_time(broker: MasterBroker, header: EndTransaction, half: StoredMessage) -> None:
    """A transaction with a time without checks must end within it."""
    seconds = half.properties().get(half_topics.IMMUNITY, "")
    if header.from_transaction_check or not seconds.isdecimal() or len(seconds) > 9:
        return
    limit = max(int(seconds) * 1000, broker.settings.transaction_time_out)
    if broker.clock() - half.born_timestamp > limit:
        raise RequestError(
            ResponseCode.ILLEGAL_OPERATION, f"the transaction was to be ended within {limit} ms: its producer is asked"
        )
