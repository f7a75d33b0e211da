"""Manual pages, made of what click knows of each verb: one for the program, and one for each verb.

They are in the language that is spoken.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from rmqctl.language.help import TranslatedHelp, formatter, paragraphs
from rmqctl.main import GROUPS, PROGRAM, VERBS, ListingGroup, cli
from rmqctl.output.outcome import MEANINGS
from rmqctl.output.table import said
from rmqctl.store.files import io
from rmqctl.store.files.outputs import new_file
from rmqctl.store.status import version

_SECTION = "1"
_ABOUT = "inspect, check and repair Apache RocketMQ stores offline"


class _English:
    """What --help says, as it is written."""

    def said(self, text: str) -> str:
        return text

    option = line = said


_Spoken = _English | TranslatedHelp


def manual_pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page, in roff as man(7) describes it."""
    translated = formatter()()
    spoken = translated if isinstance(translated, TranslatedHelp) else _English()
    yield f"{PROGRAM}.{_SECTION}", _program_page(spoken)
    for name in VERBS:
        yield f"{PROGRAM}-{name}.{_SECTION}", _verb_page(spoken, name)


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


def _program_page(spoken: _Spoken) -> str:
    lines = [*_title(spoken, PROGRAM, _ABOUT)]
    lines += [_heading(spoken, "Synopsis"), f".B {PROGRAM}", r"\fIVERB\fR [\fIARGS\fR]..."]
    lines.append(_heading(spoken, "Description"))
    lines += [*_paragraphs(spoken, cli.help or ""), *_paragraphs(spoken, cli.epilog or "")]
    for group, heading in GROUPS.items():
        lines.append(_heading(spoken, heading))
        for name, verb in VERBS.items():
            if verb.group == group:
                lines += [".TP", rf"\fB{PROGRAM}\-{_text(name)}\fR(1)", _text(spoken.said(verb.short_help))]
    lines.append(_heading(spoken, "Exit status"))
    for code, meaning in sorted(MEANINGS.items()):
        lines += [".TP", f".B {code}", _text(said(meaning))]
    return "\n".join([*lines, ""])


def _verb_page(spoken: _Spoken, name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    if command is None:
        raise AssertionError(f"{name} is in the table of verbs but cannot be loaded")
    context = click.Context(command, info_name=f"{PROGRAM} {name}")
    listing = command.listing if isinstance(command, ListingGroup) else None
    usage = (listing or command).collect_usage_pieces(context)
    lines = [*_title(spoken, f"{PROGRAM}-{name}", VERBS[name].short_help)]
    lines += [_heading(spoken, "Synopsis"), f".B {PROGRAM} {_text(name)}", _text(" ".join(usage))]
    lines.append(_heading(spoken, "Description"))
    lines += _paragraphs(spoken, command.help or "")
    if listing is not None or not isinstance(command, click.Group):
        lines += [_heading(spoken, "Options"), *_options(spoken, listing or command, context)]
    if isinstance(command, click.Group):
        lines.append(_heading(spoken, "Commands"))
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                lines += [".TP", f".B {_text(inner)}", *_paragraphs(spoken, found.help or "")]
                lines += _options(spoken, found, click.Context(found, info_name=inner, parent=context))
    before, _, examples = ((listing or command).epilog or "").partition("Examples:")
    lines += _paragraphs(spoken, before)
    if examples:
        lines += [_heading(spoken, "Examples"), *_paragraphs(spoken, "\b\n" + examples.lstrip("\n"))]
    lines += [_heading(spoken, "See also"), rf"\fB{PROGRAM}\fR(1)"]
    return "\n".join([*lines, ""])


def _heading(spoken: _Spoken, text: str) -> str:
    return f".SH {_text(spoken.said(text).upper())}"


def _title(spoken: _Spoken, name: str, about: str) -> list[str]:
    shown, about = _text(name), spoken.said(about).rstrip(".。")
    # between characters of Chinese there is no room to be spread
    ragged = [".ad l", ".nh"] if isinstance(spoken, TranslatedHelp) else []
    title = f'.TH "{shown.upper()}" {_SECTION} "" "{PROGRAM} {version()}"'
    return [title, *ragged, _heading(spoken, "Name"), rf"{shown} \- {_text(about)}"]


def _options(spoken: _Spoken, command: click.Command, context: click.Context) -> list[str]:
    lines: list[str] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            lines += [".TP", rf"\fB{_text(record[0])}\fR", _text(spoken.option(record[1]))]
    return lines


def _paragraphs(spoken: _Spoken, text: str) -> list[str]:
    r"""Paragraphs of a help text; one that begins with \b, as click has it, keeps its lines."""
    lines: list[str] = []
    for as_it_is, part in paragraphs(text):
        if as_it_is:
            rows = [spoken.line(row) for row in part.splitlines() if row.strip()]
            lines += [".PP", ".nf", *map(_text, rows), ".fi"]
        else:
            lines += [".PP", _text(spoken.said(part))]
    return lines


def _text(line: str) -> str:
    """A line as roff prints it: backslashes, dashes and what is not ASCII escaped; no request at its beginning."""
    escaped = line.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(one if one.isascii() else rf"\[u{ord(one):04X}]" for one in escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
