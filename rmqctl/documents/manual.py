"""Manual pages, made of what click knows of each verb: one for the program, and one for each verb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from rmqctl.exit_codes import MEANINGS
from rmqctl.main import GROUPS, PROGRAM, VERBS, ListingGroup, cli
from rmqctl.store.files import io
from rmqctl.store.installed import version
from rmqctl.store.outputs.outputs import new_file

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
