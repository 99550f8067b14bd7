# SPDX-License-Identifier: Apache-2.0
"""Circles of a graph: what can reach each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["circles"]


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one node, each sorted, the smallest name first."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in number:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in stack:
                lowest[node] = min(lowest[node], number[target])
        if lowest[node] == number[node]:
            at = stack.index(node)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return sorted(found)
