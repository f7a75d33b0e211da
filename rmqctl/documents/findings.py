"""The text of docs/findings.md, made of the catalogue of findings."""

from __future__ import annotations

from rmqctl.store.check.catalogue.catalogue import CATALOGUE, FAMILIES
from rmqctl.store.check.catalogue.kind import Kind, Severity

_SITE = "https://github.com/"


def findings_document() -> str:
    """Every code: what it means, what causes it, what to do, the known issue where there is one."""
    lines = [
        "# Findings of `rmqctl check`",
        "",
        "Generated from the code by `make docs`.",
        "",
        "Codes are stable. `rmqctl check --explain CODE` prints an entry of this list.",
        "",
        "| severity | meaning | exit code |",
        "|---|---|---|",
    ]
    for severity in Severity:
        meaning = _MEANINGS[severity]
        lines.append(f"| {severity} | {meaning} | {1 if severity.is_alarm else 0} |")
    lines += ["", "| code | severity | finding | fixed by |", "|---|---|---|---|"]
    for kind in CATALOGUE.values():
        anchor = f"[{kind.code}](#{kind.code.lower()})"
        lines.append(f"| {anchor} | {kind.severity} | {kind.title} | {_command(kind)} |")
    for family, heading in FAMILIES.items():
        kinds = [kind for kind in CATALOGUE.values() if kind.family == family]
        if kinds:
            lines += ["", f"## {heading}"]
        for kind in kinds:
            lines += _entry(kind)
    return "\n".join([*lines, ""])


_MEANINGS = {
    Severity.ERROR: "messages are lost or cannot be found, or a broker does not start or would lose messages",
    Severity.WARNING: "something is wrong that costs no message by itself, or that a start of the broker fixes",
    Severity.NOTICE: "worth knowing and no damage: a sound store may have it",
}


def _command(kind: Kind) -> str:
    return f"`{kind.command}`" if kind.command else ""


def _entry(kind: Kind) -> list[str]:
    lines = ["", f"### {kind.code}", "", f"**{kind.title}** ({kind.severity}). {kind.meaning}", ""]
    lines.append(f"* Causes: {kind.causes}")
    lines.append(f"* What to do: {kind.action}")
    if kind.command:
        lines.append(f"* Command: {_command(kind)}")
    if kind.issues:
        lines.append(f"* Known as: {', '.join(map(_issue, kind.issues))}")
    return lines


def _issue(name: str) -> str:
    repository, _, number = name.partition("#")
    return f"[{name}]({_SITE}{repository}/issues/{number})"
