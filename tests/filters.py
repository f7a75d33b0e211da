"""Random SQL92 filters and properties, and what is asked of both sides that judge them."""

from __future__ import annotations

import random

NAMES = ("a", "b", "_c", "$d9", "AND1", "missing", "TAGS")
TEXTS = (
    *("1", "0", "-0", "5", "05", "+5", "-3", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("1.5", "1.", ".5", "-0.0", "0.0", "1e3", "1E-400", "1e400", "NaN", "Infinity", "-Infinity", "1f", "2d", "1L"),
    *(
        "0x1p3",
        " 7 ",
        "\t7",
        "1_0",
        "inf",
        "nan",
        "true",
        "TRUE",
        "false",
        "x",
        "y",
        "it's",
        "",
        "键",
        "٣",
        "ab",
        "abc",
    ),
)
_NUMBERS = (
    *("0", "1", "5", "3", "10", "07", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "5L"),
    *("1.5", "1.", ".5", "1e3", "1E-3", "0.0", "1e400", "12.25"),
)
_JUNK = (*"#!;)(,+-=<>'\"/*", "<>", "--", "-- x\n", "/* y */", "/*", "NOT", "AND", "IS", "NULL", "a", "1", "==", "!=")


def text(chance: random.Random) -> str:
    """Return a literal of a text."""
    return "'" + chance.choice(TEXTS).replace("'", "''") + "'"


def value(chance: random.Random, depth: int) -> str:
    """Return an operand: mostly a property or a number."""
    kind = chance.random()
    if kind < 0.5:
        return chance.choice(NAMES)
    if kind < 0.84:
        return chance.choice(("", "", "", "-", "+", "- -")) + chance.choice(_NUMBERS)
    if kind < 0.9:
        return text(chance)
    if kind < 0.93:
        return chance.choice(("TRUE", "false", "NULL", "-a", "NOT b"))
    return f"({expression(chance, depth + 1)})" if depth < 3 else "a"


def condition(chance: random.Random, depth: int) -> str:
    """Return one comparison."""
    left = value(chance, depth)
    negated = chance.choice(("", "", "NOT ", "not "))
    match chance.randrange(9):
        case 0 | 1:
            return f"{left} {chance.choice(('=', '<>'))} {value(chance, depth)}"
        case 2 | 3 | 4:
            return f"{left} {chance.choice(('>', '>=', '<', '<='))} {value(chance, depth)}"
        case 5:
            return f"{left} {negated}BETWEEN {value(chance, depth)} AND {value(chance, depth)}"
        case 6:
            texts = ", ".join(text(chance) for _ in range(chance.randrange(1, 7)))
            return f"{chance.choice(NAMES)} {negated}IN ({texts})"
        case 7:
            return f"{left} {negated}{chance.choice(('CONTAINS', 'startswith', 'EndsWith'))} {text(chance)}"
    return f"{left} IS {negated}NULL"


def expression(chance: random.Random, depth: int = 0) -> str:
    """Return conditions, combined."""
    parts = [condition(chance, depth)]
    while chance.random() < 0.35:
        parts.append(chance.choice((" AND ", " OR ", " and NOT ", " or(")) + condition(chance, depth))
        if parts[-1].startswith(" or("):
            parts.append(")")
    return ("NOT " if chance.random() < 0.1 else "") + "".join(parts)


def spoiled(chance: random.Random, whole: str) -> str:
    """Return an expression with a change that may make it invalid, or not."""
    at = chance.randrange(len(whole) + 1)
    match chance.randrange(4):
        case 0:
            return f"{whole[:at]} {chance.choice(_JUNK)} {whole[at:]}"
        case 1:
            return whole[:at]
        case 2:
            return f"{whole} {chance.choice(_JUNK)}"
    return whole[:at] + whole[at + 1 :]


def cases(chance: random.Random, count: int) -> list[tuple[str, dict[str, str]]]:
    """Return expressions, a fifth of them spoiled, each with the properties of a message."""
    made = []
    for _ in range(count):
        one = expression(chance)
        names = chance.sample(NAMES[:5], chance.randrange(5))
        properties = {name: chance.choice(TEXTS) for name in names}
        made.append((spoiled(chance, one) if chance.random() < 0.2 else one, properties))
    return made
