# SPDX-License-Identifier: Apache-2.0
"""The observer `dirty` beside random programs and kernels whose writes are known."""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
from pathlib import Path

from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.ptx_flow import kernels
from detshare.tools.bench.vm.inside import guest

TOP = Path(__file__).resolve().parents[6]
sys.path.insert(0, str(TOP))

SHAPES = ("text", "lz4", "zstd", "code")
"""of the images that programs load: PTX as text, compressed in fat binaries, and machine code without PTX"""


def programs(amount: int, seed: int, folder: Path) -> None:
    """Programs, five epochs each: what was reported of each epoch."""
    from tests.tracee import images
    from tests.tracee.programs import program
    from tests.tracee.told import epochs
    from tests.tracee.tracee import LIBCUDA, Tracee

    made = images.of_the_tracee(folder)
    tracer = DirtyTracer(libcuda=[str(LIBCUDA)])
    for number in range(seed, seed + amount):
        shape = SHAPES[number % len(SHAPES)]
        with Tracee() as tracee:
            if shape in made:
                tracee.say(f"module {made[shape]}")
            # of machine code it is not known that it stores through pointers in memory; epochs say so (partial)
            for told in epochs(tracer, tracee, program(number, 5, chases=shape != "code")):
                guest.say(
                    event="epoch",
                    seed=number,
                    shape=shape,
                    missed=len(told.missed),
                    written=told.written_bytes,
                    reported=told.found.bytes,
                    total=told.found.total,
                    whole=bool(told.found.reasons),
                    partial=bool(told.found.partial),
                )
        tracer.forget(tracee.pid)
    trouble = tracer.trouble()
    guest.say(event="lost", lost=trouble.lost + trouble.full + trouble.unread)
    tracer.close()


def random_kernels(amount: int, seed: int) -> None:
    """Kernels in PTX: allocations of equal size that each wrote, and that it may write as we read it."""
    from tests.unit.ebpf import ptx_programs

    for number in range(seed, seed + amount):
        made = ptx_programs.program(number)
        found = kernels(made.text)["k"]
        pointed = set()
        for word in found.words:
            for at in range(word.packed, word.packed + word.size - 7, 4):
                value = struct.unpack_from("<Q", made.parameters, at)[0]
                pointed |= {
                    each
                    for each in range(ptx_programs.ALLOCATIONS)
                    if 0 <= value - ptx_programs.base(each) <= ptx_programs.SIZE
                }
        if found.anywhere:
            pointed = set(range(ptx_programs.ALLOCATIONS))
        guest.say(
            event="kernel",
            seed=number,
            missed=len(made.written - pointed),
            written=len(made.written),
            reported=len(pointed),
            whole=bool(found.anywhere),
            chases="ld.global" in made.text,
        )


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: dirty --amount 20")
    parser.add_argument("--amount", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.environ.setdefault("DETSHARE_EBPF", "libbpf")
    with tempfile.TemporaryDirectory() as folder:
        programs(asked.amount, asked.seed, Path(folder))
    random_kernels(10 * asked.amount, asked.seed)


if __name__ == "__main__":
    guest.main(_body)
