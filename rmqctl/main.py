"""`rmqctl`: finds the verb, imports only its module, and turns every outcome into a message and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

import click

from formats.errors import NotAStoreError, RmqctlError
from rmqctl import exit_codes
from rmqctl.output import talk
from rmqctl.sanitise import visible

PROGRAM = "rmqctl"
COMPLETION_VARIABLE = "_RMQCTL_COMPLETE"
DEBUG_VARIABLE = "RMQCTL_DEBUG"


class Verb(NamedTuple):
    """A command that is imported only when it is called; `target` is "module:attribute"."""

    target: str
    group: str
    short_help: str


GROUPS: dict[str, str] = {
    "look": "Look (never changes a store)",
    "change": "Change",
    "many": "Many messages, many machines",
    "more": "More",
}

VERBS: dict[str, Verb] = {
    "info": Verb("rmqctl.commands.info:info", "look", "What a store holds, and what state it is in."),
    "ls": Verb("rmqctl.commands.ls:ls", "look", "List topics, queues or files."),
    "cat": Verb("rmqctl.commands.cat:cat", "look", "Print messages, in commitlog or queue order."),
    "dump": Verb("rmqctl.commands.dump:dump", "look", "Any store file, field by field, with byte offsets."),
    "query": Verb("rmqctl.commands.query:query", "look", "Find messages by key, id, offset or time."),
    "append": Verb("rmqctl.commands.append:append", "change", "Store one message, or many from JSON Lines."),
    "recover": Verb("rmqctl.commands.recover:recover", "change", "Mend a store after a crash."),
    "rebuild": Verb("rmqctl.commands.rebuild:rebuild", "change", "Make queues and index anew from the commitlog."),
    "clean": Verb("rmqctl.commands.clean:clean", "change", "Remove expired files, as the broker would."),
    "completion": Verb("rmqctl.commands.completion:completion", "more", "Print a completion script for your shell."),
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
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` name; a usage error with the nearest verb if there is none."""
        name = args[0]
        if name in self.verbs or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        nearest = get_close_matches(name.lower(), self.verbs, n=1, cutoff=0.5)
        advice = f" Did you mean '{nearest[0]}'?" if nearest else ""
        raise click.UsageError(f"there is no verb '{name}'.{advice}", ctx)

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


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(f"{PROGRAM} {_version()}")
    ctx.exit()


def _version() -> str:
    from importlib.metadata import version

    return version(PROGRAM)


cli = VerbGroup(
    name=PROGRAM,
    verbs=VERBS,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Read, query, append to, recover, rebuild and clean a store of Apache RocketMQ, without a broker.",
    epilog="'rmqctl VERB --help' explains a verb. The store is -s DIR, else $RMQCTL_STORE, else what -c broker.conf "
    "says, else ~/store.",
    params=[
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
            help="Print the version and exit.",
        )
    ],
)  # fmt: skip


def main(arguments: list[str] | None = None, commands: click.Group = cli) -> int:
    """Run the command line and return its exit code (rmqctl/exit_codes.py). Never raises.

    `arguments` are by default those of the process; `commands` is for tests.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a locale that cannot print a character shows its escape instead of failing
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments, commands)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _closed_pipe()
    except KeyboardInterrupt:
        talk(f"{PROGRAM}: interrupted")
        return exit_codes.INTERRUPTED
    except OSError as error:
        # only the last flush of stdout can end here: _run turns everything else into a code
        _discard_stdout()
        talk(f"{PROGRAM}: cannot write to standard output: {error.strerror or error}")
        return exit_codes.WRITE_FAILED


def _run(arguments: list[str], commands: click.Group) -> int:
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(commands, {}, PROGRAM, COMPLETION_VARIABLE, instruction)
    try:
        with commands.make_context(PROGRAM, list(arguments)) as context:
            result = commands.invoke(context)
        return result if isinstance(result, int) and not isinstance(result, bool) else exit_codes.OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort as abort:
        raise KeyboardInterrupt from abort
    except click.ClickException as error:
        return _wrong_usage(error)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except RmqctlError as error:
        return _known_error(error)
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, the user gets a sentence and code 70
        return _bug(error)


def _wrong_usage(error: click.ClickException) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        click.echo(context.get_help(), err=True)
        return exit_codes.USAGE
    talk(f"{PROGRAM}: {' '.join(error.format_message().split())}")
    if context is not None:
        talk(context.get_usage())
        talk(f"Try '{context.command_path} --help'.")
    return exit_codes.USAGE


def _known_error(error: RmqctlError) -> int:
    talk(f"{PROGRAM}: {error}")
    hint = error.hint
    if hint is None and isinstance(error, NotAStoreError):
        hint = "name the store with -s DIR, $RMQCTL_STORE or -c broker.conf"
    if hint:
        talk(f"  {hint}")
    _show_traceback(error)
    return exit_codes.exit_code_of(error)


def _bug(error: Exception) -> int:
    talk(f"{PROGRAM}: unexpected {type(error).__name__}: {error}")
    shown = _show_traceback(error)
    advice = "please report it with the text above" if shown else f"{DEBUG_VARIABLE}=1 shows where it comes from"
    talk(f"  This is a bug in {PROGRAM} {_version()}; {advice}.")
    return exit_codes.BUG


def _show_traceback(error: Exception) -> bool:
    if os.environ.get(DEBUG_VARIABLE, "0") in ("", "0"):
        return False
    import traceback

    text = "".join(traceback.format_exception(error))
    sys.stderr.write(visible(text, keep_newlines=True))
    return True


def _closed_pipe() -> int:
    """Nobody reads stdout any more, which is how `| head` ends: no error, and the interpreter must not flush again."""
    _discard_stdout()
    return exit_codes.OK


def _discard_stdout() -> None:
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
