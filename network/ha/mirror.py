"""Follows a master: connects, takes its log, and reconnects after every break, until it is stopped."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqctl.formats.errors import CorruptError, RefusedError, RemoteError
from rmqctl.network.ha.master import LAST_FILE, WHOLE_LOG, SlaveSession
from rmqctl.network.ha.mirror_config import ConfigFollower, MasterBrokerClient, MasterFacts
from rmqctl.network.ha.mirror_store import CompletedMirror, MirrorLog, MirrorStore, complete
from rmqctl.network.remoting.requests import Tell
from rmqctl.network.remoting.server import Address
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.background import sleep
from rmqctl.store.log.walk import Progress

# A slave's way to its master's HA port: TCP.

_CONNECT_SECONDS = 5.0
# a master takes 8 bytes at once, or it is gone
_SEND_SECONDS = 10.0
_CHUNK = 1 << 20


class SlaveLink(Protocol):
    """A connection to a master, or its substitute."""

    def send(self, data: bytes) -> None:
        """Send all of it. RemoteError if the master is gone."""

    def receive(self, seconds: float) -> bytes:
        """What came meanwhile, waited for so long; empty if nothing did. RemoteError if the master is gone."""

    def close(self) -> None:
        """End it."""


DialMaster = Callable[[], SlaveLink]
"""A new link to the master. RemoteError."""


class SocketLink:
    """One TCP connection."""

    def __init__(self, host: str, port: int) -> None:
        """RemoteError if no server listens."""
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), _CONNECT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise RemoteError(
                f"{self._name} cannot be reached: {error.strerror or error}",
                hint="it is the master's HA port that is wanted (haListenPort, 10912 by default)",
            ) from error

    def send(self, data: bytes) -> None:
        """See SlaveLink."""
        try:
            self._socket.settimeout(_SEND_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            raise RemoteError(f"{self._name}: the connection is lost: {error.strerror or error}") from error

    def receive(self, seconds: float) -> bytes:
        """See SlaveLink."""
        try:
            self._socket.settimeout(max(seconds, 0.001))
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            return b""
        except OSError as error:
            raise RemoteError(f"{self._name}: the connection is lost: {error.strerror or error}") from error
        if not data:
            raise RemoteError(f"{self._name}: the master has closed the connection")
        return data

    def close(self) -> None:
        """See SlaveLink."""
        with contextlib.suppress(OSError):
            self._socket.close()


_UNFLUSHED = 64 * 1024 * 1024


class Timings(NamedTuple):
    """Seconds. `keep_alive`: between two reports (haSendHeartbeatInterval); `silence`: of a master that counts as gone
    (haHousekeepingInterval); `retry`: before it is tried again; `give_up`: without a master, then the mirror ends;
    `flush`: between two flushes (flushIntervalCommitLog); `look`: between two checks for a stop."""

    keep_alive: float = 5.0
    silence: float = 20.0
    retry: float = 1.0
    give_up: float = 300.0
    flush: float = 0.5
    look: float = 0.2


class Following(NamedTuple):
    """What a mirror is asked for. `start`: the first report of a new log, None for WHOLE_LOG if it is unknown whether
    the master still has that. `master_begin`: where its log begins, 0 if unknown. `stop_at`: end with all before this
    offset; `stop_when_quiet`: end when the master has nothing more. `acknowledges`: tell the master what is on disk
    here."""

    start: int | None = None
    master_begin: int = 0
    stop_at: int | None = None
    stop_when_quiet: bool = False
    acknowledges: bool = False
    timings: Timings = Timings()


class Mirror:
    """One mirror on its way. `received`: new bytes; `connections`: how many it has had. `is_confirmed`: whether the
    master has sent all of the end again that was here before. `lost`: why it ended without a stop, None if it did
    not."""

    def __init__(
        self,
        log: MirrorLog,
        dial: DialMaster,
        following: Following,
        tell: Tell = lambda line: None,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`on_bytes` hears how many bytes were new, whenever some were."""
        self._log = log
        self._dial = dial
        self._following = following
        self._tell = tell
        self._on_bytes = on_bytes
        self._heard = 0.0
        self._is_told = False
        self.received = 0
        self.connections = 0
        self.is_confirmed = log.begin is None
        self.lost: RemoteError | None = None

    def run(self, is_over: Callable[[], bool]) -> None:
        """Follow until `is_over`, or what was asked for is here, or there is no master any more: see `lost`.

        RemoteError where it cannot be reached to begin with; RefusedError where its log and the mirror do not go
        together; WriteFailedError. What is here then is on disk.
        """
        timings = self._following.timings
        self._heard = time.monotonic()
        try:
            while not is_over():
                try:
                    self._connect_and_follow(is_over)
                    return
                except CorruptError as error:
                    self.lost = RemoteError(f"this is no master, or a broken one: {error.message}")
                    return
                except RemoteError as error:
                    if not self.connections:
                        raise
                    if time.monotonic() - self._heard >= timings.give_up:
                        self.lost = error
                        return
                    if not self._is_told:
                        self._tell(f"{error}; trying again for {timings.give_up:g} s")
                    self._is_told = True
                self._wait(timings.retry, is_over)
        finally:
            self._log.close()

    def _wait(self, seconds: float, is_over: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while not is_over() and (left := end - time.monotonic()) > 0:
            sleep(min(left, self._following.timings.look))

    def _connect_and_follow(self, is_over: Callable[[], bool]) -> None:
        """One connection, to its good end. RemoteError where it breaks."""
        link = self._dial()
        try:
            session = SlaveSession(self._first_report())
            self.connections += 1
            link.send(session.report())
            self._follow(link, session, is_over)
        finally:
            link.close()
            self._log.flush()

    def _follow(self, link: SlaveLink, session: SlaveSession, is_over: Callable[[], bool]) -> None:
        log, timings, acknowledges = self._log, self._following.timings, self._following.acknowledges
        reported_at = flushed_at = heard = time.monotonic()
        reported = log.flushed
        while not is_over() and not self._is_reached(session):
            data = link.receive(timings.look)
            now = time.monotonic()
            if data:
                heard = self._heard = now
                self._is_told = False
                for transfer in session.received(data):
                    self._take(transfer.physical_offset, transfer.body)
            elif now - heard >= timings.silence:
                raise RemoteError(f"the master was silent for {timings.silence:g} s")
            if acknowledges or log.end - log.flushed >= _UNFLUSHED or now - flushed_at >= timings.flush:
                log.flush()
                flushed_at = now
            if now - reported_at >= timings.keep_alive or (acknowledges and log.flushed != reported):
                reported, reported_at = log.flushed, now
                link.send(session.report(log.flushed if acknowledges else None))

    def _first_report(self) -> int:
        """From where the log is wanted: so much before the mirror's end that this is held against the master's."""
        if self._log.begin is None:
            start = self._following.start
            return WHOLE_LOG if start is None else start
        # 0 would be the beginning of the last file
        return self._log.compare_from(self._following.master_begin if not self.connections else 0) or WHOLE_LOG

    def _take(self, offset: int, body: bytes) -> None:
        if offset == WHOLE_LOG:
            offset, body = 0, b"\0" + body
        if self._log.begin is None:
            self._log.start_at(offset)
        new = self._log.take(offset, body)
        self.is_confirmed = self.is_confirmed or offset + len(body) >= self._log.end
        if new:
            self.received += new
            self._on_bytes(new)

    # ---- the end

    def _is_reached(self, session: SlaveSession) -> bool:
        """Whether all that was asked for is here. RefusedError where the master's log ends before the mirror's does."""
        log, following, reached = self._log, self._following, session.next_offset
        if reached is None:
            return False
        if following.stop_at is not None and reached >= max(following.stop_at, log.end):
            return True
        if not session.is_quiet:
            return False
        if log.begin is not None:
            self._require_not_ahead(reached)
            log.settle()
        if following.stop_at is not None:
            self.lost = RemoteError(
                f"the master sends nothing from {reached} on, although its log goes to {following.stop_at}",
                hint="a file may be missing there: `rmqctl check` at the master says more",
            )
            return True
        if log.begin is None and following.start is None:
            raise RefusedError(
                "the master sends nothing from 0 on: its log is empty, or begins behind that",
                hint="name its remoting port with --broker, which tells where the log begins; or begin at its last "
                "file with --from last-file",
            )
        return following.stop_when_quiet

    def _require_not_ahead(self, reached: int) -> None:
        """RefusedError where the master's log ends at `reached`, and the mirror's behind it."""
        if reached < self._log.end or self._log.is_ahead:
            raise ahead_error(reached, self._log.end)


def ahead_error(master_end: int, end: int) -> RefusedError:
    """What to say where a master's log ends before the mirror does."""
    return RefusedError(
        f"the master has nothing behind {master_end}, and the mirror has",
        physical_offset=end,
        hint="it is another broker, it has lost its end, or it removed files that are not here yet: keep this "
        "directory, which may have the only copy of some messages, and start a new mirror in another one",
    )


# A mirror from beginning to end: what its master is, the log followed, and a store that a broker starts with.

BarMaker = Callable[[str, int | None], contextlib.AbstractContextManager[Progress]]
"""bar(label, total): a callback that gets the number of bytes done since the last call."""


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
        broker = facts = None
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
        at = f"[{master[0]}]:{master[1]}" if ":" in master[0] else f"{master[0]}:{master[1]}"
        return _follow(_Master(at, dial, broker, facts), root, config, wish, tell, is_over, bar)


class _Master(NamedTuple):
    """The master: its HA port, how to reach it, and where it is known, its broker and what that said."""

    at: str
    dial: DialMaster
    broker: MasterBrokerClient | None
    facts: MasterFacts | None


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
    master: _Master,
    root: Path,
    config: StoreConfig,
    wish: MirrorWish,
    tell: Tell,
    is_over: Callable[[], bool],
    bar: BarMaker,
) -> MirrorReport:
    following, facts, broker = _following(master.facts, wish), master.facts, master.broker
    with MirrorStore(root, config) as store, contextlib.ExitStack() as closing:
        log = store.log
        if facts is not None and log.end > facts.max_offset:
            raise ahead_error(facts.max_offset, log.end)
        total = None if following.stop_at is None else max(0, following.stop_at - log.end)
        with bar("following", total) as advance:
            mirror = Mirror(log, master.dial, following, tell, advance)
            tables = None
            if broker is not None:
                tables = ConfigFollower(broker, store.layout.config, tell, lambda: mirror.is_confirmed)
                tables.start()
                closing.callback(tables.stop)
            refused = _run(mirror, is_over)
        if tables is not None:
            tables.finish()
        is_as_it_was = store.is_as_it_was and tables is None
        report = MirrorReport(
            master.at, str(root), log.begin or 0, log.end, mirror.received, mirror.connections,
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
