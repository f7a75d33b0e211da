"""Fixtures shared by all tests: private copies of golden stores. The flag --quick is explained in tests/quick.py."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import _pytest.tmpdir
import pytest
from hypothesis import HealthCheck, settings

from rmqctl.store.files.background import sleep
from tests import goldens, processes, quick
from tests.anyday import at_a_date
from tests.goldens import GoldenStore
from tests.processes import SHORT_LIVED_JVM

# a busy machine is no failure
settings.register_profile("rmqctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rmqctl")

LONG = tuple(
    f"tests/{name}.py"
    for name in (
        "pipeline/test_cluster test_package test_deploy proof/test_guided proof/test_load proof/test_model "
        "hostile/test_hostile anyday/test_any_day network/grpc/test_killed network/test_killed network/test_frozen "
        "interop/test_dledger interop/test_admin_commands interop/test_mirrored interop/test_popped "
        "interop/test_frames interop/test_predicted interop/test_pull_from_slave interop/test_answers_agree "
        "interop/test_timed interop/test_served_writable"
    ).split()
)
"""Files that take a minute and more, the longest first: at the end one worker would wait for another."""

MEMORY = Path("/dev/shm")
ROOM_IN_MEMORY = 8 << 30

LEFT_OUT = pytest.StashKey[Counter[str]]()
"""How many tests were left out, by mark; "" for those that were deselected otherwise."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what takes long, and say what that is")
    parser.addoption("--draw", metavar="SEED", help="of many parameters that take long take a twelfth, drawn by SEED")


def pytest_configure(config: pytest.Config) -> None:
    # a shell that starts us in the background ignores Ctrl-C for us; the tests of Ctrl-C need it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("basetemp") and config.getoption("markexpr") != "interop":
        _write_to_memory()
    if "FAKETIME" in os.environ:
        # Python's own fails under libfaketime
        time.sleep = sleep  # type: ignore[assignment]
    # folders of a run at another hour of this machine are not 3 days old: they were made by the real clock
    vars(_pytest.tmpdir)["LOCK_TIMEOUT"] += max(0, at_a_date.shifted_by())
    config.addinivalue_line("markers", "real_clock(reason): processes that these tests start have the real clock")
    config.addinivalue_line("markers", "turns(group, n): of the tests of a group CI draws one in n")
    config.addinivalue_line("markers", "late: these tests look at stores long after they were written (see soon_after)")
    os.environ["RMQCTL_CONFIG"] = ""  # what whoever runs them has set counts for no test
    os.environ["RMQCTL_LANG"] = "en"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(SHORT_LIVED_JVM))
    quick.is_quick, quick.seed = config.getoption("quick"), config.getoption("draw")
    if quick.is_quick or quick.seed is not None:
        settings.register_profile("quick", settings.get_profile("rmqctl"), max_examples=quick.examples(100))
        settings.load_profile("quick")
    config.stash[LEFT_OUT] = Counter()
    for mark, why in quick.LEFT_OUT.items():
        config.addinivalue_line("markers", f"{mark}: {why}")


def _write_to_memory() -> None:
    """Let tests make their stores in memory, if there is room and nobody chose another place: they would wait a third
    of their time for fsync. Those with the real RocketMQ stay on the disk, as do `make proof` and `make bench`."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    sizes = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(sizes["MemAvailable"].split()[0]) << 10
    found = os.statvfs(MEMORY)
    if min(found.f_bavail * found.f_frsize, available) >= ROOM_IN_MEMORY:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("jvm")
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))
    if config.getoption("quick"):
        _keep(config, items, [item for item in items if not _mark(item)])
    elif (seed := config.getoption("draw")) is not None:
        sampled = {quick.test_of(item.nodeid) for item in items if _mark(item) not in quick.DRAWN}
        taken = quick.drawn((item.nodeid for item in items if _mark(item) in quick.DRAWN), seed, sampled)
        turns = _taking_turns(items)
        groups: dict[str, tuple[int, set[str]]] = {}
        for member, group, every in turns.values():
            groups.setdefault(group, (every, set()))[1].add(member)
        members = quick.whose_turn(groups, seed)
        waiting = {item for item, (member, _, _) in turns.items() if member not in members}
        wanted = [item for item in items if _mark(item) not in quick.DRAWN or item.nodeid in taken]
        _keep(config, items, [item for item in wanted if item not in waiting])


def _taking_turns(items: list[pytest.Item]) -> dict[pytest.Item, tuple[str, str, int]]:
    """Items with the mark `turns` -> the test or the file that has it, its group, and how many take turns."""
    return {
        item: (quick.test_of(node.nodeid), *mark.args)
        for item in items
        if _mark(item) in quick.DRAWN
        for node, mark in item.iter_markers_with_node("turns")
    }


def _keep(config: pytest.Config, items: list[pytest.Item], wanted: list[pytest.Item]) -> None:
    """Leave all items out but `wanted`."""
    kept = set(wanted)
    left = [item for item in items if item not in kept]
    items[:] = wanted
    config.hook.pytest_deselected(items=left)


def pytest_collection_finish() -> None:
    """What thousands of tests are told by stays to the end: no garbage collection has to look through it again."""
    gc.collect()
    gc.freeze()


def _mark(item: pytest.Item) -> str:
    """The mark for which the quick run leaves this test out; "" if it takes it."""
    return next((mark for mark in reversed(quick.LEFT_OUT) if item.get_closest_marker(mark)), "")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Counted, however they were chosen: by --quick or by -m and -k."""
    for item in items:
        item.config.stash[LEFT_OUT][_mark(item)] += 1


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A worker of pytest-xdist hands its count on to the process that prints; every worker collects all tests."""
    left_out = session.config.stash[LEFT_OUT]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(left_out)
    # xdist kills a worker that needs ten seconds to end: what `make coverage` has recorded there would be lost
    if (coverage := sys.modules.get("coverage")) is not None and (recorder := coverage.Coverage.current()) is not None:
        recorder.save()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failure at once: a run that is stopped from outside never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED at {report.when}: {report.nodeid} after {report.duration:.0f} s", file=sys.stderr, flush=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker has handed on."""
    left_out: dict[str, int] = getattr(node, "workeroutput", {}).get("left_out", {})
    node.config.stash[LEFT_OUT] = Counter(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Nothing is left out in silence."""
    left_out = config.stash[LEFT_OUT]
    if left_out:
        terminalreporter.section(f"{left_out.total()} tests were left out")
    if quick.is_quick:
        terminalreporter.line("of random examples a quarter was tried")
    if (seed := config.getoption("draw")) is not None:
        terminalreporter.line("of many parameters and cases of proofs a twelfth was drawn, of random examples half")
        terminalreporter.line("of tests that take turns those ran whose turn it is")
        terminalreporter.line(f"RMQCTL_DRAW={seed} make test-ci draws the same")
    for mark, number in sorted(left_out.items()):
        terminalreporter.line(f"{number:6} {mark}: {quick.LEFT_OUT[mark]}" if mark else f"{number:6} by -k or -m")


@pytest.fixture(scope="session", autouse=True)
def golden_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Base stores are unpacked once per session, below pytest's own temporary folder."""
    goldens.use_cache(tmp_path_factory.mktemp("goldens"))


@pytest.fixture(scope="module", autouse=True)
def clock_of_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """The clock of a run, or the real one for the processes of a file with the mark `real_clock`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("real_clock"):
            for name in at_a_date.OF_A_SET_CLOCK:
                patch.delenv(name, raising=False)
        yield
    processes.end_all()


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """End the processes that a test has started; those of its file's fixtures end with the file."""
    shared = processes.started()
    yield
    processes.end_all(shared)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than `tmp_path`."""
    for place in (MEMORY, Path("/var/tmp"), Path(__file__).parent):
        if os.access(place, os.W_OK) and place.stat().st_dev != tmp_path.stat().st_dev:
            with tempfile.TemporaryDirectory(prefix="rmqctl-test-", dir=place) as folder:
                yield Path(folder)
            return
    pytest.skip("there is no second file system to write to")


@pytest.fixture
def golden_store(tmp_path: Path) -> GoldenStore:
    """Factory of private copies, each in a folder of its own, so that a broker.conf has room beside the store."""
    counter = itertools.count(1)
    return lambda name: goldens.golden(name, tmp_path / f"golden-{next(counter)}")


@pytest.fixture(autouse=True)
def soon_after(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Golden stores are looked at soon after they were written: no message of the timer is due for more than 7 days.
    Not so where real brokers look, too, and in tests that are marked `late`."""
    if not any(request.node.get_closest_marker(name) for name in ("late", "interop")):
        monkeypatch.setattr("rmqctl.store.timer.pending.wheel_ms", lambda _: 1 << 60)
