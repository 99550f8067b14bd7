# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from blocks import VERSIONS
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from rmshell import ENOMEM, NO_GPU, Core, Refused, counts, items

CLIENT = 0xC1D00001
DEVICE, SUBDEVICE, VASPACE, TSG, CTXSHARE, CHANNEL = 0x80, 0x2080, 0x90F1, 0xA06C, 0x9067, 0xC86F
COMPUTE, COPY, MEMORY, MPS, OS_PAGES = 0xCBC0, 0xC8B5, 0x40, 0x900E, 0x71
INHERIT, NONE = 255, 32


@dataclass
class Node:
    parent: int
    class_: int
    gpu: int
    bytes: int = 0
    ghost: bool = False
    deps: set[int] = field(default_factory=set)


class Tree:
    """One client of the core, made through the calls that the module makes."""

    def __init__(self, core: Core, client: int = CLIENT) -> None:
        self.core, self.client = core, client
        core("client", client)

    def make(
        self,
        handle: int,
        parent: int,
        class_: int,
        gpu: int = INHERIT,
        bytes_: int = 0,
        deps: tuple[int, ...] = (),
        engine: int = 0,
    ) -> list[int]:
        """Inserts an object, charged before; returns who died for it."""
        self.core("reserve", self.client)
        if bytes_:
            self.core("charge", self.client, self.gpu_of(parent) if gpu == INHERIT else gpu, bytes_)
        answer = self.core("insert", self.client, handle, parent, class_, gpu, bytes_, engine, *deps)
        assert answer["made"] == "1"
        return items(answer["died"])

    def free(self, handle: int) -> list[int]:
        answer = self.core("free", self.client, handle)
        died = items(answer["died"])
        assert int(answer["count"]) == len(died)
        return died

    def dump(self) -> dict[int, dict[str, int]]:
        keys = ("parent", "class", "gpu", "bytes", "kind", "flags", "engine")
        text = self.core("dump", self.client)["tree"]
        rows = [[int(part) for part in row.split(":")] for row in text.split(",")]
        return {row[0]: dict(zip(keys, row[1:], strict=True)) for row in rows}

    def gpu_of(self, handle: int) -> int:
        return self.dump().get(handle, {"gpu": NONE})["gpu"]

    def counts(self) -> dict[str, int]:
        return counts(self.core("dump", self.client)["counts"])


@pytest.fixture
def tree(core: Core) -> Tree:
    return Tree(core)


def compute_client(tree: Tree) -> None:
    """Device 1, subdevice 2, VA space 3, TSG 4 with context share 5 and channels 6 and 7, memory 8."""
    tree.make(1, CLIENT, DEVICE, gpu=0)
    tree.make(2, 1, SUBDEVICE)
    tree.make(3, 1, VASPACE)
    tree.make(4, 1, TSG, deps=(3,), engine=1)
    tree.make(5, 4, CTXSHARE, deps=(3,))
    tree.make(8, 1, MEMORY, bytes_=2 << 20)
    for channel in (6, 7):
        tree.make(channel, 4, CHANNEL, deps=(5, 8))
        tree.make(channel + 10, channel, COMPUTE)


def test_children_die_before_their_parents(tree: Tree) -> None:
    compute_client(tree)
    died = tree.free(4)
    assert sorted(died) == [4, 5, 6, 7, 16, 17]
    assert died.index(16) < died.index(6) < died.index(4)
    assert died.index(5) < died.index(4)
    assert tree.counts() == {"client": 1, "device": 1, "subdevice": 1, "vaspace": 1, "video": 1}


def test_what_depends_on_an_object_dies_with_it(tree: Tree) -> None:
    compute_client(tree)
    died = tree.free(3)
    assert sorted(died) == [3, 4, 5, 6, 7, 16, 17]
    assert died[-1] == 3


def test_channels_outlive_the_memory_of_their_userd(tree: Tree) -> None:
    compute_client(tree)
    assert tree.free(8) == [8]
    assert tree.counts()["channel"] == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_of_the_program_take_channels_along_since_570(core: Core, version: str) -> None:
    """By the driver's source (kchannelCreateUserdMemDesc_GV100)."""
    core("abi", version)
    tree = Tree(core)
    tree.make(1, CLIENT, DEVICE, gpu=0)
    tree.make(8, 1, OS_PAGES)
    tree.make(6, 1, CHANNEL if version[:2] != "53" else 0xC56F, deps=(8,))
    assert sorted(tree.free(8)) == ([8] if int(version[:3]) < 570 else [6, 8])


def test_a_dependant_that_went_before_leaves_nothing_behind(tree: Tree) -> None:
    compute_client(tree)
    tree.free(6)
    tree.make(6, 4, MEMORY, bytes_=1)
    assert sorted(tree.free(5)) == [5, 7, 17]
    assert 6 in tree.dump()


def test_freeing_what_is_not_there_frees_nothing(tree: Tree) -> None:
    assert tree.free(0x1234) == []
    assert tree.free(0) == []


def test_freeing_the_client_empties_the_tree(tree: Tree) -> None:
    compute_client(tree)
    died = tree.free(CLIENT)
    assert died[-1] == CLIENT
    assert len(died) == 11
    assert tree.core("dump", CLIENT)["objects"] == "0"


def test_a_handle_made_anew_means_that_the_old_object_is_gone(tree: Tree) -> None:
    compute_client(tree)
    assert sorted(tree.make(4, 1, MEMORY, bytes_=4096)) == [4, 5, 6, 7, 16, 17]
    assert tree.dump()[4]["class"] == MEMORY


def test_the_new_object_may_have_been_promised_below_the_old_one(tree: Tree) -> None:
    compute_client(tree)
    assert 6 in tree.make(4, 6, MEMORY)  # its parent died with the old one: a ghost stands for it
    assert tree.dump()[4]["parent"] == 6
    assert tree.dump()[6]["flags"] == 1


def test_an_unknown_parent_becomes_a_ghost_that_can_be_freed(tree: Tree) -> None:
    tree.make(20, 10, CHANNEL, gpu=0)
    tree.make(21, 10, CHANNEL, gpu=0)
    ghost = tree.dump()[10]
    assert (ghost["parent"], ghost["class"], ghost["flags"], ghost["gpu"]) == (CLIENT, 0, 1, 0)
    assert sorted(tree.free(10)) == [10, 20, 21]


def test_objects_are_counted_on_their_gpu(tree: Tree) -> None:
    for gpu in (0, 1, 31):
        tree.make(100 * gpu + 1, CLIENT, DEVICE, gpu=gpu)
        tree.make(100 * gpu + 2, 100 * gpu + 1, SUBDEVICE)
        tree.make(100 * gpu + 3, 100 * gpu + 2, MEMORY, bytes_=(gpu + 1) << 20)
    tree.make(9, CLIENT, MPS)
    for gpu in (0, 1, 31):
        payer = tree.core("payer", CLIENT, gpu)
        assert counts(payer["counts"]) == {"device": 1, "subdevice": 1, "video": 1}
        assert int(payer["bytes"]) == (gpu + 1) << 20
    assert counts(tree.core("payer", CLIENT, NO_GPU)["counts"]) == {"mps": 1}
    tree.free(101)
    assert tree.core.numbers("payer", CLIENT, 1)["objects"] == 0
    assert tree.core.numbers("payer", CLIENT, 0)["objects"] == 3


def test_a_tsg_with_a_compute_object_computes(tree: Tree) -> None:
    compute_client(tree)
    tree.make(30, 1, TSG)
    tree.make(31, 30, CHANNEL)
    tree.make(32, 31, COPY)
    assert tree.core("children", CLIENT, 4) == {"computes": "1", "children": "7,6,5"}
    assert tree.core("children", CLIENT, 30) == {"computes": "0", "children": "31"}
    assert tree.core("children", CLIENT, 6)["computes"] == "1"


def test_an_insert_that_was_promised_needs_no_memory(tree: Tree) -> None:
    tree.make(1, CLIENT, DEVICE, gpu=0)
    for handle in range(1000, 1400):
        tree.core("reserve", CLIENT)
        tree.core("fail", 0)
        tree.core("insert", CLIENT, handle, handle + 5000, MEMORY, 0, 0, 0, 1)
        tree.core("fail", 1 << 40)
    assert len(tree.dump()) == 802


def test_many_promises_at_once_are_all_kept(tree: Tree) -> None:
    for handle in range(1, 6):
        tree.make(handle, CLIENT, MEMORY, gpu=0)
    for _ in range(300):
        tree.core("reserve", CLIENT)
    tree.core("fail", 0)
    for handle in range(100, 400):
        tree.core("insert", CLIENT, handle, handle + 5000, MEMORY, 0, 0, 0, 1, 2, 3, 4, 5)
    tree.core("fail", 1 << 40)
    assert len(tree.free(3)) == 301
    assert len(tree.dump()) == 305


@pytest.mark.parametrize("gpu", [0, INHERIT])
@pytest.mark.parametrize("handle", [0, CLIENT])
def test_what_can_be_no_object_is_not_made_and_not_charged(tree: Tree, handle: int, gpu: int) -> None:
    tree.make(1, CLIENT, DEVICE, gpu=0)
    tree.core("reserve", CLIENT)
    tree.core("charge", CLIENT, 0, 4096)
    assert tree.core("insert", CLIENT, handle, 1, MEMORY, gpu, 4096, 0) == {"made": "0", "died": ""}
    assert len(tree.dump()) == 2
    assert tree.core.numbers("payer", CLIENT, 0)["own"] == 0


@pytest.mark.parametrize("allocation", range(6))
def test_without_memory_a_promise_is_refused_and_nothing_changes(core: Core, allocation: int) -> None:
    tree = Tree(core)
    made = refusals = 0
    core("fail", allocation)
    for handle in range(10, 400):
        try:
            core("reserve", CLIENT)
        except Refused:
            refusals += 1
            continue
        core("insert", CLIENT, handle, CLIENT, MEMORY, 0, 0, 0, 10)
        made += 1
    assert refusals == 1
    assert made >= 388
    assert len(tree.dump()) == made + 1


def test_promises_can_be_given_back(tree: Tree) -> None:
    for _ in range(50):
        tree.core("reserve", CLIENT)
    for _ in range(50):
        tree.core("unreserve", CLIENT)


def test_a_client_needs_memory_to_begin(core: Core) -> None:
    for allocation in range(4):
        core("fail", allocation)
        assert core.error("client", CLIENT + allocation) == ENOMEM
    core("fail", 1 << 40)
    core("client", CLIENT)


def test_a_long_chain_dies_without_a_deep_stack(tree: Tree) -> None:
    parent = CLIENT
    for handle in range(1, 20_000):
        tree.core("reserve", CLIENT)
        tree.core("insert", CLIENT, handle, parent, MEMORY, 0, 0, 0, *((handle - 2,) if handle > 2 else ()))
        parent = handle
    assert len(tree.free(1)) == 19_999


@settings(max_examples=20)
@given(st.lists(st.integers(1, 0xFFFFFFFF).filter(lambda handle: handle != CLIENT), max_size=300), st.data())
def test_any_handles_are_found_again(shell_program: Any, handles: list[int], data: st.DataObject) -> None:
    core = Core(shell_program)
    tree = Tree(core)
    for handle in handles:
        tree.make(handle, CLIENT, MEMORY, gpu=0)
    gone = set(data.draw(st.lists(st.sampled_from(handles)))) if handles else set()
    for handle in gone:
        assert tree.free(handle) == [handle]
    assert set(tree.dump()) == {CLIENT, *handles} - gone
    core.close()


class Forest(RuleBasedStateMachine):
    """Random births and deaths against a dictionary; `program` is set by the test below."""

    program: Any = None
    HANDLE = st.integers(1, 24)
    CLASS = st.sampled_from(
        [DEVICE, SUBDEVICE, VASPACE, TSG, CTXSHARE, CHANNEL, COMPUTE, COPY, MEMORY, MPS, OS_PAGES, 0x79]
    )

    @initialize()
    def begin(self) -> None:
        self.core = Core(type(self).program)
        self.tree = Tree(self.core)
        self.core("account", 0, 1 << 40)
        for gpu in (0, 1, NO_GPU):
            self.core("join", CLIENT, gpu, 0)
        self.nodes: dict[int, Node] = {}

    def doomed(self, handle: int) -> set[int]:
        dead, open_ = set(), [handle] if handle in self.nodes else []
        while open_:
            one = open_.pop()
            if one not in dead:
                dead.add(one)
                open_ += [h for h, node in self.nodes.items() if node.parent == one or one in node.deps]
        return dead

    def kill(self, handle: int) -> set[int]:
        dead = self.doomed(handle)
        for one in dead:
            del self.nodes[one]
        for node in self.nodes.values():
            node.deps -= dead
        return dead

    @rule(
        handle=HANDLE,
        parent=st.one_of(HANDLE, st.just(CLIENT), st.integers(100, 104)),
        class_=CLASS,
        gpu=st.sampled_from([0, 1, INHERIT]),
        bytes_=st.integers(0, 1 << 20),
        deps=st.lists(HANDLE, max_size=5),
    )
    def birth(self, handle: int, parent: int, class_: int, gpu: int, bytes_: int, deps: list[int]) -> None:
        dead = self.doomed(handle)
        # the charge goes to the payer of the GPU on which the object will be
        known = self.nodes.get(parent) if parent not in dead else None
        at = gpu if gpu != INHERIT else known.gpu if known else NONE
        self.core("reserve", CLIENT)
        self.core("charge", CLIENT, at if at != NONE else NO_GPU, bytes_)
        answer = self.core("insert", CLIENT, handle, parent, class_, gpu, bytes_, 0, *deps)
        assert set(items(answer["died"])) == dead == self.kill(handle)
        if parent == handle:
            parent = CLIENT
        elif parent != CLIENT and parent not in self.nodes:
            self.nodes[parent] = Node(CLIENT, 0, at, ghost=True)
        kept = {dep for dep in deps if dep in self.nodes and dep not in {handle, parent}}
        if class_ == CHANNEL:
            kept = {dep for dep in kept if self.nodes[dep].class_ in (VASPACE, CTXSHARE, OS_PAGES)}
        self.nodes[handle] = Node(parent, class_, at, bytes_, deps=kept)

    @rule(handle=st.one_of(HANDLE, st.integers(100, 104)))
    def death(self, handle: int) -> None:
        died = self.tree.free(handle)
        assert len(died) == len(set(died))
        # with circles of dependence the order is free; without, children go first
        parents = {one: self.nodes[one].parent for one in died}
        for one, parent in parents.items():
            assert parent not in parents or died.index(one) < died.index(parent)
        assert set(died) == self.kill(handle)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.nodes)))
        children = items(self.core("children", CLIENT, handle)["children"])
        assert set(children) == {h for h, node in self.nodes.items() if node.parent == handle}

    @invariant()
    def trees_agree(self) -> None:
        if not hasattr(self, "core"):
            return
        dump = self.tree.dump()
        assert dump.pop(CLIENT)["class"] == 0x41
        assert {
            handle: (row["parent"], row["class"], row["gpu"], row["bytes"], bool(row["flags"] & 1))
            for handle, row in dump.items()
        } == {h: (n.parent, n.class_, n.gpu, n.bytes, n.ghost) for h, n in self.nodes.items()}
        for gpu in (0, 1, NONE):
            payer = self.core.numbers("payer", CLIENT, gpu if gpu != NONE else NO_GPU)
            mine = [node for node in self.nodes.values() if node.gpu == gpu]
            assert (payer["own"], payer["objects"]) == (sum(node.bytes for node in mine), len(mine))
        assert self.core.numbers("usage", 0)["used"] == sum(node.bytes for node in self.nodes.values())

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.core("destroy", CLIENT)
            assert self.core.numbers("usage", 0)["used"] == 0
            self.core.close()


def test_the_tree_is_what_births_and_deaths_make_it(shell_program: Any) -> None:
    Forest.program = shell_program
    run_state_machine_as_test(Forest, settings=settings(max_examples=25, stateful_step_count=40, deadline=None))
