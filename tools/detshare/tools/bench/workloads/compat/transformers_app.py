#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers: greedy decode of a small Llama with random weights, with a cache of keys and values that grows."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from case import ROUNDS, case  # type: ignore[import-not-found]
from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found]

PROMPT, ANSWER = 32, 64


def pieces() -> Iterator[bytes]:
    """The logits of each token; a new prompt every `ANSWER` tokens."""
    torch.manual_seed(23)
    config = LlamaConfig(
        vocab_size=4096, hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8
    )
    config._attn_implementation = "eager"  # its sums have one order
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
    prompts = torch.randint(0, 4096, (ROUNDS // ANSWER + 1, PROMPT), generator=torch.Generator().manual_seed(29))
    tokens, cache = None, None
    with torch.inference_mode():
        for turn in range(ROUNDS):
            if turn % ANSWER == 0:
                tokens, cache = prompts[turn // ANSWER][None].cuda(), None
            answer = model(input_ids=tokens, past_key_values=cache, use_cache=True)
            cache, last = answer.past_key_values, answer.logits[:, -1]
            tokens = last.argmax(-1, keepdim=True)
            yield bytes(last.contiguous().view(torch.int16).cpu().numpy().tobytes())


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    case(pieces())
