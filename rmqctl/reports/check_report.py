"""How findings are shown: a verdict and groups for people, rows for programs; what fixes them and what was covered."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import counted
from rmqctl.output.output import BAD, DOUBTFUL, GOOD, OF_SEVERITY, print_paragraph
from rmqctl.output.table import padded, said, said_finding, said_title, speech
from rmqctl.store.check.catalogue import catalogue

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.check.catalogue import Finding
    from rmqctl.store.check.cross import CheckSummary
    from rmqctl.store.predict import Prediction
    from rmqctl.store.store_files import StoreFiles

# The first sentence for people: how it stands with a store, and the command to run next.


class Opening(NamedTuple):
    """A sentence, the command to run next where there is one, and the style that it is printed in."""

    sentence: str
    command: str | None = None
    style: str = GOOD


def print_verdict(output: Output, verdict: Opening) -> None:
    """Print it where a table or listing is printed; JSON and CSV say it by their fields."""
    if output.format != "table":
        return
    print_paragraph(output, verdict.sentence, style=verdict.style)
    if verdict.command is not None:
        output.text(said(f"next: {verdict.command}"))  # in one line, so that it can be copied


def command_on(store: Path | str, verb: str, *flags: str, config: Path | None = None) -> str:
    """A command line with the store it is for, as it can be run."""
    named = ["-s", shlex.quote(str(store))]
    settings = [] if config is None else ["-c", shlex.quote(str(config))]
    return " ".join(["rmqctl", verb, *flags, *named, *settings])


def fix_on(store: Path, fix: str | None, config: Path | None) -> str | None:
    """The command that fixes a finding, with the store it is for, as it can be run; None without a fix."""
    if fix is None:
        return None
    named = shlex.quote(str(store))
    _, verb, *flags = fix.split()
    if verb != "salvage":
        return command_on(store, verb, *flags, config=config)
    # it only reads its store, and needs a place for the new one
    settings = [] if config is None else ["-c", shlex.quote(str(config))]
    return " ".join(["rmqctl", verb, named, "--to", shlex.quote(f"{store}.salvaged"), *flags, *settings])


def of_info(row: dict[str, Any], config: Path | None) -> Opening:
    """Return the verdict on a store by what `info` found."""
    from rmqctl.store.files.lock import holder_name

    log, path = row["commitlog"], row["path"]
    problems = len([*log["problems"], *row["consumequeue"]["problems"], *row["index"]["problems"]])
    files = counted(log["files"], "commitlog file")
    held = files if log["messages"] is None else f"{counted(log['messages'], 'message')} in {files}"
    check = command_on(path, "check", config=config)
    if row["unfinished_change"] is not None and not row["locked"]:
        return Opening("A change was interrupted, and waits to be ended.", command_on(path, "log", config=config), BAD)
    if log["damaged_spans"]:
        spans = counted(log["damaged_spans"], "damaged span")
        return Opening(f"Damaged: {spans} in the commitlog; {held}.", check, BAD)
    if row["locked"]:
        return Opening(f"In use by {holder_name(row['lock_holder'])}: {held}.", None, GOOD)
    if problems:
        return Opening(f"{counted(problems, 'problem')} that a broker would stop at or trip over; {held}.", check, BAD)
    if not row["clean_shutdown"]:
        command = command_on(path, "predict", config=config)
        return Opening(f"Not closed cleanly, and no process has it open: {held}.", command, DOUBTFUL)
    if not log["files"] and row["not_read"]:
        return Opening(f"Closed cleanly, but {row['not_read'][0]}.", check)
    if not log["files"]:
        return Opening("Empty: there is no commitlog file.")
    return Opening(f"Closed cleanly: {held}.", check)


def of_check(summary: CheckSummary, fix: str | None, check: str, full: str) -> Opening:
    """Return the verdict of a check; `fix` is the command for its worst finding, `check` that of a whole check, `full`
    that of a full one."""
    counts = ", ".join(
        counted(count, word)
        for count, word in ((summary.errors, "error"), (summary.warnings, "warning"), (summary.notices, "notice"))
        if count
    )
    if summary.errors or summary.warnings:
        known = f"{_and(summary.perhaps)} may be lost" if summary.perhaps else "nothing is lost"
        lost = f"{_and(summary.lost)} are lost" if summary.lost else known
        return Opening(f"Something is wrong: {counts}; {lost}.", fix, BAD if summary.errors else DOUBTFUL)
    noticed = f"; {counts}" if counts else ""
    if summary.level == "quick":
        sentence = (
            f"The quick check found no damage{noticed}. It does not read every message, queue unit or index entry."
        )
        return Opening(sentence, check)
    covered = "" if summary.complete and summary.subset is None else " in the part that was checked"
    if summary.bodies_not_unpacked:
        packed = counted(summary.bodies_not_unpacked, "compressed body was", "compressed bodies were")
        return Opening(f"No damage was found{covered}{noticed}. {packed} not unpacked, so that can hide some.", full)
    return Opening(f"Nothing is wrong{covered}{noticed}.", None)


def is_for_permissions(found: Prediction) -> bool:
    """Return whether a start fails at permissions, which `check` says nothing of."""
    return (found.error or "").endswith("(Permission denied)")


def of_prediction(
    found: Prediction, store: Path, config: Path | None, *, is_member: bool = False, in_rocksdb: bool = False
) -> Opening:
    """What a start would do. `is_member`: of a DLedger group, in which others have what its log loses. `in_rocksdb`: it
    has its queues there, where `recover` does nothing for them."""
    broker = f"A broker {found.broker}"
    if not found.loads and is_for_permissions(found):
        return Opening(f"{broker} does not start: the store's owner may not open all of its files.", None, BAD)
    if not found.loads:
        return Opening(f"{broker} does not start.", command_on(store, "check", config=config), BAD)
    harm = [
        f"{what} {counted(count, one, several)}{where}"
        for count, what, one, several, where in (
            (found.messages_lost, "loses", "message", "messages", ""),
            (found.messages_unqueued, "leaves", "message", "messages", " out of every queue"),
            (found.index_entries_lost, "loses", "index entry", "index entries", ""),
            (found.messages_stuck, "never delivers", "delayed message", "delayed messages", ""),
        )
        if count
    ]
    lost = [row["file"] for row in found.config if row["is_harmful"]]
    if lost:
        harm.append(f"does not load {_and(lost)} as written")
    if found.timer_reset:
        again = f"delivers {counted(found.messages_repeated, 'message')} of the timer again"
        harm.append(again if found.messages_repeated else "does not know how far its timer was")
    if found.messages_passed_over and len(harm) == 1 and found.messages_stuck == found.messages_passed_over:
        rebuild = command_on(store, "rebuild", "--timer", "--dry-run", config=config)
        return Opening(f"{broker} starts, and {harm[0]}.", rebuild, BAD)
    of_config = bool(lost) + bool(found.messages_stuck) + found.timer_reset
    if harm and len(harm) == of_config:
        return Opening(f"{broker} starts, and {_and(harm)}.", command_on(store, "check", config=config), BAD)
    if found.harmful_setting is not None:
        way_out = f"Remove {found.harmful_setting} from the broker's configuration before it starts."
        return Opening(f"{broker} starts, and {_and(harm)}. {way_out}", None, BAD)
    if found.is_harmful:
        cut = "cuts queue units that lead to no message" if in_rocksdb else "loses or misplaces queue units"
        command: str | None = command_on(store, "recover", "--dry-run", config=config)
        if in_rocksdb and is_member and found.messages_unqueued and found.was_clean:
            # only then a member dispatches all of its entries
            command = f"touch {shlex.quote(str(store / 'abort'))}"
        elif in_rocksdb and not (is_member and found.index_entries_lost):
            command = None
        if is_member and found.messages_lost:
            command = None
        return Opening(f"{broker} starts, and {_and(harm or [cut])}.", command, BAD)
    if found.messages_repeated:
        again = counted(found.messages_repeated, "delayed message")
        return Opening(f"{broker} starts, loses nothing and delivers {again} again.")
    return Opening(f"{broker} starts and loses nothing.")


def kind_of_start(files: StoreFiles, found: Prediction) -> dict[str, bool]:
    """Return what `of_prediction` has to know of a store."""
    from rmqctl.store.config.releases import RELEASES
    from rmqctl.store.predict.rules import has_queues_in_rocksdb

    in_rocksdb = has_queues_in_rocksdb(files.layout, files.config, RELEASES[found.broker])
    return {"is_member": files.dledger is not None, "in_rocksdb": in_rocksdb}


def _and(parts: list[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_COLUMNS = ("severity", "code", "file", "physical_offset", "message")
_ALL_COLUMNS = (
    "code severity file physical_offset topic queue_id expected found bytes messages data_lost message fix".split()
)
SEVERITIES = ("error", "warning", "notice")
"""The worst first."""
_INDENT = "    "
# so many of each code are shown unless all are asked for
_FIRST = 5
# two files claim the same offsets: nobody but a person knows which one is right
_OVERLAP = "RMQ-FILE-005"
# the store is a member of a DLedger group
_IN_DLEDGER = "RMQ-FILE-050"
_OF_THE_LOG = ("RMQ-LOG-", "RMQ-CQ-", "RMQ-IDX-")
_QUEUES_IN_ROCKSDB = "RMQ-RDB-002"
# units that point where no log is: what they say is told as found, it is no place
_NOWHERE = ("RMQ-CQ-008", "RMQ-CQ-015")
# a length of time, which the message has in days and hours
_TIMES = ("RMQ-TIME-001", "RMQ-TIME-002")
# a topic can be as long as a message; --json has all of it
_LONGEST_PLACE = 160


def finding_row(finding: Finding, root: Path, config_path: Path | None) -> dict[str, Any]:
    """Return a finding as `rmqctl check --json` prints it: its file relative to the store if it is inside, and the
    whole command that fixes it."""
    return {**finding.row(), "file": _place(finding, root), "fix": fix_on(root, finding.fix, config_path)}


def _place(finding: Finding, root: Path) -> str | None:
    file = finding.file
    if file is None:
        return None
    return str(file.relative_to(root) if file.is_relative_to(root) else file)


class CheckReport:
    """Prints findings, for people by their codes, the worst first. Paths are relative to the store if they lie in it.

    `config_path`: the broker.conf that the check went by; a command that mends something has to go by it as well.
    `shows_all`: every finding as it is made, not the first few of each code.
    """

    def __init__(
        self,
        output: Output,
        root: Path,
        least_severity: str,
        config_path: Path | None = None,
        *,
        shows_all: bool = False,
    ) -> None:
        self._output = output
        self._root = root
        self._config_path = config_path
        self._shown = SEVERITIES[: SEVERITIES.index(least_severity) + 1]
        self._shows_all = shows_all
        self._last_code = ""
        self._codes: set[str] = set()
        self._groups: dict[str, list[Finding]] = {}
        self._counts: Counter[str] = Counter()
        self._fixes: dict[str, dict[str, int]] = {}
        self._actions: dict[str, str] = {}

    def findings(self, findings: Iterable[Finding]) -> None:
        """Take them one by one, and print them as they come where nothing is kept for the end."""
        if self._output.format != "table":
            self._output.rows(_COLUMNS, self._rows(findings), all_columns=_ALL_COLUMNS)
            return
        for finding in findings:
            self._codes.add(finding.code)
            if finding.severity in self._shown:
                self._take(finding)

    def _take(self, finding: Finding) -> None:
        self._counts[finding.code] += 1
        command = fix_on(self._root, finding.fix, self._config_path)
        if command is not None:
            codes = self._fixes.setdefault(command, {})
            codes[finding.code] = codes.get(finding.code, 0) + 1
        elif finding.severity != "notice":
            self._actions[finding.code] = finding.kind.action
        if self._shows_all:
            self._block(finding)
        elif self._counts[finding.code] <= _FIRST:
            self._groups.setdefault(finding.code, []).append(finding)

    def groups(self) -> None:
        """Print the first findings of each code that were kept so far, the worst codes first."""
        kept = sorted(self._groups.values(), key=lambda group: SEVERITIES.index(str(group[0].severity)))
        for group in kept:
            for finding in group:
                self._block(finding)
            more = self._counts[group[0].code] - len(group)
            if more:
                self._output.text(said(f"{_INDENT}and {more} more: --all shows them"))
        self._groups.clear()

    def _rows(self, findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
        for finding in findings:
            if finding.severity in self._shown:
                yield finding_row(finding, self._root, self._config_path)

    def _block(self, finding: Finding) -> None:
        """The heading of its kind, once for neighbours of one kind, and a paragraph."""
        if finding.code != self._last_code:
            self._last_code = finding.code
            severity = padded(said_title(finding.severity), 7, right=False)
            heading = f"{severity} {finding.code}  {said_finding(finding.kind.title)}"
            print_paragraph(self._output, heading, _INDENT, style=OF_SEVERITY[str(finding.severity)])
        place = _place(finding, self._root) or finding.topic or ""
        if len(place) > _LONGEST_PLACE:
            place = place[:_LONGEST_PLACE] + "…"
        if finding.physical_offset is not None and finding.code not in _NOWHERE:
            place += " " + said(f"at {finding.physical_offset}")
        message = said(finding.message) + said(_costs(finding))
        colon = ": " if speech() is None else "："
        self._text(_INDENT + (f"{place}{colon}{message}" if place else message), _INDENT * 2)

    def _text(self, line: str, indent: str) -> None:
        print_paragraph(self._output, line, indent)

    def end(self, summary: CheckSummary, with_record: bool) -> None:
        """The verdict, what was found, what fixes it, and what was covered: a line of talk, and with `with_record` an
        object."""
        output = self._output
        print_verdict(
            output,
            of_check(
                summary,
                self._worst_fix(),
                command_on(self._root, "check", config=self._config_path),
                command_on(self._root, "check", "--full", config=self._config_path),
            ),
        )
        if self._groups:
            output.text("")
        self.groups()
        if self._fixes:
            output.text("")
            output.text(said("To fix this:"))
            if _OVERLAP in self._codes:
                first = f"first decide about {_OVERLAP}: until then what changes the log is refused"
                self._text(_INDENT + said(first), _INDENT * 2)
            for command, codes in self._fixes.items():
                named = ", ".join(f"{code} ({count})" if count > 1 else code for code, count in codes.items())
                # in one line, so that it can be copied
                output.text(f"{_INDENT}{command}")
                self._text(f"{_INDENT * 2}{named}", _INDENT * 2)
        if self._actions:
            output.text("")
            output.text(said("No command fixes this:"))
            codes_of: dict[str, list[str]] = {}
            for code, action in self._actions.items():
                advice = _of_member(code) if _IN_DLEDGER in self._codes else None
                codes_of.setdefault(advice or said_finding(action), []).append(code)
            for action, codes_with_it in codes_of.items():
                self._text(f"{_INDENT}{', '.join(codes_with_it)}: {action}", _INDENT * 2)
        if with_record:
            if output.format == "table":
                output.text("")
            output.record({"summary": summary.row()} if output.is_json else summary.row())
        output.talk(_spoken(summary))

    def _worst_fix(self) -> str | None:
        """Return the command that fixes the worst of what was found; None where a person has to decide first.

        The fix of a notice is never next: with an error left it would change what the error is about.
        """
        if is_for_a_person(self._codes, all_fixed=not self._actions):
            return None
        worst = {
            command: min(SEVERITIES.index(str(catalogue()[code].severity)) for code in codes)
            for command, codes in self._fixes.items()
        }
        alarms = [command for command in worst if SEVERITIES[worst[command]] != "notice"]
        return min(alarms, key=worst.__getitem__, default=None)


def is_for_a_person(codes: Collection[str], *, all_fixed: bool) -> bool:
    """Return whether a person decides before any command fixes what was found: where two files claim the same offsets,
    and of a member of a DLedger group, where others may have what no command fixes."""
    return _OVERLAP in codes or (_IN_DLEDGER in codes and not all_fixed)


def member_advice() -> str:
    """Return what to do about lost messages of a member of a DLedger group, where nothing writes fillers."""
    return said(
        "Another member of the DLedger group has it: let this one copy the log from it. Without one, "
        "`rmqctl salvage STORE --to NEW` keeps what is good."
    )


def _of_member(code: str) -> str | None:
    """Return what to do about a finding in the store of a member of a DLedger group; None for the same as elsewhere."""
    if code == _QUEUES_IN_ROCKSDB:
        return said(
            "Stop the broker, move the directory away and make an empty file `abort`: only after a crash the next "
            "start of a DLedger member dispatches all its entries."
        )
    return member_advice() if code.startswith(_OF_THE_LOG) else None


def _costs(finding: Finding) -> str:
    """What it costs, in words, as far as the message does not say so."""
    parts: list[str] = []
    if finding.messages and not _says(finding.message, finding.messages):
        parts.append(counted(finding.messages, "message"))
    if finding.bytes and not _says(finding.message, finding.bytes):
        parts.append(counted(finding.bytes, "byte"))
    if finding.data_lost:
        parts.append("lost")
    elif finding.data_lost is None and (finding.messages or finding.bytes):
        parts.append("perhaps lost")
    differing = [
        f"{word} {value}"
        for word, value in (("expected", finding.expected), ("found", finding.found))
        if value is not None and finding.code not in _TIMES and not _holds(finding, value)
    ]
    costs = [part for part in (", ".join(parts), ", ".join(differing)) if part]
    return f" ({'; '.join(costs)})" if costs else ""


def _says(message: str, number: int) -> bool:
    """Whether a message has the number already; a single digit may stand for anything but what is counted."""
    if number > 9:
        return re.search(rf"\b{number}\b", message) is not None
    return re.search(rf"\b{number} (more |of |delayed |older )?(message|unit|byte|entr|slot)", message) is not None


def _holds(finding: Finding, value: object) -> bool:
    """Whether what is printed anyway has one of the two values that differ."""
    text = str(value)
    return (
        value == finding.physical_offset or re.search(rf"(?<!\w){re.escape(text)}(?!\w)", finding.message) is not None
    )


def _spoken(summary: CheckSummary) -> str:
    counts = ", ".join(
        counted(count, word)
        for count, word in ((summary.errors, "error"), (summary.warnings, "warning"), (summary.notices, "notice"))
    )
    what = f"{counted(summary.messages, 'message')} in {counted(summary.files, 'commitlog file')}"
    if summary.level == "quick":
        what = f"{counted(summary.files, 'commitlog file')}, not every message"
    if summary.subset is not None:
        what += f" (share {summary.subset})"
    text = f"{counts}; checked {what}"
    if summary.bodies_not_unpacked:
        text += (
            f"; {counted(summary.bodies_not_unpacked, 'compressed body', 'compressed bodies')} not unpacked (--full)"
        )
    if summary.live:
        text += "; another process writes to the store"
    if summary.stopped_by == "max_duration":
        text += f"; stopped before offset {summary.next_offset}, the time was over"
    elif summary.stopped_by == "unreadable":
        text += "; not everything could be read"
    elif summary.stopped_by == "fail_fast":
        text += "; stopped at the first"
    return text
