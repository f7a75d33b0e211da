"""What docs/deploy has: its runbook on whole and broken stores, its files as their readers take them, one file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.goldens import GoldenStore
from tests.processes import run
from tests.surroundings.mounts import over_root

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


def _instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile and what follows each."""
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    parted = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return [(word, rest) for word, _, rest in parted]


def test_the_image_is_as_linters_want_it() -> None:
    given = _instructions()
    words = [word for word, _ in given]
    assert set(words) <= {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert all(re.search(r":\d", rest) for word, rest in given if word == "FROM"), "an image without its version"
    for word, rest in given:
        assert word != "RUN" or "apt-get" not in rest or ("--no-install-recommends" in rest and "rm -rf" in rest)
        assert word != "RUN" or "pip install" not in rest or "--no-cache-dir" in rest
        assert word not in ("ENTRYPOINT", "CMD") or isinstance(json.loads(rest), list)
    last = len(words) - words[::-1].index("FROM")
    assert "USER" in words[last : words.index("ENTRYPOINT")]
    assert [rest for word, rest in given[last:] if word == "RUN"] == []


@pytest.mark.thorough
@pytest.mark.turns("packages", 4)
@pytest.mark.timeout(1800)
def test_the_image_is_made_and_looks_at_a_store(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crash")
    for path in [store, *store.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for builder in ("podman", "docker"):
        if shutil.which(builder) and run([builder, "info"]).returncode == 0:
            built = run([builder, "build", "-q", "-f", DEPLOY / "Containerfile", ROOT], seconds=1500)
            assert built.returncode == 0, built.stderr
            done = run([builder, "run", "--rm", "-v", f"{store}:/store:ro", built.stdout.strip(), "doctor", "/store"])
            break
    else:
        with _image(tmp_path) as image:
            shutil.copytree(store, image.root / "store")
            done = image.run([*image.entrypoint, "doctor", "/store"])
    assert (done.returncode, "rmqctl recover -s /store" in done.stdout) == (1, True), done.stderr


class _Image:
    """The steps of the Containerfile done in a copy of this machine's root (an overlay), where no builder is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        python = Path(sys.base_prefix, "bin")
        kept = {name: value for name, value in os.environ.items() if re.search(r"^PIP_|_PROXY$|_CERT", name.upper())}
        self.environment = {"PATH": f"{python}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "CFLAGS": "-O0", **kept}
        self.entrypoint: list[str] = []
        self.user = "0:0"
        # another user than root reaches this Python there
        for folder in python.resolve().parents:
            (root / folder.relative_to("/")).chmod(0o755)

    def run(self, command: list[str]) -> Any:
        inside = [f"{name}={value}" for name, value in self.environment.items()]
        return run(["chroot", f"--userspec={self.user}", self.root, "env", "-i", *inside, *command], seconds=1500)

    def do(self, word: str, rest: str, stages: dict[str, _Image]) -> None:
        if word == "RUN":
            done = self.run(["sh", "-ec", rest])
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        elif word == "COPY" and rest.startswith("--from="):
            stage, source, target = rest.removeprefix("--from=").split()
            there = stages[stage].root / source.lstrip("/")
            shutil.copytree(there, self.root / target.lstrip("/"), symlinks=True)
        elif word == "COPY":
            names = run(["git", "-C", ROOT, "ls-files", "-z"]).stdout.split("\0")
            for name in filter(lambda name: (ROOT / name).is_file(), filter(None, names)):
                place = self.root / rest.split()[1].lstrip("/") / name
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, place, follow_symlinks=False)
        elif word == "ENV":
            for name, _, value in (one.partition("=") for one in rest.split()):
                self.environment[name] = value.replace(f"${name}", self.environment.get(name, ""))
        elif word == "USER":
            self.user = rest
        elif word == "ENTRYPOINT":
            self.entrypoint = json.loads(rest)


@contextlib.contextmanager
def _image(folder: Path) -> Iterator[_Image]:
    """What the Containerfile makes; skips where nothing may be mounted, or no registry of packages can be reached."""
    if not (ROOT / ".git").exists() or not shutil.which("apt-get"):
        pytest.skip("not a clone, so which files belong to the project is not known, or no Debian")
    stages: dict[str, _Image] = {}
    with contextlib.ExitStack() as ends:
        for word, rest in _instructions():
            if word == "FROM":
                name = rest.partition(" AS ")[2]
                stages[name] = image = _Image(ends.enter_context(over_root(folder / f"stage-{len(stages)}")))
                if (
                    asked := image.run(["python3", "-m", "pip", "download", "-qd", "/tmp/x", "--no-deps", "click"])
                ).returncode:
                    pytest.skip(f"no registry of packages can be reached: {asked.stderr.strip()[-300:]}")
            else:
                image.do(word, rest, stages)
        yield image
