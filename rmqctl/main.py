"""`rmqctl` as click has it: finds the verb, imports only its module. The process starts in rmqctl/start.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import click

from rmqctl.opening import COMPLETION_VARIABLE, config_file
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import PROGRAM, concluded, wants_json, wrong_usage
from rmqctl.output.output import output_failed, talk
from rmqctl.output.table import said, speech
from rmqctl.output.terminal import NO_PAGER, paged
from rmqctl.store.status import version

__all__ = [
    "COMPLETION_VARIABLE",
    "GROUPS",
    "PROGRAM",
    "VERBS",
    "ListingGroup",
    "Verb",
    "VerbGroup",
    "cli",
    "every_action",
    "main",
    "no_such_verb",
]


class Verb(NamedTuple):
    """A command that is imported only when it is called; `target` is "module:attribute"."""

    target: str
    group: str
    short_help: str


GROUPS: dict[str, str] = {
    "look": "Look (never changes a store)",
    "consumers": "Consumers and delivery",
    "change": "Change",
    "many": "Many messages, many machines",
    "wire": "On the wire",
    "more": "More",
}

# a shorter name is like many verbs: whoever writes `du` does not mean `dump`
_SHORTEST_GUESSED = 3

_VERBS: dict[str, dict[str, str]] = {
    "look": {
        "doctor": "Report the state of a store and the next command to run.",
        "info": "Show what a store holds and what state it is in.",
        "ls": "List topics, queues or files.",
        "du": "Show disk usage by topic, log, queues and index.",
        "cat": "Print messages, in commitlog or queue order.",
        "dump": "Print any store file field by field, with offsets.",
        "query": "Find messages by key, id, offset or time.",
        "predict": "Predict the next start of a broker.",
        "check": "Find all damage in a store.",
        "watch": "Write numbers for Prometheus.",
        "acl": "List users and what each may do.",
        "report": "Write a page of HTML about stores.",
        "browse": "Browse topics, queues and messages on the screen.",
        "mcp": "Serve read-only tools to assistants (MCP).",
    },
    "consumers": {
        "where": "Trace a message: where it is, which groups have it.",
        "groups": "Show consumer group progress and lag.",
        "delays": "List pending delayed messages.",
        "halves": "List half messages neither committed nor rolled back.",
        "dlq": "List and redrive dead-letter messages.",
        "offsets": "Show and change committed offsets.",
    },
    "change": {
        "append": "Store one message, or many from a file.",
        "recover": "Recover a store after a crash.",
        "rebuild": "Rebuild queues and index from the commitlog.",
        "clean": "Remove expired files, as the broker would.",
        "repair": "Fix what `check` finds.",
        "purge": "Remove topics: queues, settings and offsets.",
        "truncate": "End the commitlog at a given offset.",
        "undo": "Undo the last change.",
        "resume": "Finish a change that was interrupted.",
        "log": "List changes and their undo data.",
        "snapshot": "Copy a store with a manifest, or verify a copy.",
        "salvage": "Extract valid messages from any files.",
        "twin": "Copy a store with all names and bodies replaced.",
    },
    "many": {
        "sql": "Query messages, queues, index and findings by SQL.",
        "export": "Export messages to Parquet, Arrow, CSV or JSONL.",
        "stats": "Count by topic, queue, tag, producer or hour.",
        "diff": "Compare two stores, such as master and slave.",
    },
    "wire": {
        "serve": "Serve a store as a name server and broker.",
        "topics": "List, create, change or delete topics.",
        "cluster": "List the brokers of a cluster and their health.",
        "produce": "Send messages to a broker.",
        "consume": "Take messages from a broker.",
        "mirror": "Copy a live master's log, as a slave does.",
    },
    "more": {
        "help": "Explain a verb; write manual pages.",
        "config": "Show default options; what keys of a broker.conf do.",
        "completion": "Print a completion script for your shell.",
    },
}

# a verb is a module of its name, but for a small one that lies beside its sister
_BESIDE = {"resume": "undo", "topics": "cluster", "completion": "help"}

VERBS: dict[str, Verb] = {
    name: Verb(f"rmqctl.commands.{group}.{_BESIDE.get(name, name)}:{name}", group, short_help)
    for group, verbs in _VERBS.items()
    for name, short_help in verbs.items()
}


class VerbGroup(click.Group):
    """A group whose commands come from a table of names, so that --help imports none of them."""

    def __init__(self, *args: Any, verbs: dict[str, Verb], **attributes: Any) -> None:
        """`verbs` by name, in the order in which --help shows them; the rest is click.Group's."""
        super().__init__(*args, **attributes)
        self.verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, nothing imported."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None if there is no such verb."""
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return None
        from importlib import import_module

        module, _, attribute = verb.target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{verb.target} is not a click command")
        from rmqctl.flags.types import TEXT  # as every verb does, but not `--help`

        for parameter in command.params:
            if parameter.type is click.STRING:
                parameter.type = TEXT
        if ctx.obj is not None:
            _put_defaults(ctx, cmd_name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of `args`; a usage error with the nearest verb without one."""
        name = args[0]
        if name in self.verbs or name.startswith("-") or ctx.resilient_parsing:
            found = super().resolve_command(ctx, args)
            if isinstance(found[1], ListingGroup):
                found = (found[0], found[1].meant_by(found[2], ctx), found[2])
            if found[1] is not None and not ctx.resilient_parsing:
                _refuse_misread(ctx, found[1], found[2])
            return found
        more = f" `{ctx.command_path}` without an action lists." if isinstance(self, ListingGroup) else ""
        raise no_such_verb(name, self.verbs, ctx, more)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs under the headings of their groups."""
        width = max(map(len, self.verbs), default=0)
        for group, heading in GROUPS.items():
            rows = [(name.ljust(width), verb.short_help) for name, verb in self.verbs.items() if verb.group == group]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Verbs and flags that start with `incomplete`, nothing imported."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=verb.short_help)
            for name, verb in self.verbs.items()
            if name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)


class ListingGroup(VerbGroup):
    """A verb that lists, with actions that change what it lists: without an action it is `listing`."""

    def __init__(self, listing: click.Command, **attributes: Any) -> None:
        """`listing` gives its name and help; `attributes` as of VerbGroup."""
        super().__init__(listing.name, help=listing.help, **attributes)
        self.listing = listing

    def meant_by(self, arguments: list[str], context: click.Context) -> click.Command:
        """Return the group itself where `arguments` begin with a name, else the listing."""
        names_action = bool(arguments) and not arguments[0].startswith("-")
        is_completing = context.resilient_parsing and not arguments
        return self if names_action or is_completing else self.listing

    def get_help(self, ctx: click.Context) -> str:
        """Return the help of the listing, which names the actions."""
        return self.listing.get_help(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Actions, and the flags of the listing."""
        return super().shell_complete(ctx, incomplete) + self.listing.shell_complete(ctx, incomplete)


def actions_of(command: click.Command) -> list[click.Command]:
    """The commands that a verb is: itself, or those of its actions."""
    if not isinstance(command, VerbGroup):
        return [command]
    found = (command.get_command(click.Context(command), name) for name in command.verbs)
    listing = [command.listing] if isinstance(command, ListingGroup) else []
    return listing + [action for action in found if action is not None]


def every_action(group: VerbGroup) -> dict[str, click.Command]:
    """Every command there is, by its verb, and where that has actions by verb and action."""
    found: dict[str, click.Command] = {}
    for name in group.verbs:
        command = group.get_command(click.Context(group), name)
        for action in [] if command is None else actions_of(command):
            is_verb = action is command or (isinstance(command, ListingGroup) and action is command.listing)
            found[name if is_verb else f"{name} {action.name}"] = action
    return found


def _defaults(profile: str | None) -> Any:
    """What config.toml gives (rmqctl.profiles.FileDefaults), or None."""
    path = config_file()
    if not path or not (profile or os.path.lexists(path)):
        return None
    from pathlib import Path

    from rmqctl.profiles import read_defaults

    return read_defaults(Path(path), profile)


def _put_defaults(context: click.Context, name: str, command: click.Command) -> None:
    """Let config.toml's defaults of a verb, or of an action of one, count where its command line is parsed."""
    verb = name if context.parent is None else f"{context.info_name} {name}"
    meant = command.listing if isinstance(command, ListingGroup) else command
    given = context.obj.of(meant, verb)
    context.default_map = {**(context.default_map or {}), name: {key: one.value for key, one in given.items()}}


def no_such_verb(name: str, verbs: Iterable[str], context: click.Context, more: str = "") -> click.UsageError:
    """What to say of a verb that there is not, with the nearest one and `more`."""
    from difflib import get_close_matches

    is_long = len(name) >= _SHORTEST_GUESSED
    nearest = get_close_matches(name.lower(), verbs, n=1, cutoff=0.5) if is_long else []
    advice = f" Did you mean '{nearest[0]}'?" if nearest else ""
    return click.UsageError(f"there is no verb '{name}'.{advice}{more}", context)


def _refuse_misread(parent: click.Context, command: click.Command, arguments: list[str]) -> None:
    """A usage error for an option with a value that is given twice: click would take the last one in silence; and for a
    store without `-s` before it, which click would not know what to make of."""
    context = click.Context(command, info_name=command.name, parent=parent)
    try:
        _, rest, given = command.make_parser(context).parse_args(list(arguments))
    except click.UsageError:
        return  # told where the command itself is parsed
    options = [option for option in given if isinstance(option, click.Option)]
    for option in options:
        is_one = not (option.multiple or option.is_flag or option.count)
        if is_one and sum(other is option for other in options) > 1:
            names = "' / '".join(option.opts)
            raise click.UsageError(f"'{names}' is given more than once, and only one can be meant", context)
    has_store = any(isinstance(one, click.Option) and "-s" in one.opts for one in command.params)
    if rest and has_store and (os.path.isdir(rest[0]) or "://" in rest[0]):
        raise click.UsageError(f"unexpected argument '{rest[0]}': a store is named with -s", context)
    if rest and command.name == "query":
        ways = f"`rmqctl query -k {rest[0]}` or `rmqctl where {rest[0]}`"
        raise click.UsageError(f"unexpected argument '{rest[0]}': did you mean {ways}?", context)


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(f"{PROGRAM} {version()}")
    ctx.exit()


def _take_defaults(ctx: click.Context, _parameter: click.Parameter, profile: str | None) -> None:
    if not ctx.resilient_parsing:
        ctx.obj = _defaults(profile)


cli = VerbGroup(
    name=PROGRAM,
    verbs=VERBS,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Inspect, check, repair and write Apache RocketMQ stores offline, even damaged ones.",
    epilog="'rmqctl VERB --help' explains a verb. The store is -s DIR, else $RMQCTL_STORE, else what -c broker.conf "
    "says, else ~/store.",
    params=[
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
            help="Print the version and exit.",
        ),
        click.Option(
            ["--profile"], metavar="NAME", expose_value=False, is_eager=True, callback=_take_defaults,
            help="A profile of config.toml: `rmqctl config`.",
        ),
        # understood before anything is parsed, wherever it stands
        click.Option([NO_PAGER], is_flag=True, expose_value=False, help="Do not use a pager."),
    ],
)  # fmt: skip


def main(arguments: list[str] | None = None, commands: click.Group = cli) -> int:
    """Run the command line and return its exit code (rmqctl/output/outcome.py). Never raises.

    `arguments` are by default those of the process; `commands` is for tests.
    """
    given = sys.argv[1:] if arguments is None else arguments
    with paged(_is_long(given)):
        return concluded(lambda: _run(given, commands), as_json=wants_json(given))


def _is_long(arguments: list[str]) -> bool:
    """Return whether a command line may print a long text without being watched."""
    if NO_PAGER in arguments or {"-f", "--follow"} & set(arguments) or os.environ.get(COMPLETION_VARIABLE):
        return False
    verb = next((VERBS[one] for one in arguments if one in VERBS), None)
    if verb is None or {"-h", "--help"} & set(arguments):
        return True
    return verb.group == "look" or verb in (VERBS["log"], VERBS["stats"], VERBS["diff"], VERBS["help"])


def _run(arguments: list[str], commands: click.Group) -> int:
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(commands, {}, PROGRAM, COMPLETION_VARIABLE, instruction)
    if speech() is not None:
        from rmqctl.language.help import formatter

        click.Context.formatter_class = formatter()
    try:
        with commands.make_context(PROGRAM, list(arguments)) as context:
            result = commands.invoke(context)
        return result if isinstance(result, int) and not isinstance(result, bool) else exit_codes.OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not _is_of_click(error):
            raise
        # what click prints by itself, such as help, does not go through Output
        raise output_failed(error) from error
    except click.Abort as abort:
        raise KeyboardInterrupt from abort
    except click.ClickException as error:
        return _wrong_usage(error, wants_json(arguments))


def _is_of_click(error: OSError) -> bool:
    """Whether click's own printing raised it: click touches no other file that is not its own to complain of."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("click.")


def _wrong_usage(error: click.ClickException, as_json: bool) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        talk(context.get_help(), keep_newlines=True)
        return exit_codes.USAGE
    message = " ".join(error.format_message().split())
    if context is None:
        return wrong_usage(message, as_json, None)
    if as_json:
        context.formatter_class = click.HelpFormatter  # the same in every language
        return wrong_usage(message, as_json, context.get_usage())
    advice = said(f"Try '{context.command_path} --help'.")
    return wrong_usage(message, as_json, f"{context.get_usage()}\n{advice}")


if __name__ == "__main__":
    sys.exit(main())
