"""`rmqctl serve`: a name server and a broker that give clients the messages of a store, and take theirs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from rmqctl import exit_codes
from rmqctl.options import StoreLocation, store_options, summary_options

if TYPE_CHECKING:
    import socket

    from rmqctl.network.broker.broker import Broker
    from rmqctl.network.broker.tables.identity import BrokerIdentity
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
  rmqctl serve -s /tmp/new --writable --create

Without --writable not one byte of the store changes: what clients commit is kept in memory, what they send is refused.
There is no authentication: whoever reaches the ports can read all messages, and with --writable send and delete.
docs/network.md says what is served."""
)
@store_options
@click.option("--listen", type=ADDRESS, default="127.0.0.1:10911", metavar="HOST:PORT", show_default=True,
              help="Where the broker listens.")  # fmt: skip
@click.option("--namesrv", type=ADDRESS, default="127.0.0.1:9876", metavar="HOST:PORT", show_default=True,
              help="Where the name server listens.")  # fmt: skip
@click.option("--writable", is_flag=True, help="Be a whole broker: producers, offsets, retries, delays, transactions.")
@click.option("--create", is_flag=True, help="With --writable: make a new store if there is none.")
@click.option("--clean", is_flag=True, help="With --writable: remove expired files, as a broker does.")
@summary_options
def serve(
    store: StoreLocation,
    output: Output,
    listen: tuple[str, int],
    namesrv: tuple[str, int],
    writable: bool,
    create: bool,
    clean: bool,
) -> int:
    """A name server and a broker over a store, for unmodified clients and mqadmin: for reading only, or --writable.

    When both are ready one line is printed. SIGTERM and Ctrl-C end them. A writable store is locked meanwhile, as by a
    broker; after a crash `recover` comes first.
    """
    from rmqctl.network.broker.tables.identity import identity_from_properties
    from rmqctl.network.remoting.server import bound
    from rmqctl.network.serving import is_loopback
    from rmqctl.store.config.config import read_properties

    if (create or clean) and not writable:
        raise click.UsageError("--create and --clean go with --writable")
    properties = read_properties(store.config_path) if store.config_path else {}
    identity = identity_from_properties(properties)
    for host in sorted({listen[0], namesrv[0]}):
        if not is_loopback(host):
            doing = "read, send and delete messages" if writable else "read all messages"
            output.talk(f"anybody who reaches {host} can {doing}: there is no authentication")
    with bound(*namesrv) as name_server_on, bound(*listen) as broker_on:
        if writable:
            _serve_writable(store, identity, properties, name_server_on, broker_on, output, create, clean)
        else:
            _serve_readable(store, identity, properties, name_server_on, broker_on, output)
    return exit_codes.OK


def _serve_readable(
    store: StoreLocation,
    identity: BrokerIdentity,
    properties: dict[str, str],
    name_server_on: socket.socket,
    broker_on: socket.socket,
    output: Output,
) -> None:
    from rmqctl.network.broker.broker import Broker
    from rmqctl.opening import open_store

    with open_store(store) as opened:
        broker = Broker(opened.files, identity, output.talk, properties=properties)
        _run(broker, name_server_on, broker_on, output)


def _serve_writable(
    store: StoreLocation,
    identity: BrokerIdentity,
    properties: dict[str, str],
    name_server_on: socket.socket,
    broker_on: socket.socket,
    output: Output,
    create: bool,
    clean: bool,
) -> None:
    from rmqctl.network.broker.master_broker import MasterBroker
    from rmqctl.network.serving import store_host
    from rmqctl.opening import broker_config
    from rmqctl.output.progress import progress
    from rmqctl.store.compiled.notices import tell_notices
    from rmqctl.store.message_store import MessageStore

    tell_notices(output.talk)
    with progress("checking the end of the commitlog", None, "bytes") as bar:
        opened = MessageStore.open(
            store.path,
            "rw",
            # nobody here would deliver what waits for a time of its own
            broker_config(store)._replace(timer_wheel_enable=False),
            create=create,
            obey_disk_ratio=True,
            clean_expired=clean,
            store_host=store_host(broker_on, properties.get("brokerIP1")),
            progress=bar.advance,
        )
    with opened:
        broker = MasterBroker(opened, identity, output.talk, properties=properties)
        try:
            _run(broker, name_server_on, broker_on, output)
        finally:
            broker.close()


def _run(broker: Broker, name_server_on: socket.socket, broker_on: socket.socket, output: Output) -> None:
    import asyncio
    import signal

    from rmqctl.network.serving import serve as serve_until

    def ready(at: Ready) -> None:
        if output.is_json:
            output.record({"namesrv": at.namesrv, "broker": at.broker, "writable": broker.is_writable})
        else:
            how = "writable" if broker.is_writable else "read-only"
            output.text(f"name server {at.namesrv}, broker {at.broker}, {how}")
        output.flush()

    async def run() -> None:
        end = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, end.set)
        await serve_until(broker, name_server_on, broker_on, output.talk, ready, end.wait)

    asyncio.run(run())
