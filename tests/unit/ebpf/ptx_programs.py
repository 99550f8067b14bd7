# SPDX-License-Identifier: Apache-2.0
"""Random kernels in PTX that are carried out while they are written: so it is known where each of their stores goes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

ALLOCATIONS, SIZE = 6, 1 << 20
LOW = 0xFFFFFFFF
FUNCTIONS = """
.func put(.param .b64 put_at, .param .b32 put_what)
{
	.reg .b64 %d<2>;
	.reg .b32 %r<2>;
	ld.param.u64 %d1, [put_at];
	ld.param.u32 %r1, [put_what];
	st.u32 [%d1+4], %r1;
	ret;
}
.func (.param .b64 next_back) next(.param .b64 next_of)
{
	.reg .b64 %d<3>;
	ld.param.u64 %d1, [next_of];
	add.s64 %d2, %d1, 8;
	st.param.b64 [next_back], %d2;
	ret;
}
"""


def base(number: int) -> int:
    """Where an allocation begins."""
    return (number + 1 << 34) + 0x5000000


@dataclass(slots=True)
class Program:
    """`parameters`: their bytes, as they lie in the buffer of all. `written`: allocations that were stored to."""

    text: str
    parameters: bytes
    written: set[int]


@dataclass(slots=True)
class Writer:
    """Registers and what is in them; each allocation has an address of each other one in it, at 64 times its number."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    wide: dict[str, int] = field(default_factory=dict)
    names: int = 0
    written: set[int] = field(default_factory=set)

    def new(self, value: int) -> str:
        self.names += 1
        name = f"%d{self.names}"
        self.wide[name] = value & (1 << 64) - 1
        return name

    def scratch(self, kind: str = "r") -> str:
        self.names += 1
        return f"%{kind}{self.names}"

    def some(self) -> str:
        return self.random.choice(list(self.wide))

    def say(self, *lines: str) -> None:
        self.lines += lines

    @staticmethod
    def allocation(value: int) -> int | None:
        return next((n for n in range(ALLOCATIONS) if base(n) <= value < base(n) + SIZE - 64), None)

    # -- what a kernel may do with an address -----------------------------------------------------------------------

    def move(self) -> None:
        one = self.some()
        way = self.random.choice(("mov.u64", "cvta.to.global.u64", "cvt.s64.u64"))
        self.say(f"{way} {self.new(self.wide[one])}, {one};")

    def step(self) -> None:
        one, by = self.some(), 4 * self.random.randrange(-8, 40)
        self.say(f"add.s64 {self.new(self.wide[one] + by)}, {one}, {by};")

    def index(self) -> None:
        one, index = self.some(), self.random.randrange(30)
        r, d = self.scratch(), self.scratch("x")
        self.say(f"mov.u32 {r}, {index};")
        if self.random.random() < 0.5:
            self.say(f"mul.wide.u32 {d}, {r}, 4;", f"add.s64 {self.new(self.wide[one] + 4 * index)}, {d}, {one};")
        else:
            self.say(f"mad.wide.u32 {self.new(self.wide[one] + 4 * index)}, {r}, 4, {one};")

    def choose(self) -> None:
        one, other = self.some(), self.some()
        self.say(f"setp.ne.s64 %p1, {one}, 0;", f"selp.b64 {self.new(self.wide[one])}, {one}, {other}, %p1;")

    def halves(self) -> None:
        one, (low, high) = self.some(), (self.scratch(), self.scratch())
        self.say(f"mov.b64 {{{low}, {high}}}, {one};", f"mov.b64 {self.new(self.wide[one])}, {{{low}, {high}}};")

    def shifted(self) -> None:
        one, (low, high) = self.some(), (self.scratch(), self.scratch())
        wide, up, down = (self.scratch("x") for _ in range(3))
        self.say(f"cvt.u32.u64 {low}, {one};", f"shr.u64 {wide}, {one}, 32;", f"cvt.u32.u64 {high}, {wide};")
        self.say(f"cvt.u64.u32 {up}, {high};", f"shl.b64 {up}, {up}, 32;", f"cvt.u64.u32 {down}, {low};")
        self.say(f"or.b64 {self.new(self.wide[one])}, {up}, {down};")

    def masked(self) -> None:
        one = self.some()
        if self.random.random() < 0.5:
            self.say(f"and.b64 {self.new(self.wide[one] & ~15)}, {one}, -16;")
        else:
            d = self.scratch("x")
            self.say(f"shr.u64 {d}, {one}, 4;", f"shl.b64 {self.new(self.wide[one] >> 4 << 4)}, {d}, 4;")

    def mixed(self) -> None:
        one, other, d = self.some(), self.some(), self.scratch("x")
        self.say(f"xor.b64 {d}, {one}, {other};", f"xor.b64 {self.new(self.wide[one])}, {d}, {other};")

    def spill(self) -> None:
        one, at, d = self.some(), 8 * self.random.randrange(8), self.scratch("x")
        space = self.random.choice(("local", "local", "shared", "generic"))
        if space == "generic":
            self.say(f"mov.u64 {d}, depot;", f"cvta.local.u64 {d}, {d};", f"st.u64 [{d}+{at}], {one};")
            self.say(f"ld.u64 {self.new(self.wide[one])}, [{d}+{at}];")
            return
        name, wide = "depot" if space == "local" else "shared_depot", self.new(self.wide[one])
        if self.random.random() < 0.5:
            self.say(f"st.{space}.u64 [{name}+{at}], {one};", f"ld.{space}.u64 {wide}, [{name}+{at}];")
            return
        low, high = self.scratch(), self.scratch()
        self.say(f"mov.u64 {d}, {name};", f"mov.b64 {{{low}, {high}}}, {one};", f"st.{space}.u32 [{d}+{at}], {low};")
        self.say(f"st.{space}.u32 [{d}+{at + 4}], {high};", f"ld.{space}.u64 {wide}, [{d}+{at}];")

    def chase(self) -> None:
        one = self.some()
        at = self.allocation(self.wide[one])
        if at is None:
            return
        to = self.random.randrange(ALLOCATIONS)
        place = base(at) + 64 * to - self.wide[one]
        if self.random.random() < 0.5:
            self.say(f"ld.global.nc.u64 {self.new(base(to))}, [{one}+{place}];")
            return
        low, high = self.scratch(), self.scratch()
        if self.random.random() < 0.5:
            self.say(f"ld.global.v2.u32 {{{low}, {high}}}, [{one}+{place}];")
        else:
            self.say(f"ld.global.u32 {low}, [{one}+{place}];", f"ld.global.u32 {high}, [{one}+{place + 4}];")
        self.say(f"mov.b64 {self.new(base(to))}, {{{low}, {high}}};")

    def called(self) -> None:
        one = self.some()
        at = self.allocation(self.wide[one])
        if at is not None and self.random.random() < 0.3:
            self.written.add(at)
            self.say("{", ".param .b64 param0;", f"st.param.b64 [param0+0], {one};", ".param .b32 param1;")
            self.say("st.param.b32 [param1+0], %r0;", "call.uni", "put,", "(", "param0,", "param1", ");", "}")
            return
        self.say("{", ".param .b64 param0;", f"st.param.b64 [param0+0], {one};", ".param .b64 retval0;")
        self.say("call.uni (retval0),", "next,", "(", "param0", ");")
        self.say(f"ld.param.b64 {self.new(self.wide[one] + 8)}, [retval0+0];", "}")

    def store(self) -> None:
        one = self.some()
        at = self.allocation(self.wide[one])
        if at is None:
            return
        self.written.add(at)
        ways = (
            "st.global.u32 [{}], %r0;",
            ".loc 1 7 3\nst.global.v2.u32 [ {} + 0 ], {{ %r0, %r0 }};",
            "@!%p0 st.u8 [{}+3], %r0;",
            "{{\n.reg .pred p;\nsetp.eq.u32 p, %r0, %r0;\n@p st.global.cs.b32 [{}], %r0;\n}}",
            "atom.global.add.u32 %r0, [{}], 1;",
            "red.relaxed.gpu.global.add.f32 [{}], %f0;",
            "cp.async.bulk.global.shared::cta.bulk_group [{}], [shared_depot], 16;",
        )
        self.say(self.random.choice(ways).format(one))


def program(seed: int) -> Program:
    """One kernel `k`: five pointers in a row, of which two in a struct and one in two parameters of 32 bits."""
    writer = Writer(random.Random(seed))
    pick = writer.random
    targets = [base(pick.randrange(ALLOCATIONS)) + 64 * pick.randrange(100) for _ in range(5)]
    data = struct.pack("<QQIIQII", targets[0], 7, 3, 4, targets[1], targets[2] & LOW, targets[2] >> 32)
    data += struct.pack("<QII", targets[3], targets[4] & LOW, targets[4] >> 32)
    head = ".param .u64 a, .param .u64 n, .param .align 8 .b8 s[24], .param .u64 b, .param .u32 low, .param .u32 high"
    # s: two numbers, an address, and one whose halves are read one by one
    loads: list[Callable[[], None]] = [
        lambda: writer.say(f"ld.param.u64 {writer.new(targets[0])}, [a];"),
        lambda: writer.say(f"ld.param.u64 {writer.new(targets[3])}, [b];"),
        lambda: writer.say(f"ld.param.u64 {writer.new(targets[1])}, [s+8];"),
        lambda: writer.say(
            "mov.b64 %z1, s;", f"ld.param.u64 {writer.new(targets[1])}, [%z1+8];",
            "cvta.param.u64 %z2, %z1;", f"ld.u64 {writer.new(targets[2])}, [%z2+16];",
        ),
        lambda: writer.say("ld.param.v2.u32 {%q1, %q2}, [s+16];", f"mov.b64 {writer.new(targets[2])}, {{%q1, %q2}};"),
        lambda: writer.say(
            "ld.param.u32 %q3, [low];", "ld.param.u32 %q4, [high];", f"mov.b64 {writer.new(targets[4])}, {{%q3, %q4}};"
        ),
    ]  # fmt: skip
    for load in pick.sample(loads, pick.randrange(1, 4)):
        load()
    steps = [writer.move, writer.step, writer.index, writer.choose, writer.halves, writer.masked, writer.mixed]
    steps += [writer.spill, writer.called, writer.store, writer.store]
    if pick.random() < 0.4:
        steps += [writer.chase, writer.shifted]
    for _ in range(pick.randrange(1, 14)):
        pick.choice(steps)()
    writer.store()
    text = ".version 8.3\n.target sm_90\n.address_size 64\n.shared .align 8 .b8 shared_depot[64];\n" + FUNCTIONS
    text += f".visible .entry k(\n{head}\n)\n.maxntid 128, 1, 1\n{{\n.local .align 8 .b8 depot[64];\n"
    text += _shuffled(writer.lines, pick) + "ret;\n}\n"
    return Program(text, data, writer.written)


def _shuffled(lines: list[str], pick: random.Random) -> str:
    """The same in pieces that jump to each other, in any order; scopes stay whole."""
    pieces: list[list[str]] = [[]]
    depth = 0
    for line in lines:
        pieces[-1].append(line)
        depth += (line == "{") - (line == "}")
        if not depth and pick.random() < 0.3:
            pieces.append([])
    order = list(range(len(pieces)))
    pick.shuffle(order)
    texts = ["\n".join([f"$L{n}:", *pieces[n], f"bra $L{n + 1};"]) for n in order]
    return "bra $L0;\n" + "\n".join(texts) + f"\n$L{len(pieces)}:\n"
