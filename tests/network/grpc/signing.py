"""Calls of gRPC with signatures, and what a proxy with users answers to them: RocketMQ 5.5.0's and ours."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator
from typing import Any

from tests.network.grpc.requests import Raw
from tests.network.grpc.script import message, receive, settings

SECRETS = {"app-user": "secret-2", "admin-user": "secret-1", "stranger": "secret-3"}
TOPICS, GROUPS = ("plain", "other", "read-only"), ("g", "g-else")
ALLOWED = {"Topic:plain": ("Pub", "Sub"), "Topic:read-only": ("Sub",), "Group:g": ("Sub",)}
"""What app-user may do."""
PLAIN_ACL = """\
accounts:
- accessKey: app-user
  secretKey: secret-2
  topicPerms: [plain=PUB|SUB, read-only=SUB]
  groupPerms: [g=SUB]
- accessKey: admin-user
  secretKey: secret-1
  admin: true
"""
"""The same in a file of 4.x."""
_NO = "User:app-user has no permission to access {} from 127.0.0.1, no matched policies."
_BY_HEADER = {
    "MQv2-HMAC-SHA1": "authentication header is incorrect.",
    "MQv2-HMAC-SHA1 Credential": "authentication keyValues length is incorrect, actual length=1.",
    "MQv2-HMAC-SHA1 Credential=app-user, Signature=zz": "create authentication context error.",
    "MQv2-HMAC-SHA1 Credential=/x, Signature=AB": "username cannot be null.",
    "MQv2-HMAC-SHA1 Credential=app-user/a": "check signature failed.",
    "": "username cannot be null.",
}


def signed(user: str, secret: str, date_time: str = "20260102T030405Z") -> dict[str, str]:
    """Return the headers that a client of 5.x signs its calls with; a date of any age is taken."""
    made = hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest().upper()
    items = f"Credential={user}/cn/RocketMQ, SignedHeaders=x-mq-date-time, Signature={made}"
    return {"x-mq-date-time": date_time, "authorization": f"MQv2-HMAC-SHA1 {items}"}


def _send(topic: str) -> tuple[str, dict[str, Any]]:
    return "SendMessage", {"messages": [message(topic)]}


def _group(group: str) -> dict[str, Any]:
    return {"group": {"name": group}}


def refusals() -> Iterator[tuple[str, dict[str, Any], dict[str, str], str]]:
    """Yield calls that are refused: name, request, headers, and the message of UNAUTHORIZED."""
    dated = {"x-mq-date-time": "20260102T030405Z"}
    for header, said in _BY_HEADER.items():
        yield *_send("plain"), {**dated, "authorization": header}, said
    yield *_send("plain"), {"authorization": "MQv2-HMAC-SHA1 Credential=app-user/a, Signature=AB"}, "datetime is null."
    yield *_send("plain"), signed("stranger", "secret-3"), "User:stranger is not found."
    yield *_send("plain"), signed("app-user", "secret-1"), "check signature failed."
    app = signed("app-user", "secret-2")
    for topic in ("read-only", "other", "%RETRY%g", "missing"):
        yield *_send(topic), app, _NO.format(f"Topic:{topic}")
    yield "SendMessage", {"messages": []}, app, "message is null."
    half = {"message_id": "m", "transaction_id": "t", "resolution": "COMMIT", "topic": {"name": "other"}}
    yield "EndTransaction", half, app, _NO.format("Topic:other")
    yield "RecallMessage", {"topic": {"name": "other"}, "recall_handle": "h"}, app, _NO.format("Topic:other")
    yield "QueryRoute", {"topic": {"name": "other"}}, app, _NO.format("Topic:other")
    yield "QueryAssignment", {"topic": {"name": "plain"}, **_group("g-else")}, app, _NO.format("Group:g-else")
    yield "QueryAssignment", {"topic": {"name": "other"}, **_group("g")}, app, _NO.format("Topic:other")
    yield "Heartbeat", {"client_type": "PUSH_CONSUMER", **_group("g-else")}, app, _NO.format("Group:g-else")
    yield "NotifyClientTermination", _group("g-else"), app, _NO.format("Group:g-else")
    yield "ReceiveMessage", receive("plain", "g-else"), app, _NO.format("Group:g-else")
    yield "ReceiveMessage", receive("other"), app, _NO.format("Topic:other")
    entries = {"entries": [{"message_id": "m", "receipt_handle": "h"}]}
    yield "AckMessage", {"topic": {"name": "other"}, **_group("g"), **entries}, app, _NO.format("Topic:other")
    change = {"topic": {"name": "other"}, "receipt_handle": "h", "invisible_duration": "20s"}
    yield "ChangeInvisibleDuration", {**change, **_group("g-else")}, app, _NO.format("Group:g-else")
    dead = {"topic": {"name": "other"}, "receipt_handle": "h", "message_id": "m"}
    yield "ForwardMessageToDeadLetterQueue", {**dead, **_group("g")}, app, _NO.format("Topic:other")
    yield "Telemetry", settings(_NOWHERE, "PRODUCER", "", "plain", "other"), app, _NO.format("Topic:other")
    yield "Telemetry", settings(_NOWHERE, "PUSH_CONSUMER", "g-else", "plain"), app, _NO.format("Group:g-else")
    yield "Telemetry", settings(_NOWHERE, "PUSH_CONSUMER", "g", "other"), app, _NO.format("Topic:other")


class _Nowhere(Raw):
    def __init__(self) -> None:
        self.address = "127.0.0.1:1"


_NOWHERE = _Nowhere()


def check(address: str) -> None:
    """Make the calls that are refused, and some that are not, at a proxy with the users above."""
    raw = Raw(address)
    try:
        for name, request, headers, said in refusals():
            expected: Any = {"status": {"code": "UNAUTHORIZED", "message": said}}
            got = _told(raw, request, headers) if name == "Telemetry" else _called(raw, name, request, headers)
            if name == "ReceiveMessage":
                got = got[0]
            assert (name, request, got) == (name, request, expected)
        for user in ("app-user", "admin-user"):
            headers = signed(user, SECRETS[user], time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
            assert _called(raw, *_send("plain"), headers)["status"]["code"] == "OK"
            assert "settings" in _told(raw, settings(raw, "PUSH_CONSUMER", "g", "plain", "read-only"), headers)
            beat = {"client_type": "PUSH_CONSUMER", **_group("g")}
            assert _called(raw, "Heartbeat", beat, headers)["status"]["code"] == "OK"
        assert _called(raw, *_send("other"), signed("admin-user", "secret-1"))["status"]["code"] == "OK"
    finally:
        raw.close()


def _called(raw: Raw, name: str, request: dict[str, Any], headers: dict[str, str]) -> Any:
    before, raw.headers = raw.headers, {**raw.headers, **headers}
    try:
        return raw.call(name, request)
    finally:
        raw.headers = before


def _told(raw: Raw, command: dict[str, Any], headers: dict[str, str]) -> Any:
    before, raw.headers = raw.headers, {**raw.headers, **headers}
    try:
        raw.telemetry("", command, answers=0)
        return next(raw.commands)
    finally:
        raw.headers = before
