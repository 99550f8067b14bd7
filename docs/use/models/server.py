#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model with random weights behind HTTP. It knows nothing of DetShare.

GET  /generate?seed=1&tokens=8   a prompt of random tokens; a line for each token of the answer, as soon as it is
                                     there: the token and its logit
POST /unload                     its weights go to host memory, until the next request
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

PROMPT = 128
WIDTH, INNER, HEADS, VOCABULARY = 4096, 11008, 32, 32000
TABLES = 2 * VOCABULARY * WIDTH
LAYER = 4 * WIDTH * WIDTH + 3 * WIDTH * INNER


class Served(Protocol):
    """What is behind HTTP."""

    def generate(self, seed: int, count: int) -> Iterator[tuple[int, float]]:
        """Tokens and their logits, one by one."""

    def unload(self) -> None:
        """Give the GPU's memory back."""


class Llama:
    """A Llama of so many MiB, bf16."""

    def __init__(self, mib: int, seed: int) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found]

        self.torch: Any = torch
        layers = max(1, ((mib << 20) // 2 - TABLES) // LAYER)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=layers,
            num_attention_heads=HEADS,
        )
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            self.model: Any = LlamaForCausalLM(config).eval()

    def generate(self, seed: int, count: int) -> Iterator[tuple[int, float]]:
        """The likeliest token each time, with a cache of keys and values."""
        dice = random.Random(seed)
        self.model.to("cuda")
        tokens = self.torch.tensor([[dice.randrange(VOCABULARY) for _ in range(PROMPT)]], device="cuda")
        cache = None
        for _ in range(count):
            with self.torch.inference_mode():
                answer = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
                logits, tokens = answer.logits[:, -1:].max(-1)
                cache = answer.past_key_values
            yield int(tokens), float(logits)

    def unload(self) -> None:
        """Weights to ordinary host memory."""
        self.model.to("cpu")
        self.torch.cuda.empty_cache()


def serve(model: Served, port: int) -> None:
    """Answer requests, one after the other, for ever."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            words = parse_qs(urlsplit(self.path).query)
            self.send_response(200)
            self.end_headers()
            for token, logit in model.generate(int(words.get("seed", ["1"])[0]), int(words.get("tokens", ["8"])[0])):
                self.wfile.write(f"{token} {logit:.9g}\n".encode())
                self.wfile.flush()

        def do_POST(self) -> None:
            model.unload()
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: one line a request is enough for who asks."""

    with HTTPServer(("127.0.0.1", port), Handler) as server:
        print(f"listening on port {server.server_port}", flush=True)
        server.serve_forever()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8001, help="0: any")
    parser.add_argument("--mib", type=int, default=8192, help="size of the weights")
    parser.add_argument("--seed", type=int, default=1, help="of the weights")
    args = parser.parse_args()
    serve(Llama(args.mib, args.seed), args.port)


if __name__ == "__main__":
    main()
