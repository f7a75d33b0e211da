"""How findings are shown: blocks for people, rows for programs; what mends them and what was covered at the end."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.sanitise import visible

if TYPE_CHECKING:
    from rmqctl.output import Output
    from store.check.check import CheckSummary
    from store.check.finding import Finding

_COLUMNS = ("severity", "code", "file", "physical_offset", "message")
_ALL_COLUMNS = (
    "code severity file physical_offset topic queue_id expected found bytes messages data_lost message fix".split()
)
_SEVERITIES = ("error", "warning", "notice")
_INDENT = "    "


class CheckReport:
    """Prints findings as they are made, then the end. Paths are relative to the store where they lie in it."""

    def __init__(self, output: Output, root: Path, least_severity: str) -> None:
        self._output = output
        self._root = root
        self._shown = _SEVERITIES[: _SEVERITIES.index(least_severity) + 1]
        self._last_code = ""
        self._fixes: dict[str, dict[str, int]] = {}

    def findings(self, findings: Iterable[Finding]) -> None:
        """Print them one by one."""
        if self._output.format == "table":
            for finding in findings:
                if finding.severity in self._shown:
                    self._block(finding)
            return
        rows = self._rows(findings)
        self._output.rows(_COLUMNS, rows, all_columns=_ALL_COLUMNS)

    def _rows(self, findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
        for finding in findings:
            if finding.severity in self._shown:
                yield {**finding.row(), "file": self._place(finding.file)}

    def _place(self, file: Path | None) -> str | None:
        if file is None:
            return None
        return str(file.relative_to(self._root) if file.is_relative_to(self._root) else file)

    def _block(self, finding: Finding) -> None:
        """The heading of its kind, once for neighbours of one kind, and a paragraph."""
        if finding.code != self._last_code:
            self._last_code = finding.code
            self._text(f"{finding.severity:<7} {finding.code}  {finding.kind.title}", _INDENT)
        place = self._place(finding.file) or finding.topic or ""
        if finding.physical_offset is not None:
            place += f" at {finding.physical_offset}"
        message = finding.message + _costs(finding)
        self._text(_INDENT + (f"{place}: {message}" if place else message), _INDENT * 2)
        if finding.fix:
            codes = self._fixes.setdefault(finding.fix, {})
            codes[finding.code] = codes.get(finding.code, 0) + 1

    def _text(self, line: str, indent: str) -> None:
        """A line as it is, or on a terminal wrapped to its width. Sanitised before it is measured."""
        line = visible(line)
        if not sys.stdout.isatty():
            self._output.text(line)
            return
        width = max(shutil.get_terminal_size().columns, 40)
        wrapped = textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
        for part in wrapped or [""]:
            self._output.text(part)

    def end(self, summary: CheckSummary, with_record: bool) -> None:
        """What mends it, and what was covered: a line of talk, with `with_record` an object too."""
        output = self._output
        if self._fixes:
            output.text("")
            output.text("What mends it:")
            store = shlex.quote(str(self._root))
            for fix, codes in self._fixes.items():
                named = ", ".join(f"{code} ({count})" if count > 1 else code for code, count in codes.items())
                self._text(f"{_INDENT}{fix} -s {store}", _INDENT * 2)
                self._text(f"{_INDENT * 2}{named}", _INDENT * 2)
        if with_record:
            if output.format == "table":
                output.text("")
            output.record({"summary": summary.row()} if output.is_json else summary.row())
        output.talk(_spoken(summary))


def _costs(finding: Finding) -> str:
    """What it costs, in words, as far as the message does not say so."""
    parts: list[str] = []
    if finding.messages and not _says(finding.message, finding.messages):
        parts.append(f"{finding.messages} message{'s' if finding.messages > 1 else ''}")
    if finding.bytes and not _says(finding.message, finding.bytes):
        parts.append(f"{finding.bytes} bytes")
    if finding.data_lost:
        parts.append("lost")
    return f" ({', '.join(parts)})" if parts else ""


def _says(message: str, number: int) -> bool:
    """Whether a message has the number already; a single digit may stand for anything."""
    return number > 9 and re.search(rf"\b{number}\b", message) is not None


def _spoken(summary: CheckSummary) -> str:
    counts = ", ".join(
        f"{count} {word}{'s' if count != 1 else ''}"
        for count, word in ((summary.errors, "error"), (summary.warnings, "warning"), (summary.notices, "notice"))
    )
    what = f"{summary.messages} messages in {summary.files} commitlog files"
    if summary.level == "quick":
        what = f"{summary.files} commitlog files, not every message"
    if summary.subset is not None:
        what += f" (share {summary.subset})"
    text = f"{counts}; checked {what}"
    if summary.live:
        text += "; somebody writes to the store"
    if summary.stopped_by == "max_duration":
        text += f"; stopped before offset {summary.next_offset}, the time was over"
    elif summary.stopped_by == "unreadable":
        text += "; not everything could be read"
    elif summary.stopped_by == "fail_fast":
        text += "; stopped at the first"
    return text
