"""SQL92 filters: random ones are judged as the brokers of RocketMQ judge them; subscriptions work on both sides."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.filters import cases
from tests.interop.brokers import SMALL, create_topic, java, real_broker, rmqctl, skipping
from tests.interop.harness import java_command
from tests.interop.toolchain import BROKERS, servers
from tests.network.serving import serving
from tests.processes import LIMIT, run
from tests.store.read.test_sql92 import judged

pytestmark = pytest.mark.interop

COUNT = 5_000
ONLY_IN_5 = ("startswith", "endswith", "contains")
"""What 4.x does not know, or evaluates otherwise."""


@pytest.mark.parametrize("version", BROKERS)
def test_random_filters_are_judged_alike(version: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    asked = cases(random.Random(seed), COUNT)
    if version.startswith("4."):
        asked = [one for one in asked if not any(word in one[0].lower() for word in ONLY_IN_5)]
    lines = tmp_path / "filters"
    lines.write_text("".join(_line(*one) for one in asked), encoding="ascii")
    command = [*java_command(skipping(servers, version), tmp_path), "rmqctl.servers.Filters", str(lines)]
    done = run(command)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(asked)
    differing = [(one, java) for one, java in zip(asked, said, strict=True) if judged(*one) != java]
    assert differing == [], f"seed {seed}"


def _line(expression: str, properties: dict[str, str]) -> str:
    texts = [expression, *(text for pair in properties.items() for text in pair)]
    return " ".join("." + base64.b64encode(text.encode()).decode() for text in texts) + "\n"


WANTED = "amount > 5 AND region IN ('cn', 'us')"
PROPERTIES = {"7": "cn", "5": "cn", "9": "de", "8": "us"}
SETTINGS = {"enablePropertyFilter": "true", "timerWheelEnable": "false"}


@pytest.mark.parametrize("version", BROKERS)
def test_members_subscribe_by_sql92_and_brokers_keep_it(version: str, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    conf = tmp_path / "broker.conf"
    lines = (f"{key}={value}\n" for key, value in {**SMALL, **SETTINGS}.items())
    conf.write_text("".join(lines), encoding="ascii")
    with real_broker(version, tmp_path / "real", theirs, SETTINGS, shut_down=True) as real:
        _subscribe(version, tmp_path, real.namesrv, real.broker)
        kept = _kept(theirs)
    with serving(ours, "--writable", "--create", "-c", str(conf)) as served:
        _subscribe(version, tmp_path, served.namesrv, served.broker)
        assert served.end() == 0
    assert _kept(ours, seconds=0) == kept
    with real_broker(version, tmp_path / "again", ours, SETTINGS, shut_down=True):
        pass
    # loaded, or it would be empty now
    assert _kept(ours, seconds=0) == kept


def _subscribe(version: str, folder: Path, namesrv: str, broker: str) -> None:
    """Have members of four groups take the same messages: two of ours, a look without a group, and Java's."""
    create_topic(namesrv, broker, "T")
    for amount, region in PROPERTIES.items():
        given = ("--property", f"amount={amount}", "--property", f"region={region}")
        rmqctl("produce", "-n", namesrv, "-t", "T", "--body", amount, *given)
    options = ("consume", "-n", namesrv, "-t", "T", "--filter", WANTED)
    for more in ((), ("-g", "pulls")):
        assert sorted(one["body"] for one in rmqctl(*options, *more)) == ["7", "8"]
    assert len(rmqctl(*options, "-g", "pushes", "--exec", "true")) == 2
    lines = java(version, folder, "Consume", namesrv, "push", "T", "java", f"sql:{WANTED}", "2")
    got = {line.split("\t")[4] for line in lines if line.startswith("message\t")}
    assert got == {hashlib.sha256(body.encode()).hexdigest() for body in ("7", "8")}


def _kept(store: Path, seconds: float = LIMIT) -> dict[str, Any]:
    """What config/consumerFilter.json has of these groups, without times, as soon as it has them all."""
    file, end = store / "config/consumerFilter.json", time.monotonic() + seconds
    while True:
        content = json.loads(file.read_text("utf-8")) if file.exists() else {}
        rows = content.get("filterDataByTopic", {}).get("T", {}).get("groupFilterData", {})
        if len(rows) == 3 or time.monotonic() >= end:
            times = ("bornTime", "deadTime", "clientVersion", "dead")
            return {group: {name: row[name] for name in row if name not in times} for group, row in rows.items()}
        time.sleep(0.5)
