"""Which language holds: $RMQCTL_LANG, else the locale; English where the streams take no Chinese."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.language.speech import CHINESE, wanted, wrap
from rmqctl.output.table import width_of
from tests.processes import run, start

_NEITHER = {"LC_ALL": "", "LC_MESSAGES": "", "LANG": ""}


@pytest.mark.parametrize(
    "value", ["zh", "zh_CN", "zh_CN.UTF-8", "zh_TW.UTF-8", "zh-Hans", "zh_CN.GB18030", "ZH", "zh_CN@x"]
)
def test_every_locale_of_chinese_means_simplified_chinese(value: str) -> None:
    assert wanted({"RMQCTL_LANG": value}) == CHINESE
    assert wanted({"LANG": value}) == CHINESE


@pytest.mark.parametrize("value", ["en", "de_DE.UTF-8", "C", "POSIX", "C.UTF-8", "zhuang", "xx", ""])
def test_all_others_mean_english(value: str) -> None:
    assert wanted({"RMQCTL_LANG": value}) is None
    assert wanted({"LANG": value}) is None


def test_what_is_more_special_counts() -> None:
    assert wanted({"RMQCTL_LANG": "en", "LC_ALL": "zh_CN.UTF-8"}) is None
    assert wanted({"RMQCTL_LANG": "klingon", "LANG": "zh_CN.UTF-8"}) is None
    assert wanted({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}) is None
    assert wanted({"LC_MESSAGES": "zh_CN", "LANG": "en_US.UTF-8"}) == CHINESE
    assert wanted({"LC_ALL": "zh_CN", "LC_MESSAGES": "en_US"}) == CHINESE
    assert wanted({"RMQCTL_LANG": "", "LANG": "zh_CN.UTF-8"}) == CHINESE


def _said(*arguments: str | Path, **environment: str) -> bytes:
    with start(
        [sys.executable, "-m", "rmqctl", *arguments],
        env={**os.environ, **_NEITHER, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        said, _ = process.communicate()
    return bytes(said)


def test_a_process_speaks_it() -> None:
    assert "离线检查" in _said("--help", RMQCTL_LANG="zh").decode()
    assert "离线检查" in _said("--help", RMQCTL_LANG="", LANG="zh_CN.UTF-8").decode()
    assert b"offline" in _said("--help", RMQCTL_LANG="", LANG="en_US.UTF-8")
    assert b"offline" in _said("--help", RMQCTL_LANG="", LC_ALL="C", LANG="zh_CN.UTF-8")


@pytest.mark.parametrize("arguments", [("--help",), ("du", "--help"), ("check", "-s", "/nowhere"), ("nonsense",)])
def test_streams_without_chinese_get_english(arguments: tuple[str, ...]) -> None:
    for encoding in ("ascii", "latin-1"):
        said = _said(*arguments, RMQCTL_LANG="zh", PYTHONIOENCODING=encoding)
        assert said.isascii()
        assert b"\\u" not in said
    assert not _said(*arguments, RMQCTL_LANG="zh", PYTHONIOENCODING="gb18030").isascii()


def test_the_locale_c_is_english_whatever_python_makes_of_it() -> None:
    for more in ({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {}):
        assert _said("--help", RMQCTL_LANG="", LC_ALL="C", **more).isascii()


def test_english_loads_nothing_of_it() -> None:
    code = "import sys; sys.argv = ['rmqctl', '--version']; import rmqctl.start as s; s.main()\n"
    code += "print([one for one in sys.modules if 'language' in one])"
    ended = run([sys.executable, "-c", code], env={**os.environ, **_NEITHER, "RMQCTL_LANG": "en"})
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr


@pytest.mark.parametrize("width", [20, 40, 80])
def test_lines_are_wrapped_by_their_width(width: int) -> None:
    text = "存储目录；否则取 $RMQCTL_STORE，否则取 broker.conf（见 `rmqctl help`），否则为 ~/store。" * 3
    lines = wrap(text, width, "    ", "  -s  ")
    assert all(width_of(line) <= width for line in lines)
    assert "".join(line.strip() for line in lines).replace(" ", "") == f"-s{text}".replace(" ", "")
    assert [line for line in lines if line.strip()[0] in "，。；：）"] == []
    assert [line for line in lines if line.endswith("（")] == []
    # words are whole
    assert all("broker.conf" in "".join(lines[at : at + 1]) or "broker" not in lines[at] for at in range(len(lines)))


def test_a_word_that_is_too_long_has_a_line_of_its_own() -> None:
    assert wrap("见 /a/very/long/path 的", 10) == ["见", "/a/very/long/path", "的"]
    assert wrap("", 10) == [""]
