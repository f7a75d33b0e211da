"""Hooks of consumers: called before and after messages are consumed (ConsumeMessageHook)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqctl.formats.message import StoredMessage
from rmqctl.network.remoting.fastjson import MessageQueue


class ConsumeReturn(enum.IntEnum):
    """How a callback ended; the numbers are those in traces (ConsumeReturnType)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass
class ConsumeHookContext:
    """One consumption. `status`, `is_success` and `returned` are known after it; `notes` is for hooks to keep what they
    need between both calls."""

    group: str
    namespace: str
    queue: MessageQueue
    messages: Sequence[StoredMessage]
    is_success: bool = False
    status: str = ""
    returned: ConsumeReturn = ConsumeReturn.SUCCESS
    notes: dict[Any, Any] = field(default_factory=dict)


class ConsumeHook:
    """Base of hooks that are called before and after messages are consumed. An exception of a hook is reported, and
    changes nothing."""

    def before(self, context: ConsumeHookContext) -> None:
        """Take note that messages are about to be consumed."""

    def after(self, context: ConsumeHookContext) -> None:
        """Take note that messages were consumed, or were not."""


def run_before(hooks: Sequence[ConsumeHook], context: ConsumeHookContext, warn: Callable[[str], None]) -> None:
    """Call the hooks before a consumption."""
    _run(hooks, lambda hook: hook.before(context), warn)


def run_after(hooks: Sequence[ConsumeHook], context: ConsumeHookContext, warn: Callable[[str], None]) -> None:
    """Call the hooks after a consumption."""
    _run(hooks, lambda hook: hook.after(context), warn)


def _run(hooks: Sequence[ConsumeHook], call: Callable[[ConsumeHook], None], warn: Callable[[str], None]) -> None:
    for hook in hooks:
        try:
            call(hook)
        except Exception as error:  # noqa: BLE001 - a hook that fails is not the consumer's failure
            warn(f"hook {type(hook).__name__} failed: {type(error).__name__}: {error}")
