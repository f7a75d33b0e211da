"""The view `copied_messages`: rows of messages that only a compaction log or tiered storage has."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import (
    TRANSACTION_NAMES,
    compression_name,
    encode_properties,
    split_keys,
    transaction_type,
)
from rmqctl.store.answers.unread import CopyPart, messages_of_copy
from rmqctl.store.store_files import StoreFiles

_OF_PROPERTIES = frozenset(("unique_key", "tags", "keys", "properties", "stored_properties"))
_OF_BODY = frozenset(("body", "body_size", "body_error", "stored_body"))


def copied_rows(files: StoreFiles, part: CopyPart, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield a row of each whole message of a part, with `columns` at least. Errors as `messages_of_copy`."""
    for message in messages_of_copy(files, part):
        row: dict[str, Any] = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "size": message.total_size,
            "store_timestamp": message.store_timestamp,
            "born_timestamp": message.born_timestamp,
            "store_host": str(message.store_host),
            "born_host": str(message.born_host),
            "sys_flag": message.sys_flag,
            "flag": message.flag,
            "transaction": TRANSACTION_NAMES[transaction_type(message.sys_flag)],
            "compression": compression_name(message.sys_flag),
            "body_crc": message.body_crc,
            "crc_ok": True,
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
            "copy": part.kind,
        }
        if not _OF_PROPERTIES.isdisjoint(columns):
            row |= _properties(message)
        if not _OF_BODY.isdisjoint(columns):
            row |= _body(message)
        yield row


def _properties(message: StoredMessage) -> dict[str, Any]:
    found = message.properties()
    is_lost = encode_properties(found) != message.property_bytes
    return {
        "unique_key": found.get(names.UNIQUE_KEY),
        "tags": found.get(names.TAGS),
        "keys": split_keys(found.get(names.KEYS)),
        "properties": list(found.items()),
        "stored_properties": message.property_bytes if is_lost else None,
    }


def _body(message: StoredMessage) -> dict[str, Any]:
    stored = None if compression_name(message.sys_flag) is None else message.body
    try:
        body, error = message.plain_body(), None
    except (CorruptError, UnsupportedError) as problem:
        body, error = message.body, problem.message
    return {"body": body, "body_size": len(body), "body_error": error, "stored_body": stored}
