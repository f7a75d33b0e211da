"""What is printed in Chinese: help, verdicts, findings, errors; and what is the same in every language."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqctl.language.catalogue import PLACEHOLDER, english_in
from rmqctl.language.speech import CHINESE, Translated, joined
from rmqctl.main import VERBS
from rmqctl.output.table import width_of
from tests.goldens import GoldenStore
from tests.processes import ROOT, run
from tests.terminal import on_a_terminal

SPEECH = Translated(CHINESE)


def _rmqctl(*arguments: str | Path, language: str = "zh", columns: int = 80) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RMQCTL_LANG": language, "COLUMNS": str(columns)}
    return run([sys.executable, "-m", "rmqctl", *arguments], env=environment)


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_chinese_and_fits(verb: str) -> None:
    said = _rmqctl(verb, "--help").stdout
    assert said.startswith(f"用法：rmqctl {verb}")
    assert "选项：" in said or "命令：" in said
    english = _rmqctl(verb, "--help", language="en").stdout
    # options and lists that are too long for it are so in both
    widest = max(80, *map(width_of, english.splitlines()))
    wide = [line for line in said.splitlines() if width_of(line) > widest]
    assert [line for line in wide if not line.startswith("    ") or " rmqctl " not in line] == []
    commands = [line.strip().split("  ")[0] for line in english.splitlines() if line.startswith("    rmqctl ")]
    assert [one for one in commands if one not in said] == []
    assert ("示例：" in said) == ("Examples:" in english or "Example:" in english)


def test_manual_pages_are_chinese(tmp_path: Path) -> None:
    assert _rmqctl("help", "--man", tmp_path).returncode == 0
    page = re.sub(r"\\\[u([0-9A-F]{4})\]", lambda found: chr(int(found[1], 16)), (tmp_path / "rmqctl-du.1").read_text())
    assert ".SH 名称\nrmqctl\\-du \\- 按主题、日志、队列和索引显示磁盘占用\n" in page
    assert "主题名或通配模式" in page
    assert "最大的主题在前" in page
    # only what is the same in every language is left
    for line in page.replace("\\-", "-").splitlines():
        is_ours = not line.strip().startswith((".TH", ".B", ".ad", "\\fB", "rmqctl")) and not re.search("[一-鿿]", line)
        assert not (is_ours and len(re.findall("[a-z]{2,}", line)) > 3), line


def test_help_on_a_terminal() -> None:
    shown = on_a_terminal(["env", "RMQCTL_LANG=zh", sys.executable, "-m", "rmqctl", "du", "-h"], columns=80)
    assert shown.code == 0
    assert shown.screen[0] == "用法：rmqctl du [OPTIONS]"
    assert "  --bytes                    打印精确的字节数和毫秒数，而不是 1.2 GiB、2d 4h。" in shown.screen


SAME = [
    "info --json",
    "doctor --json",
    "check --json",
    "check --summary --json",
    "predict --json",
    "ls --json",
    "ls --format csv",
    "du --json",
    "groups --json",
    "clean --older-than 1d --dry-run --json",
    "recover --dry-run --json",
    "query -k nokey --json",
    "query -o 5 --json",
    "truncate --at 0 --json",
    "append -t T --body x --json",
    "cat -n 2 --json",
    "where nokey --json",
]


@pytest.mark.parametrize("call", SAME)
def test_json_csv_and_exit_codes_are_the_same(call: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crash")
    said = [_rmqctl(*call.split(), "-s", store, language=language) for language in ("en", "zh")]
    assert said[0].returncode == said[1].returncode
    assert steady(said[0].stdout) == steady(said[1].stdout)
    errors = [[line for line in one.stderr.splitlines() if line.startswith("{")] for one in said]
    assert errors[0] == errors[1]


def steady(text: str) -> str:
    """Without the share of the disk, which changes meanwhile."""
    import re

    return re.sub(r"disk \d+ % used|\"(?:bytes_left|percent|used|duration_ms)\": [\d.]+", "", text)


def test_usage_in_a_json_error_is_the_same() -> None:
    said = [_rmqctl("ls", "--nope", "--json", language=language) for language in ("en", "zh")]
    assert said[0].stderr == said[1].stderr
    assert said[0].returncode == said[1].returncode == 2


def test_findings(golden_store: GoldenStore) -> None:
    said = _rmqctl("check", "-s", golden_store("crc-flip-third"))
    assert said.returncode == 1
    assert said.stdout.startswith("有问题：1 个错误、2 个警告；丢失了消息。\n下一步：rmqctl recover --bridge -s ")
    assert "错误    RMQ-LOG-005  消息体校验和不对" in said.stdout
    assert "（1 条消息、18841 字节、已丢失）" in said.stdout
    assert "修复方法：" in said.stdout
    assert "1 个错误，2 个警告，0 个提示；检查了 9 个 commitlog 文件中的 2499 条消息" in said.stderr


def test_an_entry_of_the_catalogue() -> None:
    for arguments in (("check", "--explain", "RMQ-CQ-001"), ("help", "RMQ-CQ-001")):
        said = _rmqctl(*arguments).stdout
        assert "标题      消息不在其队列中" in said
        assert "修复      rmqctl recover" in said


def test_errors_and_their_hints(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    said = _rmqctl("append", "-s", store, "-t", "T", "--body", "x")
    assert (said.returncode, said.stderr) == (
        5,
        f"rmqctl: {store}/abort：存储没有正常关闭\n  请先运行 `rmqctl recover -s {store}`\n",
    )
    said = _rmqctl("truncate", "-s", golden_store("clean"), "--at", "0")
    assert said.stderr == "rmqctl: 本操作会删除 2500 条消息；没有可供询问的终端\n  用 --yes 确认\n"
    said = _rmqctl("du", "-n", "x")
    assert said.stderr.startswith(
        "rmqctl: '-n' / '--limit' 的值无效：'x' 不是有效的整数。\n用法：rmqctl du [OPTIONS]\n"
    )


def test_a_hint_with_a_configuration(golden_store: GoldenStore, tmp_path: Path) -> None:
    store, conf = golden_store("crash"), tmp_path / "b.conf"
    conf.write_text("mappedFileSizeConsumeQueue=2000\n")
    said = _rmqctl("append", "-s", store, "-t", "T", "--body", "x", "-c", conf).stderr
    assert f"`rmqctl recover -s {store} -c {conf}`" in said
    assert english_in(said.replace(str(store), "").replace(str(conf), "")) == []


def test_a_message_is_traced(golden_store: GoldenStore) -> None:
    said = _rmqctl("where", "-s", golden_store("broker-real"), "evt-2", "-g", "g-retry")
    assert "Events 4 0 已存储，并在其队列中；g-retry 已放弃它（%DLQ%g-retry 0 9）。" in said.stdout


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("/s/commitlog/0 at offset 12: out of memory", "/s/commitlog/0 偏移量 12 处：内存不足"),
        ("no message has the key 'a b; c'", "没有消息的 key 是 'a b; c'"),
        ("the store has no topic 'x'", "存储中没有主题 'x'"),
        ("queue 3 of 'T' lacks its message 7", "'T' 的队列 3 缺少消息 7"),
        ("queue T of 'T' lacks its message 7", "queue T of 'T' lacks its message 7"),
        ("This deletes 1 message, skips 2 messages that the group has not read. Continue?",
         "本操作会删除 1 条消息、会跳过消费组还没有读过的 2 条消息。继续吗？"),
        ("Something is wrong: 2 errors, 1 warning; messages and settings are lost.",
         "有问题：2 个错误、1 个警告；丢失了消息和配置。"),
        ("/s/a.json is not there", "/s/a.json 不存在"),
        ("it has no unique key: whether it was redriven before is not known; out of memory",
         "没有 unique key：不知道之前是否重投过；内存不足"),
        ("a sentence that nobody has translated", "a sentence that nobody has translated"),
        # numbers and phrases that were put together before they became a value
        ("this start does not notice 1 damaged place of the log, at offset 7: `rmqctl check` says what is there",
         "这次启动不会注意到日志的 1 处损坏，在偏移量 7：`rmqctl check` 说明那里是什么"),
        ("the last 400 messages are not in their 31 queues", "最后 400 条消息不在其 31 个队列中"),
        ("/s/a.txt: does not belong into the commitlog: the name is not an offset of 20 digits",
         "/s/a.txt：不应在 commitlog 中：名称不是 20 位数字的偏移量"),
        ("note: 5 messages of the timer are never delivered: due more than 7 days before this start; "
         "`rmqctl rebuild --timer` makes them due at once",
         "注意：定时器的 5 条消息永不投递：到期早于这次启动 7 天以上；`rmqctl rebuild --timer` 使它们立即到期"),
        # no line is half English
        ("the name is not an offset of 30 digits", "the name is not an offset of 30 digits"),
        ("note: 1 messages are of a kind that nobody knows", "note: 1 messages are of a kind that nobody knows"),
        # what a store holds stays, if it reads like text of our own
        ("no message has the key 'out of memory'", "没有消息的 key 是 'out of memory'"),
        ("no message has the key '3 messages'", "没有消息的 key 是 '3 messages'"),
    ],
)  # fmt: skip
def test_lines(english: str, chinese: str) -> None:
    assert SPEECH.line(english) == chinese


def test_parts_meet_with_a_space_where_chinese_has_one() -> None:
    assert joined(["队列 4 的单元 ", "0", "指向它"]) == "队列 4 的单元 0 指向它"
    assert joined(["", "1 个文件", " 中的 ", "2 条消息"]) == "1 个文件中的 2 条消息"
    assert joined(["在 ", "/s/a", "，", "。"]) == "在 /s/a，。"
    assert joined(["键 ", "'a  b'", "：", " x"]) == "键 'a  b'： x"


def test_offsets_of_queues_have_a_word_of_their_own() -> None:
    assert SPEECH.title("max offset") == "最大偏移量"
    assert SPEECH.title("max offset", of_queues=True) == "最大位点"
    assert SPEECH.title("physical offset", of_queues=True) == "物理偏移量"


def test_tables_say_which_offsets_they_have(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    assert "最小位点  最大位点" in _rmqctl("ls", "--queues", "-s", store, columns=200).stdout
    assert "第一个偏移量  最后偏移量" in _rmqctl("ls", "--files", "-s", store, columns=200).stdout
    assert "位点  最大位点" in _rmqctl("delays", "-s", store, columns=200).stdout
    assert "合计" in _rmqctl("du", "-s", store).stdout
    assert "回查次数" in _rmqctl("halves", "-s", store, columns=200).stdout


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("clean --force", "没有选项 '--force'。（是否想用其中之一："),
        ("chekc", "没有命令 'chekc'。"),
        ("ls --format xml", "'--format' 的值无效："),
        ("cat -n x", "'x' 不是有效的整数。"),
        ("ls -s", "选项 '-s' 需要一个值。"),
        ("check x y", "多余的参数（x y）"),
        ("check -c /nowhere/broker.conf", "/nowhere/broker.conf"),
        ("dump /nowhere/x", "rmqctl: /nowhere/x：无法读取：没有那个文件或目录"),
    ],
)
def test_wrong_usage_is_chinese(call: str, said: str) -> None:
    ended = _rmqctl(*call.split())
    assert said in ended.stderr
    assert ended.returncode in (1, 2, 3, 4)
    first = ended.stderr.splitlines()[0]
    assert english_in(first) == []


def test_the_page_of_a_report(golden_store: GoldenStore, tmp_path: Path) -> None:
    pytest.importorskip("rmqctl.report.page")
    pages = {}
    stores = (golden_store("broker-real"), golden_store("crc-flip-third"))
    for language in ("en", "zh"):
        file = tmp_path / f"{language}.html"
        assert _rmqctl("report", *stores, "-o", file, language=language).returncode == 1
        pages[language] = file.read_text(encoding="utf-8")
    assert '<html lang="en">' in pages["en"]
    assert '<html lang="zh-CN">' in pages["zh"]
    shown = [page.partition('<script type="application/json"')[0] for page in pages.values()]
    assert not re.search("[\u4e00-\u9fff]", shown[0])
    texts = [html.unescape(text) for text in re.findall(r">([^<>]+)<", shown[1].rpartition("</style>")[2])]
    left = [one for text in texts if not text.startswith("rmqctl ") for one in english_in(text)]
    assert [one for one in left if one not in ("unique key", "level overdue", "timer not")] == []
    assert {"检查结果", "存储图", "broker 的下一次启动", "消费组", "死信", "所有存储"} <= {*texts}
    # what programs read of it is the same, but for numbers of the moment
    blocks = [re.sub(r"\d+", "", page.rpartition("numbers")[2]) for page in pages.values()]
    assert blocks[0] == blocks[1]


def test_the_prompt_of_sql(golden_store: GoldenStore) -> None:
    pytest.importorskip("duckdb")
    typed = "\\?\n\\d\nselect 1 as topic, 'out of memory' as reason;\nselec;\n\\x\n"
    program = [sys.executable, "-m", "rmqctl", "sql", "-s", str(golden_store("broker-real"))]
    lines = on_a_terminal(["env", "RMQCTL_LANG=zh", *program], columns=80, answer=typed + "\\q\n").screen
    assert any(line.startswith("视图：messages, copied_messages, consumequeue") for line in lines)
    assert "\\d             存储的视图" in lines
    assert "index_entries" in "\n".join(lines)
    # what the statement asked for is as it asked for it
    assert "topic  reason" in lines
    assert "    1  out of memory" in lines
    assert any(line.startswith("（1 行，") for line in lines)
    assert any(line.startswith("错误：syntax error at or near") for line in lines)
    assert "错误：\\x 不是命令；\\? 列出命令" in lines


def test_answers_of_sql_are_data(golden_store: GoldenStore) -> None:
    pytest.importorskip("duckdb")
    more = "".join(f", repeat('x', 30) as column_{number}" for number in range(8))
    statement = f"select 'out of memory' as reason, true as state, 1 as messages{more}"
    said = [_rmqctl("sql", "-s", golden_store("clean"), statement, language=one).stdout for one in ("en", "zh")]
    assert said[0] == said[1]
    shown = on_a_terminal(
        ["env", "RMQCTL_LANG=zh", sys.executable, "-m", "rmqctl", "sql", "-s", golden_store("clean"), statement], 80
    )
    assert "第 1 行" in shown.screen
    assert "reason    out of memory" in shown.screen


_BROWSE = """
import os, sys, asyncio
from pathlib import Path
from rmqctl.language.speech import speak
speak(os.environ)
from tests.rmqctl.look.test_browse import Browsed, browsed

async def see(at):
    for keys in ([], ["enter"], ["enter"], ["enter"], ["b"], ["w"], ["c"], ["escape"], ["g"], ["m"], ["l"], ["slash"]):
        print("==", *keys)
        print(*(line.rstrip() for line in await at.press(*keys)), sep="\\n")

browsed(Path(sys.argv[1]), (80, 24), see)
"""


def test_screens_of_browse(golden_store: GoldenStore) -> None:
    pytest.importorskip("textual")
    environment = {**os.environ, "RMQCTL_LANG": "zh", "PYTHONPATH": str(ROOT)}
    ended = run([sys.executable, "-c", _BROWSE, golden_store("broker-real")], env=environment)
    assert ended.returncode == 0, ended.stderr
    screens = ended.stdout.split("== ")
    for said in (
        "主题 · /", "消息数", "q 退出", "/ 查找", "g 消费组", "m 存储图", "的队列 · /", "最后存储", "b 格式", "w 位置",
        "物理偏移量", "没有保", "字节，格式 json：", "追踪物理偏移量", "已存储，并在其队列中", "堆积",
        "命令（终端允许时已复制）", "commitlog 图", "第一条和最后一条消息的偏移量", "从物理偏移量 0 开始的日志",
        "下一页", "time 2026-05-01 或 2h ago",
    ):  # fmt: skip
        assert any(said in screen for screen in screens), said
    for line in ended.stdout.splitlines():
        assert width_of(line) <= 80, line


def test_labels_of_bars_and_errors_of_the_network() -> None:
    assert SPEECH.line("reading the commitlog") == "正在读取 commitlog"
    assert SPEECH.line("counting") == "正在统计"
    said = _rmqctl("groups", "-n", "127.0.0.1:1").stderr
    assert said == "rmqctl: 无法连接 127.0.0.1:1：拒绝连接\n  它是否在运行？地址是否正确？\n"


def test_text_that_a_store_made_up_takes_no_pattern_long() -> None:
    """Each literal again and again: with values that try every place this takes minutes."""
    patterns = Translated("zh_CN").catalogue("messages").patterns
    started = time.process_time()
    for pattern in patterns:
        literals = [part for part in PLACEHOLDER.split(pattern._entry.msgid)[::3] if part]
        text = "".join(part * (3_900 // len(literals) // len(part)) for part in literals)
        pattern.values(text + "\0")
    assert time.process_time() - started < 5


def test_a_text_meets_every_pattern_that_it_is_of() -> None:
    """Patterns are looked for by one of their words."""
    catalogue = Translated("zh_CN").catalogue("messages")
    values = ("x", "7 messages", "12", "a b", "", "topic; x", "sand")
    for number, pattern in enumerate(catalogue.patterns):
        value = values[number % len(values)]
        text = PLACEHOLDER.sub(value, pattern._entry.msgid)
        wanted = [one for one in catalogue.patterns if one.values(text) is not None]
        assert [one for one in catalogue.patterns_for(text) if one.values(text) is not None] == wanted
