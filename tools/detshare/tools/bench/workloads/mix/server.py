#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program whose latency counts: graph (24 layers as BERT-large has, 4 x 128 tokens, one CUDA graph a request), or
eager (decode of a small Llama of transformers, kernel by kernel, one token a request, over 128 tokens of context)."""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable

from orders import Orders, beside, serve  # type: ignore[import-not-found]

CONTEXT = 128
"""tokens before the one that a request makes: each request does the same work"""


def graph() -> tuple[Callable[[], None], str]:
    """One request of the encoder, and what it is."""
    import torch
    from torch import nn

    encode, width = beside("encode"), 1024
    torch.manual_seed(0)
    layers = (encode.Block(width, width // 64) for _ in range(24))
    model = nn.Sequential(nn.Embedding(30522, width), *layers).cuda().to(torch.bfloat16).eval()
    with torch.inference_mode():
        request = encode.Request(model, 4, 128)

    def run() -> None:
        with torch.inference_mode():
            request.run()

    return run, "encoder of 24 layers, 4 x 128 tokens, one CUDA graph"


def llama(layers: int, width: int) -> tuple[Callable[[], None], str]:
    """One token of a Llama of transformers with random weights."""
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found]

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        max_position_embeddings=2048,
    )
    model = LlamaForCausalLM(config).to(device="cuda", dtype=torch.bfloat16).eval()
    cache = DynamicCache()
    prompt = torch.randint(0, 32000, (1, CONTEXT), device="cuda")
    token = prompt[:, -1:].clone()
    with torch.inference_mode():
        cache = model(input_ids=prompt, past_key_values=cache, use_cache=True).past_key_values
    # `crop` means what remains in one version of transformers and what goes in another one
    kept = [(layer, layer.keys, layer.values) for layer in cache.layers]

    def run() -> None:
        with torch.inference_mode():
            for layer, keys, values in kept:
                layer.keys, layer.values = keys, values
            logits = model(input_ids=token, past_key_values=cache, use_cache=True).logits
            token.copy_(logits[:, -1:].argmax(dim=-1))
        torch.cuda.synchronize()

    run()
    return run, f"transformers Llama, {layers} layers of {width}, one token, eager, dynamic cache"


def blocks(layers: int, width: int) -> tuple[Callable[[], None], str]:
    """As many small kernels without transformers."""
    import torch
    from torch import nn

    block = beside("encode").Block
    torch.manual_seed(0)
    model = nn.Sequential(*(block(width, width // 64) for _ in range(layers))).cuda().to(torch.bfloat16).eval()
    x = torch.randn(1, 1, width, device="cuda", dtype=torch.bfloat16)

    def run() -> None:
        with torch.inference_mode():
            model(x)
        torch.cuda.synchronize()

    run()
    return run, f"torch encoder blocks, {layers} of {width}, eager"


def eager(layers: int, width: int) -> tuple[Callable[[], None], str, str]:
    """The Llama, or blocks with the reason why not the Llama."""
    try:
        return *llama(layers, width), ""
    except Exception as error:  # noqa: BLE001  (whatever a version of the library has against it)
        return *blocks(layers, width), f"{type(error).__name__}: {str(error)[:200]}"


def observer(library: str) -> Callable[[float], object] | None:
    """What is told each latency in seconds: ``tenant().observe`` of a library; None where there is none."""
    try:
        return getattr(importlib.import_module(library).tenant(), "observe", None)
    except Exception:  # noqa: BLE001  (a server works without, and its ready line says that it does)
        return None


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("graph", "eager"), default="graph")
    parser.add_argument("--layers", type=int, default=12, help="eager: layers")
    parser.add_argument("--width", type=int, default=1024, help="eager: hidden size")
    parser.add_argument("--observe", metavar="LIBRARY", help="tell a library each latency")
    args = parser.parse_args()
    orders = Orders()
    begun, why = time.monotonic(), ""
    if args.kind == "graph":
        run, what = graph()
    else:
        run, what, why = eager(args.layers, args.width)
    for _ in range(30):
        run()
    observe = observer(args.observe) if args.observe else None
    took = round(time.monotonic() - begun, 1)
    serve(run, orders, observe, what=what, instead=why, observes=observe is not None, started_s=took)


if __name__ == "__main__":
    main()
