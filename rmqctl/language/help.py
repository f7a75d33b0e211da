"""Help in another language: click's formatter, which looks up each paragraph and each option where it is printed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

import click

from rmqctl.language.speech import Translated, wrap
from rmqctl.output.table import padded, speech, width_of

# what click adds to the help of an option, by itself or from the option: `[default: 10; x>=1]`, `[required]`
_EXTRA = re.compile(r"(?P<text>.*?)(?P<extra>(?: *\[(?:default: |required|env: |-?[\d.]*<?=?x[<>])[^\]]*\])*)", re.S)
# lines of an example, which are the same in every language
_CODE = re.compile(r"(?:rmqctl|mqadmin|mv|\*/5) .*|eval .*|[\w.]+ = .*|\[[\w.]+\]")


def cells(line: str) -> Iterator[tuple[int, str, bool]]:
    """Of a line that is printed as it is: each cell, where it begins, and whether it is text for people. Cells are
    separated by two spaces or more."""
    found = [(one.start(), one[0]) for one in re.finditer(r"\S+(?: \S+)*", line)]
    for number, (column, cell) in enumerate(found):
        is_term = len(found) > 1 and number % 2 == 0 and not cell.startswith(("%", r"\n"))
        yield column, cell, not (is_term or _CODE.fullmatch(cell))


def paragraphs(text: str) -> Iterator[tuple[bool, str]]:
    """Return the paragraphs of a help text, and whether each is printed line by line as it is."""
    for part in re.split(r"\n[ \t]*\n", inspect.cleandoc(text)):
        if part.strip("\b\n "):
            yield "\b" in part, part.replace("\b\n", "").replace("\b", "") if "\b" in part else " ".join(part.split())


def option_text(text: str) -> str:
    """Return the help of an option without what click adds to it."""
    found = _EXTRA.fullmatch(" ".join(text.split()))
    return text if found is None else found["text"]


class TranslatedHelp(click.HelpFormatter):
    """A formatter of help by `speech`, which is set on a subclass (`formatter`)."""

    speech: Translated

    def said(self, text: str) -> str:
        """A text of the help; as it is where it is not translated."""
        return self.speech.catalogue("help").texts.get(text, text)

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """The line of usage."""
        before = f"{self.said('Usage') if prefix is None else prefix.rstrip(': ')}：{prog} "
        self.write("\n".join(wrap(args, self.width, " " * width_of(before), before)) + "\n")

    def write_heading(self, heading: str) -> None:
        """The heading of a section."""
        self.write(f"{'':>{self.current_indent}}{self.said(heading)}：\n")

    def write_text(self, text: str) -> None:
        """Paragraphs."""
        indent = " " * self.current_indent
        written = []
        for as_it_is, part in paragraphs(text):
            if as_it_is:
                written.append("\n".join(indent + self.line(line) for line in part.strip("\n").splitlines()))
            else:
                written.append("\n".join(wrap(self.said(part), self.width, indent, indent)))
        self.write("\n\n".join(written) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Options or verbs, with what each does."""
        rows = list(rows)
        column = min(max((width_of(first) for first, _ in rows), default=0), col_max) + col_spacing
        for first, second in rows:
            start = f"{'':>{self.current_indent}}{padded(first, column, right=False)}"
            indent = " " * (self.current_indent + column)
            if not second:
                self.write(start.rstrip() + "\n")
                continue
            if width_of(first) > column - col_spacing:
                self.write(start.rstrip() + "\n")
                start = indent
            self.write("\n".join(wrap(self.option(second), self.width, indent, start)) + "\n")

    def option(self, text: str) -> str:
        """The help of an option, with what click adds to it."""
        found = _EXTRA.fullmatch(" ".join(text.split()))
        if found is None:
            return self.said(text)
        extras = [part for inner in re.findall(r"\[([^\]]*)\]", found["extra"]) for part in inner.split("; ")]
        told = []
        for one in extras:
            name, colon, value = one.partition(": ")
            told.append(f"{self.said(name)}：{self.said(value)}" if colon else self.said(one))
        return f"{self.said(found['text'])} [{'；'.join(told)}]".lstrip() if told else self.said(found["text"])

    def line(self, line: str) -> str:
        """A line that is kept, with its texts translated, each where it was or further to the right."""
        said = ""
        for column, cell, is_text in cells(line):
            text = self.said(cell) if is_text else cell
            at = column if width_of(said) <= column else width_of(said) + 2
            said = padded(said, at, right=False) + (self._heading(cell) if is_text and text == cell else text)
        return said

    def _heading(self, text: str) -> str:
        """`Examples:` and the like."""
        name = text.removesuffix(":")
        found = self.said(name)
        return text if found == name else f"{found}："


def formatter() -> type[click.HelpFormatter]:
    """Return the formatter for click.Context.formatter_class: that of the language that is spoken."""
    spoken = speech()
    if not isinstance(spoken, Translated):
        return click.HelpFormatter
    return type("TranslatedHelp", (TranslatedHelp,), {"speech": spoken})
