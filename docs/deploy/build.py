"""One file for any Python from 3.11 on, one with its own Python, or a Debian package: `make pyz`, `binary` and `deb`.

pyz and deb hold the same folder of packages: the wheel, its base dependencies and the extra grpc. Modules in C of
several Python versions lie in it side by side, because the version is a part of their names. What has its own Python
(own_python.py) holds what more verbs need.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import own_python

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs/deploy"
EXTRAS = "grpc"
# Spark needs Java, object stores and assistants 20 MB
EXTRAS_OF_BINARY = "fast,grpc,report,sql,tui,watch"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
PINNED = ["-c", str(ROOT / "constraints.txt")]
SHIV = "shiv==1.0.8"
# of a wheel that pip installed: where it came from, and by whom
TRACES = ("direct_url.json", "INSTALLER", "REQUESTED")
LAUNCHER = """#!/usr/bin/python3 -I
import sys
sys.path.insert(0, "/usr/lib/rmqctl")
from rmqctl.start import main
sys.exit(main())
"""
# what Python compiles there belongs to no package
SCRIPTS = {
    "postinst": "#!/bin/sh\npython3 -m compileall -q /usr/lib/rmqctl || true\n",
    "prerm": "#!/bin/sh\nfind /usr/lib/rmqctl -name __pycache__ -prune -exec rm -rf {} +\n",
}


def run(*command: str | Path, **options: str) -> None:
    """Run a command; CalledProcessError if it fails."""
    subprocess.run(command, check=True, env={**os.environ, **options})


def made_at() -> str:
    """Seconds since 1970 that all files get: of the last commit, so that the same sources give the same bytes."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return given
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def packages(folder: Path, wheel: Path | None, pythons: list[str], extras: str = EXTRAS) -> None:
    """Fill `folder` with rmqctl and what it needs, for this Python and for each version of `pythons` ("3.12")."""
    with tempfile.TemporaryDirectory() as scratch:
        if wheel is None:
            run(*PIP, "wheel", "--no-deps", "-w", scratch, str(ROOT))
            (wheel,) = Path(scratch).glob("*.whl")
        install = [*PIP, "install", "--no-compile", *PINNED]
        run(*install, "--target", str(folder), f"{wheel}[{extras}]")
        names = [path.name for path in folder.glob("*.dist-info") if not path.name.startswith("rmqctl-")]
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        for version in (one for one in pythons if one != here):
            other = Path(scratch, version)
            for name in names:
                package, _, number = name.removesuffix(".dist-info").rpartition("-")
                if not has_compiled(folder, name):
                    continue
                wanted = ["--only-binary", ":all:", "--python-version", version, "--no-deps"]
                done = subprocess.run([*install, *wanted, "--target", str(other), f"{package}=={number}"], check=False)
                if done.returncode:
                    print(f"{package} has no wheel for Python {version}: its Python code is used there")
            for path in other.rglob("*.so*"):
                place = folder / path.relative_to(other)
                if not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, place)
    for trace in TRACES:
        for path in folder.glob(f"*.dist-info/{trace}"):
            path.unlink()
    # tests of others, and a second form of zstandard for Pythons without the first
    for path in [folder / "bin", *folder.rglob("tests"), *folder.glob("zstandard/_cffi*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    # one of the traces names the place where the wheel was built
    for record in folder.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text("".join(line for line in lines if (folder / line.split(",")[0]).exists()), encoding="utf-8")
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (int(made_at()), int(made_at())))


def mark_packed(folder: Path) -> None:
    """Have rmqctl in `folder` name another way than pip to what it comes without."""
    path = folder / "rmqctl/store/packed.py"
    path.touch()
    os.utime(path, (int(made_at()), int(made_at())))


def has_compiled(folder: Path, name: str) -> bool:
    """Whether an installed package has modules in C that are made for one version of Python."""
    record = (folder / name / "RECORD").read_text(encoding="utf-8")
    return any(f".cpython-{sys.version_info.major}{sys.version_info.minor}" in line for line in record.splitlines())


def bill_of_materials(folder: Path) -> dict[str, Any]:
    """Return what an installed folder is made of, as CycloneDX 1.5 has it. The same folder gives the same bill."""
    found = sorted((component(one) for one in distributions(path=[str(folder)])), key=lambda one: one["bom-ref"])
    (ours,) = (one for one in found if one["name"] == "rmqctl")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(int(made_at()), UTC).isoformat(),
            "component": ours | {"type": "application"},
        },
        "components": [one for one in found if one is not ours],
    }


def component(package: Distribution) -> dict[str, Any]:
    """Return an installed package as a component, with the licence that its author names."""
    name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
    reference = f"pkg:pypi/{name}@{package.version}"
    found = {
        "type": "library", "bom-ref": reference, "name": name, "version": package.version, "purl": reference,
    }  # fmt: skip
    expression, text = package.metadata.get("License-Expression"), package.metadata.get("License")
    classified = [
        one.rpartition(" :: ")[2]
        for one in package.metadata.get_all("Classifier", [])
        if one.startswith("License :: OSI Approved :: ")
    ]
    if expression:
        return found | {"licenses": [{"expression": expression}]}
    # some put the whole text there
    names = classified or ([text] if text and "\n" not in text else [])
    return found | {"licenses": [{"license": {"name": one}} for one in names]}


def pyz(target: Path, wheel: Path | None, pythons: list[str]) -> dict[str, Any]:
    """Write `target`, a zipapp that unpacks itself once, into SHIV_ROOT (~/.shiv). Return its bill of materials."""
    with tempfile.TemporaryDirectory() as scratch:
        site, tools = Path(scratch, "site"), Path(scratch, "tools")
        packages(site, wheel, pythons)
        run(*PIP, "install", "--target", str(tools), SHIV)
        target.parent.mkdir(parents=True, exist_ok=True)
        # subprocesses of ours find their packages by PYTHONPATH
        options = ["--compressed", "--reproducible", "--extend-pythonpath", "-p", "/usr/bin/env python3"]
        run(
            sys.executable, "-m", "shiv.cli", *options, "--site-packages", str(site), "-e", "rmqctl.start:main",
            "-o", str(target), PYTHONPATH=str(tools), SOURCE_DATE_EPOCH=made_at(), PYTHONDONTWRITEBYTECODE="1",
        )  # fmt: skip
        return bill_of_materials(site)


def deb(target: Path, wheel: Path | None, pythons: list[str]) -> dict[str, Any]:
    """Write `target`, a package with man pages, completions and units of systemd. Return its bill of materials."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        site = tree / "usr/lib/rmqctl"
        packages(site, wheel, pythons)
        mark_packed(site)
        launcher = tree / "usr/bin/rmqctl"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(LAUNCHER, encoding="ascii")
        launcher.chmod(0o755)
        ours = [sys.executable, "-m", "rmqctl"]
        man = tree / "usr/share/man/man1"
        run(*ours, "help", "--man", str(man), PYTHONPATH=str(site))
        for page in man.glob("*.1"):
            packed = gzip.compress(page.read_bytes(), mtime=0)
            page.with_name(f"{page.name}.gz").write_bytes(packed)
            page.unlink()
        completions = {
            "bash": "usr/share/bash-completion/completions/rmqctl",
            "zsh": "usr/share/zsh/vendor-completions/_rmqctl",
            "fish": "usr/share/fish/vendor_completions.d/rmqctl.fish",
        }
        for shell, place in completions.items():
            said = subprocess.run([*ours, "completion", shell], check=True, capture_output=True, text=True)
            (tree / place).parent.mkdir(parents=True)
            (tree / place).write_text(said.stdout, encoding="utf-8")
        units = tree / "lib/systemd/system"
        units.mkdir(parents=True)
        for unit in [*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")]:
            shutil.copyfile(unit, units / unit.name)
        documents = tree / "usr/share/doc/rmqctl"
        documents.mkdir(parents=True)
        shutil.copyfile(ROOT / "LICENSE", documents / "copyright")
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text(control(tree), encoding="utf-8")
        for name, text in SCRIPTS.items():
            script = tree / "DEBIAN" / name
            script.write_text(text, encoding="ascii")
            script.chmod(0o755)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(target)]
        run(*command, SOURCE_DATE_EPOCH=made_at())
        return bill_of_materials(site)


def binary(target: Path, wheel: Path | None, preset: int) -> dict[str, Any]:
    """Write `target`, which needs nothing but a shell, tar and gzip. Return its bill of materials."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "rmqctl"
        site = folder / "lib" / own_python.VERSION
        packages(site, wheel, [], EXTRAS_OF_BINARY)
        mark_packed(site)
        bill = bill_of_materials(site)
        bill["components"] += own_python.licences(folder / "licences", own_python.fill(folder))
        version = bill["metadata"]["component"]["version"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(own_python.packed(folder, version, int(made_at()), preset))
        target.chmod(0o755)
        return bill


def control(tree: Path) -> str:
    """What dpkg asks of a package."""
    command = ["dpkg", "--print-architecture"]
    machine = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    (info,) = (tree / "usr/lib/rmqctl").glob("rmqctl-*.dist-info")
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    lines = {
        "Package": "rmqctl",
        "Version": info.name.removesuffix(".dist-info").partition("-")[2],
        "Architecture": machine,
        "Maintainer": "The rmqctl maintainers <maintainers@example.invalid>",
        "Installed-Size": str(size),
        "Depends": "python3 (>= 3.11), libc6",
        "Recommends": "bash-completion",
        "Section": "admin",
        "Priority": "optional",
        "Description": "store administration and forensics for Apache RocketMQ\n"
        " Inspects, checks, repairs and writes the stores of brokers, even broken ones.",
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items())


def main() -> None:
    """Build what was asked for, and write beside it its SHA-256 and what it is made of (CycloneDX)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", choices=("pyz", "deb", "binary"))
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--wheel", type=Path, help="a wheel of rmqctl, else one is built")
    parser.add_argument("--python", action="append", default=[], metavar="3.12", help="versions beside this Python's")
    parser.add_argument("--preset", type=int, default=9, help="how hard binary is compressed, 0 to 9")
    parser.add_argument("--sign", metavar="KEY", help="sign the checksum with a key of gpg")
    given = parser.parse_args()
    target = given.output.resolve()
    if given.form == "binary":
        bill = binary(target, given.wheel, given.preset)
    else:
        bill = {"pyz": pyz, "deb": deb}[given.form](target, given.wheel, given.python)
    described = given.output.with_name(f"{given.output.name}.cdx.json")
    described.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    digest = hashlib.sha256(given.output.read_bytes()).hexdigest()
    checksum = given.output.with_name(f"{given.output.name}.sha256")
    checksum.write_text(f"{digest}  {given.output.name}\n", encoding="ascii")
    if given.sign:
        run("gpg", "--batch", "--yes", "--armor", "--detach-sign", "--local-user", given.sign, checksum)
    print(f"{given.output}: {given.output.stat().st_size / 1e6:.1f} MB, SHA-256 {digest}")


if __name__ == "__main__":
    main()
