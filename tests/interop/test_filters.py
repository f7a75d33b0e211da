"""SQL92 filters: random ones are judged as the brokers of RocketMQ judge them."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from tests.filters import cases
from tests.interop.brokers import skipping
from tests.interop.harness import java_command
from tests.interop.toolchain import BROKERS, servers
from tests.processes import run
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
