"""RECALL_MESSAGE (370): a Java producer takes timed messages back (DefaultMQProducer#recallMessage, since 5.3.1; no
command of mqadmin sends it) from the real broker and from `serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.brokers import SMALL, create_topic, java, real_broker
from tests.network.serving import serving

pytestmark = pytest.mark.interop

TOPICS = ("T", "Other")


def _recall(folder: Path, namesrv: str, broker: str) -> list[str]:
    for topic in TOPICS:
        create_topic(namesrv, broker, topic, queues=1)
    return java("5.3.3", folder, "Recall", namesrv, "T")


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_java_producer_takes_back(version: str, is_enabled: bool, tmp_path: Path) -> None:
    settings = {**SMALL, "recallMessageEnable": "true" if is_enabled else "false"}
    with real_broker(version, tmp_path / "real", tmp_path / "theirs", settings) as real:
        expected = _recall(tmp_path, real.namesrv, real.broker)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    options = ("--writable", "--create", "--as", version, "-c", str(conf))
    with serving(tmp_path / "ours", *options) as served:
        got = _recall(tmp_path, served.namesrv, served.broker)
        assert served.end() == 0
    assert got == expected
    assert "got\tkept" in got
    # a handle is given whether it may be used or not
    assert ("got\ttaken back" in got) is not is_enabled
