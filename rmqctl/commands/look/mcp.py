"""`rmqctl mcp`: the verbs that look, as read-only tools of the Model Context Protocol on standard input and output."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.formats.errors import RefusedError, RmqctlError, UsageError
from rmqctl.opening import COMPLETION_VARIABLE, STORE_VARIABLE
from rmqctl.output import outcome as exit_codes

if TYPE_CHECKING:
    from mcp import types

VERBS = (
    "info", "doctor", "check", "predict", "ls", "du", "cat", "query", "where", "groups", "offsets show", "delays",
    "dlq list", "stats", "diff", "log", "acl", "help",
)  # fmt: skip
BODIES = ("body", "body_base64", "stored_body_base64")
"""Fields of messages that are left out without --bodies."""
MOST_BYTES = 65_536
"""Bytes of an answer, of UTF-8."""

_FORMATS = {"json", "format", "bytes", "no-pager", "columns", "format-string", "stored-bodies", "plot"}
_LEFT_OUT = _FORMATS | {
    "as-recovered", "resume", "follow",  # write files; do not end
    "master", "conf", "namesrv", "tls", "tls-check-name",  # other machines
    "prune", "older-than", "dry-run", "yes",  # change
    "secrets",
}  # fmt: skip
# these answer what is in a body
_OF_BODIES = {"grep", "traces"}
_STORE = "store"
_AT_ONCE = 2
_PATIENCE_SECONDS = 5.0
_MOST_ERROR_BYTES = 8_192
_ASK_FOR_LESS = "ask for less by limit, topic, queue, offset, begin or end"
_ENDED = "rmqctl: terminated\n"
_running: set[subprocess.Popen[bytes]] = set()


class Stores(NamedTuple):
    """Directories that tools may read: `named` stores and everything below `roots`. All are absolute, without links."""

    named: tuple[Path, ...]
    roots: tuple[Path, ...]

    def allowed(self, given: str | None) -> str:
        """Return the path of a store, without links. UsageError without one; RefusedError for another place."""
        if given is None and len(self.named) != 1:
            raise UsageError("the argument 'store' is missing", hint=f"name one of: {self}")
        try:
            path = self.named[0] if given is None else Path(given).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise RefusedError(f"not a path: {error}", file=given, hint=f"name one of: {self}") from error
        if path not in self.named and not any(path.is_relative_to(root) for root in self.roots):
            raise RefusedError("this store is not among those of `rmqctl mcp`", file=given, hint=f"name one of: {self}")
        return str(path)

    def __str__(self) -> str:
        return ", ".join([*map(str, self.named), *(f"a store below {root}" for root in self.roots)])


class _Verb(NamedTuple):
    """A verb and its parameters by the names of a tool's arguments."""

    words: list[str]
    command: click.Command
    parameters: dict[str, click.Parameter]

    def schema(self, stores: Stores) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        properties = {name: _schema(one) for name, one in self.parameters.items()}
        required = [name for name, one in self.parameters.items() if one.required]
        for name in self.places:
            properties[name] = {"type": "string", "description": f"Store directory: {stores}."}
            if len(stores.named) != 1:
                required.append(name)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    @property
    def places(self) -> list[str]:
        """Return the arguments that name stores."""
        if self.words == ["diff"]:
            return ["a", "b"]
        return [_STORE] if any(one.name == "store_path" for one in self.command.params) else []

    def command_line(self, arguments: Mapping[str, Any], stores: Stores) -> list[str]:
        """Return the words after `rmqctl`. Raises UsageError for arguments that the schema refuses."""
        import jsonschema

        try:
            jsonschema.validate(arguments, self.schema(stores))
        except jsonschema.ValidationError as error:
            raise UsageError(error.message, hint=f"arguments: {', '.join([*self.places, *self.parameters])}") from error
        words, rest = list(self.words), []
        for name in self.places:
            path = stores.allowed(arguments.get(name))
            if name == _STORE:
                words.append(f"--store={path}")
            else:
                rest.append(path)
        for name, parameter in self.parameters.items():
            value = arguments.get(name)
            if value is None or value is False:
                continue
            values = value if isinstance(value, list) else [value]
            if isinstance(parameter, click.Argument):
                rest += map(str, values)
            else:
                words += [f"--{name}" if one is True else f"--{name}={one}" for one in values]
        return words + ([] if self.words == ["help"] else ["--json"]) + ["--", *rest]


@click.command(
    epilog="""\b
Examples:
  rmqctl mcp -s /data/store
  rmqctl mcp -s /data/a -s /data/b --root /snapshots --bodies

Exit code 2: no store or root."""
)
@click.option(
    "-s", "--store", "places", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
    multiple=True, help="Store that tools may read. Repeatable.",
)  # fmt: skip
@click.option(
    "--root", "roots", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR", multiple=True,
    help="Allow every store below this directory. Repeatable.",
)  # fmt: skip
@click.option("--bodies", is_flag=True, help="Show message bodies; permit arguments that search them.")
@click.option(
    "--timeout", type=click.IntRange(1, 86_400), default=60, show_default=True, metavar="SECONDS",
    help="End a verb that takes longer.",
)  # fmt: skip
def mcp(places: tuple[Path, ...], roots: tuple[Path, ...], bodies: bool, timeout: int) -> int:
    """Serve the verbs that look as tools for assistants (Model Context Protocol, stdio).

    Each tool runs its verb with --json and never changes a store. Other directories are refused, links resolved.
    Answers end after 64 KiB.
    """
    import anyio
    from mcp.server.stdio import stdio_server

    stores = Stores(tuple(one.resolve() for one in places), tuple(one.resolve() for one in roots))
    if not stores.named and not stores.roots:
        raise UsageError("no store is named", hint="add -s STORE or --root DIR")
    server = _server(stores, bodies, timeout)

    async def serve() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_end_by_signal)
            async with stdio_server() as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
            group.cancel_scope.cancel()

    anyio.run(serve)
    return exit_codes.OK


async def _end_by_signal() -> None:
    """End the process, and the verbs that it runs, by a signal: the thread that reads stdin cannot be interrupted."""
    import anyio

    with anyio.open_signal_receiver(*exit_codes.ending_signals()) as signals:
        async for number in signals:
            for process in list(_running):
                _end(process, signal.SIGTERM)
            os._exit(128 + number)


def tools(bodies: bool) -> dict[str, _Verb]:
    """Return the verbs that look, by the names of their tools."""
    from rmqctl.main import cli, every_action

    commands, left_out = every_action(cli), _LEFT_OUT if bodies else _LEFT_OUT | _OF_BODIES
    found = {}
    for verb in VERBS:
        named = {_name(one): one for one in commands[verb].params if not isinstance(one.type, (click.Path, click.File))}
        offered = {name: one for name, one in named.items() if name not in left_out}
        found[verb.replace(" ", "_")] = _Verb(verb.split(), commands[verb], offered)
    return found


def _server(stores: Stores, bodies: bool, seconds: float) -> Any:
    import anyio
    from mcp import types
    from mcp.server import Server

    from rmqctl.store.status import version

    verbs = tools(bodies)
    hints = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    listed = [
        types.Tool(
            name=name, description=_described(verb.command), input_schema=verb.schema(stores), annotations=hints
        )
        for name, verb in verbs.items()
    ]  # fmt: skip
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def list_tools(_context: Any, _page: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if asked.name not in verbs:
                raise UsageError(f"there is no tool '{asked.name}'", hint=f"tools: {', '.join(verbs)}")
            words = verbs[asked.name].command_line(asked.arguments or {}, stores)
            answer = await anyio.to_thread.run_sync(lambda: _answer(words, bodies, seconds), limiter=limiter)
        except RmqctlError as error:
            answer = ([exit_codes.error_line(error)], True)
        texts, is_error = answer
        content: list[Any] = [types.TextContent(type="text", text=text) for text in texts]
        return types.CallToolResult(content=content, is_error=is_error)

    return Server("rmqctl", version=version(), on_list_tools=list_tools, on_call_tool=call_tool)


def _answer(words: list[str], bodies: bool, seconds: float) -> tuple[list[str], bool]:
    """Run a verb. Return its output, bounded, and what it printed on stderr; whether that has an error.

    UsageError for words that no process can have; RefusedError where it takes more than `seconds`.
    """
    unwanted = (STORE_VARIABLE, COMPLETION_VARIABLE, "RMQCTL_PROFILE")
    # without config.toml: a default there may name a server
    environment = {name: value for name, value in os.environ.items() if name not in unwanted} | {"RMQCTL_CONFIG": ""}
    command, is_late = [sys.executable, "-P", "-m", "rmqctl", *words], threading.Event()
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise UsageError(f"the arguments cannot be passed on: {error}") from error
        with _ended_after(process, seconds, is_late):
            assert process.stdout is not None
            text, cut = _bounded(process.stdout, (lambda line: line) if bodies else _without_bodies)
            if cut is None:
                process.wait()
        if is_late.is_set():
            hint = "ask for less: a topic, a time span, --quick; or start `rmqctl mcp` with a longer --timeout"
            raise RefusedError(f"`{words[0]}` took more than {seconds:g} s and was ended", hint=hint)
        errors.seek(0)
        said = errors.read(_MOST_ERROR_BYTES).decode("utf-8", "replace")
    if cut is not None:
        said = said.removesuffix(_ENDED) + f"cut after {MOST_BYTES} bytes: {cut}\n"
    is_misused = process.returncode == exit_codes.USAGE
    is_error = is_misused or any(line.startswith('{"error": ') for line in said.splitlines())
    texts = [text, said] if said else [text]
    return [one for one in texts if one] if is_error else texts, is_error


@contextlib.contextmanager
def _ended_after(process: subprocess.Popen[bytes], seconds: float, is_late: threading.Event) -> Iterator[None]:
    """End the process, and those that it started, after `seconds` or with the block."""

    def give_up() -> None:
        is_late.set()
        _end(process, signal.SIGKILL)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    _running.add(process)
    try:
        yield
    finally:
        timer.cancel()
        if process.poll() is None:
            _end(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_SECONDS)
        if process.poll() is None:
            _end(process, signal.SIGKILL)
        process.wait()
        _running.discard(process)
        assert process.stdout is not None
        process.stdout.close()


def _end(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _bounded(lines: Any, shown: Callable[[bytes], bytes]) -> tuple[str, str | None]:
    """Return lines of at most MOST_BYTES in all, and what to say if more were there. Of a longer first line its lists
    are cut, else the line."""
    found = bytearray()
    for line in map(shown, lines):
        if len(found) + len(line) > MOST_BYTES:
            if found:
                return found.decode("utf-8", "ignore"), _ASK_FOR_LESS
            return _with_shorter_lists(line) or (line[:MOST_BYTES].decode("utf-8", "ignore"), _ASK_FOR_LESS)
        found += line
    return found.decode("utf-8", "replace"), None


def _with_shorter_lists(line: bytes) -> tuple[str, str] | None:
    """Return an object with the beginnings of its longest lists, and of how many entries; None where that is not it."""
    from rmqctl.output.output import json_line

    try:
        row = json.loads(line)
    except ValueError:
        return None
    lengths: dict[str, tuple[int, list[Any]]] = {}
    while len(text := json_line(row).encode()) > MOST_BYTES:
        name, longest = max(_lists(row), key=lambda one: len(json.dumps(one[1])), default=("", []))
        if len(longest) < 2:  # one entry says most
            return None
        lengths.setdefault(name, (len(longest), longest))
        del longest[len(longest) // 2 :]
    kept = (f"{len(longest)} of {length} {name}" for name, (length, longest) in lengths.items())
    return text.decode(), f"{', '.join(kept)} are shown"


def _lists(row: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of an object and of those in it, by their fields."""
    for name, value in row.items() if isinstance(row, dict) else ():
        if isinstance(value, list):
            yield name, value
        else:
            yield from ((f"{name}.{below}", one) for below, one in _lists(value))


def _without_bodies(line: bytes) -> bytes:
    from rmqctl.output.output import json_line

    try:
        row = json.loads(line)
    except ValueError:
        return line
    if not isinstance(row, dict) or not row.keys() & set(BODIES):
        return line
    return json_line({name: value for name, value in row.items() if name not in BODIES}).encode()


def _described(command: click.Command) -> str:
    import inspect

    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _name(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len).lstrip("-")


def _schema(parameter: click.Parameter) -> dict[str, Any]:
    """Return the JSON Schema of one parameter."""
    kind: dict[str, Any] = {"type": "string"}
    if isinstance(parameter, click.Option) and parameter.is_flag:
        kind = {"type": "boolean"}
    elif isinstance(parameter.type, click.Choice):
        kind = {"type": "string", "enum": list(map(str, parameter.type.choices))}
    elif isinstance(parameter.type, click.types.IntParamType):
        kind = {"type": "integer"}
    if (isinstance(parameter, click.Option) and parameter.multiple) or parameter.nargs == -1:
        kind = {"type": "array", "items": kind}
    text = parameter.help if isinstance(parameter, click.Option) else parameter.metavar
    return kind | ({"description": text} if text else {})
