"""All that the broker serves, and what it refuses because nothing is written."""

from __future__ import annotations

from rmqctl.network.broker import (
    client_services,
    config_services,
    lock_services,
    offset_services,
    pull,
    query_services,
    stats_services,
)
from rmqctl.network.broker.broker import Broker
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Caller, RequestError, Service


def refuse_to_write(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Whatever would store a message; oneway requests are dropped."""
    raise RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"the broker[{broker.identity.name}] serves its store for reading only"
    )


_REFUSED = Service(refuse_to_write, "refused with 14, oneway ones are dropped: nothing is written")

SERVICES: dict[int, Service[Broker]] = {
    **pull.SERVICES,
    **offset_services.SERVICES,
    **client_services.SERVICES,
    **lock_services.SERVICES,
    **query_services.SERVICES,
    **stats_services.SERVICES,
    **config_services.SERVICES,
    RequestCode.SEND_MESSAGE: _REFUSED,
    RequestCode.SEND_MESSAGE_V2: _REFUSED,
    RequestCode.SEND_BATCH_MESSAGE: _REFUSED,
    RequestCode.CONSUMER_SEND_MSG_BACK: _REFUSED,
    RequestCode.END_TRANSACTION: _REFUSED,
}
