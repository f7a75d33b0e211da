"""`produce` and `consume` with --grpc: through a proxy of RocketMQ 5, real or `rmqctl serve --grpc`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rmqctl.flags.options import Command, Flag
from rmqctl.flags.types import ADDRESS
from rmqctl.formats.errors import NotFoundError
from rmqctl.output import outcome as exit_codes

if TYPE_CHECKING:
    from rmqctl.network.clients.proxied import ProxyAddress
    from rmqctl.output.output import Output

RESULT_COLUMNS = ("topic", "queue_id", "queue_offset", "unique_key", "reconsume_times", "exit_status", "result")
"""Of a message that a command has decided on."""
_ALWAYS = ("grpc", "namespace", "topic", "tls_ca", "credentials", "as_json", "output_format", "digits", "zone")


def grpc_option(*allowed: str) -> Callable[[Command], Command]:
    """Add --grpc above `tls_options`: the command gets `grpc`, the proxy, or None and then a name server.

    `allowed`: the parameters that go with it beside the usual ones; any other flag is refused.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def through(
            *args: Any,
            grpc: tuple[str, int] | None,
            namesrv: str | None,
            tls_ca: Path | None,
            credentials: Path | None,
            **more: Any,
        ) -> Any:
            if grpc is None:
                if namesrv is None:
                    raise click.MissingParameter(param_hint="'-n' / '--namesrv'", param_type="option")
                return command(*args, grpc=None, namesrv=namesrv, tls_ca=tls_ca, credentials=credentials, **more)
            _refuse_others(allowed)
            from rmqctl.network.clients.channel import read_credentials
            from rmqctl.network.clients.proxied import ProxyAddress

            host, port = grpc
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            proxy = ProxyAddress(address, tls_ca, None if credentials is None else read_credentials(credentials))
            return command(*args, grpc=proxy, namesrv=None, tls_ca=None, credentials=None, **more)

        flag = Flag("--grpc", type=ADDRESS, metavar="HOST:PORT", help="Go through this proxy of RocketMQ 5, not by -n.")
        return flag(through)  # type: ignore[return-value]

    return add


def _refuse_others(allowed: tuple[str, ...]) -> None:
    context = click.get_current_context()
    for one in context.command.params:
        is_given = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        if one.name == "tls" and is_given:
            raise click.UsageError("--tls goes without --grpc, whose client verifies certificates: give --tls-ca FILE")
        if is_given and one.expose_value and one.name not in (*_ALWAYS, *allowed):
            raise click.UsageError(f"{max(one.opts, key=len)} goes without --grpc: gRPC has nothing like it")


ForMessage = Callable[[dict[str, Any]], tuple[bool, dict[str, Any]]]
"""Takes a message; returns whether it is consumed, and what is printed of it."""


def consume_by_grpc(
    output: Output,
    address: ProxyAddress,
    given: tuple[str, str, str, str | None],
    deciding: tuple[ForMessage | None, int, int | None],
    *,
    follow: bool,
    limit: int | None,
) -> int:
    """Print messages as a simple consumer; those that are printed are acknowledged, or those that are decided on.

    `given`: group, topic, subscription, namespace. `deciding`: what decides on them, if anything, in how many threads,
    and after how many retries a message is a dead letter.
    """
    from rmqctl.network.clients.proxied import COLUMNS, ProxyConsumer
    from rmqctl.output.output import FIRST_PAGE

    group, topic, subscription, namespace = given
    most = FIRST_PAGE if output.format == "table" else 16
    with ProxyConsumer(address, group, topic, subscription, namespace) as consumer:
        decide, threads, retries = deciding
        columns = COLUMNS if decide is None else RESULT_COLUMNS
        if decide is None:
            batches = consumer.batches(most, to_the_end=not follow, limit=limit)
        else:
            batches = consumer.decided(decide, threads, to_the_end=not follow, limit=limit, max_retries=retries)
        count = output.batches(columns, batches, droppable=("keys", "body_size", "reconsume_times", "unique_key"))
    if not count:
        raise NotFoundError(f"topic {topic!r} has no message for group {group!r}")
    return exit_codes.OK
