# SPDX-License-Identifier: Apache-2.0
"""A server of a language model with continuous batching, as a source of runs.

Each step is a run: either the prefill of one chunk of prompts, or one token for every sequence of the batch. A request
is admitted, in order of arrival, when the KV cache has room for its prompt and all of its answer, so nothing is ever
thrown out. The first token comes with the end of its prefill.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from detshare.ctl.sim.arrivals import Trace
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.tenants import Run

__all__ = ["MODELS", "Half", "LlmModel", "LlmServer", "Served"]

NEVER: Final = math.inf
TILE: Final = 128
TILES: Final = 64
"""rows of a block of a matrix product, and blocks for so many rows: from the sizes of an 8B model, for grids only"""


@dataclass(frozen=True)
class LlmModel:
    """What the steps of a model cost on one GPU, alone, in microseconds."""

    name: str
    step_us: float
    """a decode step of one sequence with an empty context: the weights are read once"""
    sequence_us: float
    """more for each further sequence"""
    kv_token_us: float
    """more for each token of context that is read"""
    prefill_token_us: float
    """a token of prefill, at least `step_us` for a chunk"""
    kv_tokens: int
    """tokens that the KV cache holds"""
    weights_gib: float
    kernels: int = 250
    """launches of one step"""
    decode_width: float = 48.0
    """SMs from which on decode gets no faster: it waits for memory (an assumption)"""
    chunk: int = 2048
    """tokens of prefill in one step"""
    most_sequences: int = 256
    kv_kib: float = 128.0
    """of memory for a token of context"""

    def decode_us(self, sequences: int, context: int) -> float:
        """One step."""
        return self.step_us + self.sequence_us * (sequences - 1) + self.kv_token_us * context

    def prefill_us(self, tokens: int) -> float:
        """One chunk."""
        return max(self.step_us, self.prefill_token_us * tokens)


MODELS: Final = {
    # 2.73 ms for a batch of 8 with 1024 tokens of context each is measured (pair: alone, p50); how it divides is not.
    "measured-1.4b": LlmModel("measured-1.4b", 2150.0, 10.0, 0.0622, 8.0, 300_000, 2.8, kv_kib=192.0),
    # From sizes: 16 GB of weights and 128 KiB of KV a token over 3.35 TB/s at 75 %; 16 GFLOP a token at 400 TFLOP/s.
    "analytic-8b": LlmModel("analytic-8b", 6400.0, 10.0, 0.0522, 40.0, 400_000, 16.0),
}


@dataclass
class _Sequence:
    number: int
    asked: float
    prompt: int
    answer: int
    prefilled: int = 0
    made: int = 0


@dataclass
class Served:
    """What became of each request, in the order of arrival; microseconds, NaN where it did not happen."""

    ttft: Any
    tpot: Any
    """mean time of its tokens after the first; NaN for answers of one token"""
    gaps: list[float] = field(default_factory=list)
    """longest time between two tokens of each finished request with more than one"""
    finished: int = 0
    tokens: int = 0
    """tokens of answers"""
    prompt_tokens: int = 0


class LlmServer:
    """Serves a trace. ``prefill_first``: prompts before tokens; else a prefill chunk and a decode step take turns.

    ``graphs``: a decode step is launched as one graph.
    """

    def __init__(self, model: LlmModel, trace: Trace, *, prefill_first: bool = True, graphs: bool = True) -> None:
        self.model, self.trace, self.prefill_first, self.graphs = model, trace, prefill_first, graphs
        need = (trace.prompt + trace.answer).max(initial=0)
        if need > model.kv_tokens:
            raise SimError(
                f"a request of {need} tokens can never be served: the KV cache of {model.name} holds "
                f"{model.kv_tokens}; "
                "use a larger --kv-tokens or another model"
            )
        self._times = trace.times * 1e6
        self._next = 0
        self._waiting: deque[_Sequence] = deque()
        self._prefilling: deque[_Sequence] = deque()
        self._decoding: list[_Sequence] = []
        self._steps: dict[str, list[tuple[_Sequence, int]]] = {}
        """in flight, by kind: sequences, and tokens of their prompts"""
        self._last: dict[int, tuple[float, float, float]] = {}
        """by request: first token, latest token, longest gap"""
        self.kv = 0
        self.kv_peak = 0
        count = len(trace)
        self.served = Served(np.full(count, np.nan), np.full(count, np.nan))
        self._turn = False

    def poll(self, now: float) -> Run | float:
        """The next step, or the next arrival."""
        if self._steps:
            return NEVER
        self._arrive(now)
        run = self._prefill(now) if self._prefill_now() else self._decode(now)
        return self._next_arrival() if run is None else run

    def half(self, kind: str) -> Half:
        """The process that does only "prefill", or only "decode": then the server is two sources, and none itself.

        A sequence is handed over in no time, for both are on one GPU.
        """
        return Half(self, kind)

    def _poll_half(self, kind: str, now: float) -> Run | float:
        if kind in self._steps:
            return NEVER
        self._arrive(now)
        if kind == "decode":
            return self._decode(now) or NEVER
        return self._prefill(now) if self._prefilling else self._next_arrival()

    def _next_arrival(self) -> float:
        return float(self._times[self._next]) if self._next < len(self._times) else NEVER

    def _arrive(self, now: float) -> None:
        while self._next < len(self._times) and self._times[self._next] <= now:
            number = self._next
            self._waiting.append(
                _Sequence(
                    number, float(self._times[number]), int(self.trace.prompt[number]), int(self.trace.answer[number])
                )
            )
            self._next += 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._decoding) + len(self._prefilling) < self.model.most_sequences:
            need = self._waiting[0].prompt + self._waiting[0].answer
            if self.kv + need > self.model.kv_tokens:
                return
            self.kv += need
            self.kv_peak = max(self.kv_peak, self.kv)
            self._prefilling.append(self._waiting.popleft())

    def _prefill_now(self) -> bool:
        if not self._prefilling or not self._decoding or self.prefill_first:
            return bool(self._prefilling)
        self._turn = not self._turn
        return self._turn

    def _prefill(self, now: float) -> Run:
        left = self.model.chunk
        step = self._steps["prefill"] = []
        for sequence in self._prefilling:
            take = min(left, sequence.prompt - sequence.prefilled)
            step.append((sequence, take))
            left -= take
            if not left:
                break
        return self._run(now, self.model.prefill_us(self.model.chunk - left), "prefill", self.model.chunk - left, None)

    def _decode(self, now: float) -> Run | None:
        if not self._decoding:
            return None
        self._steps["decode"] = [(sequence, 0) for sequence in self._decoding]
        count, context = len(self._decoding), sum(sequence.prompt + sequence.made for sequence in self._decoding)
        return self._run(now, self.model.decode_us(count, context), "decode", count, self.model.decode_width)

    def _run(self, now: float, us: float, kind: str, rows: int, width: float | None) -> Run:
        blocks = math.ceil(rows / TILE) * TILES
        graph = self.graphs and kind == "decode"
        return Run(now, self.model.kernels, us / self.model.kernels, kind, width, blocks=blocks, graph=graph)

    def finished(self, run: Run, now: float) -> None:
        """The step's tokens are there."""
        for sequence, tokens in self._steps.pop(run.kind):
            if run.kind == "prefill":
                sequence.prefilled += tokens
                self.served.prompt_tokens += tokens
                if sequence.prefilled < sequence.prompt:
                    continue
                self._prefilling.remove(sequence)
                self._decoding.append(sequence)
                self.served.ttft[sequence.number] = now - sequence.asked
                self._last[sequence.number] = (now, now, 0.0)
            first, latest, longest = self._last[sequence.number]
            self._last[sequence.number] = (first, now, max(longest, now - latest))
            sequence.made += 1
            self.served.tokens += 1
        for sequence in [sequence for sequence in self._decoding if sequence.made >= sequence.answer]:
            self._end(sequence)

    def _end(self, sequence: _Sequence) -> None:
        self._decoding.remove(sequence)
        self.kv -= sequence.prompt + sequence.answer
        self.served.finished += 1
        first, latest, longest = self._last.pop(sequence.number)
        if sequence.answer > 1:
            self.served.tpot[sequence.number] = (latest - first) / (sequence.answer - 1)
            self.served.gaps.append(longest)

    @property
    def unfinished(self) -> int:
        """Requests that arrived and are not finished."""
        return len(self._waiting) + len(self._prefilling) + len(self._decoding)

    @property
    def arrived(self) -> int:
        """Requests that arrived."""
        return self._next


@dataclass
class Half:
    """One of the two processes of a server, as a source of runs."""

    server: LlmServer
    kind: str

    def poll(self, now: float) -> Run | float:
        """Its next step, or when to ask again; what the other half hands over is told by a wake-up."""
        return self.server._poll_half(self.kind, now)

    def finished(self, run: Run, now: float) -> None:
        """The step's tokens are there."""
        self.server.finished(run, now)
