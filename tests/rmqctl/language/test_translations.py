"""Translations are whole: nothing missing, stale or fuzzy; values, flags and codes are those of the English text."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

from rmqctl.language import catalogue
from rmqctl.language.catalogue import FILES, PLACEHOLDER, Translation, entries, path_of
from rmqctl.language.speech import CHINESE, Translated
from rmqctl.main import cli, every_action
from tests.generated import translations
from tests.processes import run


@pytest.mark.parametrize("language", translations.languages())
@pytest.mark.parametrize("name", FILES)
def test_they_are_whole(language: str, name: str) -> None:
    assert translations.problems(language, name) == []


@pytest.mark.parametrize("name", FILES)
def test_writing_them_again_changes_nothing(name: str) -> None:
    written = translations.written(CHINESE, name, translations.merged(CHINESE, name))
    assert path_of(CHINESE, name).read_text(encoding="utf-8") == written


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the catalogue of help, which may be changed."""
    folder = tmp_path / CHINESE / "LC_MESSAGES"
    folder.mkdir(parents=True)
    text = path_of(CHINESE, "help").read_text(encoding="utf-8")
    monkeypatch.setattr(catalogue, "LOCALES", tmp_path)
    (folder / "help.po").write_text(text, encoding="utf-8")
    return folder / "help.po"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('msgid "End time."\n', 'msgid "Some end."\n', "help: new: End time."),
        ('msgid "End time."\n', 'msgid "Some end."\n', "help: stale: Some end."),
        ('msgid "End time."\n', '#, fuzzy\nmsgid "End time."\n', "help: fuzzy: End time."),
        ('msgstr "结束时间。"', 'msgstr ""', "help: untranslated: End time."),
        ("修复 `check` 发现的问题。", "修复发现的问题。", "help: lacks code: Fix what `check` finds."),
        ("使用 --perm 时", "", ""),
    ],
)
def test_what_is_wrong_is_named(changed: Path, before: str, after: str, problem: str) -> None:
    text = changed.read_text(encoding="utf-8")
    changed.write_text(text.replace(before, after), encoding="utf-8")
    assert (problem in translations.problems(CHINESE, "help")) == bool(problem)


def test_a_file_in_another_order_or_form_is_named(changed: Path) -> None:
    text = changed.read_text(encoding="utf-8")
    first, second, third, *rest = text.split("\n\n")
    for other in ("\n\n".join([first, third, second, *rest]), text + "\n", text.replace('msgid "E', 'msgid ""\n"E', 1)):
        assert other != text
        changed.write_text(other, encoding="utf-8")
        assert translations.problems(CHINESE, "help") == ["help: order or form of help.po: run make messages"]
    changed.write_text(text, encoding="utf-8")
    assert translations.problems(CHINESE, "help") == []


def test_new_texts_are_added_and_translations_kept(changed: Path) -> None:
    changed.write_text(changed.read_text(encoding="utf-8").replace('msgid "End time."', 'msgid "Gone."'), "utf-8")
    found = {one.msgid: one.msgstr for one in translations.merged(CHINESE, "help")}
    assert found["End time."] == ""
    assert "Gone." not in found
    assert found["Output format."] == "输出格式。"


def test_code_that_a_translation_lacks() -> None:
    assert translations.missing_code("Run `rmqctl undo -s DIR`, or --force", "运行 `rmqctl undo -s DIR`") == ["--force"]
    assert translations.missing_code("see RMQ-CQ-001 in $NAMESRV_ADDR", "见 RMQ-CQ-002") == [
        "$NAMESRV_ADDR",
        "RMQ-CQ-001",
    ]
    assert translations.missing_code("kept in DIR.rmqctl beside the store", "保留在存储旁的 DIR.rmqctl 中") == []


def test_every_placeholder_of_a_message_is_in_its_translation() -> None:
    for one in entries(path_of(CHINESE, "messages").read_text(encoding="utf-8")):
        names = [{found[1] for found in PLACEHOLDER.finditer(text)} for text in (one.msgid, one.msgstr)]
        assert one.plural or names[0] == names[1], one.msgid


def test_no_pattern_is_of_any_text() -> None:
    """`{what}, {size}` would take each line with a comma apart."""
    for pattern in Translated(CHINESE).catalogue("messages").patterns:
        msgid = pattern._entry.msgid
        assert "{N " in msgid or re.search(r"[A-Za-z]|^\(.*\)$", PLACEHOLDER.sub("", msgid)), msgid


def test_a_file_is_read_as_it_is_written() -> None:
    found = [Translation('a "b" \\n \t', "甲\n“乙”"), Translation("{n} thing", "{n} 个", "{n} things", ("#, fuzzy",))]
    assert list(entries(translations.written("xx", "help", found)))[1:] == found


def test_check_is_quiet_where_all_is_well() -> None:
    ended = run([sys.executable, "-m", "tests.generated.translations", "--check"])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_lines_that_are_kept_are_marked_so() -> None:
    """A list in a help text that lacks its mark would be printed as one paragraph."""
    from rmqctl.language.help import paragraphs

    for name, command in every_action(cli).items():
        for text in (command.help, command.epilog):
            for part in (text or "").split("\n\n"):
                if "\n  " in part.strip("\n") and "\b" not in part:
                    # the indentation of a docstring
                    assert not any(line.startswith("  ") for line in _cleaned(text or "", part)), (name, part)
        assert list(paragraphs(command.help or "x"))


def _cleaned(text: str, part: str) -> list[str]:
    import inspect

    whole = inspect.cleandoc(text)
    lines = [line.strip() for line in part.splitlines() if line.strip()]
    return [line for line in whole.splitlines() if line.strip() in lines]


def test_every_option_is_known_to_the_formatter() -> None:
    known = {one.msgid for one in entries(path_of(CHINESE, "help").read_text(encoding="utf-8"))}
    for command in every_action(cli).values():
        context = click.Context(command)
        for option in command.params:
            record = option.get_help_record(context)
            if record is not None and record[1]:
                from rmqctl.language.help import option_text

                assert option_text(record[1]) in known | {""}


def test_a_changed_text_keeps_its_translation_to_be_looked_at(changed: Path) -> None:
    before = "Print at most N messages; -N prints the last N."
    changed.write_text(changed.read_text(encoding="utf-8").replace(before, before.replace("last N", "last")), "utf-8")
    found = {one.msgid: one for one in translations.merged(CHINESE, "help")}
    assert found[before].msgstr.startswith("最多打印 N 条")
    assert found[before].is_fuzzy
