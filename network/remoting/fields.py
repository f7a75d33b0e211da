"""Fields of a request's header, checked: what is missing or no number ends the request with what is wrong with it."""

from __future__ import annotations

import re

from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import RequestError

# Long.parseLong; int() alone would take "1_000" and digits of other scripts
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_INT_BITS = 32
_LONG_BITS = 64
# fewer digits than these are a 32-bit integer
_ALWAYS_FIT = 10
# most numbers in headers are among these, which takes less time to see than to read them
_USUAL = {str(number): number for number in range(1000)}


def text(request: RemotingCommand, name: str) -> str:
    """A field that must be there; RequestError."""
    value = request.fields.get(name)
    if value is None:
        raise _missing(name)
    return value


def integer(request: RemotingCommand, name: str, default: int | None = None) -> int:
    """A 32-bit integer; `default` where the field is missing, RequestError where there is none."""
    value = request.fields.get(name)
    usual = _USUAL.get(value) if value is not None else None
    return _number(value, name, default, _INT_BITS) if usual is None else usual


def long(request: RemotingCommand, name: str, default: int | None = None) -> int:
    """A 64-bit integer; `default` where the field is missing, RequestError where there is none."""
    value = request.fields.get(name)
    usual = _USUAL.get(value) if value is not None else None
    return _number(value, name, default, _LONG_BITS) if usual is None else usual


def flag(request: RemotingCommand, name: str, default: bool = False) -> bool:
    """A boolean (Boolean.parseBoolean)."""
    value = request.fields.get(name)
    return default if value is None else value.lower() == "true"


def _missing(name: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")


def _number(value: str | None, name: str, default: int | None, bits: int) -> int:
    if value is None:
        if default is None:
            raise _missing(name)
        return default
    if len(value) < _ALWAYS_FIT and value.isdigit() and value.isascii():
        return int(value)
    limit = 1 << (bits - 1)
    if not _NUMBER.fullmatch(value) or not -limit <= int(value) < limit:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is no {bits}-bit integer")
    return int(value)
