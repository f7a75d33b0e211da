"""Which tests run which lines of the product: recorded once, so that a change of a line is held against these alone.

`python -m tests.proof.executed` records what the quick run does in the tests named in `FOLDERS` (needs the package
coverage), into a file of the user's cache folder. Sources that have changed since are told by their digest.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.processes import ROOT

FOLDERS = (
    "tests/formats",
    "tests/store",
    "tests/test_truth.py",
    "tests/rmqctl/change",
    "tests/rmqctl/look",
    "tests/rmqctl/all_verbs/test_ownership.py",
    "tests/rmqctl/messages/test_identified.py",
    "tests/pipeline/test_splits.py",
    "tests/proof/test_crash.py",
    "tests/proof/test_disk_errors.py",
    "tests/proof/test_model.py",
)
SOURCES = ("formats", "store")

Ran = dict[str, list[str]]


def cache_folder() -> Path:
    """Where the proofs keep what a later run can use."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqctl-proof"


def cache_file() -> Path:
    """Where the record of this checkout is kept."""
    return cache_folder() / f"executed-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}.json"


def known_to_run(path: str, first: int = 1, last: int | None = None) -> list[str]:
    """Node ids of the tests that run one of the lines of a source, one for each function, the cheapest first; none
    where that is not known: nothing was recorded, or the source has changed since."""
    recorded = _recorded()
    if recorded is None or recorded.digests.get(path) != _digest(path):
        return []
    found: set[str] = set()
    for line, tests in recorded.lines[path].items():
        if first <= int(line) and (last is None or int(line) <= last):
            found.update(tests)
    return _cheapest(found, recorded.seconds)


def known_below(places: tuple[str, ...]) -> list[str]:
    """Node ids of the recorded tests in files or folders, one for each function, the cheapest first."""
    recorded = _recorded()
    if recorded is None:
        return []
    return _cheapest({test for test in recorded.seconds if test.startswith(places)}, recorded.seconds)


def _cheapest(tests: set[str], seconds: dict[str, float]) -> list[str]:
    found: dict[str, str] = {}
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        found.setdefault(test.partition("[")[0], test)
    return list(found.values())


def with_parameters(test: str) -> list[str]:
    """Node ids of a test function with each of its parameters that was recorded, the cheapest first."""
    seconds = recorded.seconds if (recorded := _recorded()) is not None else {}
    return sorted((one for one in seconds if one.startswith(f"{test}[")), key=lambda one: (seconds[one], one))


def seconds_of(tests: list[str], unknown: float) -> float:
    """Processor time that these tests took when they were recorded; `unknown` if that is not known of any of them."""
    recorded = _recorded()
    known = [recorded.seconds[test] for test in tests if test in recorded.seconds] if recorded is not None else []
    return sum(known) if known else unknown


class _Record(NamedTuple):
    """`seconds`: processor time of tests; `digests` of sources; `lines`: of each source, with the tests that ran them,
    one for each function and the cheapest first."""

    seconds: dict[str, float]
    digests: dict[str, str]
    lines: dict[str, dict[str, list[str]]]


@functools.cache
def _recorded() -> _Record | None:
    if not cache_file().exists():
        return None
    found = json.loads(cache_file().read_text())
    names = list(found["seconds"])
    there = {name for name in names if _is_there(name)}
    lines = {
        path: {line: [names[number] for number in numbers if names[number] in there] for line, numbers in of.items()}
        for path, of in found["lines"].items()
    }
    return _Record({name: found["seconds"][name] for name in names if name in there}, found["digests"], lines)


def _is_there(test: str) -> bool:
    """Whether its file has still got a test of this name."""
    file, *_, name = test.partition("[")[0].split("::")
    return f"def {name}(" in _text(file)


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text() if (ROOT / file).exists() else ""


def _write(record: _Record) -> None:
    numbers = {name: number for number, name in enumerate(record.seconds)}
    lines = {
        path: {line: [numbers[test] for test in tests] for line, tests in of.items()}
        for path, of in record.lines.items()
    }
    cache_file().parent.mkdir(parents=True, exist_ok=True)
    cache_file().write_text(json.dumps({**record._asdict(), "lines": lines}))


def _digest(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()


class _Recorder:
    """A plugin of pytest: each test is a context of coverage, and its processor time is kept."""

    def __init__(self, measured: Any) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.passed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        begun = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - begun
            self._measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def _but(record: _Record, files: set[str]) -> _Record:
    """What is recorded of the tests that are in none of these files."""

    def left(tests: Iterable[str]) -> list[str]:
        return [test for test in tests if test.partition("::")[0] not in files]

    lines = {path: {line: left(tests) for line, tests in of.items()} for path, of in record.lines.items()}
    return _Record({test: record.seconds[test] for test in left(record.seconds)}, record.digests, lines)


def record(arguments: list[str]) -> int:
    """Run the tests and write what they ran; the exit code of pytest."""
    measured = importlib.import_module("coverage").Coverage(
        data_file=None, config_file=False, include=[f"{ROOT / source}/*" for source in SOURCES], branch=False
    )
    recorder = _Recorder(measured)
    measured.start()
    try:
        code = pytest.main(["--quick", "-q", "-p", "no:cacheprovider", *arguments], plugins=[recorder])
    finally:
        measured.stop()
    # what was recorded of other tests stays, for sources that are the same; of a file that is run whole it goes
    parts = {argument.partition("::")[0] for argument in arguments if "::" in argument}
    whole = {test.partition("::")[0] for test in recorder.seconds} - parts
    found = _but(_recorded() or _Record({}, {}, {}), whole)
    found.seconds.update(recorder.seconds)
    data = measured.get_data()
    for file in data.measured_files():
        path = Path(file).relative_to(ROOT).as_posix()
        lines = found.lines.setdefault(path, {}) if found.digests.get(path) == _digest(path) else {}
        for line, contexts in data.contexts_by_lineno(file).items():
            tests = recorder.passed.intersection(contexts).union(lines.get(str(line), ()))
            lines[str(line)] = _cheapest(tests, found.seconds)
        found.lines[path], found.digests[path] = lines, _digest(path)
    _write(found)
    return int(code)


if __name__ == "__main__":
    sys.exit(record(sys.argv[1:] or list(FOLDERS)))
