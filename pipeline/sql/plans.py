"""Spark's logical plans, seen from here: what is in one, and which relations of a plan are needed for what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

# commands that keep the query they are about apart from the plans in them
_ABOUT = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}


class Leaf(NamedTuple):
    """A relation of a plan, and the attributes that what stands above it looks at; None: at all."""

    columns: list[Any]
    references: list[Any] | None

    def is_needed(self, attribute: Any) -> bool:
        """Whether anything looks at an attribute of the relation."""
        return self.references is None or any(reference.contains(attribute) for reference in self.references)


def leaves(plan: Any, above: list[Any] | None = None) -> Iterator[Leaf]:
    """The relations of an optimized plan, those of subqueries too. `above`: attributes that a projection, and filters
    below it, look at; None where everything of this plan may be looked at."""
    for subquery in each(plan.subqueries()):
        yield from leaves(subquery, None)
    kind = str(plan.nodeName())
    children = list(each(plan.children()))
    # a relation that the optimizer knows the rows of is not read
    if not children and kind != "LocalRelation":
        yield Leaf(list(each(plan.output())), above)
    for child in children:
        if kind in ("Project", "Aggregate"):
            yield from leaves(child, [plan.references()])
        elif kind == "Filter" and above is not None:
            yield from leaves(child, [*above, plan.references()])
        else:
            yield from leaves(child, None)


def nodes(plan: Any, parent: Any = None) -> Iterator[tuple[Any, Any]]:
    """A plan and all plans in it, each with the one that it stands in."""
    yield plan, parent
    if kind_of(plan) in _ABOUT:
        yield from nodes(getattr(plan, _ABOUT[kind_of(plan)])(), plan)
    for child in (*each(plan.children()), *each(plan.innerChildren())):
        # some keep what is no plan in here
        if hasattr(child, "children"):
            yield from nodes(child, plan)


def expressions(plan: Any) -> Iterator[Any]:
    """All expressions in a plan, those of subqueries too."""
    for node, _ in nodes(plan):
        if hasattr(node, "expressions"):
            for expression in each(node.expressions()):
                yield from _within(expression)


def _within(expression: Any) -> Iterator[Any]:
    yield expression
    for child in each(expression.children()):
        yield from _within(child)


def kind_of(node: Any) -> str:
    """The name of a plan's or an expression's class."""
    return str(node.getClass().getSimpleName())


def each(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (sequence.apply(number) for number in range(sequence.size()))
