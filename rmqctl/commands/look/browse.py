"""`rmqctl browse`: a store on the whole screen, or in a web browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from rmqctl.flags.options import StoreLocation, store_options
from rmqctl.flags.types import ADDRESS
from rmqctl.formats.errors import UsageError
from rmqctl.output import outcome as exit_codes


@click.command(
    epilog="""\b
Examples:
  rmqctl browse -s /data/store
  rmqctl browse -s /data/store --descriptors orders.pb --proto-type shop.Order
  rmqctl browse -s /data/store --serve 127.0.0.1:8080

\b
Keys (the mouse works, too):
  Enter, Esc       open, back
  /                find: KEY, id ID, offset N, time '2h ago'
  b w              of a message: next form of its body; where it is, which groups have it
  f                follow a queue
  g l m            consumer groups, commitlog, map of damage
  c                the rmqctl command that prints the same, copied
  q, Ctrl-C        leave

Exit code 2: no terminal. 3: not a store, or unreadable."""
)
@store_options
@click.option(
    "--descriptors", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Descriptor set of protobuf bodies, as protoc writes.",
)  # fmt: skip
@click.option("--proto-type", metavar="NAME", help="Message type of bodies in --descriptors.")
@click.option(
    "--serve",
    "address",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="Show it in a web browser instead; prints the address.",
)
def browse(
    store: StoreLocation, descriptors: Path | None, proto_type: str | None, address: tuple[str, int] | None
) -> int:
    """Browse a store: topics, queues, messages, groups and damage.

    A store of any size opens at once: only what the screen shows is read. Stores are not changed.

    --serve prints an address with a random token; requests without it are refused. The address is all that is needed
    to see the messages.
    """
    from rmqctl.browse.app import StoreApp
    from rmqctl.browse.body import Protobuf
    from rmqctl.opening import open_store

    if proto_type is not None and descriptors is None:
        raise UsageError("--proto-type names a type of --descriptors FILE")
    protobuf = None if descriptors is None else Protobuf(descriptors, proto_type)
    # textual-serve starts it so
    is_served = "TEXTUAL_DRIVER" in os.environ
    if address is None and not is_served and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("browse needs a terminal", hint="use cat, query or report, or browse --serve HOST:PORT")
    with open_store(store, lambda _: None) as opened:
        if address is None:
            app = StoreApp(opened, store, protobuf)
            app.run()
            return app.return_code or exit_codes.OK
    _serve(store, address, descriptors, proto_type)
    return exit_codes.OK


def _serve(store: StoreLocation, address: tuple[str, int], descriptors: Path | None, proto_type: str | None) -> None:
    """Serve the same command, with absolute paths."""
    from rmqctl.browse.served import serve
    from rmqctl.output.output import talk

    given = {"-s": store.path, "-c": store.config_path, "--descriptors": descriptors}
    arguments = [word for flag, path in given.items() if path is not None for word in (flag, os.path.abspath(path))]
    if proto_type is not None:
        arguments += ["--proto-type", proto_type]
    host, port = address
    if host not in ("127.0.0.1", "::1", "localhost"):
        talk(f"note: {host} can be reached from other machines, and HTTP is not encrypted")
    serve(arguments, host, port, lambda line: print(line, flush=True))
