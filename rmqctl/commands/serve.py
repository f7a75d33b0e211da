"""`rmqctl serve`: a name server and a broker that give clients the messages of a store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from rmqctl import exit_codes
from rmqctl.options import StoreLocation, store_options, summary_options

if TYPE_CHECKING:
    from rmqctl.network.serving import Ready
    from rmqctl.output.output import Output

    _Parameter = click.ParamType[tuple[str, int]]
else:
    _Parameter = click.ParamType

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_LARGEST_PORT = 65535


class AddressType(_Parameter):
    """HOST:PORT, an IPv6 address in brackets."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Host and port; a usage error that names the option if `value` is no address."""
        if isinstance(value, tuple):
            return value
        match = _HOST_AND_PORT.fullmatch(value)
        if match is None or int(match[2]) > _LARGEST_PORT:
            self.fail(f"{value!r} is no address: write it as 127.0.0.1:10911, with port 0 for any free one", param, ctx)
        return match[1].strip("[]"), int(match[2])


ADDRESS = AddressType()


@click.command(
    epilog="""\b
Examples:
  rmqctl serve -s /data/store
  mqadmin topicList -n 127.0.0.1:9876
  rmqctl serve -s /data/store --listen 127.0.0.1:0 --namesrv 127.0.0.1:0 --json

Not one byte of the store changes: what clients commit is kept in memory, and what they send is refused.
There is no authentication: whoever reaches the ports can read all messages. docs/network.md says what is served."""
)
@store_options
@click.option("--listen", type=ADDRESS, default="127.0.0.1:10911", metavar="HOST:PORT", show_default=True,
              help="Where the broker listens.")  # fmt: skip
@click.option("--namesrv", type=ADDRESS, default="127.0.0.1:9876", metavar="HOST:PORT", show_default=True,
              help="Where the name server listens.")  # fmt: skip
@summary_options
def serve(store: StoreLocation, output: Output, listen: tuple[str, int], namesrv: tuple[str, int]) -> int:
    """A name server and a broker over a store, for unmodified clients and mqadmin: for reading only.

    When both are ready one line is printed. SIGTERM and Ctrl-C end them.
    """
    from rmqctl.network.broker.broker import Broker
    from rmqctl.network.broker.identity import identity_from_properties
    from rmqctl.network.serving import is_loopback
    from rmqctl.opening import open_store
    from rmqctl.store.config import read_properties

    properties = read_properties(store.config_path) if store.config_path else {}
    with open_store(store) as opened:
        broker = Broker(opened.files, identity_from_properties(properties), output.talk, properties=properties)
        for host in sorted({listen[0], namesrv[0]}):
            if not is_loopback(host):
                output.talk(f"anybody who reaches {host} can read all messages: there is no authentication")
        _run(broker, namesrv, listen, output)
    return exit_codes.OK


def _run(broker: Any, namesrv: tuple[str, int], listen: tuple[str, int], output: Output) -> None:
    import asyncio
    import signal

    from rmqctl.network.serving import serve as serve_until

    def ready(at: Ready) -> None:
        if output.is_json:
            output.record({"namesrv": at.namesrv, "broker": at.broker, "writable": False})
        else:
            output.text(f"name server {at.namesrv}, broker {at.broker}, read-only")
        output.flush()

    async def run() -> None:
        end = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, end.set)
        await serve_until(broker, namesrv, listen, output.talk, ready, end.wait)

    asyncio.run(run())
