"""The messages in the body of an answer: stored frames back to back (MessageDecoder#decodes)."""

from __future__ import annotations

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message


def messages_of(body: bytes) -> list[StoredMessage]:
    """All of them, their checksums checked. CorruptError where the bytes are no messages."""
    found: list[StoredMessage] = []
    position = 0
    while position < len(body):
        try:
            message = decode_message(body, position, len(body) - position, None)
        except FrameDamage as damage:
            raise CorruptError(f"byte {position} of the answer begins no message: {damage.detail}") from damage
        found.append(message)
        position += message.total_size
    return found
