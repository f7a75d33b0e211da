"""Request headers: declared once, decoded and encoded by what is declared."""

from __future__ import annotations

from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.network.broker.services import SERVICES
from rmqctl.network.nameserver import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.nameserver import NameServer
from rmqctl.network.remoting import headers, pop_headers
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode
from rmqctl.network.remoting.headers import HEADERS, Header, PullMessage, SendMessage, SendMessageV2
from rmqctl.network.remoting.requests import Asked, Processor, Services
from tests.network.callers import Peer

TEXTS = {"str": "a\u00e4", "int": str(-(1 << 31)), "Long": str((1 << 63) - 1), "bool": "true"}


@pytest.mark.parametrize("code", sorted(HEADERS))
def test_what_is_decoded_is_encoded_again(code: int) -> None:
    header = HEADERS[code]
    fields = {field.name: TEXTS[field.kind] for field in header.FIELDS}
    assert len(fields) == len(header.FIELDS)
    decoded = header.decode(fields | {"none": "x"})
    assert decoded.encode() == fields
    # as its constructor makes it
    assert decoded == header(**vars(decoded))
    for field in header.FIELDS:
        left = {name: text for name, text in fields.items() if name != field.name}
        if field.is_required:
            with pytest.raises(CorruptError, match=f"the custom field <{field.name}> is null"):
                header.decode(left)
        else:
            assert getattr(header.decode(left), field.attribute) == field.default


@pytest.mark.parametrize(
    ("kind", "text"),
    [("int", "1_000"), ("int", str(1 << 31)), ("int", ""), ("int", "\u0663"), ("Long", str(1 << 63)), ("Long", "x")],
)
def test_what_is_no_number_is_named(kind: str, text: str) -> None:
    name = {"int": "queueId", "Long": "queueOffset"}[kind]
    fields = {field.name: TEXTS[field.kind] for field in PullMessage.FIELDS}
    with pytest.raises(CorruptError, match=f"<{name}> is no (32|64)-bit integer"):
        PullMessage.decode(fields | {name: text})


def test_booleans_are_javas() -> None:
    texts = {"producerGroup": "P", "topic": "T", "queueId": "0"}
    values = {text: SendMessage.decode(texts | {"unitMode": text}).unit_mode for text in ("TRUE", "1", "0", "yes")}
    assert values == {"TRUE": True, "1": False, "0": False, "yes": False}


def test_the_short_form_has_the_fields_of_the_long_one() -> None:
    short = SendMessageV2(producer_group="P", topic="T", queue_id=3, unit_mode=True, broker_name="b")
    assert short.encode() == {
        "a": "P", "b": "T", "c": "", "d": "4", "e": "3", "f": "0", "g": "0", "h": "0", "i": "", "j": "0", "k": "true",
        "m": "false", "n": "b",
    }  # fmt: skip
    assert vars(SendMessageV2.decode(short.encode())) == vars(short)


def test_a_missing_field_is_answered_before_anything_is_done() -> None:
    done: list[Any] = []
    told: list[str] = []

    def handler(server: NameServer, header: Header, asked: Asked) -> RemotingCommand:
        done.append(header)
        return RemotingCommand(0)

    usual = NAME_SERVER_SERVICES[RequestCode.GET_TOPICS_BY_CLUSTER]
    table: Services = {RequestCode.GET_TOPICS_BY_CLUSTER: usual._replace(handler=handler)}
    processor = Processor(NameServer(lambda: 0), table, told.append)
    answer = processor.reply(RemotingCommand(RequestCode.GET_TOPICS_BY_CLUSTER), Peer())
    assert isinstance(answer, RemotingCommand)
    assert (answer.code, answer.remark) == (1, "the custom field <cluster> is null")
    assert (done, told) == ([], [])


def test_every_handler_takes_the_header_of_its_code() -> None:
    for table in (NAME_SERVER_SERVICES, SERVICES):
        for code, service in table.items():
            name = service.handler.__annotations__["header"].removeprefix("headers.")
            taken = getattr(headers if hasattr(headers, name) else pop_headers, name)
            assert issubclass(HEADERS.get(code, Header), taken), (RequestCode(code).name, name)
