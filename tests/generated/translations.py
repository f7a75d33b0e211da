"""What there is to translate, and whether it is: `python -m tests.generated.translations` writes the PO files of
rmqctl/locale, keeping what is translated; `--check` names what is missing, stale, fuzzy or does not fit its original.

Help, findings and labels are whole: all that click, findings.toml and the schemas hold. Of messages those of the
modules and calls named here have to be translated; an entry for any other text of the sources may be added by hand.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import click

from rmqctl.language.catalogue import FILES, LOCALES, PLACEHOLDER, Translation, entries, path_of
from rmqctl.language.help import cells, option_text, paragraphs
from rmqctl.main import GROUPS, VERBS, VerbGroup, cli, every_action
from rmqctl.network.broker.config_keys import broker_keys
from rmqctl.output.outcome import MEANINGS
from rmqctl.output.table import title_of
from rmqctl.store.check.catalogue import catalogue
from rmqctl.store.files.outputs import new_file
from rmqctl.store.info.counts import KINDS
from tests.generated.unwritten import CLICK, COMPOSED, COUNTED, HELP, SYSTEM

ROOT = Path(__file__).resolve().parents[2]
_TOPS = ("formats", "store", "network", "pipeline", "rmqctl")
# all texts of these
_WHOLE = (
    "formats/errors.py",
    "formats/message.py",
    "rmqctl/commands/change/",
    "rmqctl/commands/consumers/",
    "rmqctl/commands/look/doctor.py",
    "rmqctl/commands/look/predict.py",
    "rmqctl/commands/many/diff.py",
    "rmqctl/commands/many/stats.py",
    "rmqctl/diagnosis.py",
    "rmqctl/finding.py",
    "rmqctl/report/page.py",
    "rmqctl/output/outcome.py",
    "rmqctl/reports/",
    "store/answers/",
    "store/clean/",
    "store/check/",
    "store/journal/",
    "store/compare/entries.py",
    "store/predict/both_queues.py",
    "store/predict/entries.py",
    "store/predict/prediction.py",
    "store/predict/surroundings.py",
    "store/read/tiered_index.py",
    "store/recover/",
    "store/repair/tiered_table.py",
    "store/salvage/",
    "store/write/opening.py",
    "store/write/put.py",
)
# of these modules what is given to the calls of _CALLS; what a broker answers is on the wire, and English
_SPOKEN = (
    "formats/",
    "network/broker/tables.py",
    "network/clients/",
    "network/grpc/server.py",
    "network/ha/",
    "network/remoting/server.py",
    "network/remoting/tls.py",
    "network/serving.py",
    "network/topic_config.py",
    "pipeline/",
    "rmqctl/",
    "store/",
)
_CALLS = re.compile(
    r"[A-Za-z_]*Error|Opening|Finding|said|talk|talk_paragraph|print_paragraph|heading|note|note_done|"
    r"progress|_say|agrees|fail|in_background|TextScreen"
)
_GIVEN = frozenset("hint message advice note sentence detail why".split())

# texts for no person
_NOT_SAID = re.compile(
    r"failed to map segment|\w?annot allocate memory|\w?o many open files|start new thread|.*\\b.*|mqadmin .*"
)
_NUMBER = re.compile(r"\{N [^{}]+\}")
_WORDS = re.compile(r"[A-Za-z]{2,}")
_FLAGS = re.compile(
    rf"(?<![\w-])--?[a-z][\w-]*|RMQ-[A-Z]+-\d+|(?<![.\w])rmqctl (?:{'|'.join(VERBS)})\b|"
    r"\bmqadmin [a-z]+[A-Z]\w+|\$[A-Z_]{4,}"
)
_CODE = re.compile(r"`([^`]*)`")


# Texts, by the file of the catalogue that they belong to.


@cache
def help_texts() -> dict[str, None]:
    """Return all that --help prints."""
    found = dict.fromkeys([*HELP, *GROUPS.values(), *(verb.short_help for verb in VERBS.values())])
    found |= _help_of(cli)
    for command in (*every_action(cli).values(), *_groups()):
        found |= _help_of(command)
        inner = command.verbs.values() if isinstance(command, VerbGroup) else ()
        found |= dict.fromkeys(one.short_help for one in inner)
    return found


def _groups() -> Iterator[VerbGroup]:
    """The verbs that have actions."""
    for name in VERBS:
        command = cli.get_command(click.Context(cli), name)
        if isinstance(command, VerbGroup):
            yield command


def _help_of(command: click.Command) -> dict[str, None]:
    found: dict[str, None] = {}
    for text in (command.help, command.epilog):
        for as_it_is, part in paragraphs(text or ""):
            lines = part.strip("\n").splitlines() if as_it_is else []
            found |= dict.fromkeys(cell for line in lines for _, cell, is_text in cells(line) if is_text)
            if not as_it_is:
                found[part] = None
    context = click.Context(command, info_name=command.name)
    for option in command.params:
        record = option.get_help_record(context)
        if record is not None and option_text(record[1]):
            found[option_text(record[1])] = None
            named = re.search(r"\[default: ([^\];]* [^\];]*)", record[1])
            found |= {} if named is None else {named[1]: None}
    return {text.removesuffix(":") if text.removesuffix(":") in HELP else text: None for text in found}


def finding_texts() -> dict[str, None]:
    """Return all that findings.toml says in words."""
    kinds = catalogue().values()
    return {text: None for kind in kinds for text in (kind.title, kind.meaning, kind.causes, kind.action)}


def label_texts() -> dict[str, None]:
    """Return the names of columns and of lines of summaries, as the schemas of --json have them."""
    names: set[str] = set()
    for path in sorted((ROOT / "docs/schemas").glob("*.json")):
        _take_names(json.loads(path.read_text(encoding="utf-8")), names)
    for tree in _trees().values():
        _take_columns(tree, names)
    words = ["yes", "no", "error", "warning", "notice", "over time", "only", "fields", "rest", "unit", "empty", "text"]
    words += [*KINDS, "expired"]
    words += ["log file size", "uncertain", "rolled", "recalls", "created", "unreadable", "key", "hour"]
    words += ["first physical offset", "end physical offset", "physical offset a", "physical offset b"]
    forms = {form for name in names for form in (name.replace("_", " "), title_of(name))}
    return dict.fromkeys([*words, *sorted(forms)])


def _take_columns(tree: list[ast.AST], names: set[str]) -> None:
    """Names of columns, and keys of what is printed as a summary."""
    tables = [node.args[0] for node in tree if isinstance(node, ast.Call) and _name(node.func) == "rows" and node.args]
    shown = {_name(one) for one in tables}
    for one in tables:
        names |= set(_words_of(one)) if isinstance(one, ast.Tuple) else set()
    for node in tree:
        if isinstance(node, ast.Call) and _name(node.func) == "RowColumn":
            names |= {text for text in _templates(node.args[0]) if text}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            if any(_name(one).endswith("COLUMNS") or _name(one) in shown for one in node.targets):
                names |= set(_words_of(node.value))
        elif isinstance(node, ast.Call) and _name(node.func) == "record":
            names |= {key.value for one in ast.walk(node) if isinstance(one, ast.Dict) for key in one.keys
                      if isinstance(key, ast.Constant) and isinstance(key.value, str)}  # fmt: skip


def _take_names(schema: object, names: set[str]) -> None:
    if isinstance(schema, dict):
        names |= set(schema.get("properties", ()))
        for inner in schema.values():
            _take_names(inner, names)
    elif isinstance(schema, list):
        for inner in schema:
            _take_names(inner, names)


@cache
def message_texts() -> dict[str, None]:
    """Return the messages that have to be translated, and the number words in them."""
    found = dict.fromkeys(MEANINGS.values())
    for name, tree in _trees().items():
        if name.startswith(_WHOLE):
            found |= dict.fromkeys(_all_texts(tree))
        elif name.startswith(_SPOKEN):
            found |= dict.fromkeys(_spoken_texts(tree))
    known = help_texts()
    said = (text for text in found if _is_said(text) and option_text(text) not in known)
    short = (text for text in _short() if re.search("[A-Za-z]", PLACEHOLDER.sub("", text)))
    return dict.fromkeys([*CLICK, *SYSTEM, *COMPOSED, *said, *short, *_of_page(), *_of_keys()])


def _of_keys() -> Iterator[str]:
    """Yield what `config keys` says of each key."""
    return (_escaped(one.effect) for one in broker_keys())


def _of_page() -> Iterator[str]:
    """Yield what the template of the report says."""
    text = (ROOT / "rmqctl/report/page.html").read_text(encoding="utf-8")
    yield from re.findall(r'"([^"]+)"\|said', text)


def _short() -> Iterator[str]:
    """Yield what may be a single word: labels of progress bars and what they count, keys and heads of `browse`."""
    for name, tree in _trees().items():
        is_browse = name.startswith("rmqctl/browse/")
        for node in tree if name.startswith(("pipeline/", "rmqctl/")) else ():
            if isinstance(node, ast.Call) and _name(node.func) in ("progress", "waiting"):
                for one in (*node.args[:1], *node.args[2:]):
                    yield from (text for text in _templates(one) if text != "bytes")
            elif is_browse and isinstance(node, ast.Call) and _name(node.func) == "said":
                yield from _templates(node.args[0])
            elif is_browse and isinstance(node, ast.Assign) and _name(node.targets[0]) == "says":
                yield from (text for text in _templates(node.value) if text)


@cache
def _trees() -> dict[str, list[ast.AST]]:
    """All nodes of each module."""
    paths = [path for top in _TOPS for path in sorted((ROOT / top).rglob("*.py"))]
    return {
        path.relative_to(ROOT).as_posix(): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in paths
        if not path.is_relative_to(ROOT / "rmqctl/language")
    }


def _is_said(text: str) -> bool:
    bare = PLACEHOLDER.sub("", text)
    words = len(_WORDS.findall(bare)) + bool(PLACEHOLDER.search(text) and " " in bare.strip(" ,;:.()") + text[:1])
    words += len(_NUMBER.findall(text))
    is_text = " " in text.strip() and "\n" not in text and words > 1 and not _NOT_SAID.fullmatch(text)
    # nor a list of names
    is_list = re.fullmatch(r"\w+( \w+){7,}", text) and len(re.findall(r"[a-z][A-Z]|_", text)) > 2
    return is_text and not is_list


@cache
def all_texts() -> frozenset[str]:
    """Return every text of the sources as a msgid."""
    return frozenset(text for tree in _trees().values() for text in _all_texts(tree))


@cache
def nouns() -> dict[str, str]:
    """Return what is counted anywhere: `{n} message`, and its plural."""
    found = {f"{{n}} {one}": f"{{n}} {several}" for one, several in COUNTED.items()}
    for tree in _trees().values():
        for node in tree:
            if isinstance(node, ast.Call) and _name(node.func) == "counted" and len(node.args) > 1:
                for one in _words_of(node.args[1]):
                    several = next(_words_of(node.args[2])) if len(node.args) > 2 else f"{one}s"
                    found[f"{{n}} {one}"] = f"{{n}} {several}"
    return found


def _words_of(node: ast.expr) -> Iterator[str]:
    return (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


# Messages as msgids: each value of an f-string becomes a placeholder.


def _all_texts(tree: list[ast.AST]) -> Iterator[str]:
    skipped: set[int] = set()
    for node in tree:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))  # a docstring
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(one) for one in node.values if isinstance(one, ast.Constant)}
        if id(node) not in skipped and isinstance(node, ast.JoinedStr | ast.Constant):
            yield from _templates(node)


def _spoken_texts(tree: list[ast.AST]) -> Iterator[str]:
    for node in tree:
        if isinstance(node, ast.Call) and _CALLS.fullmatch(_name(node.func)):
            given = [*node.args, *(one.value for one in node.keywords if one.arg in _GIVEN)]
            for one in given:
                yield from _templates(one)
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_name(one) in _GIVEN for one in targets):
                yield from _templates(node.value)


def _templates(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield _escaped(node.value).strip(" ")
    elif isinstance(node, ast.JoinedStr):
        yield _template(node).strip(" ")
    elif isinstance(node, ast.IfExp):
        yield from _templates(node.body)
        yield from _templates(node.orelse)


def _template(node: ast.JoinedStr) -> str:
    seen: dict[str, int] = {}
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += _escaped(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            name = _placeholder(part.value)
            seen[name] = seen.get(name, 0) + 1
            text += f"{{{name}{'' if seen[name] == 1 or name.startswith('N ') else seen[name]}}}"
    return text


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _placeholder(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and _name(node.func) == "counted" and len(node.args) > 1:
        noun = node.args[1]
        if isinstance(noun, ast.Constant) and isinstance(noun.value, str):
            return f"N {noun.value}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return _plain(node.slice.value)
    if isinstance(node, ast.Call):
        return _plain(_name(node.func))
    return _plain(_name(node))


def _plain(name: str) -> str:
    name = re.sub(r"[^a-z0-9_]", "_", name.lower()).strip("_")
    return name if name and name[0].isalpha() else "value"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


# The files.

_EXTRACTED: dict[str, Callable[[], dict[str, None]]] = {
    "help": help_texts,
    "findings": finding_texts,
    "labels": label_texts,
    "messages": message_texts,
}
_HEADER = """\
# {about}
# `make messages` adds new texts and drops those that are gone; translations are written by hand.
msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"
"""
_ABOUT = {
    "help": "What --help prints.",
    "findings": "What store/check/findings.toml says of findings.",
    "labels": "Columns of tables and lines of summaries.",
    "messages": "Messages, verdicts and errors; {name} is a value, {name!t} one that is translated too.",
}


def merged(language: str, name: str) -> list[Translation]:
    """Return the entries that a file should have: those of the sources, with the translations that it has."""
    path = path_of(language, name)
    old = {one.msgid: one for one in entries(path.read_text(encoding="utf-8"))} if path.exists() else {}
    old.pop("", None)
    wanted = dict(_EXTRACTED[name]())
    if name == "messages":
        plurals = nouns()
        wanted |= dict.fromkeys(one for one in old if one in all_texts() and old[one].msgstr)
        wanted = {re.sub(r"!t\}", "}", text): None for text in wanted}
        names = {found[1] for text in wanted for found in PLACEHOLDER.finditer(text)}
        used = {f"{{n}} {name[2:]}" for name in names if name.startswith("N ")}
        used |= {f"{{n}} {one}" for one in COUNTED}
        used |= {text for text in old if text in plurals and old[text].msgstr}
        counted = [_kept(old, noun, plurals[noun]) for noun in sorted(used) if noun in plurals]
        return [*counted, *(_kept(old, text) for text in wanted)]
    return [_kept(old, text) for text in wanted]


def _kept(old: dict[str, Translation], text: str, plural: str = "") -> Translation:
    """The translation that there is; of a text that was changed a little the former one, for a person to look at."""
    before = old.get(text)
    if before is not None:
        return before._replace(plural=plural)
    nearest = get_close_matches(text, old, n=1, cutoff=_NEAR) if len(text) > _SHORT else []
    if not nearest or not old[nearest[0]].msgstr:
        return Translation(text, "", plural)
    return Translation(text, old[nearest[0]].msgstr, plural, ("#, fuzzy",))


_NEAR, _SHORT = 0.85, 20


def written(language: str, name: str, found: Iterable[Translation]) -> str:
    """Return the text of a PO file."""
    blocks = [_HEADER.format(about=_ABOUT[name], language=language)]
    for one in found:
        lines = [*one.comments, f"msgid {_quoted(one.msgid)}"]
        lines += [f"msgid_plural {_quoted(one.plural)}", f"msgstr[0] {_quoted(one.msgstr)}"] if one.plural else []
        lines += [] if one.plural else [f"msgstr {_quoted(one.msgstr)}"]
        blocks.append("\n".join([*lines, ""]))
    return "\n".join(blocks)


def _quoted(text: str) -> str:
    for plain, escape in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\t", r"\t"), ("\b", r"\b"), ("\r", r"\r")):
        text = text.replace(plain, escape)
    return f'"{text}"'


def problems(language: str, name: str) -> list[str]:
    """Return what is wrong with a file: a line for each entry that is missing, stale, fuzzy or does not fit; with no
    such entry, that the file is not as `make messages` writes it."""
    text = path_of(language, name).read_text(encoding="utf-8")
    there = [one for one in entries(text) if one.msgid]
    all_wanted = merged(language, name)
    wanted = {one.msgid for one in all_wanted}
    found = [f"{name}: new: {text}" for text in sorted(wanted - {one.msgid for one in there})]
    for one in there:
        said = {
            "stale": one.msgid not in wanted,
            "fuzzy": one.is_fuzzy,
            "untranslated": not one.msgstr,
            "other values": bool(one.msgstr) and _values(one.msgid) != _values(one.msgstr),
            "lacks code": bool(one.msgstr) and bool(missing_code(one.msgid, one.msgstr)),
        }
        found += [f"{name}: {why}: {one.msgid}" for why, holds in said.items() if holds]
    if not found and text != written(language, name, all_wanted):
        found.append(f"{name}: order or form of {path_of(language, name).name}: run make messages")
    return found


def _values(text: str) -> set[str]:
    return {found[1] for found in PLACEHOLDER.finditer(text)}


def missing_code(text: str, translation: str) -> list[str]:
    """Return the flags, codes, commands and names in backquotes of a text that its translation lacks."""
    code = {*_FLAGS.findall(text), *_CODE.findall(text)}
    return sorted(one for one in code if one not in translation)


def languages() -> list[str]:
    """Return the languages that there are."""
    return sorted(path.name for path in LOCALES.iterdir() if path.is_dir())


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` return 1 and say what is wrong with them."""
    if "--check" in arguments:
        found = [one for language in languages() for name in FILES for one in problems(language, name)]
        print(*found, sep="\n" if found else "", end="\n" if found else "")
        return 1 if found else 0
    for language in languages():
        for name in FILES:
            with new_file(path_of(language, name), overwrite=True) as file:
                file.write(written(language, name, merged(language, name)).encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
