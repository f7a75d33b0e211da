"""`rmqctl cluster`: the brokers of a cluster, and how they are."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import namesrv_option, output_options, tls_options, topic_option
from rmqctl.formats.errors import NotFoundError
from rmqctl.main import ListingGroup, Verb
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import Unanswered

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

broker_id is 0 for a master. in_tps and out_tps are messages a second over the last 10 s; log_disk and queue_disk are
the usage of the disks of log and queues, from 0 to 1. Exit code 3: a server did not answer; it is named."""
)
@namesrv_option
@tls_options
@output_options
def cluster(output: Output, namesrv: str, dial: Dial) -> int:
    """List the brokers of a cluster: addresses, versions, message rates and disk usage."""
    from rmqctl.network.clients.client import Client
    from rmqctl.network.clients.survey import brokers_at

    unanswered = Unanswered(output)
    with contextlib.closing(Client(namesrv, dial)) as client:
        rows = (row._asdict() for row in brokers_at(client, unanswered))
        if not output.rows(_COLUMNS, rows, droppable=_DROPPABLE):
            raise NotFoundError("the name server knows no broker", hint="has it just started? brokers come within 30 s")
    return unanswered.exit_code()


# `rmqctl topics`: the topics of a cluster, as its name server routes them; its actions are in entries.py.

_TOPICS_COLUMNS = ("topic", "broker", "read_queues", "write_queues", "perm", "cluster")
_TOPICS_DROPPABLE = ("cluster",)
_ENTRIES = "rmqctl.commands.wire.entries"
_ACTIONS = {
    "create": Verb(f"{_ENTRIES}:create_topic", "change", "A new topic."),
    "change": Verb(f"{_ENTRIES}:change_topic", "change", "Queues, permissions, order, attributes."),
    "delete": Verb(f"{_ENTRIES}:delete_topic", "change", "Without its messages."),
}


@click.command(
    "topics",
    epilog="""\b
Actions, of a store at rest or with -n of running brokers (`rmqctl topics ACTION --help`):
  rmqctl topics create -s DIR -t Orders --queues 8
  rmqctl topics change -s DIR -t Orders --perm R
  rmqctl topics delete -s DIR -t Orders-old

\b
Examples:
  rmqctl topics -n 127.0.0.1:9876
  rmqctl topics -n 'ns1:9876;ns2:9876' -t Orders --json
  rmqctl topics -n 127.0.0.1:9876 --json | jq -r .topic | sort -u

perm: R may be read, W may be written, X is a template for topics created by a send.
`rmqctl ls` lists the topics of a store. Exit code 1: there is no such topic.""",
)
@namesrv_option
@tls_options
@topic_option
@output_options
def _topics(output: Output, namesrv: str, dial: Dial, topic: str | None) -> int:
    """List the topics of a cluster with their brokers, queues and permissions.

    Only name servers are asked, not brokers.
    """
    from rmqctl.network.clients.client import Client
    from rmqctl.network.clients.survey import topics_at

    with contextlib.closing(Client(namesrv, dial)) as client:
        rows = (row._asdict() for row in topics_at(client, topic))
        if not output.rows(_TOPICS_COLUMNS, rows, droppable=_TOPICS_DROPPABLE):
            raise NotFoundError("no topic matched" if topic else "the name server knows no topic")
    return exit_codes.OK


topics = ListingGroup(_topics, verbs=_ACTIONS)
