"""Lines in another language: found in its catalogues where they are printed. What is not there stays English."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from rmqctl.language.catalogue import PLACEHOLDER, Catalogue, Pattern, english_in, load
from rmqctl.output.table import speak_by, width_of

# the place that an error begins with: a path, an offset, or both
_PLACE = re.compile(
    r"(?P<file>[^\s:]*[/.][^\s:]*|[a-z]+://\S+?)?(?: ?at offset (?P<offset>\d+))?: (?P<rest>.+)", re.DOTALL
)
_SENTENCE = re.compile(r"(?<=[.!]) (?=[A-Z`\d])")
# a remark in brackets that came with a value
_REMARK = re.compile(r"(.+?) (\(.+\))")
_LETTER = re.compile("[A-Za-z]")
_AND = re.compile(r"(; |, and |, | and | or )")
_JOINTS = {"; ": "；", ", and ": "和", ", ": "、", " and ": "和", " or ": "或"}
# a longer line holds text of a store, through which patterns would search for long
_LONGEST = 4000
# columns of tables and lines of summaries that hold text of our own
_OF_LABELS = frozenset(("part", "severity"))
_OF_FINDINGS = frozenset(("title", "meaning", "causes", "action"))
_OWN = frozenset(
    "about basis check detail effect end_reason error holds message not_read note notes problem problems reason rows "
    "sentence start state warning warnings why writes".split()
)
_SPAN = re.compile(r"\d+ (?:day|hour|minute|second)s?(?: \d+ (?:hour|minute|second)s?)?")
_SPAN_PARTS = (("day", "天"), ("hour", "小时"), ("minute", "分"), ("second", "秒"))

_QUOTES = ("'", '"', "`", "“")
_MOST_CACHED = 10_000
# sentences of a line, and of one entry of a catalogue
_MOST_SENTENCES, _MOST_TOGETHER = 12, 3
_IDEOGRAPH = re.compile("[\u3400-\u9fff]")
_WIDE = re.compile("[\u3400-\u9fff，。；：、（）]")
_LATIN = re.compile("[A-Za-z0-9`]")


def joined(parts: Iterable[str]) -> str:
    """Return parts of a sentence in a row, with a space between an ideograph and a Latin letter or digit where parts
    meet, and none between two ideographs."""
    text = ""
    for part in parts:
        before, after = text.rstrip(" ")[-1:], part.lstrip(" ")[:1]
        has_gap = text.endswith(" ") or part.startswith(" ")
        if has_gap and _WIDE.match(before) and _WIDE.match(after):
            text = text.rstrip(" ") + part.lstrip(" ")
            continue
        if not has_gap and any(
            one.match(before) and other.match(after) for one, other in ((_IDEOGRAPH, _LATIN), (_LATIN, _IDEOGRAPH))
        ):
            text += " "
        text += part
    return text


class Translated:
    """What is printed, in the language of a folder of catalogues (rmqctl.output.table.Speech)."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._loaded: dict[str, Catalogue] = {}
        self._cached: dict[str, str | None] = {}

    @property
    def tag(self) -> str:
        """The name of the language for browsers."""
        return self._language.replace("_", "-")

    def catalogue(self, name: str) -> Catalogue:
        """Return one of FILES, read when it is needed."""
        if name not in self._loaded:
            self._loaded[name] = Catalogue(load(self._language, name))
        return self._loaded[name]

    def line(self, text: str) -> str:
        """A line of our own, whole or by its parts; English where a part is not known."""
        if len(text) > _LONGEST:
            return text
        bare = text.lstrip(" ")
        found = self._found(bare)
        indent = text[: len(text) - len(bare)]
        return text if found is None else found if indent == " " and found[0] in "（，；" else indent + found

    def title(self, text: str, *, of_queues: bool = False) -> str:
        """The name of a column or of a line of a summary."""
        said = self.catalogue("labels").texts.get(text, text)
        # an offset of a queue has a word of its own
        return said.replace("偏移量", "位点") if of_queues and "物理" not in said else said

    def finding(self, text: str) -> str:
        """A text of the catalogue of findings."""
        return self.catalogue("findings").texts.get(text, text)

    def value(self, text: str, name: str) -> str:
        """A text in a table or a summary, if what is below this name is text of our own."""
        if name in _OF_FINDINGS:
            return self.finding(text)
        if name in _OF_LABELS:
            return self.title(text)
        return self.line(text) if name in _OWN else text

    def wrapped(self, text: str, width: int, indent: str, first: str = "") -> list[str]:
        """The lines of a paragraph."""
        return wrap(text, width, indent, first)

    def _found(self, text: str) -> str | None:
        ways = (self._placed, self._sentences, self._known, self._remarks, self._labelled, self._named)
        return self._first_whole(way(text) for way in ways)

    def _first_whole(self, found: Iterable[str | None]) -> str | None:
        """Return the first translation with no English left in it: a line that mixes both is worse than English."""
        return next((said for said in found if said is not None and not self._has_english(said)), None)

    def _has_english(self, said: str) -> bool:
        """Return whether more of a translation is English than terms that translations use."""
        return any(run not in self.catalogue("messages").terms for run in english_in(said))

    def _known(self, text: str) -> str | None:
        catalogue = self.catalogue("messages")
        if (found := catalogue.texts.get(text)) is not None:
            return found
        if text not in self._cached:
            if len(self._cached) >= _MOST_CACHED:
                self._cached.clear()
            self._cached[text] = self._first_whole(self._by_pattern(text)) or catalogue.counted(text)
        return self._cached[text]

    def _by_pattern(self, text: str) -> Iterator[str | None]:
        for pattern in self.catalogue("messages").patterns_for(text):
            values = pattern.values(text)
            if values is not None:
                yield self._filled(pattern, values)

    def _filled(self, pattern: Pattern, values: dict[str, str]) -> str | None:
        """The translation with its values; None where a number is not one of what the pattern counts."""
        literals = PLACEHOLDER.split(pattern.said)
        parts: list[str] = []
        for literal, name, mark in zip(literals[::3], [*literals[1::3], ""], [*literals[2::3], None], strict=True):
            parts.append(literal.replace("{{", "{").replace("}}", "}"))
            if not name:
                continue
            value = values[name]
            if name.startswith("N "):
                number = self.catalogue("messages").counted(value)
                if number is None:
                    return None
                parts.append(number)
            elif mark:
                parts.append(self._phrase(value))
            elif " " in value and not literal.endswith(_QUOTES):
                # what is counted, or text of our own that came as a value
                parts.append(self._known(value) or value)
            else:
                parts.append(value)
        return joined(parts)

    def _phrase(self, text: str) -> str:
        """A value that is text of our own, or several of them in a row; all of it stays English where a part does."""
        said = self._phrases(text)
        return text if said != text and self._has_english(said) else said

    def _phrases(self, text: str) -> str:
        bare = text.lstrip("; ,")
        if bare != text and (found := self._known(text)) is not None:
            return found
        if bare != text:
            return (_JOINTS.get(text[: len(text) - len(bare)]) or "") + self._phrase(bare)
        if (found := self._found(text)) is not None:
            return found
        remark = _REMARK.fullmatch(text)
        if remark is not None:
            known = [self._known(part) or self._term(part) for part in remark.groups()]
            if all(known):
                return joined(filter(None, known))
        if _SPAN.fullmatch(text):
            for one, unit in _SPAN_PARTS:
                text = re.sub(rf" {one}s?", f" {unit}", text)
            return text
        parts = _AND.split(text)
        if len(parts) == 1:
            return self.title(text)
        told = [self._phrase(parts[0])]
        for joint, part in zip(parts[1::2], parts[2::2], strict=True):
            rest = self._known(f"and {part}") if "and" in joint else None
            told += [rest] if rest is not None else [_JOINTS[joint], self._phrase(part)]
        return joined(told)

    def _term(self, text: str) -> str | None:
        """A word that labels have, or a number in brackets."""
        return text if not _LETTER.search(text) else self.catalogue("labels").texts.get(text)

    def _placed(self, text: str) -> str | None:
        found = _PLACE.fullmatch(text)
        if found is None or not (found["file"] or found["offset"]):
            return None
        rest = found["rest"]
        said = self._sentences(rest) or self._known(rest) or self._remarks(rest)
        if said is None:
            return None
        offset = f"偏移量 {found['offset']} 处" if found["offset"] else ""
        return f"{' '.join(filter(None, (found['file'], offset)))}：{said}"

    def _named(self, text: str) -> str | None:
        """What is known of a file or folder whose name may be any word, as that of a store in the working folder."""
        name, colon, rest = text.partition(": ")
        said = self._sentences(rest) or self._known(rest) if colon and " " not in name else None
        return None if said is None else f"{name}：{said}"

    def _sentences(self, text: str) -> str | None:
        """Several sentences, each of them known or some together; None otherwise."""
        sentences = _SENTENCE.split(text)
        return self._in_a_row(sentences) if 1 < len(sentences) <= _MOST_SENTENCES else None

    def _in_a_row(self, sentences: list[str]) -> str | None:
        if not sentences:
            return ""
        for count in range(1, min(len(sentences), _MOST_TOGETHER) + 1):
            first = " ".join(sentences[:count])
            said = self._known(first) or self._remarks(first)
            rest = None if said is None else self._in_a_row(sentences[count:])
            if said is not None and rest is not None:
                return said + rest
        return None

    def _remarks(self, text: str) -> str | None:
        """Several remarks, each of them known; None otherwise. The first word of one may be a name, as in "billing has
        not read it"."""
        remarks = text.removesuffix(".").split("; ")
        if len(remarks) == 1 and not text.endswith("."):
            return None
        told = [self._known(one) or self._of_name(one) for one in remarks]
        return "；".join(filter(None, told)) + "。" * text.endswith(".") if all(told) else None

    def _labelled(self, text: str) -> str | None:
        """A label with what is known, or a list of it, such as "not the same bytes in both: 283 messages"."""
        label, colon, rest = (text[:-1], ":", "") if text.endswith(":") else text.partition(": ")
        said = self._known(label) or self.catalogue("labels").texts.get(label)
        if not colon or said is None:
            return None
        bare = rest.removesuffix(".")
        if (whole := self._known(bare)) is not None:
            return f"{said}：{whole}{'。' * (bare != rest)}"
        told = [self._known(one) for one in rest.split(", ")] if rest else []
        return f"{said}：{'、'.join(filter(None, told))}" if all(told) else None

    def _of_name(self, remark: str) -> str | None:
        name, _, rest = remark.partition(" ")
        said = self._known(rest)
        return None if said is None else f"{name} {said}"


# Text wrapped by the columns it takes on a terminal: a Chinese character takes two, and a line may end after it.

# what no line begins with, and what no line ends with
_CLOSING = "，。、；：！？）》」』”…—％"
_OPENING = "（《「『“"
_PIECE = re.compile(r"( +)|([\x21-\x7e\xa0-\u02ff]+)|(.)", re.DOTALL)


def wrap(text: str, width: int, indent: str = "", first: str = "") -> list[str]:
    """Return the lines of a paragraph, each of at most `width` columns where its words allow it. `first` comes before
    the first line, `indent` before the others. Words in Latin script and what hangs on them are not broken."""
    lines: list[str] = []
    line = first
    is_empty, gap = True, ""
    for piece in _pieces(text):
        if piece.isspace():
            gap = piece
            continue
        if not is_empty and width_of(line + gap + piece) > width:
            lines.append(line)
            line, is_empty, gap = indent, True, ""
        line += piece if is_empty else gap + piece
        is_empty, gap = False, ""
    return [*lines, line] if not is_empty or not lines else lines


def _pieces(text: str) -> Iterator[str]:
    """The parts between which a line may be broken; closing marks belong to what is before them, opening ones to what
    follows."""
    pending = ""
    for found in _PIECE.finditer(text):
        piece = found[0]
        is_mark = found[3] is not None and piece in _CLOSING
        if pending and not is_mark and pending[-1] not in _OPENING:
            yield pending
            pending = ""
        if piece.isspace():
            if pending:
                yield pending
                pending = ""
            yield piece
        else:
            pending += piece
    if pending:
        yield pending


# Which language a process speaks: $RMQCTL_LANG, else that of the locale.

VARIABLE = "RMQCTL_LANG"
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
CHINESE = "zh_CN"
"""The folder of its catalogues. Simplified Chinese, for every locale of Chinese."""
_SAMPLE = "中文，“”"


def wanted(environment: Mapping[str, str]) -> str | None:
    """Return the language that is asked for, as the folder of its catalogues; None for English and all others."""
    own = environment.get(VARIABLE)
    value = own if own else next(filter(None, (environment.get(name) for name in _LOCALE)), "")
    language = value.replace("-", "_").partition(".")[0].partition("@")[0].partition("_")[0]
    return CHINESE if language.lower() == "zh" else None


def can_print() -> bool:
    """Return whether standard output and error take Chinese characters."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                _SAMPLE.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def speak(environment: Mapping[str, str]) -> None:
    """From here on print in the language that is asked for, where the streams take it; else in English."""
    language = wanted(environment)
    if language is not None and can_print():
        speak_by(Translated(language))
