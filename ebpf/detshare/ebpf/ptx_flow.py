# SPDX-License-Identifier: Apache-2.0
"""What a kernel may write: parameters whose values reach the address of a store, through registers, local memory and
functions of the same module.

Conservative: what is not understood counts as a write to anywhere. An address that comes out of memory as 64 bits, or
is put together from smaller pieces, may point anywhere. A loaded index, which is multiplied, or added to an address,
stays in what it is an index of. An address whose origin is not seen may point anywhere too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from detshare.ebpf.ptx import Body, Kernel, Module, Parameter, Statement, Word, width

_SYMBOL: Final = re.compile(r"[%$\w]+")
_CALL: Final = re.compile(r"^(?:\(([^)]*)\)\s*,\s*)?([%$\w]+)\s*(?:,\s*\(([^)]*)\))?")
_PLACE: Final = re.compile(r"([\w$%]+)\s*(?:\+\s*(\d+))?")
_NUMBER: Final = re.compile(r"^-?(?:0[xX][0-9a-fA-F]+|\d+)U?$")


class Source(NamedTuple):
    """Where a value may come from.

    `kind`: value, of a parameter at an offset, `bits` wide; inside, of a parameter at some multiple of four; place,
    the address of a parameter; memory, a whole word that was read; masked, the same after bits were taken off, of which
    scaling makes no index; piece, of fewer bits; high, a piece where the upper half of an address is; known, the
    address of a variable; local, of one that only this thread has.
    """

    kind: str
    name: str = ""
    offset: int = 0
    bits: int = 64


_MEMORY, _MASKED, _PIECE, _HIGH = Source("memory"), Source("masked"), Source("piece"), Source("high")
_KNOWN, _LOCAL = Source("known"), Source("local")
_ANYWHERE: Final = {_MEMORY, _MASKED, _HIGH}
_BASES: Final = ("value", "inside", "known", "local")

_READ_ONLY: Final = (
    *("bar", "barrier", "bra", "brx", "ret", "exit", "trap", "fence", "membar", "nanosleep", "prefetch", "prefetchu"),
    *("applypriority", "ldmatrix", "stmatrix", "mbarrier", "griddepcontrol", "setmaxnreg", "pmevent", "brkpt"),
)
"""they write no memory that can be allocated; stmatrix and mbarrier write shared memory"""
_UNKNOWN: Final = ("sust", "sured", "multimem", "tcgen05", "clusterlaunchcontrol")
_BITS_ONLY: Final = ("setp", "testp", "popc", "clz", "bfind", "isspacep", "vote", "match", "activemask", "elect")
"""what they make is no address, nor a piece of one"""
_SCALING: Final = ("mul", "shl", "div", "rem")
_MASKING: Final = ("shr", "and", "bfe", "prmt", "lop3", "bfi", "shf")
_HARMLESS: Final = ("__assertfail", "vprintf", "free")
"""functions of the driver that write to no allocation"""
_ADDRESS_BITS: Final = 57
_MOST_STEPS: Final = 1_000_000
"""statements and sources that are gone through; then a kernel is too large to be followed, after some ten seconds"""


def kernel(module: Module, name: str) -> Kernel | None:
    """What a kernel may write; None: there is none of that name."""
    if name not in module.known:
        module.known[name] = _look(module, name)
    return module.known[name]


def kernels(text: str) -> dict[str, Kernel]:
    """Every kernel of a PTX module by name."""
    module = Module(text)
    return {name: found for name in module.names if (found := kernel(module, name)) is not None}


def _look(module: Module, name: str) -> Kernel | None:
    entry = module.entry(name)
    if entry is None:
        return None
    parameters, body = entry
    if parameters is None:
        return Kernel(name, 0, (), "its parameters are not understood")
    if module.narrow:
        return Kernel(name, len(parameters), (), "its addresses have 32 bits")
    flow = Flow(module, parameters, body)
    words = tuple(sorted(flow.words(), key=lambda each: (each.packed, each.size)))
    return Kernel(name, len(parameters), words, flow.anywhere)


@lru_cache(maxsize=1 << 16)
def _symbols(operand: str) -> tuple[str, ...]:
    return tuple(_SYMBOL.findall(operand))


@lru_cache(maxsize=1 << 12)
def _number(operand: str) -> int | None:
    return int(operand.rstrip("U"), 0) if _NUMBER.match(operand) and not re.match(r"^-?0\d", operand) else None


class Flow:
    """Of one kernel, with the functions that it calls. `anywhere`: why it may write anywhere; empty when it may not."""

    def __init__(self, module: Module, parameters: dict[str, Parameter], body: Body) -> None:
        self._module, self._parameters = module, parameters
        self._cells: dict[tuple[str, str], set[Source]] = {}
        self._bodies: dict[str, Body] = {"": body}
        self._targets: set[tuple[str, str]] = set()
        """of stores: function, operand"""
        self._written: set[Source] = set()
        self._local: set[Source] = set()
        self._grown, self._settled, self._done = True, False, 0
        self.anywhere = ""
        self._flow()
        self._settled = True  # an address that still comes from nowhere is not understood
        self._flow()
        for name, operand in sorted(self._targets):
            self._write(self._sources(name, operand))

    def _flow(self) -> None:
        """Until nothing new flows: loops carry values backwards."""
        self._grown = True
        while self._grown and not self.anywhere:
            self._grown = False
            for name, each in list(self._bodies.items()):
                for statement in each.statements:
                    self._follow(name, statement)
                    self._done += 1
                    if self._done > _MOST_STEPS:
                        self._give_up("it is too large to be followed")
                    if self.anywhere:
                        return

    def words(self) -> set[Word]:
        """Places of addresses that are written from."""
        found: set[Word] = set()
        covered = _covered(self._written)
        for source in self._written:
            if source.kind not in ("value", "inside"):
                continue
            parameter = self._parameters[source.name]
            if source.kind == "inside" and parameter.size > 8:
                found.add(Word(parameter.number, 0, parameter.packed, parameter.size))
            elif (source.bits >= 64 or _filled(covered, source.name, source.offset)) and (
                source.offset + 8 <= parameter.size
            ):
                found.add(Word(parameter.number, source.offset, parameter.packed + source.offset))
        return found

    def _give_up(self, why: str) -> None:
        self.anywhere = self.anywhere or why

    # -- values ---------------------------------------------------------------------------------------------------

    def _sources(self, body: str, operand: str, numbers: bool = True) -> set[Source]:
        found: set[Source] = set()
        for name in _symbols(operand):
            cell = self._cells.get((body, name))
            if cell:
                found |= cell
                self._done += len(cell)
            elif name[0].isdigit():
                value = _number(name) if numbers else None
                if value is not None and 32 < value.bit_length() <= _ADDRESS_BITS:
                    found.add(_MEMORY)  # an address that was known when the module was made
            elif not body and name in self._parameters:
                found.add(Source("place", name))
            else:
                space = self._bodies[body].variables.get(name) or self._module.variables.get(name)
                if space:
                    found.add(_LOCAL if space == "local" else _KNOWN)
        return found

    def _put(self, cell: set[Source], sources: Iterable[Source]) -> None:
        before = len(cell)
        cell.update(sources)
        self._grown |= len(cell) > before

    def _assign(self, body: str, target: str, sources: Iterable[Source]) -> None:
        for name in _symbols(target):
            self._put(self._cells.setdefault((body, name), set()), sources)

    def _whole(self, sources: set[Source]) -> set[Source]:
        """Of 64 bits that were put together from smaller ones."""
        covered = _covered(sources)
        for name, offset in covered:
            if not any(_filled(covered, name, begin) for begin in range(offset - 7, offset + 1)):
                return {*sources, _MEMORY}
        return {*sources, _MEMORY} if _PIECE in sources else sources

    # -- statements -----------------------------------------------------------------------------------------------

    def _follow(self, body: str, statement: Statement) -> None:
        code, kind, operands = statement.code, statement.kind, statement.operands
        if kind == "call":
            self._call(body, statement)
        elif kind in ("st", "atom", "red", "discard", "tensormap") or code.startswith("wmma.store"):
            self._store(body, "tensormap" if "cp_fenceproxy" in code else code, operands)
        elif kind in ("ld", "ldu", "tex", "tld4", "suld"):
            self._load(body, code, operands)
        elif kind == "cp":
            self._copy(body, code, operands)
        elif kind in _UNKNOWN or not _is_instruction(code):
            self._give_up(f"it uses {kind}")
        elif kind in _READ_ONLY or kind in _BITS_ONLY or not operands:
            pass
        elif operands[0].startswith("["):
            self._store(body, code, operands)  # an instruction that we do not know
        elif any(each.startswith("[") for each in operands[1:]):
            self._assign(body, operands[0], {_MEMORY if width(code) >= 64 else _PIECE})
        else:
            self._assign(body, operands[0], self._made(body, code, kind, operands))

    def _made(self, body: str, code: str, kind: str, operands: tuple[str, ...]) -> set[Source]:
        """What an instruction makes of its operands."""
        found: set[Source] = set()
        bits = width(code)
        masks = kind in _MASKING
        for each in operands[1:]:
            found |= self._sources(body, each, not masks and kind not in _SCALING)
        last_one = operands[-1]
        last = _number(last_one)
        if kind in ("mad", "fma") and len(operands) == 4:
            factors = {source for each in operands[1:3] for source in self._sources(body, each)}
            found = _scaled(factors, _factor("mul", _number(operands[2]), bits)) | self._sources(body, last_one)
        elif kind in _SCALING:
            found = _scaled(found, _factor(kind, last, bits))
        elif kind == "mov" and bits >= 64 and last_one.startswith("("):
            pieces = last_one.strip("() ").split(",")
            found = found if _number(pieces[-1].strip()) == 0 else self._whole(found)
        elif kind == "bfi" and bits == 64:
            found = self._whole(found)
        elif kind == "shr" and last is not None and last >= 16 and _HIGH in found:
            found = (found - {_HIGH}) | {_PIECE}
        elif kind == "and" and last is not None and 0 <= last < 1 << 32:
            found = _narrowed(found)
        elif masks and _MEMORY in found:
            found = {*found, _MASKED}
        elif kind in ("or", "add", "xor", "sub") and _HIGH in found:
            found = {*found, _MEMORY}
        return _narrowed(found) if bits < 64 else found

    def _load(self, body: str, code: str, operands: tuple[str, ...]) -> None:
        if len(operands) < 2:
            self._give_up(f"it uses {code} in a way that is not known")
            return
        address, bits = operands[1].strip("[] "), width(code)
        if ".param" in code and (match := _PLACE.fullmatch(address)):
            if not body and match[1] in self._parameters:
                for number, target in enumerate(_symbols(operands[0])):
                    value = Source("value", match[1], int(match[2] or 0) + number * bits // 8, bits)
                    self._assign(body, target, {value})
            if (body, match[1]) in self._cells:
                cell = self._cells[body, match[1]]
                if not self._address_of_parameter(cell):
                    self._assign(body, operands[0], self._whole(cell) if bits >= 64 else cell)
                    return
            elif not body and match[1] in self._parameters:
                return
        sources = self._sources(body, address)
        found: set[Source] = set()
        for each in sources:
            if each.kind == "place":
                found.add(Source("inside", each.name) if bits >= 64 else _PIECE)
            elif each.kind == "local":
                found |= self._local
        if ".local" in code:
            found |= self._local
        elif (sources or self._settled) and not _only_own(sources):
            found.add(_MEMORY if bits >= 64 else _PIECE)
        self._assign(body, operands[0], self._whole(found) if bits >= 64 else found)

    @staticmethod
    def _address_of_parameter(cell: set[Source]) -> bool:
        return any(each.kind == "place" for each in cell)

    def _store(self, body: str, code: str, operands: tuple[str, ...]) -> None:
        at = next((number for number, each in enumerate(operands) if each.startswith("[")), -1)
        if at < 0:
            self._give_up(f"it uses {code} in a way that is not known")
            return
        address = operands[at].strip("[] ")
        values = {source for each in operands[at + 1 :] for source in self._sources(body, each)}
        if at:  # what an atomic gives back
            self._assign(body, operands[0], {_MEMORY if width(code) >= 64 else _PIECE})
        if ".shared" in code:
            return
        sources = self._sources(body, address)
        if ".param" in code:
            match = _PLACE.fullmatch(address)
            if match is None:
                self._give_up("it passes parameters in a way that is not known")
            else:
                self._assign(body, match[1], values)
            return
        if ".local" in code or _LOCAL in sources:
            self._put(self._local, values)
        if ".local" not in code:
            self._targets.add((body, address))

    def _write(self, sources: set[Source]) -> None:
        self._written |= sources
        whole = self._whole({each for each in sources if each.kind == "value"})
        if sources & _ANYWHERE:
            self._give_up("it writes where an address in memory points to")
        elif _MEMORY in whole and not any(each.kind in _BASES and each.bits == 64 for each in sources):
            self._give_up("it writes to an address that it puts together")
        elif not any(each.kind in _BASES for each in sources):
            self._give_up("it writes to an address whose origin is not understood")

    def _copy(self, body: str, code: str, operands: tuple[str, ...]) -> None:
        """Copies that run by themselves: cp.async and its kin write the space that their name has first."""
        names = code.split(".")
        if not {"prefetch", "commit_group", "wait_group", "wait_all", "mbarrier"}.isdisjoint(names[:4]):
            return
        space = next((each.split("::")[0] for each in names if each.startswith(("shared", "global"))), "")
        if space == "shared":
            return
        if space != "global" or "tensor" in names:
            self._give_up("it copies by a tensor map" if "tensor" in names else f"it uses {code}")
            return
        self._store(body, "cp", operands)

    def _call(self, body: str, statement: Statement) -> None:
        match = _CALL.match(statement.rest)
        name = match[2] if match else ""
        if match is None or name.startswith("%") or (body, name) in self._cells:
            self._give_up("it calls a function by its address")
            return
        given = [each.strip() for each in (match[3] or "").split(",") if each.strip()]
        back = [each.strip() for each in (match[1] or "").split(",") if each.strip()]
        callee = self._module.function(name)
        if callee is None and name in _HARMLESS:
            return
        if callee is None and name == "malloc":  # the device's own heap, no allocation of the program
            for each in back:
                self._assign(body, each, {_KNOWN})
            return
        if callee is None or len(given) != len(callee.formal) or len(back) != len(callee.back):
            self._give_up(f"it calls {name}, of which the module does not tell")
            return
        if name not in self._bodies:
            self._bodies[name] = callee
            self._grown = True
        for formal, actual in zip(callee.formal, given, strict=True):
            self._assign(name, formal, self._sources(body, actual))
        for mine, formal in zip(back, callee.back, strict=True):
            self._assign(body, mine, self._cells.get((name, formal), set()))


def _only_own(sources: set[Source]) -> bool:
    """An address in parameters, or in this thread's memory, with an index at most."""
    own = any(each.kind in ("place", "local") for each in sources)
    return own and all(each.kind in ("place", "local", "piece") or each.bits < 64 for each in sources)


@lru_cache(maxsize=1 << 12)
def _is_instruction(code: str) -> bool:
    return bool(re.match(r"^[a-z]\w*(?:\.|$)", code))


def _covered(sources: Iterable[Source]) -> set[tuple[str, int]]:
    """Bytes of parameters that were read in pieces."""
    pieces = [each for each in sources if each.kind == "value" and each.bits < 64]
    return {(each.name, each.offset + byte) for each in pieces for byte in range(each.bits // 8)}


def _filled(covered: set[tuple[str, int]], name: str, begin: int) -> bool:
    return all((name, begin + byte) in covered for byte in range(8))


def _factor(kind: str, last: int | None, bits: int) -> int | None:
    """What shl or mul multiply by; None: not known."""
    if kind == "shl":
        return None if last is None else 1 << (min(last, 64) if last >= 0 else 64)  # an unsigned number
    return last if last is not None or bits < 64 else 1


def _scaled(sources: set[Source], factor: int | None) -> set[Source]:
    """An index, whatever it was; the upper half of an address where the factor moves it there."""
    found = _narrowed(sources - {_MASKED}) | (sources & {_MASKED})
    narrow = any(each.kind == "piece" or (each.kind == "value" and each.bits < 64) for each in found)
    return {*found, _HIGH} if narrow and (factor is None or abs(factor) >= 1 << 32) else found


def _narrowed(sources: set[Source]) -> set[Source]:
    """Fewer than 64 bits of it."""
    return (sources - _ANYWHERE) | {_PIECE} if sources & _ANYWHERE else sources
