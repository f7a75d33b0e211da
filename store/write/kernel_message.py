"""What kernels ask of a message: whether it is a new one of the very type, whose fields stand at known places."""

from __future__ import annotations

from formats.message import Message
from store.columns.compiling import inner
from store.columns.kernel_objects import is_tuple_of, item_of_tuple, type_of
from store.write.put_context import Kinds, places_of

_FIELDS = len(Message._fields)
_TOPIC, _STORED_PROPERTIES = places_of(Message, "topic", "property_bytes")
_STORE_TIMESTAMP, _STORE_HOST = places_of(Message, "store_timestamp", "store_host")
_NONE, _MESSAGE_TYPE, _TEXT_TYPE = places_of(Kinds, "none", "message_type", "text_type")


@inner
def is_new_message(kinds: int, message: int) -> bool:
    """Whether an object is a message with a text as its topic, and nothing in it that only a stored one has."""
    none = item_of_tuple(kinds, _NONE)
    return (
        is_tuple_of(message, item_of_tuple(kinds, _MESSAGE_TYPE), _FIELDS)
        and item_of_tuple(message, _STORED_PROPERTIES) == none
        and item_of_tuple(message, _STORE_TIMESTAMP) == none
        and item_of_tuple(message, _STORE_HOST) == none
        and type_of(item_of_tuple(message, _TOPIC)) == item_of_tuple(kinds, _TEXT_TYPE)
    )
