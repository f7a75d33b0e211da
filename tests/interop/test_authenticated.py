"""A real broker and proxy of 5.5.0 with users: what they refuse is what ours refuse, and our clients sign for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.clients.channel import Credentials, SocketChannel, dial_signed
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode
from tests.interop.brokers import real_proxy
from tests.network.grpc import signing
from tests.network.grpc.requests import SETTINGS
from tests.rmqctl.looking import Done, run

pytestmark = pytest.mark.interop

_AUTH = "org.apache.rocketmq.auth"
_CREATE_USER, _CREATE_ACL = 3001, 3006
_SECONDS = 30


def _settings() -> dict[str, str]:
    inner = json.dumps({"accessKey": "inner-user", "secretKey": "secret-i"})
    common = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    common |= {f"{kind}Provider": f"{_AUTH}.{kind}.provider.Default{kind.capitalize()}Provider" for kind in _KINDS}
    local = {
        f"{kind}MetadataProvider": f"{_AUTH}.{kind}.provider.Local{kind.capitalize()}MetadataProvider"
        for kind in _KINDS
    }
    asked = {
        f"{kind}MetadataProvider": f"org.apache.rocketmq.proxy.auth.Proxy{kind.capitalize()}MetadataProvider"
        for kind in _KINDS
    }
    first = json.dumps({"username": "admin-user", "password": "secret-1"})
    of_broker = {**common, **local, "initAuthenticationUser": first, "innerClientAuthenticationCredentials": inner}
    # text in JSON, in a file of properties
    of_proxy = {**common, **asked, "innerClientAuthenticationCredentials": inner.replace('"', '\\\\"')}
    return {**SETTINGS, **of_broker, **{f"proxy.{name}": text for name, text in of_proxy.items()}}


_KINDS = ("authentication", "authorization")


def test_users_of_a_real_broker(tmp_path: Path) -> None:
    with real_proxy(tmp_path, tmp_path / "store", _settings()) as real:
        admin = Client(real.namesrv, dial_signed(SocketChannel, Credentials("admin-user", "secret-1")))

        def ask(code: int, fields: dict[str, Any], content: Any) -> None:
            texts = {name: str(value) for name, value in fields.items()}
            request = RemotingCommand(code, texts, json.dumps(content).encode())
            answer = admin.connection(real.broker).request(request, _SECONDS)
            assert answer.code == 0, answer.remark

        for topic in signing.TOPICS:
            fields = {"topic": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": False}
            fields |= {"topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "topicSysFlag": 0}
            ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, None)
        for group in signing.GROUPS:
            config = {"groupName": group, "consumeEnable": True, "consumeFromMinEnable": True, "retryQueueNums": 1}
            ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)
        user = {"username": "app-user", "password": "secret-2", "userType": "Normal"}
        ask(_CREATE_USER, {"username": "app-user"}, user)
        entries = [
            {"resource": name, "actions": actions, "decision": "Allow"} for name, actions in signing.ALLOWED.items()
        ]
        acl = {"subject": "User:app-user", "policies": [{"policyType": "Custom", "entries": entries}]}
        ask(_CREATE_ACL, {"subject": "User:app-user"}, acl)
        admin.close()
        assert real.grpc is not None
        signing.check(real.grpc)
        _produce_and_consume(tmp_path, real.namesrv)


def _produce_and_consume(folder: Path, namesrv: str) -> None:
    for name, (user, secret) in {"app": ("app-user", "secret-2"), "wrong": ("app-user", "secret-1")}.items():
        (folder / f"{name}.yml").write_text(f"accessKey: {user}\nsecretKey: {secret}\n")

    def asked(verb: str, *options: str, user: str) -> Done:
        return run(verb, "-n", namesrv, "--credentials", folder / f"{user}.yml", *options)

    assert asked("produce", "-t", "plain", "--body", "x", user="app").code == 0
    assert "check signature failed" in asked("produce", "-t", "plain", "--body", "x", user="wrong").err
    assert "no permission to access Topic:other" in asked("produce", "-t", "other", "--body", "x", user="app").err
