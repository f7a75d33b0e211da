"""rmqctl as a package: what a wheel and a source distribution hold, and that every verb works with the base alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.main import VERBS
from rmqctl.output import outcome as exit_codes
from rmqctl.store.status import FAST, GRPC, MCP, REMOTE, REPORT, SPARK, SQL, TUI, WATCH, how_to_add
from tests.goldens import GoldenStore, unpack
from tests.processes import ROOT, run, start

pytestmark = pytest.mark.real_clock("a registry of packages has a certificate, which is valid for some months only")

FLOORS = ("formats", "store", "network", "pipeline")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MINUTES = 900.0
OK, NOTHING, REFUSED = exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING, exit_codes.REFUSED


class Call(NamedTuple):
    """A command line, where STORE is a copy of a golden store and NEW a folder to write into, and how it ends."""

    arguments: str
    code: int = OK
    lacks: str = ""


# in this order, on one store
CALLS = [
    Call("info -s STORE"),
    Call("doctor -s STORE"),
    Call("watch -s STORE", REFUSED, WATCH),
    Call("report -s STORE -o NEW/report.html", REFUSED, REPORT),
    Call("browse -s STORE", REFUSED, TUI),
    Call("mcp -s STORE", REFUSED, MCP),
    Call("ls -s STORE --queues"),
    Call("help du"),
    Call("config", NOTHING),
    Call("help --man NEW/man"),
    Call("du -s STORE"),
    Call("cat -s STORE -n 3 --json"),
    Call("cat -s STORE -n -3"),
    Call("query -s STORE -t TopicTest -q 0 -o 0"),
    Call("dump STORE/commitlog/00000000000000000000 --limit 1"),
    Call("check -s STORE"),
    Call("check -s STORE --master in-process"),
    Call("check -s STORE --master local[1]", REFUSED, SPARK),
    Call("predict -s STORE --broker 4.9.8"),
    Call("sql -s STORE select-1", REFUSED, SQL),
    Call("sql -s STORE --master local[1] select-1", REFUSED, SPARK),
    Call("stats -s STORE", REFUSED, SQL),
    Call("stats -s STORE --master in-process", REFUSED, SQL),
    Call("diff STORE STORE", REFUSED, SQL),
    Call("diff STORE STORE --master in-process", REFUSED, SQL),
    Call("export -s STORE NEW/all.jsonl"),
    Call("export -s STORE NEW/all.csv"),
    Call("export -s STORE NEW/all.parquet", REFUSED, FAST),
    Call("export -s STORE NEW/lake --master in-process", REFUSED, FAST),
    Call("append -s NEW/store --create --from NEW/all.jsonl"),
    Call("append -s NEW/store --from NEW/all.parquet", REFUSED, FAST),
    Call("append -s STORE -t TopicTest --body more"),
    Call("rebuild -s STORE --queues"),
    Call("where -s STORE TopicTest 0 0"),
    Call("groups -s STORE", NOTHING),
    Call("groups -s STORE --plot", REFUSED, TUI),
    Call("delays -s STORE", NOTHING),
    Call("halves -s STORE", NOTHING),
    Call("acl -s STORE", NOTHING),
    Call("dlq list -s STORE"),
    Call("dlq redrive -s STORE -g GroupA --dry-run"),
    Call("offsets show -s STORE", NOTHING),
    Call("offsets reset -s STORE -g first -t TopicTest --to earliest --new-group"),
    Call("offsets lint -s STORE"),
    Call("clean -s STORE --forecast"),
    Call("log -s STORE"),
    Call("undo -s STORE"),
    Call("resume -s STORE", NOTHING),
    Call("recover -s STORE"),
    Call("repair -s STORE"),
    Call("purge -s STORE -t TopicTest --dry-run"),
    Call("rebuild -s STORE --master in-process"),
    Call("clean -s STORE --older-than 1d --dry-run"),
    Call("truncate -s STORE --at 0 --dry-run"),
    Call("snapshot NEW/snapshot -s STORE"),
    Call("salvage STORE --to NEW/salvaged"),
    Call("twin STORE NEW/twin --anonymise"),
    Call("completion bash"),
]


def test_extras_are_named_as_the_project_has_them() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    for extra, said in (
        ("fast", FAST),
        ("remote", REMOTE),
        ("spark", SPARK),
        ("sql", SQL),
        ("grpc", GRPC),
        ("watch", WATCH),
        ("report", REPORT),
        ("tui", TUI),
        ("mcp", MCP),
    ):
        names = {re.split(r"[<>=]", one)[0].replace("-", "_"): one for one in extras[extra]}
        told = re.findall(r"[a-z0-9_]+", said.replace("-", "_").removeprefix("pip install ").partition(" (")[0])
        assert set(names) <= set(told)
        assert f"rmqctl[{extra}]" in said
        modules = {"grpcio": "grpc", "protobuf": "google"}
        assert all(how_to_add(f"{modules.get(name, name)}.part") is not None for name in names)
        for name, wanted in names.items():  # a bound above is one that the newest release may not keep
            assert "<" not in wanted or f"'{name}{wanted[len(name) :]}'" in said
    assert how_to_add("click") is how_to_add(None) is None


def foreign_folder(folder: Path) -> Path:
    """A working directory with packages of somebody else's that bear the names of our floors."""
    for floor in FLOORS:
        (folder / floor).mkdir(parents=True)
        (folder / floor / "__init__.py").write_text(f"raise AssertionError('the foreign {floor} was imported')\n")
    return folder


def test_foreign_packages_are_left_alone(tmp_path: Path) -> None:
    code = "import pyspark_rocketmq; print(pyspark_rocketmq.DefaultSource.name())"
    ended = run([sys.executable, "-c", code], cwd=foreign_folder(tmp_path / "work"))
    assert (ended.stdout, ended.stderr) == ("rocketmq\n", "")


_READ = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("messages", session.read.format("rocketmq").load(sys.argv[1]).count())
session.stop()
"""


@pytest.mark.jvm
@pytest.mark.turns("programs of Spark", 3)
def test_foreign_packages_are_left_alone_on_executors(tmp_path: Path, golden_store: GoldenStore) -> None:
    from rmqctl.pipeline.spark.session import find_java, java_home_for_spark

    work = foreign_folder(tmp_path / "work")
    (work / "driver.py").write_text(_READ)
    java = {"JAVA_HOME": str(java_home_for_spark(find_java(), tmp_path)), "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **java, "PYTHONPATH": str(work)}
    ended = run([sys.executable, "driver.py", str(golden_store("clean"))], cwd=work, env=environment)
    assert "messages 2500" in ended.stdout, ended.stderr[-2000:]


def worked(command: list[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """A process that has to end well; what it said is the message if it does not."""
    ended = run(command, seconds=MINUTES, **options)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build backend in a folder; skips where no registry has it, without which no wheel can be built."""
    folder = tmp_path_factory.mktemp("tools")
    ended = run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "setuptools>=77"])
    if ended.returncode:
        pytest.skip(f"no registry of packages can be reached: {ended.stderr.strip()[-300:]}")
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files as they are now, links as links."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: which files belong to the project is not known")
    names = worked(["git", "ls-files", "-z"]).stdout.split("\0")
    folder = tmp_path_factory.mktemp("sources")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


FORMER = ("walk-00000000.abi3.so", "removed.py")
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(sources: Path, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of these sources."""
    wheels = tmp_path_factory.mktemp("wheels")
    built = tmp_path_factory.mktemp("built") / "rmqctl"  # building leaves things in the folder that is built from
    shutil.copytree(sources, built, symlinks=True)
    # and what was built there before is no part of it
    former = built / f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}/rmqctl/store/native"
    former.mkdir(parents=True)
    for name in FORMER:
        (former / name).write_bytes(b"")
    # optimizing takes three quarters of the time
    worked(["env", "CFLAGS=-O0", sys.executable, *PIP, "wheel", "--no-deps", "-w", wheels, built], cwd=wheels)
    (made,) = wheels.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the wheel and the base dependencies, nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    worked([sys.executable, "-m", "venv", environment])
    worked([environment / "bin/python", *PIP, "install", "-c", ROOT / "constraints.txt", wheel], cwd=environment)
    return environment


@pytest.mark.thorough
def test_a_wheel_has_one_name_and_the_one_that_spark_looks_for(bare: Path) -> None:
    (packages,) = bare.glob("lib/python*/site-packages")
    (record,) = packages.glob("rmqctl-*.dist-info/RECORD")
    tops = {line.partition("/")[0] for line in record.read_text().splitlines() if not line.startswith("../")}
    assert tops == {"rmqctl", "pyspark_rocketmq", record.parent.name}
    assert [floor for floor in FLOORS if (packages / floor).exists()] == []
    assert [floor for floor in FLOORS if (packages / "rmqctl" / floor).is_symlink()] == []
    assert [name for name in FORMER if (packages / "rmqctl/store/native" / name).exists()] == []
    assert len({path.name.partition(".")[0][-8:] for path in packages.glob("rmqctl/store/native/*.so")}) == 1


@pytest.mark.thorough
def test_every_verb_works_with_the_base_alone_or_names_what_it_needs(
    bare: Path, golden_store: GoldenStore, tmp_path: Path
) -> None:
    live = {"serve", "topics", "cluster", "produce", "consume", "mirror"}
    assert {call.arguments.split()[0] for call in CALLS} | live == set(VERBS)
    store = golden_store("clean")
    for call in CALLS:
        if call.lacks and "--from" in call.arguments:
            (tmp_path / "all.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
        words = [word.replace("STORE", str(store)).replace("NEW", str(tmp_path)) for word in call.arguments.split()]
        ended = run([bare / "bin/rmqctl", *words], cwd=tmp_path)
        assert ended.returncode == call.code, f"{call.arguments}: {ended.stderr}"
        assert "bug" not in ended.stderr
        assert "Traceback" not in ended.stderr
        assert call.lacks in ended.stderr, f"{call.arguments}: {ended.stderr}"
    at = ["--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0"]
    with start([bare / "bin/rmqctl", "serve", "-s", store, "--json", *at], stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        topic = ["-n", json.loads(served.stdout.readline())["namesrv"], "-t", "TopicTest"]
        for asking in (["topics", *topic], ["cluster", *topic[:2]], ["groups", *topic[:2]]):
            told = run([bare / "bin/rmqctl", *asking])
            assert (told.returncode in (0, 1), "Traceback" in told.stderr) == (True, False), told.stderr
        taken = run([bare / "bin/rmqctl", "consume", *topic, "--limit", "3", "--json"])
        assert (taken.returncode, len(taken.stdout.splitlines()), taken.stderr) == (0, 3, "")
        refused = run([bare / "bin/rmqctl", "produce", *topic, "--body", "one more"])
        assert (refused.returncode, refused.stdout) == (3, "")
        assert "Traceback" not in refused.stderr
        served.terminate()
        assert served.wait(60) == 0


@pytest.mark.thorough
@pytest.mark.turns("packages", 4)
def test_one_file_works_where_nothing_is_installed(wheel: Path, golden_store: GoldenStore, tmp_path: Path) -> None:
    made = tmp_path / "rmqctl.pyz"
    worked([sys.executable, ROOT / "docs/deploy/build.py", "pyz", "-o", made, "--wheel", wheel])
    assert made.with_name("rmqctl.pyz.sha256").read_text().split() == [sha256(made.read_bytes()).hexdigest(), made.name]
    bill = json.loads(made.with_name("rmqctl.pyz.cdx.json").read_text())
    with zipfile.ZipFile(made) as packed:
        held = {name.split("/")[1] for name in packed.namelist() if ".dist-info/" in name}
    described = [*bill["components"], bill["metadata"]["component"]]
    assert {(one["name"], one["version"]) for one in described} == {
        (name.lower().replace("_", "-").replace(".", "-"), version)
        for name, _, version in (one.removesuffix(".dist-info").partition("-") for one in held)
    }
    assert [one["name"] for one in described if not one["licenses"]] == []
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SHIV_ROOT": str(tmp_path / "unpacked")}
    python = Path(sys.base_prefix, "bin/python3")
    store = golden_store("clean")
    for verb in ("info --json", "doctor", "append -t T --body x"):
        assert worked([python, "-I", made, *verb.split(), "-s", store], env=bare, cwd=tmp_path).stdout
    assert list(tmp_path.glob(".*")) == []


# whatever of the machine's own is loaded beside it would be one more thing to be missing elsewhere
LOADED = """
import numpy, duckdb, pyarrow.parquet, rmqctl.store.native as native
assert native.is_compiled()
print(*{line.split()[5] for line in open("/proc/self/maps") if ".so" in line}, sep="\\n")
"""


@pytest.mark.thorough
@pytest.mark.turns("packages", 4)
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("ldd"), reason="it is made with ldd, on Linux")
def test_one_file_brings_its_own_python(wheel: Path, golden_store: GoldenStore, tmp_path: Path) -> None:
    made, root = tmp_path / "rmqctl-linux", tmp_path / "unpacked"
    worked([sys.executable, ROOT / "docs/deploy/build.py", "binary", "-o", made, "--wheel", wheel, "--preset", "0"])
    bill = json.loads(made.with_name("rmqctl-linux.cdx.json").read_text())
    assert {"python", "libc.so.6", "numpy", "duckdb"} <= {one["name"] for one in bill["components"]}
    bare = {"PATH": "/usr/bin:/bin", "RMQCTL_ROOT": str(root)}
    store = golden_store("clean")
    calls = ["doctor", "stats --json", "append -t T --body x", f"report -o {tmp_path}/report.html", "watch"]
    calls += [f"export {tmp_path}/all.parquet", "sql select(1)"]
    for verb in calls:
        assert worked([made, *verb.split(), "-s", store], env=bare, cwd=tmp_path).stdout
    without = run([made, "mcp", "-s", store], env=bare)
    assert (without.returncode, "rmqctl[mcp]" in without.stderr, "pip install" in without.stderr) == (5, True, False)
    (unpacked,) = root.iterdir()
    loaded = worked([unpacked / "bin/python3", "-I", "-c", LOADED], env=bare).stdout.splitlines()
    assert [name for name in loaded if not name.startswith(str(root))] == []
    assert (unpacked / "licences/python").exists()
    # cut short on its way, as on a disk that became full
    half = tmp_path / "half"
    half.write_bytes(made.read_bytes()[: made.stat().st_size // 2])
    half.chmod(0o755)
    refused = run([half, "--help"], env=bare | {"RMQCTL_ROOT": str(tmp_path / "other")})
    assert (refused.returncode, refused.stdout, "RMQCTL_ROOT=" in refused.stderr) == (6, "", True)
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.thorough
@pytest.mark.turns("packages", 4)
def test_an_unpacked_source_distribution_is_tested_like_a_clone(
    sources: Path, tools: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = tmp_path_factory.mktemp("distribution")
    names = {path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()}
    code = f"import sys; sys.path.insert(0, {str(tools)!r})\nfrom setuptools.build_meta import build_sdist\n"
    worked([sys.executable, "-c", f"{code}build_sdist({str(made)!r})"], cwd=sources)
    (archive,) = made.glob("*.tar.gz")
    unpack(archive, made)
    (unpacked,) = (path for path in made.iterdir() if path.is_dir())
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in names - there if ".egg-info/" not in name} == set()
    tests = ["tests/formats/test_hashing.py", "tests/store/queues/test_consumequeue.py"]
    tests.append("tests/test_tidy.py::test_every_source_is_there_once")
    ended = worked([sys.executable, "-m", "pytest", "-q", "--quick", "-p", "no:cacheprovider", *tests], cwd=unpacked)
    assert " passed" in ended.stdout
    where = "import rmqctl.store.message_store as m; print(m.__file__)"
    assert worked([sys.executable, "-c", where], cwd=unpacked).stdout.startswith(str(unpacked))
