# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from rmshell import ENOENT, ENOMEM, NO_LIMIT, Core, Refused

A, B, C = 0xC1D00001, 0xC1D00002, 0xC1D00003
DEVICE, MEMORY = 0x80, 0x40
MIB = 1 << 20


@pytest.fixture
def three(core: Core) -> Core:
    """Three clients with a device 1 each; account 0 is A's, 1 is B's, 2 everybody's."""
    for number, limit in enumerate((100 * MIB, 10 * MIB, 1000 * MIB)):
        core("account", number, limit)
    for client in (A, B, C):
        core("client", client)
        core("reserve", client)
        core("insert", client, 1, client, DEVICE, 0, 0, 0)
        core("join", client, 0, 2)
    core("join", A, 0, 0)
    core("join", B, 0, 1)
    return core


def allocate(core: Core, client: int, handle: int, bytes_: int) -> None:
    core("reserve", client)
    core("charge", client, 0, bytes_)
    core("insert", client, handle, 1, MEMORY, 255, bytes_, 0)


def dup(core: Core, source: int, handle: int, client: int, new: int) -> None:
    core("reserve", client)
    core("hold", source, handle, client, 0, 63)
    core("insert", client, new, 1, MEMORY, 255, "m63", 0)


def used(core: Core) -> list[int]:
    return [core.numbers("usage", number)["used"] for number in range(3)]


def test_a_dup_charges_its_client_and_the_common_account_once(three: Core) -> None:
    allocate(three, A, 5, 4 * MIB)
    dup(three, A, 5, B, 6)
    assert used(three) == [4 * MIB, 4 * MIB, 4 * MIB]
    three("free", A, 5)
    assert used(three) == [0, 4 * MIB, 4 * MIB]
    three("free", B, 6)
    assert used(three) == [0, 0, 0]


def kept(core: Core) -> list[int]:
    return [core.numbers("payer", client, 0)["kept"] for client in (A, B, C)]


def test_memory_is_kept_by_who_has_held_it_longest(three: Core) -> None:
    allocate(three, A, 5, 4 * MIB)
    dup(three, A, 5, B, 6)
    three("hold", A, 5, C, 0, 1, "force")
    assert kept(three) == [4 * MIB, 0, 0]
    three("free", A, 5)
    assert kept(three) == [0, 4 * MIB, 0]
    three("free", B, 6)
    assert kept(three) == [0, 0, 4 * MIB]
    three("drop", 1)
    assert kept(three) == used(three) == [0, 0, 0]


def test_a_dup_within_one_client_costs_nothing(three: Core) -> None:
    allocate(three, A, 5, 4 * MIB)
    dup(three, A, 5, A, 6)
    dup(three, A, 6, A, 7)
    assert used(three) == [4 * MIB, 0, 4 * MIB]
    assert three.numbers("payer", A, 0)["bytes"] == 4 * MIB
    three("free", A, 5)
    three("free", A, 7)
    assert used(three) == [4 * MIB, 0, 4 * MIB]
    three("free", A, 6)
    assert used(three) == [0, 0, 0]


def test_a_dup_that_does_not_fit_is_refused_and_changes_nothing(three: Core) -> None:
    allocate(three, A, 5, 20 * MIB)
    with pytest.raises(Refused) as refused:
        three("hold", A, 5, B, 0, 1)
    assert (refused.value.number, refused.value.refuser) == (ENOMEM, 1)
    assert used(three) == [20 * MIB, 0, 20 * MIB]
    three("hold", A, 5, B, 0, 1, "force")
    assert used(three) == [20 * MIB, 20 * MIB, 20 * MIB]
    three("drop", 1)
    assert used(three) == [20 * MIB, 0, 20 * MIB]


def test_a_range_or_file_keeps_memory_whose_handle_is_gone(three: Core) -> None:
    allocate(three, A, 5, 4 * MIB)
    three("hold", A, 5, A, 0, 1)
    three("free", A, 5)
    assert used(three) == [4 * MIB, 0, 4 * MIB]
    assert three.numbers("payer", A, 0)["bytes"] == 4 * MIB
    three("drop", 1)
    assert used(three) == [0, 0, 0]


def test_objects_without_gpu_memory_have_none_to_share(three: Core) -> None:
    three("reserve", A)
    three("insert", A, 9, 1, 0xA06C, 255, 0, 0)
    assert three.error("hold", A, 9, B, 0, 1) == ENOENT


def test_without_kernel_memory_a_share_is_refused_and_charges_nobody(three: Core) -> None:
    allocate(three, A, 5, MIB)
    for allocation in range(3):
        three("fail", allocation)
        with pytest.raises(Refused) as refused:
            three("hold", A, 5, B, 0, 1)
        assert (refused.value.number, refused.value.refuser) == (ENOMEM, -1)
        assert used(three) == [MIB, 0, MIB]
    three("fail", 1 << 40)


def test_an_account_that_joins_or_leaves_pays_for_shared_memory_once(three: Core) -> None:
    allocate(three, A, 5, 4 * MIB)
    dup(three, A, 5, B, 6)
    three("account", 3, 1000 * MIB)
    three("join", A, 0, 3)
    three("join", B, 0, 3)
    assert three.numbers("usage", 3)["used"] == 4 * MIB
    three("leave", A, 0, 3)
    assert three.numbers("usage", 3)["used"] == 4 * MIB
    three("leave", B, 0, 3)
    assert three.numbers("usage", 3)["used"] == 0


def test_a_client_that_dies_leaves_its_shared_memory_to_the_others(three: Core) -> None:
    allocate(three, A, 5, 4 * MIB)
    dup(three, A, 5, B, 6)
    dup(three, B, 6, C, 7)
    three("destroy", A)
    three("destroy", C)
    assert used(three) == [0, 4 * MIB, 4 * MIB]
    assert three.numbers("payer", B, 0)["bytes"] == 4 * MIB


@dataclass
class Piece:
    memory: int
    bytes: int


class Sharing(RuleBasedStateMachine):
    """Memory held by objects of three clients and by files, against the rule: an account pays once per memory."""

    program: Any = None
    CLIENT = st.sampled_from([A, B, C])
    HANDLE = st.integers(2, 7)
    HOLD = st.integers(0, 5)
    ACCOUNT = st.integers(0, 4)

    @initialize()
    def begin(self) -> None:
        self.core = Core(type(self).program)
        self.limits = [40, 60, 100, NO_LIMIT, 25]
        for number, limit in enumerate(self.limits):
            self.core("account", number, limit)
        for client in (A, B, C):
            self.core("client", client)
            self.core("reserve", client)
            self.core("insert", client, 1, client, DEVICE, 0, 0, 0)
        self.objects: dict[tuple[int, int], Piece] = {}
        self.files: dict[int, tuple[int, Piece]] = {}
        self.accounts: dict[int, list[int]] = {A: [], B: [], C: []}
        self.made = 0

    def held(self, clients: list[int]) -> dict[int, int]:
        pieces = [piece for (client, _), piece in self.objects.items() if client in clients]
        pieces += [piece for client, piece in self.files.values() if client in clients]
        return {piece.memory: piece.bytes for piece in pieces}

    def due(self, account: int) -> int:
        return sum(self.held([client for client, mine in self.accounts.items() if account in mine]).values())

    def fits(self, client: int, piece: Piece) -> bool:
        for account in self.accounts[client]:
            others = self.held([c for c, mine in self.accounts.items() if account in mine])
            # zero bytes need no room, even above the limit
            if piece.memory not in others and piece.bytes and self.due(account) + piece.bytes > self.limits[account]:
                return False
        return True

    @rule(client=CLIENT, handle=HANDLE, bytes_=st.integers(0, 50))
    def allocate(self, client: int, handle: int, bytes_: int) -> None:
        if (client, handle) in self.objects:
            return
        self.made += 1
        piece = Piece(self.made, bytes_)
        self.core("reserve", client)
        error = self.core.error("charge", client, 0, bytes_)
        assert error == (0 if self.fits(client, piece) else ENOMEM)
        if error:
            self.core("unreserve", client)
        else:
            self.core("insert", client, handle, 1, MEMORY, 255, bytes_, 0)
            self.objects[client, handle] = piece

    @rule(source=CLIENT, handle=HANDLE, client=CLIENT, new=HANDLE)
    def dup(self, source: int, handle: int, client: int, new: int) -> None:
        piece = self.objects.get((source, handle))
        if piece is None or (client, new) in self.objects:
            return
        error = self.core.error("hold", source, handle, client, 0, 63)
        if not piece.bytes:
            assert error == ENOENT
            return
        assert error == (0 if self.fits(client, piece) else ENOMEM)
        if not error:
            self.core("reserve", client)
            self.core("insert", client, new, 1, MEMORY, 255, "m63", 0)
            self.objects[client, new] = piece

    @rule(source=CLIENT, handle=HANDLE, client=CLIENT, hold=HOLD)
    def keep(self, source: int, handle: int, client: int, hold: int) -> None:
        piece = self.objects.get((source, handle))
        if piece is None or not piece.bytes or hold in self.files:
            return
        self.core("hold", source, handle, client, 0, hold, "force")
        self.files[hold] = (client, piece)

    @rule(hold=HOLD)
    def drop(self, hold: int) -> None:
        if self.files.pop(hold, None):
            self.core("drop", hold)

    @rule(client=CLIENT, handle=HANDLE)
    def free(self, client: int, handle: int) -> None:
        assert self.core.numbers("free", client, handle)["count"] == int((client, handle) in self.objects)
        self.objects.pop((client, handle), None)

    @rule(client=CLIENT, account=ACCOUNT)
    def join(self, client: int, account: int) -> None:
        if account not in self.accounts[client]:
            self.core("join", client, 0, account)
            self.accounts[client].append(account)

    @rule(client=CLIENT, account=ACCOUNT)
    def leave(self, client: int, account: int) -> None:
        if account in self.accounts[client]:
            self.core("leave", client, 0, account)
            self.accounts[client].remove(account)

    @invariant()
    def an_account_pays_once_for_each_memory(self) -> None:
        if not hasattr(self, "core"):
            return
        for account in range(len(self.limits)):
            assert self.core.numbers("usage", account)["used"] == self.due(account)
        for client in (A, B, C):
            assert self.core.numbers("payer", client, 0)["bytes"] == sum(self.held([client]).values())
        kept = [self.core.numbers("payer", client, 0)["kept"] for client in (A, B, C)]
        assert sum(kept) == sum(self.held([A, B, C]).values())

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        for hold in self.files:
            self.core("drop", hold)
        for client in (A, B, C):
            self.core("destroy", client)
        assert [self.core.numbers("usage", account)["used"] for account in range(5)] == [0] * 5
        self.core.close()


def test_sharing_charges_each_account_once_whatever_happens(shell_program: Any) -> None:
    Sharing.program = shell_program
    run_state_machine_as_test(Sharing, settings=settings(max_examples=30, stateful_step_count=40, deadline=None))
