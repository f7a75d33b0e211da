"""Settings from a broker.conf: what is understood, what is refused, and what follows from them."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.store.config import config as config_keys
from rmqctl.store.config.config import (
    StoreConfig,
    as_a_broker_starts,
    config_from_properties,
    odd_settings,
    read_broker_conf,
    read_properties,
)
from rmqctl.store.options import tell_notices
from tests.goldens import GOLDENS, GoldenStore, broker_conf, properties
from tests.quick import goldens_of
from tests.rmqctl.looking import run


def _read(folder: Path, text: str) -> StoreConfig:
    path = folder / "broker.conf"
    path.write_text(text, encoding="utf-8")
    return read_broker_conf(path)


def test_what_a_broker_conf_looks_like(tmp_path: Path) -> None:
    config = _read(
        tmp_path,
        "# a comment = no setting\n! another\n\n  brokerName = broker-a\nstorePathRootDir=/data/store  \n"
        "mappedFileSizeCommitLog= 262144\r\nflushDiskType =SYNC_FLUSH\nenableLmq=TRUE\ndeleteWhen=04;16\n"
        "aclEnable=perhaps\nmessageDelayLevel=1s 2s\nstorePathCommitLog=/a=b\n",
    )
    assert config.store_path_root_dir == "/data/store"
    assert config.mapped_file_size_commit_log == 262144
    assert config.flush_disk_type == "SYNC_FLUSH"
    assert config.enable_lmq
    assert config.delete_when == "04;16"
    assert config.delay_levels() == (1000, 2000)
    assert config.store_path_commit_log == "/a=b"


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_configurations_of_goldens(name: str, tmp_path: Path) -> None:
    config = read_broker_conf(broker_conf(name, tmp_path))
    given = properties(name)
    assert config.store_path_root_dir == str(tmp_path / name)
    assert str(config.mapped_file_size_commit_log) == given["store.mappedFileSizeCommitLog"]
    assert str(config.mapped_file_size_consume_queue) == given["store.mappedFileSizeConsumeQueue"]
    assert str(config.max_hash_slot_num) == given["store.maxHashSlotNum"]
    assert config.message_index_enable == (given.get("store.messageIndexEnable", "true") == "true")
    assert config.enable_consume_queue_ext == (given.get("store.enableConsumeQueueExt") == "true")


def test_defaults_are_rocketmqs() -> None:
    """MessageStoreConfig of 5.3.3; a geometry that is not given is taken from the files."""
    config = StoreConfig()
    assert config.mapped_file_size_commit_log is None
    assert (config.flush_disk_type, config.flush_interval_commit_log, config.flush_commit_log_least_pages) == (
        "ASYNC_FLUSH", 500, 4,
    )  # fmt: skip
    assert (config.file_reserved_time, config.delete_when, config.disk_max_used_space_ratio) == (72, "04", 75)
    assert config.max_message_size == 4_194_304
    assert config.destroy_maped_file_interval_forcibly == 120_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mappedFileSizeCommitLog=1GB", "is no number"),
        ("mappedFileSizeCommitLog=65536 ", "white space at its end"),
        ("mappedFileSizeCommitLog=", "is no number"),
        ("mappedFileSizeCommitLog=-1", "no file can have this size"),
        ("mappedFileSizeCommitLog=0", "no file can have this size"),
        ("mappedFileSizeCommitLog=4294967296", "larger than a broker's numbers"),
        ("messageIndexEnable=yes", "takes it for false"),
        ("flushDiskType=FAST", "not one of SYNC_FLUSH"),
        ("fileReservedTime=a day", "its default, 72"),
        ("fileReservedTime=-1", "goes by the default"),
        ("mappedfilesizecommitlog=65536", "the key is mappedFileSizeCommitLog"),
        ("messageDelayLevel=1s,5s", "a broker does not start"),
        ("timerPrecisionMs=300", "a broker takes 200"),
        ("storePathRootDir=/data ", "4.9.8 keeps it"),
    ],
)
def test_values_that_a_broker_drops_or_changes(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=a\n" + line, encoding="utf-8")
    properties = read_properties(tmp_path / "broker.conf")
    assert [sentence for sentence in odd_settings(properties) if said in sentence], odd_settings(properties)
    config = config_from_properties(properties)
    assert config.mapped_file_size_commit_log is None
    assert config.file_reserved_time == 72
    assert config.flush_disk_type == "ASYNC_FLUSH"
    if "Size" in line:
        assert as_a_broker_starts(config).mapped_file_size_commit_log == 1024**3
    with pytest.raises(UsageError):
        config_from_properties(properties, refuses=True)


def test_a_byte_order_mark_hides_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_bytes(b"\xef\xbb\xbfstorePathRootDir=/a\nmaxIndexNum=7\n")
    properties = read_properties(tmp_path / "broker.conf")
    assert config_from_properties(properties) == StoreConfig(max_index_num=7)
    assert "do not recognise storePathRootDir" in odd_settings(properties)[0]


def test_an_escape_that_java_refuses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no properties file"):
        _read(tmp_path, "a=\\u00zz\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UnreadableError, match="cannot be read") as error:
            read_broker_conf(path)
        assert error.value.hint
    (tmp_path / "other-bytes").write_bytes("# 存储\nmaxIndexNum=7".encode("gbk"))
    assert read_broker_conf(tmp_path / "other-bytes").max_index_num == 7


def test_keys_of_others_are_passed_over() -> None:
    assert config_from_properties({"brokerClusterName": "x", "mappedFileSize": "no number"}) == StoreConfig()
    assert config_from_properties({"enabledAppendPropCRC": "true"}).enabled_append_prop_crc


def test_delay_levels() -> None:
    """ScheduleMessageService#parseDelayLevel: s, m, h and d."""
    second, minute, hour = 1000, 60_000, 3_600_000
    assert StoreConfig().delay_levels() == (
        second, 5 * second, 10 * second, 30 * second, *(number * minute for number in range(1, 11)),
        20 * minute, 30 * minute, hour, 2 * hour,
    )  # fmt: skip
    assert StoreConfig(message_delay_level="2d 1h").delay_levels() == (172_800_000, hour)


@pytest.mark.parametrize("text", ["1", "s", "1x", "1 s", "one s", "1.5s"])
def test_unreadable_delay_levels(text: str) -> None:
    config = StoreConfig(message_delay_level=text)
    assert config.delay_levels() == StoreConfig().delay_levels(), "who reads goes by RocketMQ's own"
    with pytest.raises(UsageError, match="messageDelayLevel") as error:
        config.delay_levels_to_write()
    assert error.value.hint


def test_commitlog_directories() -> None:
    root = Path("/data")
    assert StoreConfig().layout(root).commitlog == (root / "commitlog",)
    assert StoreConfig(store_path_commit_log="/a").layout(root).commitlog == (Path("/a"),)
    assert StoreConfig(store_path_commit_log="/b, /a,,").layout(root).commitlog == (Path("/b"), Path("/a"))
    read_only = StoreConfig(store_path_commit_log="/a,/b", read_only_commit_log_store_paths="/b,/c")
    assert read_only.layout(root).commitlog == (Path("/a"), Path("/b"), Path("/c"))


@functools.cache
def _words() -> dict[str, set[str]]:
    """The words of each module beside the configuration's own."""
    root = Path(__file__).resolve().parents[2]
    modules = [path for floor in ("store", "rmqctl", "pipeline") for path in (root / floor).rglob("*.py")]
    return {
        path.relative_to(root).as_posix(): set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
        for path in modules
        if path.name not in ("config.py", "config_keys.py")
    }


def _used(field: str) -> set[str]:
    """Modules beside the configuration's own that read a field."""
    return {module for module, words in _words().items() if field in words}


def test_the_table_of_keys_says_what_the_code_does() -> None:
    fields = {name.replace("_", ""): name for name in StoreConfig._fields if name != "dropped"}
    named = {key.name.lower(): key for key in config_keys.KEYS}
    assert len(named) == len(config_keys.KEYS)
    assert fields.keys() == named.keys()
    for name, key in named.items():
        # properties of StoreConfig that are made of a setting
        made = {
            "messagedelaylevel": "delay_levels_to_write",
            "enablecontrollermode": "uses_transient_store_pool",
            "messageindexenable": "writes_index_files",
            "enableslaveactingmaster": "escapes",
            "enableremoteescape": "escapes",
            "indexfilewriteenable": "writes_index_files",
            "enablemultidispatch": "fills_light_queues",
        }
        used = _used(fields[name]) | (_used(made[name]) if name in made else set())
        if key.counts_for == config_keys.PREDICT:
            assert used, key
            assert all(module.startswith("store/predict/") for module in used), (key, used)
        elif name not in ("storepathrootdir", "storepathcommitlog"):  # StoreConfig.layout
            assert [module for module in used if not module.startswith("store/predict/")], key


def test_defaults_of_keys_without_effect_are_those_of_the_configuration() -> None:
    fields = {
        name.replace("_", ""): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in StoreConfig()._asdict().items()
    }
    for key in config_keys.KEYS:
        if key.counts_for == config_keys.PREDICT and key.name.lower() in fields:
            assert key.default == fields[key.name.lower()], key


def test_a_key_without_effect_is_named_once_unless_it_has_its_default(
    golden_store: GoldenStore, tmp_path: Path
) -> None:
    given = tmp_path / "broker.conf"
    given.write_text("enableConsumeQueueExt=true\nmessageIndexSafe=false\ncommitLogRecoverMaxNum=5\nx=y\n")
    for verb in ("info", "clean"):
        tell_notices(None)  # as in a process of its own
        done = run(verb, "-s", golden_store("features"), "-c", given, *(["--dry-run"] if verb == "clean" else []))
        assert done.code == 0
        assert done.err.count("commitLogRecoverMaxNum counts for `predict` only") == 1
        assert "messageIndexSafe" not in done.err
        assert "enableConsumeQueueExt" not in done.err


def test_a_slave_has_a_transient_pool_under_a_controller_alone() -> None:
    """DefaultMessageStore#isTransientStorePoolEnable: under a controller a slave may become the master."""
    slave = StoreConfig(transient_store_pool_enable=True, broker_role="SLAVE")
    assert not slave.uses_transient_store_pool
    assert slave._replace(enable_controller_mode=True).uses_transient_store_pool
    assert slave._replace(broker_role="ASYNC_MASTER").uses_transient_store_pool
