# SPDX-License-Identifier: Apache-2.0
"""PNG plots. matplotlib is imported when one is drawn; without it the figures stand in the JSON all the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["bars", "heat", "points"]


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed; next: apt install python3-matplotlib, or pip's", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(plt: Any, figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def bars(path: Path, groups: Mapping[str, Mapping[str, float]], label: str) -> None:
    """One small panel per group with a bar per scheme: groups differ too much in size for one axis."""
    plt = _pyplot()
    if plt is None or not groups:
        return
    width = max(2.6, 0.42 * max(len(values) for values in groups.values()))
    figure, axes = plt.subplots(1, len(groups), figsize=(width * len(groups), 3.4), squeeze=False, layout="constrained")
    for axis, (name, values) in zip(axes[0], groups.items(), strict=True):
        drawn = axis.bar(list(values), list(values.values()), color="#4878a8")
        axis.bar_label(drawn, fmt="%.3g", fontsize=7)
        axis.set_title(name, fontsize=8, wrap=True)
        axis.tick_params(labelsize=7, axis="y")
        axis.tick_params(labelsize=7, axis="x", rotation=45)
    axes[0][0].set_ylabel(label, fontsize=8)
    _save(plt, figure, path)


def heat(
    path: Path,
    panels: Mapping[str, Mapping[tuple[int, int], float]],
    rows: Sequence[int],
    columns: Sequence[int],
    labels: tuple[str, str],
) -> None:
    """One panel per mapping of (row, column) to a figure; cells that were not measured stay white."""
    plt = _pyplot()
    if plt is None or not panels:
        return
    box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1.5}
    figure, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.6), squeeze=False, layout="constrained")
    for axis, (name, cells) in zip(axes[0], panels.items(), strict=True):
        grid = [[cells.get((row, column), float("nan")) for column in columns] for row in rows]
        axis.imshow(grid, cmap="viridis_r", aspect="auto")
        for y, line in enumerate(grid):
            for x, value in enumerate(line):
                if value == value:
                    axis.text(x, y, f"{value:.3g}", ha="center", va="center", fontsize=7, bbox=box)
        axis.set_xticks(range(len(columns)), [str(column) for column in columns], fontsize=7)
        axis.set_yticks(range(len(rows)), [str(row) for row in rows], fontsize=7)
        axis.set_title(name, fontsize=8, wrap=True)
        axis.set_xlabel(labels[1], fontsize=8)
    axes[0][0].set_ylabel(labels[0], fontsize=8)
    _save(plt, figure, path)


def points(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    labels: tuple[str, str],
    most: float | None = None,
) -> None:
    """One panel per mapping of names to (x, y), each point with its name; y ends at ``most`` times its least."""
    plt = _pyplot()
    if plt is None or not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 4.0), squeeze=False, layout="constrained")
    for axis, (name, found) in zip(axes[0], panels.items(), strict=True):
        least = min((y for _x, y in found.values()), default=0.0)
        for label, (x, y) in found.items():
            shown = min(y, most * least) if most is not None else y
            axis.plot([x], [shown], marker="^" if shown < y else "o", color="#4878a8", markersize=4)
            text = f" {label}" + (f" ({y:.3g})" if shown < y else "")
            axis.annotate(text, (x, shown), fontsize=6, rotation=20)
        axis.set_title(name, fontsize=8, wrap=True)
        axis.tick_params(labelsize=7)
        axis.margins(0.2, 0.15)
        axis.set_xlabel(labels[0], fontsize=8)
    axes[0][0].set_ylabel(labels[1], fontsize=8)
    _save(plt, figure, path)
