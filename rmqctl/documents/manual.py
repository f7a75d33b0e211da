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
    lines = [*_title(PROGRAM, _ABOUT)]
    lines += [_heading("Synopsis"), f".B {PROGRAM}", r"\fIVERB\fR [\fIARGS\fR]...", _heading("Description")]
    lines += [*_paragraphs(cli.help or ""), *_paragraphs(cli.epilog or "")]
    for group, heading in GROUPS.items():
        lines.append(_heading(heading))
        for name, verb in VERBS.items():
            if verb.group == group:
                lines += [".TP", rf"\fB{PROGRAM}\-{_text(name)}\fR(1)", _text(_said(verb.short_help))]
    lines.append(_heading("Exit status"))
    for code, meaning in sorted(MEANINGS.items()):
        lines += [".TP", f".B {code}", _text(said(meaning))]
    return "\n".join([*lines, ""])


def _verb_page(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    if command is None:
        raise AssertionError(f"{name} is in the table of verbs but cannot be loaded")
    context = click.Context(command, info_name=f"{PROGRAM} {name}")
    listing = command.listing if isinstance(command, ListingGroup) else None
    usage = (listing or command).collect_usage_pieces(context)
    lines = [*_title(f"{PROGRAM}-{name}", VERBS[name].short_help)]
    lines += [_heading("Synopsis"), f".B {PROGRAM} {_text(name)}", _text(" ".join(usage)), _heading("Description")]
    lines += _paragraphs(command.help or "")
    if listing is not None or not isinstance(command, click.Group):
        lines += [_heading("Options"), *_options(listing or command, context)]
    if isinstance(command, click.Group):
        lines.append(_heading("Commands"))
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                lines += [".TP", f".B {_text(inner)}", *_paragraphs(found.help or "")]
                lines += _options(found, click.Context(found, info_name=inner, parent=context))
    before, _, examples = ((listing or command).epilog or "").partition("Examples:")
    lines += _paragraphs(before)
    if examples:
        lines += [_heading("Examples"), *_paragraphs("\b\n" + examples.lstrip("\n"))]
    lines += [_heading("See also"), rf"\fB{PROGRAM}\fR(1)"]
    return "\n".join([*lines, ""])


def _help() -> TranslatedHelp | None:
    """What translates help; None in English."""
    spoken = formatter()()
    return spoken if isinstance(spoken, TranslatedHelp) else None


def _said(text: str) -> str:
    spoken = _help()
    return text if spoken is None else spoken.said(text)


def _heading(text: str) -> str:
    return f".SH {_text(_said(text).upper())}"


def _title(name: str, about: str) -> list[str]:
    shown, about = _text(name), _said(about).rstrip(".。")
    # between characters of Chinese there is no room to be spread
    ragged = [] if _help() is None else [".ad l", ".nh"]
    title = f'.TH "{shown.upper()}" {_SECTION} "" "{PROGRAM} {version()}"'
    return [title, *ragged, _heading("Name"), rf"{shown} \- {_text(about)}"]


def _options(command: click.Command, context: click.Context) -> list[str]:
    spoken, lines = _help(), list[str]()
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            text = record[1] if spoken is None else spoken.option(record[1])
            lines += [".TP", rf"\fB{_text(record[0])}\fR", _text(text)]
    return lines


def _paragraphs(text: str) -> list[str]:
    r"""Paragraphs of a help text; one that begins with \b, as click has it, keeps its lines."""
    spoken, lines = _help(), list[str]()
    for as_it_is, part in paragraphs(text):
        if as_it_is:
            rows = [row for row in part.splitlines() if row.strip()]
            lines += [".PP", ".nf", *(_text(row if spoken is None else spoken.line(row)) for row in rows), ".fi"]
        else:
            lines += [".PP", _text(_said(part))]
    return lines


def _text(line: str) -> str:
    """A line as roff prints it: backslashes, dashes and what is not ASCII escaped; no request at its beginning."""
    escaped = line.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(one if one.isascii() else rf"\[u{ord(one):04X}]" for one in escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
