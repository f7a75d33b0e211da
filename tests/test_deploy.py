"""What docs/deploy has: its runbook on whole and broken stores, its files as their readers take them, one file."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.goldens import GoldenStore
from tests.processes import run

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs/deploy"


def _mended(store: Path, copy: Path, **options: str) -> Any:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return run(
        ["sh", DEPLOY / "mend.sh"], env={**os.environ, "PATH": path, "STORE": str(store), "COPY": str(copy), **options}
    )


def test_a_healthy_store_is_left_alone(golden_store: GoldenStore, tmp_path: Path) -> None:
    done = _mended(golden_store("clean"), tmp_path / "copy")
    assert (done.returncode, (tmp_path / "copy").exists()) == (0, False), done.stderr


def test_a_crashed_store_is_copied_and_recovered(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crash")
    done = _mended(store, tmp_path / "copy", BROKER="5.3.3")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy/abort").exists()
    assert not (store / "abort").exists()


def test_it_stops_where_a_decision_is_needed(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crc-flip-last-abort")
    done = _mended(store, tmp_path / "copy")
    assert done.returncode == 5, done.stderr
    assert (store / "abort").exists()


def test_units_are_sound(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "rmqctl"
    program.touch(0o755)
    for unit in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")):
        text = unit.read_text(encoding="utf-8").replace("/usr/bin/rmqctl", str(program))
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    done = run([verify, "verify", *tmp_path.glob("rmqctl-*")])
    assert [line for line in done.stderr.splitlines() if line.startswith("rmqctl-")] == []


def test_pages_of_yaml_name_what_is_there() -> None:
    config, job = yaml.safe_load_all((DEPLOY / "job.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert list(config["data"]) == [Path(container["command"][-1]).name]
    variables = set(re.findall(r"\$\{([A-Z]+)", (DEPLOY / "mend.sh").read_text(encoding="utf-8")))
    assert {one["name"] for one in container["env"]} == variables
    tasks = yaml.safe_load((DEPLOY / "ansible/tasks/main.yml").read_text(encoding="utf-8"))
    (mend,) = (task for task in tasks if "ansible.builtin.script" in task)
    assert set(mend["environment"]) == variables
    defaults = yaml.safe_load((DEPLOY / "ansible/defaults/main.yml").read_text(encoding="utf-8"))
    used = set(re.findall(r"\{\{ (rmqctl_\w+) \}\}", (DEPLOY / "ansible/tasks/main.yml").read_text(encoding="utf-8")))
    assert used == set(defaults)


def test_the_image_installs_extras_that_exist() -> None:
    (extras,) = re.findall(r"/src\[(.+?)\]", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
