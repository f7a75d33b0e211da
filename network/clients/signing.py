"""Clients with a user: credentials from a file, and channels that sign what they send (AclClientRPCHook)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, UsageError
from rmqctl.network.clients.channel import Answers, Channel, Dial
from rmqctl.network.remoting.authentication import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.store.config.accounts import read_yaml


class Credentials(NamedTuple):
    """The user of a client. `token`: of a temporary user."""

    access_key: str
    secret_key: str
    token: str = ""


def read_credentials(path: Path) -> Credentials:
    """Read a file like RocketMQ's conf/tools.yml: accessKey, secretKey and securityToken.

    Raises: UsageError where it does not name the first two; UnreadableError.
    """
    hint = "write `accessKey: NAME` and `secretKey: PASSWORD`"
    try:
        content = read_yaml(path)
    except CorruptError as error:
        raise UsageError(error.message, file=path, hint=hint) from error
    access_key, secret_key, token = (content.get(name) for name in ("accessKey", "secretKey", "securityToken"))
    if not access_key or not secret_key:
        raise UsageError("accessKey or secretKey is missing", file=path, hint=hint)
    return Credentials(str(access_key), str(secret_key), str(token or ""))


def dial_signed(dial: Dial, credentials: Credentials) -> Dial:
    """Return what opens the channels of `dial` for a user."""
    return lambda address, answers: _SignedChannel(dial, address, answers, credentials)


class _SignedChannel:
    def __init__(self, dial: Dial, address: str, answers: Answers, credentials: Credentials) -> None:
        self._channel: Channel = dial(address, answers)
        self._user = {ACCESS_KEY: credentials.access_key}
        if credentials.token:
            self._user[SECURITY_TOKEN] = credentials.token
        self._secret = credentials.secret_key

    @property
    def is_open(self) -> bool:
        """See Channel."""
        return self._channel.is_open

    def send(self, command: RemotingCommand) -> None:
        """See Channel. Answers are sent unsigned."""
        if not command.is_response:
            fields = {**command.fields, **self._user}
            fields[SIGNATURE] = signature(fields, bytes(command.body), self._secret)
            command = command._replace(fields=fields)
        self._channel.send(command)

    def close(self) -> None:
        """See Channel."""
        self._channel.close()
