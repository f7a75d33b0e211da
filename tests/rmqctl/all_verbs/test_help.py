"""`rmqctl help`, and the manual pages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from rmqctl.commands.more.help import manual_pages
from rmqctl.main import VERBS
from rmqctl.output import outcome as exit_codes
from tests import processes
from tests.rmqctl.looking import run


@pytest.mark.parametrize("verb", VERBS)
def test_it_says_what_the_flag_says(verb: str) -> None:
    done = run("help", verb)
    assert (done.code, done.err) == (exit_codes.OK, "")
    assert done.out == run(verb, "--help").out


def test_all_of_them() -> None:
    assert run("help").out == run("--help").out


def test_a_verb_that_there_is_not() -> None:
    done = run("help", "chek")
    assert (done.code, done.out) == (exit_codes.USAGE, "")
    assert "there is no verb 'chek'. Did you mean 'check'?" in done.err


def test_manual_pages_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "man1"
    for _ in range(2):  # a newer version replaces them
        assert run("help", "--man", folder).code == exit_codes.OK
    assert {path.name for path in folder.iterdir()} == {"rmqctl.1", *(f"rmqctl-{verb}.1" for verb in VERBS)}
    assert run("help", "cat", "--man", folder).code == exit_codes.USAGE
    assert run("help", "--man", folder / "rmqctl.1").code == exit_codes.USAGE


def test_every_option_and_example_is_in_its_page() -> None:
    for name, text in manual_pages():
        assert text.startswith('.TH "RMQCTL')
        plain = text.replace(r"\-", "-").replace(r"\e", "\\")
        plain = re.sub(r"\\\[u([0-9A-F]{4})\]", lambda found: chr(int(found[1], 16)), plain)
        verb = name.removeprefix("rmqctl-").removesuffix(".1")
        if verb not in VERBS:
            assert all(f"rmqctl-{known}" in plain for known in VERBS)
            continue
        shown = run(verb, "--help").out
        for option in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE):
            assert option in plain, (verb, option)
        for example in re.findall(r"^ +(rmqctl \S+ .*)$", shown, re.MULTILINE):
            assert example in plain, (verb, example)


def test_no_line_of_a_page_is_taken_for_a_request() -> None:
    known = {".TH", ".SH", ".PP", ".TP", ".B", ".nf", ".fi"}
    for name, text in manual_pages():
        for line in text.splitlines():
            assert not line.startswith(("'", ".")) or line.split()[0] in known, (name, line)


def test_man_itself_shows_a_page(tmp_path: Path) -> None:
    groff = shutil.which("groff") or shutil.which("mandoc")
    if groff is None:
        pytest.skip("neither groff nor mandoc is installed")
    assert run("help", "--man", tmp_path).code == exit_codes.OK
    flags = ["-man", "-Tutf8", "-ww"] if groff.endswith("groff") else ["-Tlint"]
    ended = processes.run([groff, *flags, tmp_path / "rmqctl-cat.1"])
    assert (ended.returncode, ended.stderr) == (0, "")
