"""Diagnosis of a store: what `info`, `check` and `predict` find, in one record and one verdict."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.opening import StoreLocation, checked_bytes, log_bytes
from rmqctl.reports.check_report import (
    SEVERITIES,
    Opening,
    command_on,
    fix_on,
    is_for_a_person,
    kind_of_start,
    of_check,
    of_info,
    of_prediction,
)
from rmqctl.store.config.releases import VERSIONS
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.store.check.catalogue import Finding
    from rmqctl.store.check.cross import CheckSummary
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.predict import Prediction, WalkedLog


IN_USE = "a process has the store open"


class NextStart(NamedTuple):
    """The next start of a broker: what it does, or `why` nothing is said of it. `walked`: for those of others."""

    found: Prediction | None
    why: str | None
    walked: WalkedLog | None = None


class Openings(NamedTuple):
    """What each of the three says of the store; `start` may be None."""

    state: Opening
    check: Opening
    start: Opening | None


class Diagnosis(NamedTuple):
    """`record`: what `rmqctl doctor --json` prints; `alarms`: errors and warnings of the check."""

    record: dict[str, Any]
    verdict: Opening
    said: Openings
    start: NextStart
    alarms: int

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong, and a broker that starts here loses nothing."""
        state = self.record["state"]
        return state == "healthy" or (state == "in-use" and not self.alarms)


def diagnose(
    opened: MessageStore,
    store: StoreLocation,
    broker: str | None = None,
    *,
    quick: bool = False,
    heard: Callable[[Finding], object] = lambda _: None,
    predicted: Callable[[], NextStart] | None = None,
) -> Diagnosis:
    """Look at a store. `broker`: the version that starts, None for the newest by the files; `heard` gets each finding;
    `predicted` gives the next start, which is predicted here without it. UnreadableError."""
    root = opened.files.root
    row = opened.info(walk_log=False)
    summary, kinds = _checked(opened, quick, heard)
    start = NextStart(None, IN_USE) if row["locked"] else (predicted or functools.partial(_start, opened, broker))()
    row["commitlog"]["messages"] = None if quick else summary.messages
    findings = [{**kind, "fix": fix_on(root, kind["fix"], store.config_path)} for kind in kinds]
    said = _openings(opened, row, summary, findings, start, store)
    state, verdict = _judged(row, summary, start, said)
    record = {
        "state": state,
        "sentence": verdict.sentence,
        "next": verdict.command,
        "broker": None if start.found is None else start.found.broker,
        "findings": findings,
        "info": row,
        "check": summary.row(),
        "predict": None if start.found is None else asdict(start.found),
        "not_predicted": start.why,
    }
    return Diagnosis(record, verdict, said, start, summary.alarms)


def _checked(
    opened: MessageStore, quick: bool, heard: Callable[[Finding], object]
) -> tuple[CheckSummary, list[dict[str, Any]]]:
    """Check the store; what was covered, and its findings by code and fix, the worst first."""
    from rmqctl.output.terminal import progress

    counts: Counter[tuple[str, str, str, str | None]] = Counter()
    with progress("checking", None if quick else checked_bytes(opened.files), "bytes") as bar:
        run = opened.check("quick" if quick else "default", events=Events(bar.advance))
        for one in run:
            heard(one)
            counts[str(one.severity), one.code, one.kind.title, one.fix] += 1
    kinds = [
        {"severity": severity, "code": code, "count": count, "title": title, "fix": fix}
        for (severity, code, title, fix), count in counts.items()
    ]
    return run.summary, sorted(kinds, key=lambda kind: SEVERITIES.index(kind["severity"]))


def _start(opened: MessageStore, broker: str | None) -> NextStart:
    from rmqctl.output.terminal import progress

    with progress("predicting", log_bytes(opened.files), "bytes") as bar:
        return next_start(opened, broker, Events(bar.advance))


def next_start(opened: MessageStore, broker: str | None = None, events: Events = Events()) -> NextStart:
    """Predict the next start of a store that no process has open. UnreadableError."""
    from rmqctl.store.predict import WalkedLog

    walked = WalkedLog()
    try:
        return NextStart(opened.predict(broker, walked=walked, events=events), None, walked)
    except UnsupportedError as error:
        return NextStart(None, error.message)
    except CorruptError as error:
        return NextStart(None, str(error))


def _openings(
    opened: MessageStore,
    row: dict[str, Any],
    summary: CheckSummary,
    findings: list[dict[str, Any]],
    start: NextStart,
    store: StoreLocation,
) -> Openings:
    config, root = store.config_path, Path(row["path"])
    alarms = [kind["fix"] for kind in findings if kind["severity"] != "notice"]
    fixes = [fix for fix in alarms if fix is not None]
    if is_for_a_person({kind["code"] for kind in findings}, all_fixed=len(fixes) == len(alarms)):
        fixes = []
    again = command_on(root, "check", config=config)
    full = command_on(root, "check", "--full", config=config)
    checked = of_check(summary, fixes[0] if fixes else again, again, full)
    found, predicted = start.found, None
    if found is not None:
        predicted = of_prediction(found, root, config, **kind_of_start(opened.files, found))
    return Openings(of_info(row, config), checked, predicted)


def _judged(row: dict[str, Any], summary: CheckSummary, start: NextStart, said: Openings) -> tuple[str, Opening]:
    """The state of the store, and the verdict: of what was found, what has to be done first."""
    from rmqctl.output.output import DOUBTFUL

    checked = said.check
    if row["locked"]:
        command = checked.command if summary.alarms else None
        return "in-use", checked._replace(sentence=f"{said.state.sentence} {checked.sentence}", command=command)
    if row["unfinished_change"] is not None:
        return "interrupted", said.state
    if start.found is None or said.start is None:
        unknown = checked._replace(sentence=f"{checked.sentence} The start is not predicted: {start.why}.")
        if summary.alarms:
            return "damaged", unknown
        return "unpredicted", unknown._replace(command=None, style=DOUBTFUL)
    if not start.found.loads:
        return "refuses", said.start
    both = checked._replace(sentence=f"{checked.sentence} {said.start.sentence}")
    if summary.alarms:
        return "damaged", both
    return ("loses", said.start) if start.found.is_harmful else ("healthy", both)


def predicted_versions(opened: MessageStore, known: NextStart | None = None) -> list[dict[str, Any]]:
    """Return what a start of each version does, as rows of `rmqctl predict --broker all --json`; `known`: one of them
    that was made before. UnreadableError."""
    from rmqctl.store.predict import WalkedLog

    first = None if known is None else known.found
    walked = (None if known is None else known.walked) or WalkedLog()
    rows: list[dict[str, Any]] = []
    for version in VERSIONS:
        try:
            found = first if first and first.broker == version else opened.predict(version, walked=walked)
        except UnsupportedError as error:
            unknown = {"is_harmful": None, "sentence": None, "why": error.message}
            rows.append({"broker": version, "loads": None, **unknown, "warnings": []})
            continue
        changed = found.queues_changed
        sums = {name: sum(row[f"units_{name}"] for row in changed) for name in ("dropped", "added", "misplaced")}
        sentence = of_prediction(found, opened.files.root, None).sentence
        said: dict[str, Any] = {"is_harmful": found.is_harmful, "sentence": sentence, "why": found.error, **sums}
        rows.append(asdict(found) | said | {"deleted": len(found.files_deleted) + len(found.index_files_deleted)})
    return rows
