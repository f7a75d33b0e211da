"""Config JSON as fastjson writes it: bare integer keys, layout, and text that must not hurt."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.config_json import MAXIMUM_DEPTH, format_config_json, parse_config_json
from rmqctl.formats.errors import CorruptError
from tests.goldens import golden


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ('{"offsetTable":{18:2,3:9}}', {"offsetTable": {18: 2, 3: 9}}),
        ('{"offsetTable":{"18":2}}', {"offsetTable": {"18": 2}}),
        ('{ \n\t-1 : {0:{"o":[10,1,3]}} ,\r\n 2:"x"}', {-1: {0: {"o": [10, 1, 3]}}, 2: "x"}),
        # what looks like a key inside a string is none
        ('{"a":"{1:2,3:4}"}', {"a": "{1:2,3:4}"}),
        ('{"a\\",{5:":1,6:2}', {'a",{5:': 1, 6: 2}),
        ('{"T@G":{0:5,1:7},"{7:":{8:9}}', {"T@G": {0: 5, 1: 7}, "{7:": {8: 9}}),
        ('{"a":"\\\\",1:2}', {"a": "\\", 1: 2}),
        ('["x",1,2.5,null,true]', ["x", 1, 2.5, None, True]),
        ('{"键":"值 \\u6807"}', {"键": "值 标"}),
        ("7", 7),
    ],
)
def test_parsing(text: str, expected: Any) -> None:
    parsed = parse_config_json(text)
    assert parsed == expected
    assert str(parsed) == str(expected), "in order, and keys of the same type"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a":1',
        '{"a":1}}',
        '{"a" 1}',
        "{1}",
        "{1:}",
        "{01.5:2}",
        "{x:1}",
        '{"a":"b',
        '{"a":"b\\',
        "{" + "9" * 5000 + ":1}",
        "1" * 5000,
        '{"a":\x00}',
    ],
)
def test_damaged_text(text: str) -> None:
    with pytest.raises(CorruptError):
        parse_config_json(text)


@pytest.mark.parametrize("text", ["[" * 200_000, "{1:" * 100_000, '{"a":' * 100_000, "[" * 50_000 + "]" * 50_000])
def test_nested_bombs(text: str) -> None:
    with pytest.raises(CorruptError):
        parse_config_json(text)


@pytest.mark.parametrize(
    "text",
    [
        '\\"' * 200_000 + "\\",
        '"\\' * 200_001,
        "{" + " " * 300_000 + "x",
        "{" * 100 + " " * 300_000,
        ",1 " * 100_000,
        "{" + "1" * 300_000 + "x",
        ("{" + " " * 1000) * 300,
    ],
)
def test_hostile_text_takes_no_quadratic_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(CorruptError):
        parse_config_json(text)
    assert time.process_time() - started < 2


def test_the_form_of_the_broker() -> None:
    value = {"dataVersion": {"counter": 1, "stateVersion": 0}, "offsetTable": {1: 71, 14: 0}, "none": {}}
    assert format_config_json(value) == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0\n\t},\n\t"offsetTable":{1:71,14:0\n\t},\n\t"none":{}\n}'
    )


def test_text_stays_as_it_is() -> None:
    assert format_config_json({"主题": ["ü\u2028"]}) == '{\n\t"主题":["ü\u2028"]\n}'


def test_real_files_come_back_byte_for_byte(tmp_path: Path) -> None:
    config = golden("broker-real", tmp_path) / "config"
    seen = 0
    for path in sorted(config.iterdir()):
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        if not path.name.endswith((".json", ".json.bak")) or not text.strip():
            continue
        assert format_config_json(parse_config_json(text)) == text, path.name
        seen += 1
    assert seen >= 6


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6), inner, max_size=3)
        | st.dictionaries(st.integers(-(1 << 31), 1 << 31), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_round_trip(value: Any) -> None:
    assert parse_config_json(format_config_json(value)) == value


@pytest.mark.parametrize("key", ["\x001", "\x00", "\x00\x00", "\x00x"])
def test_a_quoted_key_stays_text_whatever_is_in_it(key: str) -> None:
    assert parse_config_json(json.dumps({key: key})) == {key: key}
    assert parse_config_json(format_config_json({key: 1})) == {key: 1}


# what looks like a bare key, like the mark of one, or like both
KEYS = st.text('\x00-1{,:"\\u', max_size=4)


@given(
    st.recursive(st.integers() | KEYS, lambda one: st.dictionaries(KEYS, one, max_size=3) | st.lists(one, max_size=3))
)
def test_json_proper_says_what_it_says_to_everybody(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert parse_config_json(text) == value
        # a text that is taken apart token by token, because of the one bare key
        assert parse_config_json(f"{{1:{text}}}") == {1: value}


def test_depth_has_a_bound_far_below_recursion() -> None:
    """What is parsed can be walked by functions that call themselves."""
    deep = '{"a":[' * (MAXIMUM_DEPTH // 2) + "]}" * (MAXIMUM_DEPTH // 2)
    assert parse_config_json(deep)
    for text in ("[" * (MAXIMUM_DEPTH + 1) + "]" * (MAXIMUM_DEPTH + 1), '{"a":' * 400 + "1" + "}" * 400):
        with pytest.raises(CorruptError, match="nested too deeply"):
            parse_config_json(text)


def test_a_text_as_large_as_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{1:[2,{"a":3}]}'
    monkeypatch.setattr("rmqctl.formats.config_json.MAXIMUM_SIZE", len(text))
    assert parse_config_json(text) == {1: [2, {"a": 3}]}
    with pytest.raises(CorruptError, match="larger than what is read here"):
        parse_config_json(text + " ")


@pytest.mark.parametrize("depth", [1, 2, MAXIMUM_DEPTH - 1, MAXIMUM_DEPTH])
def test_as_deep_as_the_deepest(depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        assert parse_config_json(opening * depth + "1" + closing * depth)
        with pytest.raises(CorruptError, match="nested too deeply"):
            parse_config_json(opening * (MAXIMUM_DEPTH + depth) + "1" + closing * (MAXIMUM_DEPTH + depth))


def test_what_is_in_a_list_stands_deeper_than_the_list() -> None:
    inner = '\n\t\t\t"b":1\n\t\t'
    assert format_config_json({"a": [{"b": 1}, [], {}]}) == '{\n\t"a":[{' + inner + "},[],{}]\n}"
