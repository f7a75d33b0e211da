"""What the interop tests need besides Python: Java, and the real RocketMQ with our driver compiled against it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.anyday.at_a_date import real_environment

SOURCES = Path(__file__).parent / "java"
REPOSITORY = Path(__file__).parents[2]
LINE_OF = {"5.3.3": "v5", "4.9.8": "v4", "5.5.0": "v5"}
"""The RocketMQ versions tested against, and the folder with the sources for that line."""

BROKERS = ("5.5.0", "5.3.3", "4.9.7")
"""The RocketMQ versions whose brokers are run: of 4.9.8 there is no broker among the published artifacts."""

CLIENTS = ("5.3.3", "4.9.8", "5.5.0")
"""The RocketMQ versions whose clients are run beside ours."""

LIBHDFS_CRATE = ("hdfs-sys", "0.3.1")
LIBHDFS_SHA256 = "18138c3dacdf0e95f834369f996b21d2b6fa99e71787ef45e2ece09b37bd1dd1"
"""A package that has the sources of Hadoop's client in C."""

OLDEST_JAVA = 11
FETCH_SECONDS = 900
COMPILE_SECONDS = 120


class HarnessError(RuntimeError):
    """The harness itself failed: a fetch, a compilation or a JVM, not what RocketMQ said of a store."""


class Unavailable(RuntimeError):  # noqa: N818 - a state of the machine, not an error
    """This machine lacks something; the text says what, for pytest.skip."""


@dataclass(frozen=True)
class Toolchain:
    """One RocketMQ version ready to run."""

    version: str
    java: Path
    classpath: str


@functools.cache
def toolchain(version: str) -> Toolchain:
    """Jars and compiled driver of `version`, fetched and compiled at the first call on a machine.

    Raises Unavailable where Java or Maven is missing or the fetch fails; a failing fetch in CI is a HarnessError.
    """
    java = _java()
    with _locked(cache_folder()) as cache:
        jars = _jars(version, cache)
        classes = _classes(version, cache, jars, java)
    return Toolchain(version, java, f"{classes}{os.pathsep}{jars}/*")


def toolchain_with(version: str, label: str, sources: Path) -> Toolchain:
    """The jars of `version` and, instead of the driver, the classes of all Java sources below the folder `sources`."""
    tools = toolchain(version)
    with _locked(cache_folder()) as cache:
        jars = _jars(version, cache)
        classes = _compiled(f"{label}-{version}", list(sources.rglob("*.java")), cache, jars, tools.java)
    return Toolchain(version, tools.java, f"{classes}{os.pathsep}{jars}/*")


def clients(version: str) -> Toolchain:
    """RocketMQ's clients of `version` (and mqadmin where it is the newest) with our programs that use them."""
    folders = [SOURCES / "clients" / "common", SOURCES / "clients" / LINE_OF[version]]
    return clients_with(version, f"classes-clients-{version}", *folders)


def clients_with(version: str, label: str, *folders: Path) -> Toolchain:
    """RocketMQ's clients of `version` with the classes of all Java sources below these folders."""
    java = _java()
    with _locked(cache_folder()) as cache:
        jars = _jars(f"clients-{version}", cache)
        sources = [source for folder in folders for source in folder.rglob("*.java")]
        classes = _compiled(label, sources, cache, jars, java)
    return Toolchain(version, java, f"{classes}{os.pathsep}{jars}/*")


def servers(version: str) -> Toolchain:
    """RocketMQ's own name server and broker of `version` (and mqadmin) with our program that runs both."""
    label = f"servers-{version}"
    java = _java()
    # mqadmin asks a broker what its own version knows
    admin = [one for name in ("Admin.java", "Sweep.java") for one in (SOURCES / "clients" / "v5").rglob(name)]
    sources = [*(SOURCES / "servers").rglob("*.java"), *admin]
    with _locked(cache_folder()) as cache:
        jars = _jars(label, cache)
        classes = _compiled(f"classes-{label}", sources, cache, jars, java)
    return Toolchain(version, java, f"{classes}{os.pathsep}{jars}/*")


def proxy(version: str) -> Toolchain:
    """RocketMQ's own proxy of `version` in local mode, with the broker in it, and our program that runs it."""
    label = f"proxy-{version}"
    java = _java()
    sources = [SOURCES / "servers/rmqctl/servers/Serve.java", *(SOURCES / "proxy").rglob("*.java")]
    with _locked(cache_folder()) as cache:
        jars = _jars(label, cache)
        classes = _compiled(f"classes-{label}", sources, cache, jars, java)
    return Toolchain(version, java, f"{classes}{os.pathsep}{jars}/*")


def store_server(kind: str) -> Toolchain:
    """`s3` (S3Proxy), `hdfs` (name node and data node of Hadoop) or `yarn` (its managers), and what runs it."""
    java = _java()
    with _locked(cache_folder()) as cache:
        jars = _jars(kind, cache)
        sources = list((SOURCES / kind).rglob("*.java"))
        classes = _compiled(f"classes-{kind}", sources, cache, jars, java) if sources else jars
    return Toolchain(kind, java, f"{classes}{os.pathsep}{jars}/*")


def hadoop_library() -> Path:
    """A folder with libhdfs.so, Hadoop's client in C, and the home of the Java that it is made for. No registry of
    packages has it made; a crate has its sources, which are one call of a compiler."""
    home = _java().parents[1]
    compiler, cargo = shutil.which("cc"), shutil.which("cargo")
    if compiler is None or cargo is None or not (home / "include" / "jni.h").exists():
        raise Unavailable(f"no cc or no cargo on PATH, or {home} is no JDK")
    with _locked(cache_folder()) as cache:
        made = cache / f"libhdfs-{LIBHDFS_SHA256[:16]}-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}"
        if not made.exists():
            unfinished = cache / f"{made.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            _compile_library(_libhdfs_sources(unfinished, cargo), unfinished / "libhdfs.so", compiler, home)
            unfinished.rename(made)
    return made


def _libhdfs_sources(folder: Path, cargo: str) -> Path:
    """From wherever cargo has its packages."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "lib.rs").touch()
    name, version = LIBHDFS_CRATE
    manifest = f'[package]\nname = "libhdfs"\nversion = "0.0.0"\n[dependencies]\n{name} = "={version}"\n'
    (folder / "Cargo.toml").write_text(manifest, encoding="ascii")
    done = run([cargo, "vendor", "--manifest-path", folder / "Cargo.toml", folder / "vendor"], FETCH_SECONDS)
    if done.returncode != 0:
        raise Unavailable(f"cargo cannot fetch {name}: {_tail(done.stderr)}")
    crate = folder / "vendor" / name
    checksum = json.loads((crate / ".cargo-checksum.json").read_text(encoding="utf-8"))["package"]
    if checksum != LIBHDFS_SHA256:
        raise HarnessError(f"{name} {version} is not what it was")
    return crate / "libhdfs"


def _compile_library(sources: Path, library: Path, compiler: str, home: Path) -> None:
    newest = sources / "hdfs_3_3"
    includes = [sources, newest, newest / "include", newest / "os", newest / "os" / "posix"]
    includes += [home / "include", home / "include" / "linux"]
    files = [*newest.glob("*.c"), *(newest / "os" / "posix").glob("*.c")]
    jvm = home / "lib" / "server"
    command: list[str | Path] = [
        compiler,
        "-O2",
        "-w",
        "-fPIC",
        "-shared",
        "-fcommon",
        *(f"-I{one}" for one in includes),
        *files,
    ]
    done = run([*command, "-o", library, f"-L{jvm}", "-ljvm", f"-Wl,-rpath,{jvm}", "-lpthread"], COMPILE_SECONDS)
    if done.returncode != 0:
        raise HarnessError(f"libhdfs does not compile: {_tail(done.stderr)}")


def cache_folder() -> Path:
    """Where jars and classes are kept: RMQCTL_INTEROP_CACHE, else .interop in the repository, which git ignores."""
    given = os.environ.get("RMQCTL_INTEROP_CACHE")
    return Path(given).resolve() if given else REPOSITORY / ".interop"


def run(
    command: Sequence[str | Path], seconds: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group of its own and return its output; killed with its children when time is up.

    Raises HarnessError on time-out only.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=environment,
    ) as process:
        try:
            output, problems = process.communicate(timeout=seconds)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            if isinstance(error, subprocess.TimeoutExpired):
                _, problems = process.communicate()
                raise HarnessError(f"{command[0]} did not end within {seconds:.0f} s; {_tail(problems)}") from None
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, problems)


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise Unavailable(f"no Java: {found or 'not on PATH'}, and JAVA_HOME is {home or 'not set'}")
    told = run([found, "-version"], 60)
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise Unavailable(f"{found} is older than Java {OLDEST_JAVA}: {_tail(told.stderr)}")
    return Path(found).resolve()


@contextlib.contextmanager
def _locked(cache: Path) -> Iterator[Path]:
    """The cache folder, used by one process at a time."""
    cache.mkdir(parents=True, exist_ok=True)
    if cache.is_relative_to(REPOSITORY):
        (cache / ".gitignore").write_text("*\n", encoding="ascii")
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _jars(version: str, cache: Path) -> Path:
    pom = SOURCES / f"pom-{version}.xml"
    jars = cache / f"jars-{version}"
    stamp = jars / "pom.sha256"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == digest:
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"the jars of {version} are not fetched yet and there is no Maven (mvn) on PATH")
    unfinished = cache / f"jars-{version}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    try:
        done = run([maven, "-q", "-B", "-f", pom, *goal], FETCH_SECONDS, real_environment())
        problem = None if done.returncode == 0 else _tail(done.stdout + done.stderr)
    except HarnessError as error:
        problem = str(error)
    if problem is not None:
        reason = f"Maven could not fetch the jars of {version}: {problem}"
        raise HarnessError(reason) if os.environ.get("CI") == "true" else Unavailable(reason)
    (unfinished / stamp.name).write_text(digest, encoding="ascii")
    shutil.rmtree(jars, ignore_errors=True)
    return unfinished.rename(jars)


def _classes(version: str, cache: Path, jars: Path, java: Path) -> Path:
    sources = [*(SOURCES / "common").rglob("*.java"), *(SOURCES / LINE_OF[version]).rglob("*.java")]
    return _compiled(f"classes-{version}", sources, cache, jars, java)


def _compiled(label: str, sources: Sequence[Path], cache: Path, jars: Path, java: Path) -> Path:
    """The folder with the classes of `sources`, compiled unless they have been before."""
    digest = hashlib.sha256((jars / "pom.sha256").read_bytes())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    classes = cache / f"{label}-{digest.hexdigest()[:16]}"
    if classes.exists():
        return classes
    compiler = shutil.which("javac", path=java.parent) or shutil.which("javac")
    if compiler is None:
        raise Unavailable(f"no javac beside {java} or on PATH (a JDK is needed, not only a runtime)")
    unfinished = cache / f"{classes.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    options = ["-nowarn", "-proc:none", "--release", str(OLDEST_JAVA), "-encoding", "UTF-8"]
    done = run([compiler, *options, "-d", unfinished, "-cp", f"{jars}/*", *sources], COMPILE_SECONDS)
    if done.returncode != 0:
        raise HarnessError(f"{label} does not compile: {done.stderr}")
    return unfinished.rename(classes)


def _tail(text: str, lines: int = 8) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-lines:]) or "it said nothing"
