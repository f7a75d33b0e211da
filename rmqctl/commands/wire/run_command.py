"""Run a command for each message: the body on stdin, the rest in the environment, never through a shell."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from rmqctl.formats.properties import UNIQUE_KEY

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage

TIMED_OUT = 124
"""Exit status of a command that was killed after its time, as of timeout(1)."""
# MAX_ARG_STRLEN of Linux: a longer variable fails the command
_LONGEST_VARIABLE = 128 * 1024 - 256


def command_of(text: str) -> list[str]:
    """Return the words of a command. UsageError where it is empty, badly quoted, or there is no such program."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"--exec: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise click.UsageError(f"--exec: there is no program {words[0] if words else ''!r}")
    return words


def environment_of(message: StoredMessage) -> dict[str, str]:
    """Return the variables for a message. A text that no variable can hold (NUL, over 128 KiB) is left out."""
    properties = message.properties()
    found: Mapping[str, object] = {
        "TOPIC": message.topic,
        "QUEUE_ID": message.queue_id,
        "QUEUE_OFFSET": message.queue_offset,
        "MSG_ID": message.message_id,
        "UNIQUE_KEY": properties.get(UNIQUE_KEY, ""),
        "TAGS": properties.get("TAGS", ""),
        "KEYS": properties.get("KEYS", ""),
        "RECONSUME_TIMES": message.reconsume_times,
        "BORN_TIMESTAMP": message.born_timestamp,
        "STORE_TIMESTAMP": message.store_timestamp,
        "PROPERTIES": json.dumps(properties),
    }
    texts = {f"RMQCTL_{name}": str(value) for name, value in found.items()}
    return {
        name: text
        for name, text in texts.items()
        if "\0" not in text and len(text.encode("utf-8", "surrogatepass")) < _LONGEST_VARIABLE
    }


def run_for_message(command: Sequence[str], message: StoredMessage, seconds: float) -> int:
    """Run a command for a message and return its exit status; after `seconds` it is killed with its children.

    What it prints goes to stderr: stdout has the results. OSError where it cannot run, CorruptError for a body that
    cannot be decompressed.
    """
    body = message.plain_body()
    # a session of its own: Ctrl-C ends the consumer, which waits for the commands that run
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=sys.__stderr__ if sys.__stderr__ is not None else subprocess.DEVNULL,
        env={**os.environ, **environment_of(message)},
        start_new_session=True,
    ) as process:
        try:
            process.communicate(body, timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return TIMED_OUT
        return process.returncode
