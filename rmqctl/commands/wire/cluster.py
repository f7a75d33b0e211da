"""`rmqctl cluster`: the brokers of a cluster, and how they are."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import namesrv_option, output_options, tls_options
from rmqctl.formats.errors import NotFoundError
from rmqctl.reports.unanswered import Unanswered

if TYPE_CHECKING:
    from rmqctl.network.clients.channel import Dial
    from rmqctl.output.output import Output

_COLUMNS = (
    "cluster", "broker", "broker_id", "address", "version", "in_tps", "out_tps", "log_disk",
    "queue_disk",
)  # fmt: skip
_DROPPABLE = ("queue_disk", "cluster", "broker_id")


@click.command(
    epilog="""\b
Examples:
  rmqctl cluster -n 127.0.0.1:9876
  rmqctl cluster -n 'ns1:9876;ns2:9876' --json | jq 'select(.log_disk > 0.7)'

broker_id is 0 for a master. in_tps and out_tps are messages a second over the last 10 s; log_disk and queue_disk say
how full the disks of log and queues are, from 0 to 1. Exit code 3: somebody did not answer, who is named."""
)
@namesrv_option
@tls_options
@output_options
def cluster(output: Output, namesrv: str, dial: Dial) -> int:
    """List the brokers of a cluster: addresses, versions, messages in and out, how full the disks are."""
    from rmqctl.network.clients.client import Client
    from rmqctl.network.clients.survey import brokers_at

    unanswered = Unanswered(output)
    with contextlib.closing(Client(namesrv, dial)) as client:
        rows = (row._asdict() for row in brokers_at(client, unanswered))
        if not output.rows(_COLUMNS, rows, droppable=_DROPPABLE):
            raise NotFoundError("the name server knows no broker", hint="has it just started? brokers come within 30 s")
    return unanswered.exit_code()
