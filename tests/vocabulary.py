"""Words that style bans, counted by kind of text: documents, help, findings, messages, docstrings.

`python -m tests.vocabulary` fails where a kind has more of them than ALLOWED, and prints where they are with `--list`.
An allowance may only shrink.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("formats", "store", "network", "pipeline", "rmqctl")

BANNED = re.compile(
    r"\b(told|tells? of|anew|nobody|somebody|anybody|whoever|whatever|what is no|(?-i:is none)|is meant|so many"
    r"|lies|stands|(?<!machine-)(?<!--)rooms?|houses?|floors?|by lot|given back|gave up|the matter|of ours|harmless"
    r"|behind (?:the|its|every) end)\b",
    re.IGNORECASE,
)
# a state of half messages in JSON, and names of files and identifiers, are no prose
_CODE = re.compile(r"```.*?```|``.*?``|`[^`\n]*`", re.DOTALL)

ALLOWED = {"document": 0, "help": 0, "finding": 0, "message": 0, "docstring": 0}
"""Banned words by kind of text. Lower a number when texts of its kind were rewritten; never raise one."""


class Hit(NamedTuple):
    """A banned word: the kind of text, its place, the word and the words around it."""

    kind: str
    place: str
    word: str
    context: str


def hits() -> Iterator[Hit]:
    """Yield every banned word of documents, help, findings, messages and docstrings."""
    yield from _documents()
    yield from _helps()
    yield from _findings()
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from _source(path)


def found_in(kind: str, place: str, text: str) -> Iterator[Hit]:
    """Yield the banned words of one text; what is set as code does not count."""
    plain = _CODE.sub(" ", text)
    for match in BANNED.finditer(plain):
        around = plain[max(0, match.start() - 40) : match.end() + 30]
        yield Hit(kind, place, match[0].lower(), " ".join(around.split()))


def _documents() -> Iterator[Hit]:
    for path in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        yield from found_in("document", path.name, path.read_text(encoding="utf-8"))


def _helps() -> Iterator[Hit]:
    import click

    from rmqctl.main import VERBS, actions_of, cli

    for name, verb in VERBS.items():
        yield from found_in("help", name, verb.short_help)
        command = cli.get_command(click.Context(cli), name)
        for action in actions_of(command) if command is not None else []:
            place = name if action.name == name else f"{name} {action.name}"
            texts = [action.help or "", action.epilog or ""]
            texts += [one.help or "" for one in action.params if isinstance(one, click.Option)]
            for text in texts:
                yield from found_in("help", place, text)


def _findings() -> Iterator[Hit]:
    from rmqctl.store.check.catalogue import catalogue

    for kind in catalogue().values():
        for text in (kind.title, kind.meaning, kind.causes, kind.action):
            yield from found_in("finding", kind.code, text)


def _source(path: Path) -> Iterator[Hit]:
    """Yield the banned words of a module's docstrings and of its other texts with a blank in them, its messages."""
    place = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.add(node.value)
            yield from found_in("docstring", f"{place}:{node.lineno}", node.value.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docstrings and isinstance(node.value, str):
            yield from found_in("message", f"{place}:{node.lineno}", node.value) if " " in node.value else ()


def main(arguments: list[str]) -> int:
    """Return 1 where a kind of text has more banned words than it may have."""
    found = list(hits())
    if "--list" in arguments:
        for hit in found:
            sys.stdout.write(f"{hit.kind:<10}{hit.place:<50}{hit.word:<12}{hit.context}\n")
    status = 0
    for kind, most in ALLOWED.items():
        count = sum(hit.kind == kind for hit in found)
        if count > most:
            sys.stderr.write(
                f"vocabulary: {count} banned words in {kind} texts, {most} are allowed (--list shows them)\n"
            )
            status = 1
        elif count < most:
            sys.stderr.write(f"vocabulary: {kind} has only {count}; lower ALLOWED in tests/vocabulary.py from {most}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
