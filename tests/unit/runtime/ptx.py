# SPDX-License-Identifier: Apache-2.0
"""A strict interpreter of the PTX that hash_kernel.c is written in: one block, each thread by itself between barriers.

An instruction that it does not know, a register that was not declared or not written, an access outside the memory that
it was given, and two threads at the same shared bytes without a barrier between them (one of them writing) are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


class Wrong(Exception):
    """The text, or what it does, is not allowed."""


@dataclass
class Memory:
    """Ranges by their first address; those of `writable` may be written."""

    ranges: dict[int, bytearray]
    writable: set[int]

    def at(self, address: int, size: int, write: bool) -> tuple[bytearray, int]:
        for base, data in self.ranges.items():
            if base <= address and address + size <= base + len(data) and address % size == 0:
                if write and base not in self.writable:
                    break
                return data, address - base
        raise Wrong(f"{'write' if write else 'read'} of {size} bytes at {address:#x}")


@dataclass
class Program:
    """The one kernel of a text."""

    name: str
    params: list[tuple[str, int]]
    block: int
    shared: int
    widths: dict[str, int]
    code: list[tuple[str | None, str, list[str]]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def parse(text: str) -> Program:
    """The kernel. Wrong where it is not understood."""
    text = re.sub(r"//.*", "", text)
    found = re.fullmatch(
        r"\s*\.version 6\.3\s+\.target sm_70\s+\.address_size 64\s+\.visible \.entry (\w+)\(([^)]*)\)"
        r"\s*\.maxntid (\d+), 1, 1\s*\{(.*)\}\s*",
        text,
        re.DOTALL,
    )
    if found is None:
        raise Wrong("no kernel of this form")
    params = [(name, int(width)) for width, name in re.findall(r"\.param \.u(\d+) (\w+)", found[2])]
    program = Program(found[1], params, int(found[3]), 0, {})
    for statement in re.findall(r"[^;:]+[;:]", found[4]):
        words = statement.strip()
        if words.endswith(":"):
            program.labels[words[:-1]] = len(program.code)
            continue
        words = words[:-1].strip()
        if declared := re.fullmatch(r"\.reg \.(pred|b32|b64) (.*)", words):
            width = {"pred": 1, "b32": 32, "b64": 64}[declared[1]]
            for name in declared[2].split(","):
                row = re.fullmatch(r"\s*(%\w+)<(\d+)>\s*", name)
                names = [f"{row[1]}{n}" for n in range(int(row[2]))] if row else [name.strip()]
                program.widths |= dict.fromkeys(names, width)
        elif declared := re.fullmatch(r"\.shared \.align 16 \.b8 lanes\[(\d+)\]", words):
            program.shared = int(declared[1])
        elif instruction := re.fullmatch(r"(?:@(%\w+) )?([\w.]+)(?:\s+(.*))?", words):
            operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", instruction[3] or "")
            program.code.append((instruction[1], instruction[2], operands))
        else:
            raise Wrong(f"statement {words!r}")
    return program


_TWO: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: (a + b) & M32,
    "sub.u32": lambda a, b: (a - b) & M32,
    "add.u64": lambda a, b: (a + b) & M64,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: (a << b) & M32 if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "mul.wide.u32": lambda a, b: a * b,
    "setp.ne.u32": lambda a, b: int(a != b),
    "setp.ge.u32": lambda a, b: int(a >= b),
}
_WIDE = {"add.u64": (64, 64), "mul.wide.u32": (64, 32), "setp.ne.u32": (1, 32), "setp.ge.u32": (1, 32)}


@dataclass
class Shared:
    """The block's own memory, and who touched which vector since the last barrier: who wrote, who read."""

    data: bytearray
    wrote: dict[int, int] = field(default_factory=dict)
    read: dict[int, set[int]] = field(default_factory=dict)

    def touch(self, address: int, thread: int, write: bool) -> None:
        others = self.read.get(address, set()) - {thread} if write else set()
        if self.wrote.get(address, thread) != thread or others:
            raise Wrong(f"threads meet at {address:#x} of shared memory without a barrier")
        if write:
            self.wrote[address] = thread
        else:
            self.read.setdefault(address, set()).add(thread)


class Thread:
    """One thread of a block; runs to the next barrier each time it is resumed."""

    def __init__(
        self, program: Program, values: dict[str, int], memory: Memory, shared: Shared, thread: int, block: int
    ) -> None:
        self.program, self.values, self.memory, self.shared, self.thread = program, values, memory, shared, thread
        self.special = {"%tid.x": thread, "%ctaid.x": block, "lanes": 0}
        self.registers: dict[str, int] = {}

    def get(self, name: str, width: int) -> int:
        if name in self.special:
            return self.special[name]
        if re.fullmatch(r"\d+", name):
            return int(name)
        if self.program.widths.get(name) != width or name not in self.registers:
            raise Wrong(f"{name} is read as {width} bits")
        return self.registers[name]

    def put(self, name: str, width: int, value: int) -> None:
        if self.program.widths.get(name) != width:
            raise Wrong(f"{name} is written as {width} bits")
        self.registers[name] = value

    def run(self) -> Iterator[None]:
        at = 0
        while True:
            guard, name, operands = self.program.code[at]
            at += 1
            if guard is not None and not self.get(guard, 1):
                continue
            if name == "bra":
                at = self.program.labels[operands[0]]
            elif name == "ret":
                return
            elif name == "bar.sync":
                yield
            else:
                self.step(name, operands)

    def step(self, name: str, operands: list[str]) -> None:
        if name in _TWO:
            out, width = _WIDE.get(name, (32, 32))
            first, second = (self.get(each, width) for each in operands[1:])
            self.put(operands[0], out, _TWO[name](first, second))
        elif name == "shf.l.wrap.b32":
            low, high, bits = (self.get(each, 32) for each in operands[1:])
            self.put(operands[0], 32, ((high << 32 | low) << (bits & 31)) >> 32 & M32)
        elif name == "mov.u32":
            self.put(operands[0], 32, self.get(operands[1], 32))
        elif found := re.fullmatch(r"ld\.param\.u(32|64)", name):
            param = operands[1].strip("[]")
            if dict(self.program.params)[param] != int(found[1]):
                raise Wrong(f"parameter {param} is read as {found[1]} bits")
            self.put(operands[0], int(found[1]), self.values[param])
        elif name == "ld.global.u64":
            data, offset = self.memory.at(self.get(operands[1].strip("[]"), 64), 8, False)
            self.put(operands[0], 64, int.from_bytes(data[offset : offset + 8], "little"))
        elif name in ("ld.global.cs.v4.u32", "ld.shared.v4.u32"):
            data, offset = self.place(name, operands[1], False)
            for n, register in enumerate(operands[0].strip("{}").split(",")):
                self.put(register.strip(), 32, int.from_bytes(data[offset + 4 * n : offset + 4 * n + 4], "little"))
        elif name in ("st.global.v4.u32", "st.shared.v4.u32"):
            data, offset = self.place(name, operands[0], True)
            for n, register in enumerate(operands[1].strip("{}").split(",")):
                value = self.get(register.strip(), 32)
                data[offset + 4 * n : offset + 4 * n + 4] = value.to_bytes(4, "little")
        else:
            raise Wrong(f"instruction {name}")

    def place(self, name: str, operand: str, write: bool) -> tuple[bytearray, int]:
        base, _, offset = operand.strip("[]").partition("+")
        if ".global" in name:
            return self.memory.at(self.get(base, 64) + int(offset or 0), 16, write)
        address = self.get(base, 32) + int(offset or 0)
        if address % 16 or address + 16 > len(self.shared.data):
            raise Wrong(f"shared memory at {address:#x}")
        self.shared.touch(address, self.thread, write)
        return self.shared.data, address


def launch(program: Program, blocks: int, values: dict[str, int], memory: Memory) -> None:
    """Run the kernel to its end. Wrong."""
    if set(values) != {name for name, _ in program.params}:
        raise Wrong("parameters")
    for block in range(blocks):
        shared = Shared(bytearray(program.shared))
        threads = [Thread(program, values, memory, shared, n, block).run() for n in range(program.block)]
        while threads:
            ended = [next(thread, "ended") for thread in threads]
            if len(set(ended)) > 1:
                raise Wrong("some threads wait at a barrier that others never reach")
            if ended[0] == "ended":
                break
            shared.wrote.clear()
            shared.read.clear()
