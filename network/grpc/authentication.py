"""Who may call what: signatures and permissions of gRPC calls, which the users of remoting have as well."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from rmqctl.network.grpc.protocol import ClientType, Code
from rmqctl.network.grpc.service import From, StatusError
from rmqctl.network.remoting.authentication import Access, Guard
from rmqctl.network.remoting.requests import RequestError
from rmqctl.store.config.accounts import GROUP, TOPIC

_PRODUCERS = (ClientType.CLIENT_TYPE_UNSPECIFIED, ClientType.PRODUCER)


def permit(guard: Guard, name: str, request: Any, who: From) -> None:
    """Raise StatusError for a call that is refused, with the words of the proxy of 5.5.0."""
    user, signature = _credential(who)
    if guard.is_exempt(user, who.remote):
        return
    try:
        guard.authenticate(user, signature, who.date_time.encode())
        guard.authorize(user, _accesses(name, request), who.remote)
    except RequestError as error:
        raise StatusError(Code.UNAUTHORIZED, error.remark) from error


def _credential(who: From) -> tuple[str, str]:
    """Return user and signature, in Base64, of the header (DefaultAuthenticationContextBuilder#build)."""
    if not who.authorization:
        return "", ""
    if not who.date_time:
        raise StatusError(Code.UNAUTHORIZED, "datetime is null.")
    _, is_split, items = who.authorization.partition(" ")
    if not is_split:
        raise StatusError(Code.UNAUTHORIZED, "authentication header is incorrect.")
    found = {}
    for item in items.split(","):
        key, equals, value = item.strip().partition("=")
        if not equals:
            raise StatusError(Code.UNAUTHORIZED, "authentication keyValues length is incorrect, actual length=1.")
        found[key] = value
    try:
        signature = bytes.fromhex(found.get("Signature", ""))
    except ValueError as error:
        raise StatusError(Code.UNAUTHORIZED, "create authentication context error.") from error
    return found.get("Credential", "").partition("/")[0], base64.b64encode(signature).decode("ascii")


def _accesses(name: str, request: Any) -> Iterator[Access]:
    """Yield what a call needs (DefaultAuthorizationContextBuilder#build). Raises: StatusError without a resource."""
    if name == "SendMessage":
        if not request.messages:
            raise StatusError(Code.UNAUTHORIZED, "message is null.")
        for topic in dict.fromkeys(message.topic.name for message in request.messages):
            yield _named(TOPIC, topic, ("PUB",))
    elif name in ("RecallMessage", "EndTransaction"):
        yield _topic(request.topic, "PUB")
    elif name == "QueryRoute":
        yield _topic(request.topic, "PUB", "SUB")
    elif name == "Heartbeat":
        if request.client_type not in _PRODUCERS:
            yield _group(request.group)
    elif name == "NotifyClientTermination":
        if request.group.name.strip():
            yield _group(request.group)
    elif name == "ChangeInvisibleDuration":
        yield _group(request.group)
    elif name == "ReceiveMessage":
        yield _group(request.group)
        yield _topic(request.message_queue.topic, "SUB")
    elif name == "Telemetry":
        if request.WhichOneof("command") == "settings":
            yield from _of_settings(request.settings)
    else:
        yield _group(request.group)
        yield _topic(request.topic, "SUB")


def _of_settings(settings: Any) -> Iterator[Access]:
    if settings.HasField("publishing"):
        for topic in settings.publishing.topics:
            yield _topic(topic, "PUB")
    elif settings.HasField("subscription"):
        yield _group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            yield _topic(entry.topic, "SUB")
    else:
        raise StatusError(Code.UNAUTHORIZED, "settings command doesn't have publishing or subscription.")


def _topic(resource: Any, *actions: str) -> Access:
    return _named(TOPIC, resource.name, actions)


def _group(resource: Any) -> Access:
    return _named(GROUP, resource.name, ("SUB",))


def _named(kind: str, name: str, actions: tuple[str, ...]) -> Access:
    if not name.strip():
        raise StatusError(Code.UNAUTHORIZED, f"{kind.lower()} is null.")
    return Access(kind, name, actions)
