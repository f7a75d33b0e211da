"""Writes the generated part of docs/ (commands, config, errors, findings); `--check` only says whether it is stale."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from rmqctl.documents.findings import findings_document
from rmqctl.documents.manual import manual_pages
from rmqctl.documents.network import network_document
from rmqctl.exit_codes import MEANINGS, exit_code_of
from rmqctl.formats.errors import RmqctlError
from rmqctl.main import GROUPS, PROGRAM, VERBS, actions_of, cli
from rmqctl.store.config.config_keys import config_document

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
