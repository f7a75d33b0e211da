"""Forms of a broker.conf, held against java.util.Properties and MixAll#properties2Object of 4.9.8, 5.3.3 and 5.5.0.

Each line of broker_conf_forms.jsonl.xz is a file as Latin-1 with the properties that Java loads of it (null where it
throws) and the settings that differ from the version's defaults afterwards; the first line has all defaults. Lines with
`levels` are values of messageDelayLevel with the table that ScheduleMessageService#parseDelayLevel makes of them, null
for false.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.config.config import KEYS, StoreConfig, as_a_broker_starts, config_from_properties, is_delay_table
from rmqctl.store.config.properties_text import java_properties

_ROWS = [
    json.loads(line)
    for line in lzma.decompress((Path(__file__).parent / "broker_conf_forms.jsonl.xz").read_bytes()).splitlines()
]
_FILES = [row for row in _ROWS if "form" in row]
_VERSIONS = ("4.9.8", "5.3.3", "5.5.0")
_NAMES = {name.replace("_", ""): name for name in StoreConfig._fields}
# 4.9.8 keeps white space at the end of text, which is said; a ratio out of bounds is brought into them where it is used
_SAID = {
    "4.9.8": {"escape-leading-space", "flush-space", "role-space", "text-space", "text-tab", "when-space"},
    "5.3.3": set(),
    "5.5.0": set(),
}
_ELSEWHERE = {"hours-minus", "hours-over", "int-minus", "int-zero"}


@pytest.mark.parametrize("row", _FILES, ids=lambda row: row["form"])
def test_java_reads_the_same_properties(row: dict[str, Any]) -> None:
    data = row["bytes"].encode("latin-1")
    if row["properties"] is None:
        with pytest.raises(ValueError, match="Malformed"):
            java_properties(data)
    else:
        assert java_properties(data) == row["properties"]


@pytest.mark.parametrize("version", _VERSIONS)
def test_brokers_take_the_same_settings(version: str) -> None:
    defaults, compared = _FILES[0][version], 0
    for row in _FILES[1:]:
        if row["properties"] is None or row["form"] in _ELSEWHERE | _SAID[version]:
            continue
        config = as_a_broker_starts(config_from_properties(row["properties"]))
        for key in KEYS:
            name = _NAMES.get(key.name.lower())
            if name is None or name == "store_path_commit_log" or defaults.get(key.name, "<unknown>") == "<unknown>":
                continue
            ours, expected = getattr(config, name), row[version].get(key.name, defaults[key.name])
            if ours is None:
                assert expected == defaults[key.name], (row["form"], key.name)
            else:
                assert ours == expected, (row["form"], key.name)
            compared += 1
    assert compared > 3000


@pytest.mark.parametrize("row", [row for row in _ROWS if "levels" in row], ids=lambda row: repr(row["levels"]))
def test_delay_tables(row: dict[str, Any]) -> None:
    if row["levels"].startswith("9223372036854775807"):
        return  # overflows in Java, and means no delay
    for version in _VERSIONS:
        assert is_delay_table(row["levels"]) == (row[version] is not None)
        if row[version] is not None:
            assert list(StoreConfig(message_delay_level=row["levels"]).delay_levels()) == row[version]


@pytest.mark.parametrize(
    ("text", "taken"), [("0.9d ", 0.9), ("1e3", 1000.0), ("0.5\0", 0.5), (".5F", 0.5), ("1e", 0.8)]
)
def test_fractions_are_taken_as_double_parse_double_takes_them(text: str, taken: float) -> None:
    key = "logicalDiskSpaceCleanForciblyThreshold"
    assert config_from_properties({key: text}).logical_disk_space_clean_forcibly_threshold == taken
