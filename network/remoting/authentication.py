"""Who may do what at a served store: signatures and permissions of requests (auth: authentication, authorization)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode, objects, parse_body, text_of
from rmqctl.network.remoting.requests import Caller, RequestError
from rmqctl.store.config.accounts import CLUSTER, DISABLE, GROUP, TOPIC, Accounts, is_from
from rmqctl.store.pop.records import RETRY_PREFIX

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
_UNSIGNED = "_UNIQUE_KEY_QUERY"
"""A field that clients up to 4.9.3 leave out of what they sign."""
_KINDS = {"t": TOPIC, "g": GROUP}

# code, actions, and where topics (t) and groups (g) are: fields of the header (RocketMQAction, RocketMQResource in
# remoting's headers; DefaultAuthorizationContextBuilder for what clients send all the time)
_RULES = """
10 PUB t:topic | 310 PUB t:b | 320 PUB t:b | 370 PUB t:topic | 37 PUB t:topic | 324 PUB t:topic | 325 PUB t:b
36 SUB g:group | 11 SUB t:topic g:consumerGroup | 361 SUB t:topic g:consumerGroup
12 SUB,GET t:topic | 33 GET t:topic | 14 SUB,GET t:topic g:consumerGroup | 15 SUB,UPDATE t:topic g:consumerGroup
35 SUB g:consumerGroup | 38 SUB,GET g:consumerGroup | 309 SUB g:consumerGroup t:topic
200050 SUB g:consumerGroup t:topic | 200051 SUB g:consumerGroup t:topic | 200052 SUB g:consumerGroup t:topic
200053 SUB g:consumerGroup t:topic | 200054 SUB g:consumerGroup t:topic | 200055 GET g:consumerGroup t:topic
17 CREATE t:topic | 215 DELETE t:topic | 207 DELETE g:groupName | 314 UPDATE g:destGroup t:topic
222 UPDATE g:group t:topic | 353 UPDATE g:group t:topic | 323 UPDATE t:topic | 223 GET t:topic g:group
29 GET t:topic | 30 GET t:topic | 31 GET t:topic | 32 GET t:topic | 202 GET t:topic | 300 GET t:topic | 351 GET t:topic
203 GET g:consumerGroup | 208 GET g:consumerGroup t:topic | 303 GET t:topic g:group | 307 GET g:consumerGroup
321 GET t:topic g:consumerGroup | 343 GET g:group | 345 GET g:group t:topic | 352 GET g:group | 354 GET t:topic
308 GET g:compareGroup t:topic
"""
_GET_CLUSTER = frozenset((21, 26, 28, 43, 45, 60, 61, 201, 204, 305, 315, 317, 328, 355, 402, 1007, 2003, 2004))
_POPS = frozenset(range(200_050, 200_056))
_FOR_ALL = frozenset((RequestCode.CHECK_CLIENT_CONFIG, RequestCode.QUERY_ASSIGNMENT))
"""Requests that need a user and no permission."""


class Access(NamedTuple):
    """A resource and the actions of which one has to be allowed."""

    kind: str
    name: str
    actions: tuple[str, ...]


def _parsed() -> dict[int, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]]:
    found = {}
    for rule in _RULES.replace("\n", "|").split("|"):
        code, actions, *fields = rule.split() or ("", "")
        if code:
            pairs = (field.partition(":") for field in fields)
            found[int(code)] = tuple(actions.split(",")), tuple((_KINDS[kind], name) for kind, _, name in pairs)
    return found


_BY_CODE = _parsed()


def signature(fields: Mapping[str, str], body: bytes, secret: str) -> str:
    """Return what clients send as Signature: HmacSHA1 over the values by the order of their names, and the body."""
    return _signed(_content(fields, body), secret)


def _content(fields: Mapping[str, str], body: bytes) -> bytes:
    return "".join(value for name, value in sorted(fields.items()) if name != SIGNATURE).encode("utf-8") + body


def _signed(content: bytes, secret: str) -> str:
    made = hmac.new(secret.encode("utf-8"), content, hashlib.sha1)
    return base64.b64encode(made.digest()).decode("ascii")


class Guard:
    """Refuses requests of unknown users, and what a user may not do, as brokers with authenticationEnabled and
    authorizationEnabled do. `cluster`: the name that entries of type CLUSTER have."""

    def __init__(self, accounts: Accounts, cluster: str) -> None:
        self._accounts = accounts
        self._cluster = cluster

    def check(self, request: RemotingCommand, caller: Caller) -> None:
        """Raise RequestError for a request that is refused."""
        fields, body = dict(request.fields), bytes(request.body)
        name = fields.get(ACCESS_KEY, "")
        if self.is_exempt(name, caller.remote):
            return
        contents = [_content(fields, body)]
        if _UNSIGNED in fields:
            contents.append(_content({key: value for key, value in fields.items() if key != _UNSIGNED}, body))
        self.authenticate(name, fields.get(SIGNATURE, ""), *contents)
        try:
            self.authorize(name, accesses(request, self._cluster), caller.remote)
        except CorruptError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, error.message) from error

    def is_exempt(self, user: str, remote: str) -> bool:
        """Return whether nothing is asked of who comes from `remote`, `ip:port`."""
        exempt = (*self._accounts.exempt, *filter(None, (self._accounts.exempt_users.get(user),)))
        return any(is_from(_ip_of(remote), pattern) for pattern in exempt)

    def authenticate(self, name: str, given: str, *contents: bytes) -> None:
        """Raise RequestError for a user that is not known or disabled, and for a signature, in Base64, of none of the
        contents."""
        user = self._accounts.users.get(name)
        problem = ""
        if not name:
            problem = "username cannot be null."
        elif user is None:
            problem = f"User:{name} is not found."
        elif user.status == DISABLE:
            problem = f"User:{name} is disabled."
        elif user.password:
            password = user.password
            if any(hmac.compare_digest(given.encode(), _signed(one, password).encode()) for one in contents):
                return
        raise RequestError(ResponseCode.NO_PERMISSION, problem or "check signature failed.")

    def authorize(self, user: str, wanted: Iterator[Access], remote: str) -> None:
        """Raise RequestError for an access that a user at `remote`, `ip:port`, has not."""
        for kind, name, actions in wanted:
            if self._accounts.is_of_4 and actions == ("GET",):
                # 4.x asks for none to look (PlainAccessValidator); what changes a broker is for admins, here all of it
                continue
            refusal = self._accounts.refusal(user, kind, name, actions, _ip_of(remote))
            if refusal:
                raise RequestError(ResponseCode.NO_PERMISSION, refusal)


def _ip_of(remote: str) -> str:
    return remote.rpartition(":")[0].strip("[]")


def accesses(request: RemotingCommand, cluster: str) -> Iterator[Access]:
    """Yield what a request needs. One that RocketMQ has no rule for needs the cluster. CorruptError for a body that is
    no JSON object."""
    code = request.code
    if code == RequestCode.HEART_BEAT:
        yield from _of_heartbeat(request)
    elif code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        content = parse_body(request.body)
        group = text_of(content, "consumerGroup")
        yield Access(GROUP, group, ("SUB",))
        for queue in objects(content.get("mqSet")):
            yield from _readable(text_of(queue, "topic"), ("SUB",), group)
    elif code in _BY_CODE:
        actions, resources = _BY_CODE[code]
        group = next(
            (request.fields[field] for kind, field in resources if kind == GROUP and field in request.fields), ""
        )
        for kind, field in resources:
            name = request.fields.get(field, "")
            if kind == TOPIC and "PUB" in actions and name.startswith(RETRY_PREFIX):
                yield Access(GROUP, name.removeprefix(RETRY_PREFIX), ("SUB",))
            elif kind == TOPIC and "SUB" in actions:
                yield from _readable(name, actions, group, pops=code in _POPS)
            elif name:
                yield Access(kind, name, actions)
    elif code not in _FOR_ALL:
        yield Access(CLUSTER, cluster, ("GET",) if code in _GET_CLUSTER else ("UPDATE",))


def _readable(topic: str, actions: tuple[str, ...], group: str, *, pops: bool = False) -> Iterator[Access]:
    """What a topic needs of whom `group` is asked for, too: a retry topic belongs to its group; of `pops` it has the
    topic's name behind that of the group."""
    owner = topic.removeprefix(RETRY_PREFIX)
    if topic and owner == topic:
        yield Access(TOPIC, topic, actions)
    elif topic and owner != group and not (pops and owner.startswith((f"{group}_", f"{group}+"))):
        yield Access(GROUP, owner, ("SUB",))


def _of_heartbeat(request: RemotingCommand) -> Iterator[Access]:
    for consumer in objects(parse_body(request.body).get("consumerDataSet")):
        group = text_of(consumer, "groupName")
        yield Access(GROUP, group, ("SUB",))
        for subscription in objects(consumer.get("subscriptionDataSet")):
            yield from _readable(text_of(subscription, "topic"), ("SUB",), group)
