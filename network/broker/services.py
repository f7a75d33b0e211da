"""All that a broker serves: one that only reads, which refuses what would be written, and one that writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqctl.network.broker import admin as admin_services
from rmqctl.network.broker import admin as config_services
from rmqctl.network.broker import clients as client_services
from rmqctl.network.broker import clients as consumer_calls
from rmqctl.network.broker import clients as lock_services
from rmqctl.network.broker import maintenance as modes
from rmqctl.network.broker import maintenance as upkeep
from rmqctl.network.broker import pull, transaction_services
from rmqctl.network.broker import query as offset_services
from rmqctl.network.broker import query as query_services
from rmqctl.network.broker import query as stats_services
from rmqctl.network.broker import reply as recall_services
from rmqctl.network.broker import reply as reply_services
from rmqctl.network.broker import reply as send_back
from rmqctl.network.broker import send as send_services
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import Asked, RequestError, Service
from rmqctl.store.config.config import Release


def refuse_to_write(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Whatever would store a message; oneway requests are dropped."""
    raise RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"the broker[{broker.identity.name}] serves its store for reading only"
    )


_REFUSED = Service(refuse_to_write, "refused with 14, oneway ones are dropped: nothing is written", is_refusal=True)

SERVICES: dict[int, Service[Broker]] = {
    **pull.SERVICES,
    **offset_services.OFFSET_SERVICES_SERVICES,
    **client_services.SERVICES,
    **consumer_calls.CONSUMER_CALLS_SERVICES,
    **lock_services.LOCK_SERVICES_SERVICES,
    **query_services.SERVICES,
    **stats_services.STATS_SERVICES_SERVICES,
    **config_services.CONFIG_SERVICES_SERVICES,
    **modes.SERVICES,
    RequestCode.SEND_MESSAGE: _REFUSED,
    RequestCode.SEND_MESSAGE_V2: _REFUSED,
    RequestCode.SEND_BATCH_MESSAGE: _REFUSED,
    RequestCode.CONSUMER_SEND_MSG_BACK: _REFUSED,
    RequestCode.END_TRANSACTION: _REFUSED,
    RequestCode.SEND_REPLY_MESSAGE: _REFUSED,
    RequestCode.RECALL_MESSAGE: _REFUSED,
    RequestCode.SEND_REPLY_MESSAGE_V2: _REFUSED,
}

WRITING_SERVICES: dict[int, Service[MasterBroker]] = {
    **send_services.SERVICES,
    **send_back.SEND_BACK_SERVICES,
    **reply_services.SERVICES,
    **transaction_services.SERVICES,
    **admin_services.SERVICES,
    **upkeep.UPKEEP_SERVICES,
    **recall_services.RECALL_SERVICES_SERVICES,
    RequestCode.UPDATE_CONSUMER_OFFSET: Service(
        offset_services.update_consumer_offset, "written every 5 s, never beyond what is on disk"
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: Service(
        offset_services.query_consumer_offset,
        "where a group is in a queue; without an offset 0 as long as the first message is young, else 22",
    ),
}
"""What a broker that writes answers otherwise."""

_OF_5_5 = {RequestCode.SWITCH_TIMER_ENGINE}
# of what is served, codes that brokers of 4.x do not know
_OF_5_0 = {
    code
    for code in RequestCode
    if code in (18, 60, 61, 225, 343, 345)
    or 351 <= code <= 402
    or 513 <= code <= 908
    or code >= RequestCode.GET_BROKER_EPOCH_CACHE
}


def known_to(release: Release, services: Mapping[int, Service[Any]]) -> dict[int, Service[Any]]:
    """Return the services that a broker or name server of a version knows; it answers other codes with 3."""
    unknown: set[RequestCode] = set() if release.has_lite_topics else {*_OF_5_5}
    if release.is_of_4:
        unknown |= _OF_5_0
    return {code: service for code, service in services.items() if code not in unknown}


MASTER_SERVICES: dict[int, Service[MasterBroker]] = {**SERVICES, **WRITING_SERVICES}
