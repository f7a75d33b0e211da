"""A mirror from beginning to end: what its master is, the log followed, and a store that a broker starts with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RefusedError
from rmqctl.network.ha.link import DialMaster, SlaveLink, SocketLink
from rmqctl.network.ha.master_facts import MasterBrokerClient, MasterFacts
from rmqctl.network.ha.mirror import Following, Mirror, Timings, ahead_error
from rmqctl.network.ha.mirror_config import ConfigFollower
from rmqctl.network.ha.mirror_store import CompletedMirror, MirrorStore, complete
from rmqctl.network.ha.slave_session import LAST_FILE, WHOLE_LOG
from rmqctl.network.remoting.server import Address
from rmqctl.network.remoting.services import Tell
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.config.config import StoreConfig

BarMaker = Callable[[str, int | None], contextlib.AbstractContextManager[Progress]]
"""bar(label, total): something that is told how many bytes more are done."""


class MirrorWish(NamedTuple):
    """What is asked for. `broker`: `host:port` of the master's remoting port, None if it is not known. `last_file`:
    begin a new mirror where the master's last file begins, as a new slave does. `force`: follow a SYNC_MASTER although
    its producers wait for what is never acknowledged."""

    broker: str | None = None
    last_file: bool = False
    exit_at_end: bool = False
    acknowledge: bool = False
    force: bool = False
    timings: Timings = Timings()


@dataclass(slots=True)
class MirrorReport:
    """What came of it. Offsets are physical: the mirror holds [begin_offset, end_offset). `bytes`: those that are new.
    `lost`: why the master was given up, None if it was not."""

    master: str
    mirror: str
    begin_offset: int
    end_offset: int
    bytes: int
    connections: int
    acknowledged: bool
    lost: str | None
    commitlog_file_size: int
    store: CompletedMirror = field(default_factory=CompletedMirror)


def follow_master(
    master: Address,
    root: Path,
    config: StoreConfig,
    wish: MirrorWish,
    tell: Tell,
    is_over: Callable[[], bool],
    bar: BarMaker,
) -> MirrorReport:
    """Follow the master whose HA port is at `master` into the directory `root` until `is_over`, or as `wish` says.

    Nothing is made where it cannot be reached. RemoteError; RefusedError where a decision is needed, or its log and the
    mirror do not go together; StoreInUseError; WriteFailedError, after which the mirror can go on.
    """
    with contextlib.ExitStack() as closing:
        broker = None
        facts = None
        if wish.broker is not None:
            broker = MasterBrokerClient(wish.broker)
            closing.callback(broker.close)
            facts = broker.facts()
            config = facts.onto(config)
            _require_right_to_follow(facts, wish)
        first: SlaveLink | None = SocketLink(*master)

        def dial() -> SlaveLink:
            nonlocal first
            link, first = first, None
            return SocketLink(*master) if link is None else link

        closing.callback(lambda: None if first is None else first.close())
        return _follow(master, root, config, wish, facts, broker, dial, tell, is_over, bar)


def _require_right_to_follow(facts: MasterFacts, wish: MirrorWish) -> None:
    if facts.is_sync and not wish.acknowledge and not wish.force:
        raise RefusedError(
            "the master is a SYNC_MASTER: its producers wait for slaves, and this one acknowledges nothing; in 4.x all "
            "of them would wait, if there is no other slave",
            hint="--acknowledge tells it what is on disk here; --force follows it nevertheless",
        )


def _following(facts: MasterFacts | None, wish: MirrorWish) -> Following:
    following = Following(acknowledges=wish.acknowledge, timings=wish.timings)
    if facts is not None:
        stop_at = facts.max_offset if wish.exit_at_end else None
        following = following._replace(
            start=facts.min_offset or WHOLE_LOG, master_begin=facts.min_offset, stop_at=stop_at
        )
    elif wish.exit_at_end:
        following = following._replace(stop_when_quiet=True)
    return following._replace(start=LAST_FILE) if wish.last_file else following


def _follow(
    master: Address,
    root: Path,
    config: StoreConfig,
    wish: MirrorWish,
    facts: MasterFacts | None,
    broker: MasterBrokerClient | None,
    dial: DialMaster,
    tell: Tell,
    is_over: Callable[[], bool],
    bar: BarMaker,
) -> MirrorReport:
    following = _following(facts, wish)
    with MirrorStore(root, config) as store, contextlib.ExitStack() as closing:
        log = store.log
        if facts is not None and log.end > facts.max_offset:
            raise ahead_error(facts.max_offset, log.end)
        total = None if following.stop_at is None else max(0, following.stop_at - log.end)
        with bar("following", total) as advance:
            mirror = Mirror(log, dial, following, tell, advance)
            tables = None
            if broker is not None:
                tables = ConfigFollower(broker, store.layout.config, tell, lambda: mirror.is_confirmed)
                tables.start()
                closing.callback(tables.stop)
            refused = _run(mirror, is_over)
        if tables is not None:
            tables.finish()
        is_as_it_was = store.is_as_it_was and tables is None
        place = f"[{master[0]}]:{master[1]}" if ":" in master[0] else f"{master[0]}:{master[1]}"
        report = MirrorReport(
            place, str(root), log.begin or 0, log.end, mirror.received, mirror.connections,
            wish.acknowledge, None, log.file_size,
        )  # fmt: skip
    if not is_as_it_was:
        with bar("making queues and index", report.end_offset - report.begin_offset) as advance:
            report.store = complete(root, config, tell, advance)
    if refused is not None:
        raise refused
    if mirror.lost is not None:
        report.lost = str(mirror.lost)
    return report


def _run(mirror: Mirror, is_over: Callable[[], bool]) -> RefusedError | None:
    """Follow. A refusal once something has come, because the master came back as another one, is kept for the end: what
    is here is to be made whole first."""
    try:
        mirror.run(is_over)
    except RefusedError as error:
        if not mirror.received:
            raise
        return error
    return None
