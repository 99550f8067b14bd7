# SPDX-License-Identifier: Apache-2.0
"""A program of a mix without a GPU: takes orders as the real ones do, and sleeps where they compute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/detshare/tools/bench/workloads/mix"))
from orders import Orders, serve, step  # type: ignore[import-not-found]


def main() -> None:
    kind = sys.argv[sys.argv.index("--kind") + 1]
    orders = Orders()
    if kind == "jax":
        sys.exit("no JAX in this test")
    if kind in ("graph", "eager"):
        serve(lambda: time.sleep(0.002), orders, answer=lambda: b"the same", what="a sleep", instead="")
        return
    if kind == "deaf":

        def wait() -> None:
            while not orders.ended:
                time.sleep(0.01)

        step(lambda: wait, orders, what="never finishes", instead="")
        return

    def launch() -> Callable[[], None]:
        return lambda: time.sleep(0.004)

    step(launch, orders, what="sleeps", instead="a GPU was not asked for")


if __name__ == "__main__":
    main()
