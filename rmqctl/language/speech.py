"""Lines in another language: found in its catalogues where they are printed. What is not there stays English."""

from __future__ import annotations

import re

from rmqctl.language.catalogue import PLACEHOLDER, Catalogue, Pattern, load
from rmqctl.language.wrapping import wrap

# the place that an error begins with: a path, an offset, or both
_PLACE = re.compile(
    r"(?P<file>[^\s:]*[/.][^\s:]*|[a-z]+://\S+?)?(?: ?at offset (?P<offset>\d+))?: (?P<rest>.+)", re.DOTALL
)
_SENTENCE = re.compile(r"(?<=[.!]) (?=[A-Z`\d])")
_AND = re.compile(r"(; |, and |, | and | or )")
_JOINTS = {"; ": "；", ", and ": "和", ", ": "、", " and ": "和", " or ": "或"}
# a longer line holds text of a store, through which patterns would search for long
_LONGEST = 4000
# columns of tables and lines of summaries that hold text of our own
_OF_FINDINGS = frozenset(("severity", "title", "meaning", "causes", "action"))
_OWN = frozenset(
    "basis check detail effect end_reason error note problem reason sentence start state why writes".split()
)
_SPAN = re.compile(r"\d+ (?:day|hour|minute|second)s?(?: \d+ (?:hour|minute|second)s?)?")
_SPAN_PARTS = (("day", "天"), ("hour", "小时"), ("minute", "分"), ("second", "秒"))


class Translated:
    """What is printed, in the language of a folder of catalogues (rmqctl.output.table.Speech)."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._loaded: dict[str, Catalogue] = {}

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

    def title(self, text: str) -> str:
        """The name of a column or of a line of a summary."""
        return self.catalogue("labels").texts.get(text, text)

    def finding(self, text: str) -> str:
        """A text of the catalogue of findings."""
        return self.catalogue("findings").texts.get(text, text)

    def value(self, text: str, name: str) -> str:
        """A text in a table or a summary, if what is below this name is text of our own."""
        if name in _OF_FINDINGS:
            return self.title(text) if name == "severity" else self.finding(text)
        return self.line(text) if name in _OWN else text

    def wrapped(self, text: str, width: int, indent: str, first: str = "") -> list[str]:
        """The lines of a paragraph."""
        return wrap(text, width, indent, first)

    def _found(self, text: str) -> str | None:
        return (
            self._placed(text)
            or self._sentences(text)
            or self._known(text)
            or self._remarks(text)
            or self._labelled(text)
            or self._named(text)
        )

    def _known(self, text: str) -> str | None:
        catalogue = self.catalogue("messages")
        if (found := catalogue.texts.get(text)) is not None:
            return found
        for pattern in catalogue.patterns_for(text):
            values = pattern.values(text)
            if values is not None and (said := self._filled(pattern, values)) is not None:
                return said
        return catalogue.counted(text)

    def _filled(self, pattern: Pattern, values: dict[str, str]) -> str | None:
        """The translation with its values; None where a number is not one of what the pattern counts."""
        known = {}
        for name, value in values.items():
            if name.startswith("N "):
                number = self.catalogue("messages").counted(value)
                if number is None:
                    return None
                known[name] = number
        said = PLACEHOLDER.sub(
            lambda found: known.get(found[1]) or (self._phrase(values[found[1]]) if found[2] else values[found[1]]),
            pattern.said,
        )
        return said.replace("{{", "{").replace("}}", "}")

    def _phrase(self, text: str) -> str:
        """A value that is text of our own, or several of them in a row."""
        bare = text.lstrip("; ,")
        if bare != text and (found := self._known(text)) is not None:
            return found
        if bare != text:
            return (_JOINTS.get(text[: len(text) - len(bare)]) or "") + self._phrase(bare)
        if (found := self._found(text)) is not None:
            return found
        if _SPAN.fullmatch(text):
            for one, said in _SPAN_PARTS:
                text = re.sub(rf" {one}s?", f" {said}", text)
            return text
        parts = _AND.split(text)
        if len(parts) == 1:
            return self.title(text)
        return "".join(_JOINTS.get(part) or self._phrase(part) for part in parts)

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
        """Several sentences, each of them known; None otherwise."""
        sentences = _SENTENCE.split(text)
        if len(sentences) == 1:
            return None
        told = [self._known(one) or self._remarks(one) for one in sentences]
        return "".join(filter(None, told)) if all(told) else None

    def _remarks(self, text: str) -> str | None:
        """Several remarks, each of them known; None otherwise. The first word of one may be a name, as in "billing has
        not read it"."""
        remarks = text.removesuffix(".").split("; ")
        if len(remarks) == 1 and not text.endswith("."):
            return None
        told = [self._known(one) or self._of_name(one) for one in remarks]
        return "；".join(filter(None, told)) + "。" * text.endswith(".") if all(told) else None

    def _labelled(self, text: str) -> str | None:
        """A label with a list of what is known, such as "not the same bytes in both: 283 messages"."""
        label, colon, rest = (text[:-1], ":", "") if text.endswith(":") else text.partition(": ")
        said = self._known(label) or self.catalogue("labels").texts.get(label)
        if not colon or said is None:
            return None
        told = [self._known(one) for one in rest.split(", ")] if rest else []
        return f"{said}：{'、'.join(filter(None, told))}" if all(told) else None

    def _of_name(self, remark: str) -> str | None:
        name, _, rest = remark.partition(" ")
        said = self._known(rest)
        return None if said is None else f"{name} {said}"
