"""Writes the generated part of docs/ (commands, config, errors, findings); `--check` only says whether it is stale."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from rmqctl.documents.network import network_document
from rmqctl.formats.errors import RmqctlError
from rmqctl.main import GROUPS, PROGRAM, VERBS, ListingGroup, actions_of, cli
from rmqctl.output.outcome import MEANINGS, exit_code_of
from rmqctl.store.check.catalogue.catalogue import CATALOGUE, FAMILIES
from rmqctl.store.check.catalogue.kind import Kind, Severity
from rmqctl.store.config.config import config_document
from rmqctl.store.files import io
from rmqctl.store.files.outputs import new_file
from rmqctl.store.status import version

# The text of docs/findings.md, made of the catalogue of findings.

_SITE = "https://github.com/"


def findings_document() -> str:
    """Every code: what it means, what causes it, what to do, the known issue where there is one."""
    lines = [
        "# Findings of `rmqctl check`",
        "",
        "Generated from the code by `make docs`.",
        "",
        "Codes are stable. `rmqctl check --explain CODE` prints an entry of this list.",
        "",
        "| severity | meaning | exit code |",
        "|---|---|---|",
    ]
    for severity in Severity:
        meaning = _MEANINGS[severity]
        lines.append(f"| {severity} | {meaning} | {1 if severity.is_alarm else 0} |")
    lines += ["", "| code | severity | finding | fixed by |", "|---|---|---|---|"]
    for kind in CATALOGUE.values():
        anchor = f"[{kind.code}](#{kind.code.lower()})"
        lines.append(f"| {anchor} | {kind.severity} | {kind.title} | {_command(kind)} |")
    for family, heading in FAMILIES.items():
        kinds = [kind for kind in CATALOGUE.values() if kind.family == family]
        if kinds:
            lines += ["", f"## {heading}"]
        for kind in kinds:
            lines += _entry(kind)
    return "\n".join([*lines, ""])


_MEANINGS = {
    Severity.ERROR: "messages are lost or cannot be found, or a broker does not start or would lose messages",
    Severity.WARNING: "something is wrong that costs no message by itself, or that a start of the broker fixes",
    Severity.NOTICE: "worth knowing and no damage: a sound store may have it",
}


def _command(kind: Kind) -> str:
    return f"`{kind.command}`" if kind.command else ""


def _entry(kind: Kind) -> list[str]:
    lines = ["", f"### {kind.code}", "", f"**{kind.title}** ({kind.severity}). {kind.meaning}", ""]
    lines.append(f"* Causes: {kind.causes}")
    lines.append(f"* What to do: {kind.action}")
    if kind.command:
        lines.append(f"* Command: {_command(kind)}")
    if kind.issues:
        lines.append(f"* Known as: {', '.join(map(_issue, kind.issues))}")
    return lines


def _issue(name: str) -> str:
    repository, _, number = name.partition("#")
    return f"[{name}]({_SITE}{repository}/issues/{number})"


# Manual pages, made of what click knows of each verb: one for the program, and one for each verb.

_SECTION = "1"


def manual_pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page, in roff as man(7) describes it."""
    yield f"{PROGRAM}.{_SECTION}", _program_page()
    for name in VERBS:
        yield f"{PROGRAM}-{name}.{_SECTION}", _verb_page(name)


def write_manual(folder: Path) -> int:
    """Write all pages into `folder`, which is made if it is not there; pages of an older version are replaced. How many
    there are. RefusedError for a folder in a store, WriteFailedError."""
    io.make_directories(folder)
    count = 0
    for name, text in manual_pages():
        with new_file(folder / name, overwrite=True) as page:
            page.write(text.encode("utf-8"))
        count += 1
    return count


def _program_page() -> str:
    lines = [*_title(PROGRAM, "store administration and forensics for Apache RocketMQ")]
    lines += [".SH SYNOPSIS", f".B {PROGRAM}", r"\fIVERB\fR [\fIARGS\fR]...", ".SH DESCRIPTION"]
    lines += [_text(cli.help or ""), ".PP", _text(cli.epilog or "")]
    for group, heading in GROUPS.items():
        lines.append(f".SH {_text(heading).upper()}")
        for name, verb in VERBS.items():
            if verb.group == group:
                lines += [".TP", rf"\fB{PROGRAM}\-{_text(name)}\fR(1)", _text(verb.short_help)]
    lines.append(".SH EXIT STATUS")
    for code, meaning in sorted(MEANINGS.items()):
        lines += [".TP", f".B {code}", _text(meaning)]
    return "\n".join([*lines, ""])


def _verb_page(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    if command is None:
        raise AssertionError(f"{name} stands in the table of verbs but cannot be loaded")
    context = click.Context(command, info_name=f"{PROGRAM} {name}")
    listing = command.listing if isinstance(command, ListingGroup) else None
    usage = (listing or command).collect_usage_pieces(context)
    epilog = (listing or command).epilog or ""
    lines = [*_title(f"{PROGRAM}-{name}", VERBS[name].short_help.rstrip("."))]
    lines += [".SH SYNOPSIS", f".B {PROGRAM} {_text(name)}", _text(" ".join(usage)), ".SH DESCRIPTION"]
    lines += _paragraphs(command.help or "")
    if listing is not None or not isinstance(command, click.Group):
        lines += [".SH OPTIONS", *_options(listing or command, context)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                lines += [".TP", f".B {_text(inner)}", *_paragraphs(found.help or "")]
                lines += _options(found, click.Context(found, info_name=inner, parent=context))
    before, _, examples = epilog.partition("Examples:")
    if before.strip("\b\n "):
        lines += _paragraphs(before)
    if examples:
        lines += [".SH EXAMPLES", *_paragraphs("\b\n" + examples.lstrip("\n"))]
    lines += [".SH SEE ALSO", rf"\fB{PROGRAM}\fR(1)"]
    return "\n".join([*lines, ""])


def _title(name: str, about: str) -> list[str]:
    shown = _text(name)
    return [f'.TH "{shown.upper()}" {_SECTION} "" "{PROGRAM} {version()}"', ".SH NAME", rf"{shown} \- {_text(about)}"]


def _options(command: click.Command, context: click.Context) -> list[str]:
    lines: list[str] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            lines += [".TP", rf"\fB{_text(record[0])}\fR", _text(record[1])]
    return lines


def _paragraphs(text: str) -> list[str]:
    r"""Paragraphs of a help text; one that begins with \b, as click has it, keeps its lines."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        kept = "\b" in paragraph
        rows = [row for row in paragraph.replace("\b", "").splitlines() if row.strip()]
        if kept:
            lines += [".PP", ".nf", *map(_text, rows), ".fi"]
        elif rows:
            lines += [".PP", *(_text(row.strip()) for row in rows)]
    return lines


def _text(line: str) -> str:
    """A line as roff prints it: backslashes, dashes and what is not ASCII escaped; no request at its beginning."""
    escaped = line.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(one if one.isascii() else rf"\[u{ord(one):04X}]" for one in escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


ROOT = Path(__file__).resolve().parents[2]
_WIDTH = 100


def commands_document() -> str:
    """The text of docs/commands.md."""
    lines = [
        "# Command reference",
        "",
        "Generated from the command line itself by `make docs`.",
        "",
        "Data goes to stdout, talk and progress to stderr. `--json` prints JSON Lines for lists and one object for",
        "summaries. Texts of a store never reach the terminal raw: control characters are shown as escapes.",
        "",
        "```",
        _help(cli, PROGRAM),
        "```",
    ]
    for group, heading in GROUPS.items():
        verbs = [name for name, verb in VERBS.items() if verb.group == group]
        if verbs:
            lines += ["", f"## {heading}"]
        for name in verbs:
            command = cli.get_command(click.Context(cli), name)
            if command is None:
                raise AssertionError(f"{name} stands in the table of verbs but cannot be loaded")
            lines += ["", f"### {name}", "", "```", _help(command, f"{PROGRAM} {name}"), "```"]
            for action in actions_of(command):
                if action.name != name:
                    path = f"{name} {action.name}"
                    lines += ["", f"#### {path}", "", "```", _help(action, f"{PROGRAM} {path}"), "```"]
    return "\n".join([*lines, ""])


def _help(command: click.Command, name: str) -> str:
    settings = {**command.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    with click.Context(command, info_name=name, **settings) as context:
        return command.get_help(context)


def _load_everything() -> None:
    """Import every module that defines an error: classes are found by looking at what is loaded."""
    for top in ("formats", "store", "network", "pipeline", "rmqctl"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if 'code = "RMQ-E-' in path.read_text(encoding="utf-8"):
                parts = path.relative_to(ROOT).with_suffix("").parts
                import_module(".".join(parts if top == PROGRAM else (PROGRAM, *parts)))


def _error_classes(root: type[RmqctlError] = RmqctlError) -> Iterator[type[RmqctlError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _error_classes(kind)


def errors_document() -> str:
    """The text of docs/errors.md."""
    _load_everything()
    lines = [
        "# Exit codes and errors",
        "",
        "Generated from the code by `make docs`.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in sorted(MEANINGS.items())),
        "",
        "Every error names the file and the offset where there is one, and what to do next. As a library the classes",
        "are in `rmqctl.formats.errors`; `code` is stable.",
        "",
        "| code | class | exit code | meaning |",
        "|---|---|---|---|",
    ]
    for kind in sorted(_error_classes(), key=lambda kind: kind.code):
        meaning = (kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        meaning = " ".join(meaning.split())
        lines.append(f"| {kind.code} | `{kind.__name__}` | {exit_code_of(kind(''))} | {meaning} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    """Write the documents, or with `--check` return 1 if one of them is stale."""
    texts = {
        ROOT / "docs/commands.md": commands_document(),
        ROOT / "docs/config.md": config_document(),
        ROOT / "docs/errors.md": errors_document(),
        ROOT / "docs/findings.md": findings_document(),
        ROOT / "docs/network.md": network_document(),
    }
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for _ in manual_pages():  # nowhere kept: made where rmqctl is installed
        pass
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"stale, run `make docs`: {path.relative_to(ROOT)}\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
