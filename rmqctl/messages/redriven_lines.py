"""Dead letters as lines of JSON for a producer: what `append --from` and `produce --from` read."""

from __future__ import annotations

import json

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.messages.message_json import message_json

# what the dead letter was where it lies, and is not where it goes
_KEPT = (
    "unique_key",
    "born_timestamp",
    "born_host",
    "flag",
    "tags",
    "keys",
    "body_size",
    "body",
    "body_base64",
    "body_error",
    "stored_body_base64",
)


def redriven_line(dead: StoredMessage, message: Message) -> bytes:
    """`message`, made of the dead letter `dead`, as one line with its end."""
    before = message_json(dead, stored_body=True)
    record = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "sys_flag": message.sys_flag,
        "reconsume_times": 0,
        "properties": dict(message.properties),
        **{name: before[name] for name in _KEPT if name in before},
    }
    return json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n"
