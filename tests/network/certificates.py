"""Certificates for tests, made when they are needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.processes import run


class Certificate(NamedTuple):
    """A self-signed certificate and its key, both PEM."""

    certificate: Path
    key: Path


def certificate(folder: Path, name: str = "localhost", alternatives: str = "") -> Certificate:
    """A new one, with `alternatives` as openssl has them (subjectAltName). The test is skipped where there is no
    openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    options += ["-addext", f"subjectAltName={alternatives}"] if alternatives else []
    run(["openssl", "req", *options, "-keyout", made.key, "-out", made.certificate], check=True)
    return made
