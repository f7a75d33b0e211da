"""`serve --auth`: signatures and permissions of requests, by RocketMQ's codes and remarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.remoting.authentication import ACCESS_KEY, SIGNATURE, Access, Guard, accesses, signature
from rmqctl.network.remoting.codec import RemotingCommand, fastjson
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.network.remoting.requests import RequestError
from rmqctl.network.topic_config import TopicConfig
from rmqctl.store.config.accounts import accounts_of_files
from tests.network.callers import Peer, Writing, heartbeat, pulling
from tests.network.serving import serving
from tests.rmqctl.looking import Done, run

USERS = """\
globalWhiteRemoteAddresses: [10.1.1.*]
accounts:
- accessKey: app-user
  secretKey: secret-2
  topicPerms: [Orders=PUB|SUB, ReadOnly=SUB]
  groupPerms: [g=SUB]
- accessKey: admin-user
  secretKey: secret-1
  whiteRemoteAddress: 10.2.2.2
  admin: true
"""
JAVA = "WvwF5RA+NST931+nNbji0XVFG+Q="
SECRETS = {"app-user": "secret-2", "admin-user": "secret-1", "stranger": "secret-3"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Writing]:
    (tmp_path / "plain_acl.yml").write_text(USERS)
    writing = Writing(tmp_path / "store")
    for topic in ("Orders", "Bills", "ReadOnly"):
        writing.broker.topics.put(TopicConfig(topic, 4, 4))
    # the same users under the rules of 5.3 and later
    users = accounts_of_files(tmp_path / "plain_acl.yml")._replace(is_of_4=False)
    writing.processor.guard = Guard(users, "DefaultCluster").check
    yield writing
    writing.close()


def _asked(
    writing: Writing, user: str, code: int, body: Any = None, *, peer: Peer | None = None, **fields: Any
) -> RemotingCommand:
    data = b"" if body is None else body if isinstance(body, bytes) else fastjson(body)
    texts = {name: str(value) for name, value in fields.items()}
    if user:
        texts[ACCESS_KEY] = user
        texts[SIGNATURE] = signature(texts, data, SECRETS[user])
    reply = writing.processor.reply(RemotingCommand(code, texts, data, opaque=9), peer or writing.peer)
    assert reply is not None
    if not isinstance(reply, RemotingCommand):
        answer = reply.answer()
        assert isinstance(answer, RemotingCommand)
        return answer
    return reply


def _sending(topic: str) -> dict[str, Any]:
    return {
        "a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_800_000_000_000, "h": 0, "i": "", "j": 0,
        "k": "false", "m": "false",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("user", "topic", "code", "remark"),
    [
        ("", "Orders", 16, "username cannot be null."),
        ("stranger", "Orders", 16, "User:stranger is not found."),
        ("app-user", "Orders", 0, ""),
        ("app-user", "ReadOnly", 16, "User:app-user has no permission to access Topic:ReadOnly from 127.0.0.1, "),
        ("app-user", "%RETRY%g", 0, ""),
        ("app-user", "%RETRY%other", 16, "has no permission to access Group:other"),
        ("admin-user", "Bills", 0, ""),
    ],
)
def test_who_may_send(guarded: Writing, user: str, topic: str, code: int, remark: str) -> None:
    answer = _asked(guarded, user, Request.SEND_MESSAGE_V2, b"x", **_sending(topic))
    assert answer.code == code
    assert remark in (answer.remark or "")


def test_a_signature_covers_fields_and_body(guarded: Writing) -> None:
    fields = {name: str(value) for name, value in _sending("Orders").items()} | {ACCESS_KEY: "app-user"}
    made = signature(fields, b"x", "secret-2")
    for body, changed in ((b"x", {}), (b"y", {}), (b"x", {"e": "1"}), (b"x", {SIGNATURE: "é"})):
        given = {**fields, SIGNATURE: made, **changed}
        reply = guarded.processor.reply(RemotingCommand(Request.SEND_MESSAGE_V2, given, body, opaque=1), guarded.peer)
        answer = reply if isinstance(reply, RemotingCommand) else reply.answer()  # type: ignore[union-attr]
        is_good = body == b"x" and not changed
        assert (answer.code, answer.remark) == ((0, None) if is_good else (16, "check signature failed."))


def test_a_signature_is_that_of_the_java_client() -> None:
    """Made by AclUtils of rocketmq-acl 4.9.7 from the same values."""
    fields = {"b": "Orders", "a": "P", ACCESS_KEY: "app-user", SIGNATURE: "is left out"}
    assert signature(fields, b"x", "secret-2") == JAVA


def test_who_may_read_and_administer(guarded: Writing) -> None:
    pull = pulling("Orders", 0, 0, sysFlag=0)
    beat = heartbeat("c1", "g", Orders="*")
    assert _asked(guarded, "app-user", Request.HEART_BEAT, beat).code == 0
    assert _asked(guarded, "app-user", Request.HEART_BEAT, heartbeat("c1", "g", Bills="*")).code == 16
    assert _asked(guarded, "app-user", Request.PULL_MESSAGE, **pull).code == Response.PULL_NOT_FOUND
    assert _asked(guarded, "app-user", Request.PULL_MESSAGE, **(pull | {"consumerGroup": "other"})).code == 16
    queue = {"topic": "Bills", "brokerName": "broker-a", "queueId": 0}
    locked = {"consumerGroup": "g", "clientId": "c1", "mqSet": [queue]}
    assert _asked(guarded, "app-user", Request.LOCK_BATCH_MQ, locked).code == 16
    for code in (Request.UPDATE_BROKER_CONFIG, Request.GET_BROKER_RUNTIME_INFO, Request.GET_ALL_TOPIC_CONFIG):
        assert _asked(guarded, "app-user", code).code == 16
        assert _asked(guarded, "admin-user", code).code == 0
    assert _asked(guarded, "app-user", Request.DELETE_TOPIC_IN_BROKER, topic="Orders").code == 16


def test_users_of_4_x_may_look(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(USERS)
    guard = Guard(accounts_of_files(tmp_path / "plain_acl.yml"), "DefaultCluster")
    guard.authorize("app-user", iter([Access("TOPIC", "Bills", ("GET",)), Access("TOPIC", "Orders", ("PUB",))]), "a:1")
    for access in (Access("TOPIC", "Bills", ("PUB",)), Access("CLUSTER", "DefaultCluster", ("UPDATE",))):
        with pytest.raises(RequestError):
            guard.authorize("app-user", iter([access]), "a:1")


@pytest.mark.parametrize(
    ("code", "topic", "groups"),
    [
        (Request.PULL_MESSAGE, "%RETRY%g", ["g"]),
        (Request.PULL_MESSAGE, "%RETRY%other", ["other", "g"]),
        (Request.PULL_MESSAGE, "%RETRY%g_Bills", ["g_Bills", "g"]),
        (Request.ACK_MESSAGE, "%RETRY%g_Bills", ["g"]),
        (Request.ACK_MESSAGE, "%RETRY%g+Bills", ["g"]),
        (Request.ACK_MESSAGE, "%RETRY%go", ["go", "g"]),
    ],
)
def test_a_retry_topic_belongs_to_its_group(code: int, topic: str, groups: list[str]) -> None:
    """Who may read as one group does not read what another failed on."""
    wanted = accesses(RemotingCommand(code, {"topic": topic, "consumerGroup": "g"}, b"", opaque=1), "cluster")
    assert sorted(one.name for one in wanted) == sorted(groups)


def test_addresses_that_are_exempt(guarded: Writing) -> None:
    beat = heartbeat("c1", "g", Bills="*")
    assert _asked(guarded, "", Request.HEART_BEAT, beat, peer=Peer("10.1.1.7:5000")).code == 0
    assert _asked(guarded, "", Request.HEART_BEAT, beat, peer=Peer("10.2.2.2:5000")).code == 16
    forged = {ACCESS_KEY: "admin-user", SIGNATURE: "x"}
    reply = guarded.processor.reply(
        RemotingCommand(Request.HEART_BEAT, forged, fastjson(beat), opaque=1), Peer("10.2.2.2:5000")
    )
    assert isinstance(reply, RemotingCommand)
    assert reply.code == 0


def test_a_client_with_a_user_signs(tmp_path: Path) -> None:
    """`produce`, `consume` and `cluster`: a broker with users serves those alone who name one."""
    (tmp_path / "plain_acl.yml").write_text(USERS)
    (tmp_path / "tools.yml").write_text("accessKey: app-user\nsecretKey: secret-2\nsecurityToken: t\n")
    (tmp_path / "short.yml").write_text("accessKey: app-user\n")
    topics = ("--topic", "Orders:NORMAL:1", "--topic", "Bills:NORMAL:1")
    auth = ("--auth", str(tmp_path / "plain_acl.yml"))
    with serving(tmp_path / "store", "--writable", "--create", *auth, *topics) as served:

        def asked(verb: str, *options: str, user: str = "tools.yml") -> Done:
            by = ("--credentials", str(tmp_path / user)) if user else ()
            return run(verb, "-n", served.namesrv, *by, *options)

        assert asked("produce", "-t", "Orders", "--body", "x").code == 0
        assert "User:app-user has no permission" in asked("produce", "-t", "Bills", "--body", "x").err
        assert "username cannot be null" in asked("produce", "-t", "Orders", "--body", "x", user="").err
        assert asked("consume", "-t", "Orders", "-g", "g", "--json").code == 0
        assert asked("produce", "-t", "Orders", "--body", "x", user="short.yml").code == 2


def test_a_store_with_users_is_not_served_to_all_unsaid(tmp_path: Path) -> None:
    (tmp_path / "config/users").mkdir(parents=True)
    (tmp_path / "config/users/CURRENT").write_text("MANIFEST-000001\n")
    (tmp_path / "commitlog").mkdir()
    with serving(tmp_path) as served:
        served.end()
    assert "--auth" in served.errors
