"""Flags that set how a producer sends; the command gets them as `settings`."""

from __future__ import annotations

import functools
from typing import Any

import click

from rmqctl.flags.options import Command, Flag
from rmqctl.output.span import SPAN


def producer_options(command: Command) -> Command:
    """Add --timeout, --latency-fault, --namespace and --setting; the command gets `settings` (ProducerSettings)."""

    @functools.wraps(command)
    def setting(
        *args: Any,
        timeout: int | None,
        latency_fault: bool,
        namespace: str | None,
        named: tuple[str, ...],
        **options: Any,
    ) -> Any:
        from rmqctl.network.clients.producing.settings import settings_from

        texts: dict[str, str] = {}
        for one in named:
            name, found, text = one.partition("=")
            if not found:
                raise click.UsageError(f"--setting {one!r} is not NAME=VALUE")
            texts[name] = text
        if timeout is not None:
            texts["sendMsgTimeout"] = str(timeout)
        if latency_fault:
            texts["sendLatencyEnable"] = "true"
        if namespace is not None:
            texts["namespace"] = namespace
        return command(*args, settings=settings_from(texts), **options)

    flags = (
        Flag("--timeout", type=SPAN, metavar="SPAN", help="Time for a message with all its attempts (default 3s)."),
        Flag("--latency-fault", is_flag=True, help="Avoid brokers that are slow or failed (sendLatencyEnable)."),
        Flag("--namespace", metavar="NAME", help="Namespace of topic and group."),
        Flag("--setting", "named", multiple=True, metavar="NAME=VALUE", help="A producer setting, by RocketMQ's name."),
    )
    return functools.reduce(lambda made, flag: flag(made), reversed(flags), setting)  # type: ignore[return-value]
