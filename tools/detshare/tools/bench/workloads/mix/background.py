#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A background of the mix: vit, gpt2, resnet (training, bf16), fft (CuPy, 4 ms each) or jax (a training step).

Where a library is missing or does not do what is asked, a substitute of the same size runs, and the ready line says
why (`instead`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

from orders import Orders, beside, step  # type: ignore[import-not-found]

Wait = Callable[[], None]
Launch = Callable[[], Wait]
FFT_PAIRS = 3
"""transforms there and back of one step: about 4 ms on an H200"""


def of_torch(one: Callable[[], None]) -> Launch:
    """A launch with an event behind it."""
    import torch

    def launch() -> Wait:
        one()
        event = torch.cuda.Event(blocking=True)
        event.record()
        return lambda: event.synchronize()

    return launch


def vit() -> tuple[Launch, str, str]:
    """ViT-B/16, 64 images."""
    import torch
    import torch.nn.functional as functional

    why, what = "", "timm ViT-B/16 training, 64 images"
    try:
        import timm  # type: ignore[import-not-found]

        model = timm.create_model("vit_base_patch16_224", pretrained=False, num_classes=1000)
    except Exception as error:  # noqa: BLE001  (whatever a version of the library has against it)
        from torchvision.models import vit_b_16

        why, what = f"{type(error).__name__}: {str(error)[:200]}", "torchvision ViT-B/16 training, 64 images"
        model = vit_b_16(weights=None)
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")

    def one() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return of_torch(one), what, why


def gpt2() -> tuple[Launch, str, str]:
    """GPT-2 medium, 8 sequences of 512 tokens."""
    import torch
    import torch.nn.functional as functional

    try:
        from transformers import GPT2Config, GPT2LMHeadModel  # type: ignore[import-not-found]

        config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, n_positions=1024)
        model = GPT2LMHeadModel(config).cuda().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        tokens = torch.randint(0, config.vocab_size, (8, 513), device="cuda")

        def one() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
                loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()

        one()
        return of_torch(one), "transformers GPT-2 medium training, 8 x 512 tokens", ""
    except Exception as error:  # noqa: BLE001  (whatever a version of the library has against it)
        why = f"{type(error).__name__}: {str(error)[:200]}"
        return of_torch(beside("train").gpt(8, layers=24)), "torch GPT of 24 layers, training, 8 x 512 tokens", why


def resnet() -> tuple[Launch, str, str]:
    """ResNet-50; 256 images keep the GPU busy whatever the host does."""
    import torch

    torch.backends.cudnn.benchmark = False  # the same kernels in each run, whatever else uses the GPU at the start
    return of_torch(beside("train").resnet(256)), "torchvision ResNet-50 training, 256 images", ""


def fft() -> tuple[Launch, str, str]:
    """Transforms of 64 planes of 1024 x 1024 complex numbers, there and back."""
    try:
        import cupy

        x = cupy.random.standard_normal((64, 1024, 1024), dtype=cupy.float32).astype(cupy.complex64)

        def launch() -> Wait:
            y = x
            for _ in range(FFT_PAIRS):
                y = cupy.fft.ifft2(cupy.fft.fft2(y))
            event = cupy.cuda.Event(block=True, disable_timing=True)
            event.record()
            return lambda: event.synchronize()

        launch()()
        return launch, "CuPy FFTs", ""
    except Exception as error:  # noqa: BLE001  (whatever a version of the library has against it)
        import torch

        why = f"{type(error).__name__}: {str(error)[:200]}"
        planes = torch.randn(64, 1024, 1024, device="cuda", dtype=torch.complex64)

        def one() -> None:
            y = planes
            for _ in range(FFT_PAIRS):
                y = torch.fft.ifft2(torch.fft.fft2(y))

        return of_torch(one), "torch FFTs", why


def jax_step() -> tuple[Launch, str, str]:
    """A compiled training step of four layers of 4096, 8192 rows."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp

    width, rows, layers = 4096, 8192, 4
    keys = jax.random.split(jax.random.key(0), layers + 1)
    weights = [jax.random.normal(key, (width, width), dtype=jnp.bfloat16) / 64 for key in keys[1:]]
    x = jax.random.normal(keys[0], (rows, width), dtype=jnp.bfloat16)

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        y = x
        for weight in weights:
            y = jnp.tanh(y @ weight)
        return jnp.mean((y - x).astype(jnp.float32) ** 2)

    def update(weights: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        value, slopes = jax.value_and_grad(loss)(weights, x)
        return [each - 0.01 * slope for each, slope in zip(weights, slopes, strict=True)], value

    compiled = jax.jit(update)

    def launch() -> Wait:
        nonlocal weights
        weights, value = compiled(weights, x)
        return lambda: value.block_until_ready()

    launch()()
    platform = x.devices().pop().platform
    if platform not in ("gpu", "cuda"):
        raise SystemExit(f"background.py: JAX computes on {platform}, not on the GPU")
    return launch, "JAX training step, 4 layers of 4096, 8192 rows", ""


KINDS: dict[str, tuple[Callable[[], tuple[Launch, str, str]], int]] = {
    "vit": (vit, 2),
    "gpt2": (gpt2, 2),
    "resnet": (resnet, 2),
    "fft": (fft, 4),
    "jax": (jax_step, 3),
}
"""what makes a launch, and how many steps are queued at most: short ones need more"""
WARM = 8


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    args = parser.parse_args()
    orders = Orders()
    begun = time.monotonic()
    make, depth = KINDS[args.kind]
    launch, what, why = make()
    for _ in range(WARM):
        launch()()
    step(launch, orders, depth, what=what, instead=why, started_s=round(time.monotonic() - begun, 1))


if __name__ == "__main__":
    main()
