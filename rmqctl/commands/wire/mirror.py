"""`rmqctl mirror`: the commitlog of a live master, copied as its slave does, and made a store of its own."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, config_option, summary_options
from rmqctl.flags.types import ADDRESS, SECONDS
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import ending_signals
from rmqctl.output.output import note_done

if TYPE_CHECKING:
    from rmqctl.network.ha.mirror import MirrorReport
    from rmqctl.output.output import Output
    from rmqctl.store.log.walk import Progress

_DEFAULT_FILE_SIZE = 1 << 30


@click.command(
    epilog="""\b
Examples:
  rmqctl mirror 10.0.0.5:10912 /backup/broker-a --broker 10.0.0.5:10911 --exit-at-end
  rmqctl mirror 10.0.0.5:10912 /backup/broker-a --broker 10.0.0.5:10911
  rmqctl mirror 10.0.0.5:10912 /backup/broker-a --broker 10.0.0.5:10911 --acknowledge
  rmqctl mirror 10.0.0.5:10912 /tmp/tail --from last-file --exit-at-end --json

Run it again to continue an earlier mirror, or a copy of the master's store, if the master has the same messages at
its end. With --acknowledge the mirror reports what is on disk, and a SYNC_MASTER counts it as a slave. Without it a
SYNC_MASTER of 4.x without another slave delays all producers, so that with --broker such a master is refused.

Exit code 0: it ended as requested, also by Ctrl-C. 1: the master's log has damage, which is copied. 3: no master
answers, or not any more; the copied part is a complete store. 5: its log and the mirror do not match."""
)
@click.argument("master", metavar="HOST:PORT", type=ADDRESS)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--broker", type=ADDRESS, metavar="HOST:PORT",
              help="The master's remoting port: supplies log bounds, file sizes, topics, groups and offsets "
                  "every 10 s.")  # fmt: skip
@click.option("--from", "begin", type=click.Choice(("first", "last-file")), default="first", show_default=True,
              help="Where a new mirror begins: with all that the master has, or as a new slave.")  # fmt: skip
@click.option("--exit-at-end", is_flag=True,
              help="End with what the master has now; without --broker when nothing came for 5 s.")  # fmt: skip
@click.option("--acknowledge", is_flag=True, help="Report what is on disk to the master, as a slave does.")
@click.option("--force", is_flag=True, help="Follow a SYNC_MASTER without --acknowledge.")
@click.option("--give-up", type=SECONDS, default=300.0, metavar="SECONDS", show_default=True,
              help="End when the master is gone for this time.")  # fmt: skip
@config_option.but(help="The master's broker.conf: sizes of its files, delay levels. --broker supplies them too.")
@summary_options
def mirror(
    output: Output,
    master: tuple[str, int],
    directory: Path,
    broker: tuple[str, int] | None,
    begin: str,
    exit_at_end: bool,
    acknowledge: bool,
    force: bool,
    give_up: float,
    config_path: Path | None,
) -> int:
    """Copy the commitlog of a live master into DIR, byte for byte, as a slave does, until Ctrl-C.

    HOST:PORT is the master's HA port (haListenPort, 10912 by default). At its end it builds queues and index from
    the log, so that a broker can start on DIR.
    """
    from rmqctl.network.ha.mirror import MirrorWish, Timings, follow_master
    from rmqctl.network.serving import host_and_port
    from rmqctl.opening import broker_config
    from rmqctl.reports.changes import tell_left_behind

    wish = MirrorWish(
        None if broker is None else host_and_port(broker),
        begin == "last-file",
        exit_at_end,
        acknowledge,
        force,
        Timings(give_up=give_up),
    )
    config = broker_config(StoreLocation(directory, config_path))
    with _ended_by_signals() as is_over:
        report = follow_master(master, directory, config, wish, output.talk, is_over, _bar)
    note_done(f"the log was copied to {directory}", path=str(directory))
    tell_left_behind(output, directory.absolute().parent)
    return _print(report, output)


@contextlib.contextmanager
def _bar(label: str, total: int | None) -> Iterator[Progress]:
    from rmqctl.output.terminal import progress

    with progress(label, total, "bytes") as bar:
        yield bar.advance


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C, SIGTERM or SIGHUP has come; the second one ends the command as ever."""
    over = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def end(number: int, frame: object) -> None:
        over.set()
        for one, handler in before.items():
            signal.signal(one, handler)

    for number in ending_signals():
        before[number] = signal.signal(number, end)
    try:
        yield over.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(report: MirrorReport, output: Output) -> int:
    record = asdict(report)
    record |= record.pop("store")
    if not output.is_json:
        record["config_files"] = ", ".join(report.store.config_files) or None
    output.record(record)
    if report.commitlog_file_size != _DEFAULT_FILE_SIZE and not output.is_json:
        output.talk(f"a broker needs mappedFileSizeCommitLog={report.commitlog_file_size} to open it")
    if report.lost is not None:
        output.talk(f"it ended before it was to: {report.lost}")
        return exit_codes.UNREADABLE
    return exit_codes.DAMAGE_OR_NOTHING if report.store.damaged_spans else exit_codes.OK
