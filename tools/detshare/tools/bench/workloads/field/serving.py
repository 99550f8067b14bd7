#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A serving engine under a trace: continuous batching of transformers, unmodified, on a Llama of 1.2 B random weights.

Takes orders (workloads/mix/orders.py). A `requests` line has the time to the first token as latency; a `finished`
line the time for each further one. FIELD_AZURE_TRACE names the file of Azure's trace; FIELD_SERVING_GRAPHS=1 has the
engine use CUDA graphs, which it does not by itself with this attention. Whoever makes the requests tells DetShare's
daemon, where there is one, one time of each: the greater of its TTFT and of its TPOT on the scale of TTFT's objective.

transformers 5 is needed (ContinuousBatchingConfig: without it the cache takes what others need of the GPU's memory).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mix"))
from orders import LOOK, WINDOW, Orders, beside, emit  # type: ignore[import-not-found]

traces = beside("traces", "field")
VOCABULARY = 32000
POLL = 0.002
"""seconds that the engine is waited for before the next due request is looked for"""
CACHE = 0.15
"""of the GPU's free memory, for keys and values"""


class Engine(Protocol):
    """What serves."""

    def submit(self, name: str, prompt: int, wanted: int) -> None:
        """Begin a request of so many tokens, for so many."""

    def poll(self, seconds: float) -> list[tuple[str, int]]:
        """Who has how many tokens now; waits so long at most for somebody."""


class Transformers:
    """Its manager runs in a thread of this process."""

    def __init__(self) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found]
        from transformers.generation import (  # type: ignore[import-not-found]
            ContinuousBatchingConfig,
            GenerationConfig,
        )

        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            attn_implementation="sdpa",
        )
        with torch.device("cuda"):
            model = LlamaForCausalLM(config).eval()
        graphs = {"use_cuda_graph": True} if os.environ.get("FIELD_SERVING_GRAPHS") else {}
        self._manager = model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=traces.MOST_WANTED),
            continuous_batching_config=ContinuousBatchingConfig(max_memory_percent=CACHE, **graphs),
        )
        self._manager.start()

    def submit(self, name: str, prompt: int, wanted: int) -> None:
        # no two prompts begin alike: the engine would share what it computed for the first
        tokens = random.Random(name).choices(range(1, VOCABULARY), k=prompt)
        self._manager.add_request(tokens, request_id=name, max_new_tokens=wanted, streaming=True)

    def poll(self, seconds: float) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        while (result := self._manager.get_result(timeout=0.0001 if found else seconds)) is not None:
            if result.error:
                raise RuntimeError(f"the engine gave up {result.request_id}: {result.error}")
            found.append((result.request_id, len(result.generated_tokens)))
        if not found and not self._manager.is_running():
            raise RuntimeError("the engine's own thread has ended")
        return found


class Ledger:
    """Who is served, and what was said of it: times in seconds, `due` and `now` of the same clock."""

    def __init__(self, tell: Callable[[float], object] | None = None, scale: float = 0.0) -> None:
        """`tell` hears one time of each request in seconds: the greater of TTFT and `scale` times TPOT."""
        self.open: dict[str, dict[str, float]] = {}
        self.total = 0
        self._tell, self._scale = tell, scale
        self._first: dict[str, list[float]] = {"at": [], "latency_us": [], "own_us": []}
        self._last: dict[str, list[float]] = {"at": [], "end": [], "ttft_us": [], "tpot_us": [], "tokens": []}

    def begin(self, name: str, due: float, now: float, wanted: int) -> None:
        """It was handed to the engine."""
        self.open[name] = {"due": due, "begun": now, "wanted": wanted, "first": 0.0}

    def has(self, name: str, tokens: int, now: float) -> None:
        """The engine said how many tokens it has."""
        one = self.open.get(name)
        if one is None or not tokens:
            return
        if not one["first"]:
            one["first"] = now
            self._first["at"].append(round(one["due"], 6))
            self._first["latency_us"].append(round((now - one["due"]) * 1e6, 1))
            self._first["own_us"].append(round((now - one["begun"]) * 1e6, 1))
        if tokens < one["wanted"]:
            return
        del self.open[name]
        self.total += 1
        each = (now - one["first"]) / (tokens - 1) if tokens > 1 else 0.0
        if self._tell is not None:
            self._tell(max(one["first"] - one["due"], self._scale * each))
        self._last["at"].append(round(one["due"], 6))
        self._last["end"].append(round(now, 6))
        self._last["ttft_us"].append(round((one["first"] - one["due"]) * 1e6, 1))
        self._last["tpot_us"].append(round(each * 1e6, 1))
        self._last["tokens"].append(tokens)

    def flush(self) -> None:
        """Say what is not said yet."""
        if self._first["at"]:
            emit("requests", dropped=0, **self._first)
            self._first = {key: [] for key in self._first}
        if self._last["at"]:
            emit("finished", **self._last)
            self._last = {key: [] for key in self._last}


def requests_of(kind: str, seed: object, mean_s: float) -> Iterator[Any]:
    """The trace of that name. ValueError, OSError."""
    if kind == "bursty":
        found: Iterator[Any] = traces.bursty(seed, mean_s)
        return found
    name = os.environ.get("FIELD_AZURE_TRACE")
    if not name:
        raise ValueError(
            "Azure's trace is not here: fetch AzureLLMInferenceTrace_conv.csv, name it by FIELD_AZURE_TRACE"
        )
    found = traces.azure(Path(name), mean_s)
    return found


def serve(engine: Engine, orders: Any, kind: str, ledger: Ledger, **about: Any) -> None:
    """Until it is told to end. A stop drains: what was begun is finished."""
    said, count = time.monotonic(), 0
    going, begun = False, 0.0
    held: list[Any] = []
    stream: Iterator[Any] = iter(())

    def look(seconds: float) -> None:
        nonlocal said
        for name, tokens in engine.poll(seconds):
            ledger.has(name, tokens, time.monotonic())
        if time.monotonic() - said >= WINDOW:
            ledger.flush()
            said = time.monotonic()

    emit("ready", pid=os.getpid(), t=round(time.monotonic(), 6), **about)
    while not orders.ended:
        order = orders.take(0.0 if going else LOOK)
        if order is not None and order.get("do") in ("go", "stop"):
            going = order["do"] == "go"
            while not going and ledger.open and not orders.ended:
                look(POLL)
            ledger.flush()
            if going:
                mean = float(order.get("period_ms") or 250.0) / 1e3
                stream, held = requests_of(kind, order.get("seed", 1), mean), []
                begun = time.monotonic()
            now = round(time.monotonic(), 6)
            emit("going" if going else "stopped", id=order.get("id"), t=now, total=ledger.total, dropped=0)
        if not going:
            continue
        for each in traces.due(stream, held, time.monotonic() - begun):
            count += 1
            ledger.begin(f"r{count}", begun + each.at, time.monotonic(), each.wanted)
            engine.submit(f"r{count}", each.prompt, each.wanted)
        look(POLL)
    ledger.flush()
    emit("summary", t=round(time.monotonic(), 6), count=ledger.total, dropped=0)


def main(make: Callable[[], Engine] = Transformers) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("azure", "bursty"), required=True)
    parser.add_argument("--ttft-ms", type=float, default=500.0, help="objective: the first token")
    parser.add_argument("--tpot-ms", type=float, default=50.0, help="objective: each further token")
    args = parser.parse_args()
    orders, begun = Orders(), time.monotonic()
    try:
        requests_of(args.kind, 1, 1.0)
        engine = make()
    except (ImportError, OSError, ValueError) as error:
        print(f"serving.py: {error}; transformers 5 and PyTorch are needed", file=sys.stderr)
        sys.exit(1)
    engine.submit("warm", 64, 8)
    while not any(name == "warm" and tokens >= 8 for name, tokens in engine.poll(1.0)):
        pass
    took = round(time.monotonic() - begun, 1)
    tell = beside("server", "mix").observer("detshare")
    ledger = Ledger(tell, args.ttft_ms / args.tpot_ms)
    about = {"what": "transformers' continuous batching", "instead": "", "observes": tell is not None}
    serve(engine, orders, args.kind, ledger, **about, started_s=took)


if __name__ == "__main__":
    main()
