"""Flags that set how a producer sends; the command gets them as `settings`."""

from __future__ import annotations

import functools
from typing import Any

import click

from rmqctl.flags.options import Command, Flag
from rmqctl.output.span import SPAN

namespace_option = Flag("--namespace", metavar="NAME", help="Namespace of topic and group.")
trace_option = Flag("--trace", is_flag=True, help="Send message traces, as `mqadmin queryMsgTraceById` reads them.")
trace_topic_option = Flag("--trace-topic", metavar="TOPIC", help="Topic of --trace; RMQ_SYS_TRACE_TOPIC.")


def producer_options(command: Command) -> Command:
    """Add the flags of producers; the command gets `settings` (ProducerSettings)."""

    @functools.wraps(command)
    def setting(
        *args: Any,
        timeout: int | None,
        latency_fault: bool,
        namespace: str | None,
        trace: bool,
        trace_topic: str | None,
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
        if trace_topic is not None and not trace:
            raise click.UsageError("--trace-topic goes with --trace")
        if trace:
            texts["enableTrace"] = "true"
        if trace_topic is not None:
            texts["traceTopic"] = trace_topic
        if namespace is not None:
            texts["namespace"] = namespace
        return command(*args, settings=settings_from(texts), **options)

    flags = (
        Flag("--timeout", type=SPAN, metavar="SPAN", help="Time for a message with all its attempts (default 3s)."),
        Flag("--latency-fault", is_flag=True, help="Avoid brokers that are slow or failed (sendLatencyEnable)."),
        namespace_option,
        trace_option,
        trace_topic_option,
        Flag("--setting", "named", multiple=True, metavar="NAME=VALUE", help="A producer setting, by RocketMQ's name."),
    )
    return functools.reduce(lambda made, flag: flag(made), reversed(flags), setting)  # type: ignore[return-value]
