"""Errors of the disk: the Nth call of a kind fails, once or from then on, in every verb that writes; and full disks.

What must hold: the error is one of ours, of the right kind, and names the way out; what was acknowledged is there;
what the error leaves is ended, and the same command again ends well.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from typing import NamedTuple

from rmqctl.output import outcome as exit_codes
from rmqctl.store.files import io
from rmqctl.store.journal.log import unfinished_change
from tests import processes
from tests.proof.going_on import Way, content, go_on, required
from tests.proof.proving import Case
from tests.proof.stores import CONFIG, Bases, bases
from tests.proof.works import KEEP_NOTHING, WORKS, Told, attempt
from tests.store.journal.failing import SHORT, SINGLE_KINDS, failing

_READING = ("look", "open", "read")
_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EINTR)
STORE = "store"
"""A kind besides those of the system's calls: what is written into a file, through a map too."""
KINDS = (*SINGLE_KINDS, STORE)
_ALL = 10_000
_FULL_IN = 12
"""In a sample, so many cases for one with a full file system; and the same for a limit of the size of files."""


class Fault(NamedTuple):
    """The call of `kind` with the number `at`, from 1, ends with `error`; with `lasting` those after it too."""

    kind: str
    error: int
    lasting: bool
    at: int


def cases(seed: int, count: int) -> Iterator[Case]:
    """A sample; from 10,000 on every call of every kind in every work, with an error drawn from the seed."""
    with bases() as stores:
        yield from _every(stores, seed) if count >= _ALL else _sample(stores, seed, count)


def _sample(stores: Bases, seed: int, count: int) -> Iterator[Case]:
    calls: dict[str, dict[str, int]] = {}
    mounts = _mounts()
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        name = chance.choice(list(WORKS))
        way: Way = chance.choice(("undo", "resume"))
        if number % _FULL_IN == 1 and mounts:
            yield _full_case(stores, number, name, way, chance)
        elif number % _FULL_IN in (1, 2):
            yield _limit_case(stores, number, name, way, chance)
        else:
            if name not in calls:
                calls[name] = _counted(stores, name)
            kind = chance.choice([kind for kind in KINDS if calls[name][kind]])
            share = chance.random()
            error, lasting = _drawn(chance, kind)
            # the share, because what threads do is not counted the same every time
            label = f"{number} {name} {kind} {_named(error, lasting)} at {share:.3f}, {way}"
            fault = Fault(kind, error, lasting, 1 + int(share * calls[name][kind]))
            yield label, partial(faulty, stores, name, fault, way)


def _every(stores: Bases, seed: int) -> Iterator[Case]:
    for name in WORKS:
        for kind, calls in _counted(stores, name).items():
            for at in range(1, calls + 1):
                chance = random.Random(f"{seed} {name} {kind} {at}")
                error, lasting = _drawn(chance, kind)
                way: Way = chance.choice(("undo", "resume"))
                label = f"{name} {kind} {_named(error, lasting)} at call {at}, {way}"
                yield label, partial(faulty, stores, name, Fault(kind, error, lasting, at), way)
    for number in range(len(WORKS) * 10):
        name = list(WORKS)[number % len(WORKS)]
        chance = random.Random(f"{seed} {number}")
        if _mounts():
            yield _full_case(stores, number, name, chance.choice(("undo", "resume")), chance)
        yield _limit_case(stores, number, name, chance.choice(("undo", "resume")), chance)


def _drawn(chance: random.Random, kind: str) -> tuple[int, bool]:
    errors = (*_ERRORS, SHORT) if kind == "write" else (errno.EIO, errno.EINTR) if kind in ("look", "read") else _ERRORS
    return chance.choice(errors), chance.random() < 0.5


def _named(error: int, lasting: bool) -> str:
    return f"{'short' if error == SHORT else errno.errorcode[error]} {'for good' if lasting else 'once'}"


def _counted(stores: Bases, name: str) -> dict[str, int]:
    """How many calls of each kind a work makes."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-counted-") as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
        stores.copy(WORKS[name].base, place)
        disks = {kind: stack.enter_context(failing(place / "s", kind, single=True)) for kind in SINGLE_KINDS}
        stored = stack.enter_context(_failing_stores(place / "s", 0, errno.EIO, lasting=False))
        told = attempt(WORKS[name], place, lambda body: None)
    assert told.code == exit_codes.OK, told
    return {**{kind: disk.count for kind, disk in disks.items()}, STORE: stored[0]}


@contextlib.contextmanager
def _failing_stores(top: Path, at: int, error: int, *, lasting: bool) -> Iterator[list[int]]:
    """What is written into files, through a map too, fails; the list has how many times that was tried."""
    count = [0]

    def fail(operation: str, path: str, *_: int) -> None:
        if operation == "write" and path.startswith(str(top)):
            count[0] += 1
            if count[0] == at or (lasting and 0 < at <= count[0]):
                raise OSError(error, "a write into the file fails")

    io.observer = fail
    try:
        yield count
    finally:
        io.observer = None


def faulty(stores: Bases, name: str, fault: Fault, way: Way, place: Path) -> bool:
    """Try one fault, then go on as its user would: whether it came so far."""
    work = WORKS[name]
    base = stores.copy(work.base, place)
    noted: list[bytes] = []
    if fault.kind == STORE:
        with _failing_stores(place / "s", fault.at, fault.error, lasting=fault.lasting) as count:
            told = attempt(work, place, noted.append)
        is_reached = fault.at <= count[0]
    else:
        with failing(place / "s", fault.kind, fault.at, error=fault.error, lasting=fault.lasting, single=True) as disk:
            told = attempt(work, place, noted.append)
        is_reached = disk.is_reached
    _require(stores, name, place, base, told, way, noted)
    return is_reached


def _require(stores: Bases, name: str, place: Path, base: Path, told: Told, way: Way, noted: list[bytes]) -> None:
    work, layout = WORKS[name], CONFIG.layout(place / "s")
    is_interrupted = work.base.endswith("interrupted")
    assert told.code in (exit_codes.OK, exit_codes.UNREADABLE, exit_codes.WRITE_FAILED), told
    assert "Traceback" not in told.text, told
    if told.code == exit_codes.WRITE_FAILED and unfinished_change(layout) is not None:
        # what was to end an interrupted change, and has not begun to, is itself the way out
        again = ("run the command again",) if is_interrupted else ()
        ways = ("rmqctl recover" if name in KEEP_NOTHING else "rmqctl undo", *again)
        assert any(way in told.text for way in ways), told
    if told.code == exit_codes.UNREADABLE:
        assert unfinished_change(layout) is None or is_interrupted, told
        if not is_interrupted and not noted:
            assert set(content(base / "s")) <= set(content(place / "s")), told
    expected = {*required(name, place, noted), *(stores.held(work.base) if work.keeps else [])}
    try:
        go_on(name, place, base, told, way, expected)
    except Exception as error:
        error.add_note(f"after {told}")
        raise


# ---- disks that are really full


def _full_case(stores: Bases, number: int, name: str, way: Way, chance: random.Random) -> Case:
    room = chance.choice((0, 4, 8, 12, 16, 24, 32, 40, 64, 96, 160))

    def work(place: Path) -> None:
        disk = place / "disk"
        disk.mkdir()
        # as much as it takes, and `room` more
        base = stores.copy(WORKS[name].base, place / "sized")
        used = 4 * sum(-(-path.lstat().st_size // 4096) or 1 for path in (base, *base.rglob("*")))
        with _file_system(disk, 1 << 26) as resized:
            stores.copy(WORKS[name].base, disk)
            resized((used + room) << 10)
            noted: list[bytes] = []
            told = attempt(WORKS[name], disk, noted.append)
            resized(1 << 26)
            _require(stores, name, disk, base, told, way, noted)

    return f"{number} {name} on a file system with room for {room} KiB, {way}", work


@contextlib.contextmanager
def _file_system(folder: Path, size: int) -> Iterator[Callable[[int], None]]:
    """A file system of so many bytes there, and what gives it another size."""

    def mount(option: str) -> None:
        processes.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", folder], check=True)

    mount(f"size={size}")
    try:
        yield lambda other: mount(f"remount,size={other}")
    finally:
        processes.run(["umount", "--lazy", folder], check=True)


def may_mount(folder: Path) -> bool:
    """Whether this user can mount a file system there."""
    try:
        with _file_system(folder, 1 << 20):
            return True
    except CalledProcessError:
        return False


@functools.cache
def _mounts() -> bool:
    with tempfile.TemporaryDirectory(prefix="rmqctl-mount-") as folder:
        return may_mount(Path(folder))


def _limit_case(stores: Bases, number: int, name: str, way: Way, chance: random.Random) -> Case:
    limit = chance.choice((0, 1, 100, 400, 1500, 2000, 4096, 10000, 16000))

    def work(place: Path) -> None:
        base = stores.copy(WORKS[name].base, place)
        noted: list[bytes] = []
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            told = attempt(WORKS[name], place, noted.append)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        _require(stores, name, place, base, told, way, noted)

    return f"{number} {name} where no file may have more than {limit} bytes, {way}", work
