"""A catalogue of translations: gettext's PO files, read as they are, and sentences found by their pattern.

A msgid is a text of the sources. Of an f-string each value is a placeholder, `{name}`; `{N message}` is a number of
them, "1 message" or "12 messages", which an entry of its own translates (`{n} message`, with a plural). In a msgstr
`{name!t}` has the value translated as well, where it is one of our own phrases.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LOCALES = Path(__file__).parents[1] / "locale"
FILES = ("help", "findings", "labels", "messages")
PLACEHOLDER = re.compile(r"\{(N [^{}]+|[a-z_][a-z_0-9]*)(!t)?\}")
_LINE = re.compile(r'^(?:(msgid|msgid_plural|msgstr|msgstr\[0\]) )?"(.*)"$')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b", "r": "\r"}


def english_in(text: str) -> list[str]:
    """Return the English phrases of a translation."""
    return [found["words"] for found in _ENGLISH.finditer(text) if found["words"]]


class Translation(NamedTuple):
    """An entry of a PO file; `comments` are its lines that begin with #."""

    msgid: str
    msgstr: str
    plural: str = ""
    comments: tuple[str, ...] = ()

    @property
    def is_fuzzy(self) -> bool:
        """Return whether a person has to look at it before it counts."""
        return any(line.startswith("#,") and "fuzzy" in line for line in self.comments)


def entries(text: str) -> Iterator[Translation]:
    """Return the entries of a PO file, its header first. ValueError for any other line."""
    for block in text.split("\n\n"):
        fields: dict[str, list[str]] = {}
        comments = []
        field: list[str] = []
        for line in filter(None, block.split("\n")):
            if line.startswith("#"):
                comments.append(line)
                continue
            found = _LINE.match(line)
            if found is None:
                raise ValueError(f"no line of a PO file: {line}")
            if found[1]:
                field = fields.setdefault(found[1], [])
            field.append(found[2])
        if fields:
            read = {name: _unescaped("".join(parts)) for name, parts in fields.items()}
            said = read.get("msgstr", read.get("msgstr[0]", ""))
            yield Translation(read.get("msgid", ""), said, read.get("msgid_plural", ""), tuple(comments))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text) if "\\" in text else text


def path_of(language: str, name: str) -> Path:
    """Return the place of a PO file."""
    return LOCALES / language / "LC_MESSAGES" / f"{name}.po"


def load(language: str, name: str) -> list[Translation]:
    """Return the entries that count of one of FILES."""
    found = entries(path_of(language, name).read_text(encoding="utf-8"))
    return [one for one in found if one.msgid and one.msgstr and not one.is_fuzzy]


class Pattern:
    """A msgid with placeholders, and what it says of a text that it fits."""

    def __init__(self, entry: Translation, catalogue: Catalogue) -> None:
        self._entry = entry
        self._catalogue = catalogue
        self._literals = [part for part in PLACEHOLDER.split(entry.msgid)[::3] if part]
        self.weight = sum(len(part.strip()) for part in self._literals)
        """How much of it is text of our own."""
        # a short pattern that begins with a value fits the end of many a longer text
        first = PLACEHOLDER.match(entry.msgid)
        self._begins_open = first is not None and not first[1].startswith(_COUNTED)

    @property
    def words(self) -> set[str]:
        """The words that each text of this pattern holds, as `words_of` finds them: not those that touch a value."""
        whole = PLACEHOLDER.sub(_VALUE, self._entry.msgid)
        return {word for word in words_of(whole) if _VALUE not in word}

    def fits(self, text: str) -> bool:
        """Return whether a text may be of this pattern, by what is quick to see."""
        return all(part in text for part in self._literals)

    def values(self, text: str) -> dict[str, str] | None:
        """Return the values of its placeholders in a text, None if the text is not of this pattern."""
        found = self._expression.fullmatch(text) if self.fits(text) else None
        if found is None:
            return None
        if self._begins_open and self.weight < len(text) // 2 and any(map(_is_open, found.groups())):
            return None
        return dict(zip(self._names, found.groups(), strict=True))

    @property
    def said(self) -> str:
        """The translation, with placeholders."""
        return self._entry.msgstr

    @functools.cached_property
    def _names(self) -> list[str]:
        return [found[1] for found in PLACEHOLDER.finditer(self._entry.msgid)]

    @functools.cached_property
    def _expression(self) -> re.Pattern[str]:
        # Each stretch from a value of no known form to the next one is taken where it fits first, for good: text that a
        # store made up is passed over a few times at most.
        parts = [""]
        position = 0
        for found in PLACEHOLDER.finditer(self._entry.msgid):
            parts[-1] += re.escape(self._entry.msgid[position : found.start()])
            form = self._form(found[1])
            if form == _ANY:
                parts.append("")
            parts[-1] += f"({form})"
            position = found.end()
        parts[-1] += re.escape(self._entry.msgid[position:])
        return re.compile("".join(f"(?>{part})" for part in parts[:-1]) + parts[-1], re.DOTALL)

    def _form(self, name: str) -> str:
        """What a value of this name looks like, as far as its name says."""
        if name.startswith("N "):
            one = name[2:]
            return rf"-?\d+ (?:{re.escape(self._catalogue.plurals.get(one, one))}|{re.escape(one)})"
        if name.startswith("counted"):
            return rf"-?\d+ (?:{'|'.join(map(re.escape, self._catalogue.counted_words))})"
        return next((form for names, form in _FORMS if names.fullmatch(name)), _ANY)


def _is_open(value: str) -> bool:
    """Return whether a value has several remarks that end nowhere in it."""
    return "; " in value and not value.endswith(".")


_ANY = ".*?"
_COUNTED = ("N ", "counted")
"""How placeholders begin that stand for a number of things."""
_FORMS = (
    (re.compile(r"\w*(?:_id|offset|number|len)\d?"), r"-?\d+"),
    (re.compile(r"human_size\d?"), r"-?[\d.]+ (?:B|[KMGT]iB)"),
    (re.compile(r"lasting\d?"), r"\d+ \w+(?: \d+ \w+)?"),
    (re.compile(r"(?:format_time|file|path)\d?"), r"\S+"),
    (re.compile(r"version"), r"[\d.]+"),
)
"""Placeholders whose values have a form, by their names."""
# a letter to `words_of`, so that it is one word with what it touches; no text of ours holds it
_VALUE = "\uffff"
words_of = re.compile(rf"[A-Za-z{_VALUE}]+").findall
# Two words or more of English, but for commands and what is quoted. What follows a colon or a bracket may be the words
# of a system or of another program.
_RUN = r"[A-Za-z]?[a-z]+(?:(?: \d+)* [a-z]{2,})+"
_ENGLISH = re.compile(rf"`[^`]*`|'[^']*'|\"[^\"]*\"|[：（]{_RUN}|(?P<words>(?<![\w./%$=-]){_RUN}(?![\w./=]))")
_MEASURES = ("个", "条", "处", "份", "行", "次")


class Catalogue:
    """What one PO file says: texts as they are, and patterns, the most telling first."""

    def __init__(self, found: list[Translation]) -> None:
        self._said = [one.msgstr for one in found]
        self.texts = {one.msgid: one.msgstr for one in found if not one.plural and not PLACEHOLDER.search(one.msgid)}
        self.nouns = {
            noun.removeprefix("{n} "): one.msgstr for one in found if one.plural for noun in (one.msgid, one.plural)
        }
        self.plurals = {one.msgid.removeprefix("{n} "): one.plural.removeprefix("{n} ") for one in found if one.plural}
        things = [text for text, said in self.texts.items() if said.startswith(_MEASURES)]
        self.counted_words = sorted([*self.nouns, *things], key=len, reverse=True)
        """What is counted, the longest first."""
        patterns = (Pattern(one, self) for one in found if not one.plural and PLACEHOLDER.search(one.msgid))
        self.patterns = sorted(patterns, key=lambda one: -one.weight)
        frequency = Counter(word for one in self.patterns for word in one.words)
        # each is found by the rarest of its words: most texts then meet a few of some thousand
        self._by_word: dict[str, list[int]] = {}
        for number, one in enumerate(self.patterns):
            rarest = min(sorted(one.words), key=frequency.__getitem__, default="")
            self._by_word.setdefault(rarest, []).append(number)

    @functools.cached_property
    def terms(self) -> frozenset[str]:
        """English terms of two words or more that translations use."""
        chinese = (said for said in self._said if not said.isascii())
        return frozenset(run for said in chinese for run in english_in(PLACEHOLDER.sub(_VALUE, said)))

    def patterns_for(self, text: str) -> list[Pattern]:
        """The patterns that a text may be of, in their order."""
        numbers = {number for word in {"", *words_of(text)} for number in self._by_word.get(word, ())}
        return [self.patterns[number] for number in sorted(numbers)]

    def counted(self, text: str) -> str | None:
        """Return a number of things, such as "3 messages", in the other language."""
        number, _, noun = text.partition(" ")
        if not number.lstrip("-").isdigit():
            return None
        said = self.nouns.get(noun)
        if said is None:
            thing = self.texts.get(noun) or self.texts.get(noun.removesuffix("s"))
            said = f"{{n}} {thing}" if thing else None
        return None if said is None else said.replace("{n}", number)
