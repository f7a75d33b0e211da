"""`rmqctl help`: what `--help` says, for who asks the other way round; and the same as manual pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from rmqctl.formats.errors import counted
from rmqctl.language.help import TranslatedHelp, formatter, paragraphs
from rmqctl.main import COMPLETION_VARIABLE, GROUPS, PROGRAM, VERBS, ListingGroup, cli, no_such_verb
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import MEANINGS
from rmqctl.output.table import said
from rmqctl.store.files import io
from rmqctl.store.files.outputs import new_file
from rmqctl.store.status import version

_CODES = "RMQ-"


@click.command(
    epilog="""\b
Examples:
  rmqctl help cat
  rmqctl help RMQ-CQ-001
  rmqctl help --man ~/.local/share/man/man1 && man rmqctl-cat"""
)
@click.argument("verb", required=False)
@click.option(
    "--man",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write manual pages into DIR, one for each verb: rmqctl.1, rmqctl-cat.1 and so on.",
)
@click.pass_context
def help(context: click.Context, verb: str | None, folder: Path | None) -> int:
    """Explain a verb or a finding code."""
    if folder is not None:
        if verb is not None:
            raise click.UsageError("--man writes the pages of all verbs: leave out the verb")
        click.echo(said(f"{counted(write_manual(folder), 'manual page')} in {folder}"), err=True)
        return exit_codes.OK
    parent = context.parent or click.Context(cli, info_name=PROGRAM)
    if verb is None:
        click.echo(parent.get_help())
        return exit_codes.OK
    command = cli.get_command(parent, verb)
    if command is None and verb.upper().startswith(_CODES):
        from rmqctl.commands.look.check import explain_code
        from rmqctl.output.output import Output

        return explain_code(verb, Output())
    if command is None:
        raise no_such_verb(verb, cli.verbs, context)
    with click.Context(command, info_name=verb, parent=parent) as found:
        click.echo(command.get_help(found))
    return exit_codes.OK


# Manual pages, made of what click knows of each verb: one for the program, and one for each verb, in the language that
# is spoken.

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
    assert command is not None, name
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


# `rmqctl completion`: the script that teaches a shell to complete rmqctl's verbs and flags.

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
      bash   eval "$(rmqctl completion bash)"       in ~/.bashrc
      zsh    eval "$(rmqctl completion zsh)"        in ~/.zshrc, after compinit
      fish   rmqctl completion fish > ~/.config/fish/completions/rmqctl.fish
    """
    click.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """The script, made by click's own machinery; the shell need not be installed here."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.BadParameter(f"click knows no shell {shell}")
    # BashComplete.source would first start bash to ask for its version
    return ShellComplete.source(kind(cli, {}, PROGRAM, COMPLETION_VARIABLE))
