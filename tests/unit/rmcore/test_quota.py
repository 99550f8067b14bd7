# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from rmshell import ENOMEM, NO_LIMIT, Core, Refused

CLIENT = 0xC1D00001


@pytest.fixture
def payer(core: Core) -> tuple[Core, tuple[int, int]]:
    core("client", CLIENT)
    return core, (CLIENT, 0)


def test_a_charge_up_to_the_limit_is_granted_and_one_byte_more_is_not(payer: tuple[Core, tuple[int, int]]) -> None:
    core, who = payer
    core("account", 0, 1000)
    core("join", *who, 0)
    core("charge", *who, 1000)
    with pytest.raises(Refused) as refused:
        core("charge", *who, 1)
    assert (refused.value.number, refused.value.refuser) == (ENOMEM, 0)
    assert core.numbers("usage", 0) == {"limit": 1000, "used": 1000, "peak": 1000, "refused": 1, "room": 0}
    core("uncharge", *who, 1000)
    assert core.numbers("usage", 0) == {"limit": 1000, "used": 0, "peak": 1000, "refused": 1, "room": 1000}


def test_all_accounts_are_charged_or_none(payer: tuple[Core, tuple[int, int]]) -> None:
    core, who = payer
    for account in range(8):
        core("account", account, 500 if account == 6 else 1000)
        core("join", *who, account)
    core("charge", *who, 400)
    with pytest.raises(Refused) as refused:
        core("charge", *who, 200)
    assert refused.value.refuser == 6
    assert [core.numbers("usage", account)["used"] for account in range(8)] == [400] * 8
    assert [core.numbers("usage", account)["peak"] for account in range(8)] == [400] * 8
    core("uncharge", *who, 400)


def test_nine_accounts_are_too_many(payer: tuple[Core, tuple[int, int]]) -> None:
    core, who = payer
    for account in range(9):
        core("account", account, 1000)
    assert [core.error("join", *who, account) for account in range(9)] == [0] * 8 + [28]
    assert core.error("join", *who, 0) == 17
    assert core.error("leave", *who, 8) == 2


def test_a_limit_below_the_use_is_legal_and_grants_nothing_until_enough_came_back(
    payer: tuple[Core, tuple[int, int]],
) -> None:
    core, who = payer
    core("account", 0, 1000)
    core("join", *who, 0)
    core("charge", *who, 800)
    core("limit", 0, 300)
    assert core.numbers("usage", 0) == {"limit": 300, "used": 800, "peak": 800, "refused": 0, "room": 0}
    assert core.error("charge", *who, 1) == ENOMEM
    core("uncharge", *who, 500)
    assert core.error("charge", *who, 1) == ENOMEM
    core("uncharge", *who, 100)
    core("charge", *who, 100)
    assert core.error("charge", *who, 1) == ENOMEM
    core("limit", 0, 1 << 40)
    core("charge", *who, 1 << 30)
    core("uncharge", *who, (1 << 30) + 300)


@pytest.mark.parametrize("bytes_", [1 << 63, (1 << 64) - 1, (1 << 63) + 1, NO_LIMIT])
def test_absurd_sizes_are_refused_even_where_there_is_no_limit(
    payer: tuple[Core, tuple[int, int]], bytes_: int
) -> None:
    core, who = payer
    core("charge", *who, 1)
    assert core.error("charge", *who, bytes_) == ENOMEM
    core("account", 0, (1 << 64) - 1)
    core("join", *who, 0)
    assert core.numbers("usage", 0)["limit"] == NO_LIMIT
    assert core.error("charge", *who, bytes_) == ENOMEM
    assert core.numbers("usage", 0)["used"] == 1
    core("uncharge", *who, 1)


@pytest.mark.parametrize("bytes_", [1 << 63, (1 << 64) - 1, (1 << 63) + 1])
def test_no_account_grants_what_would_count_as_negative(core: Core, bytes_: int) -> None:
    core("account", 0, NO_LIMIT)
    core("account", 1, 10)
    with pytest.raises(Refused) as refused:
        core("charge-accounts", bytes_, 0, 1)
    assert refused.value.refuser == 0
    core("charge-accounts", 10, 0, 1)
    assert core.error("charge-accounts", 11, 0, 1) == ENOMEM
    assert core.numbers("usage", 0)["used"] == 0


def test_nothing_costs_nothing(payer: tuple[Core, tuple[int, int]]) -> None:
    core, who = payer
    core("account", 0, 0)
    core("join", *who, 0)
    core("charge", *who, 0)
    assert core.numbers("usage", 0)["refused"] == 0
    assert core.error("charge", *who, 1) == ENOMEM


def test_settling_returns_what_was_too_much_and_keeps_a_forged_answer_true(
    payer: tuple[Core, tuple[int, int]],
) -> None:
    core, who = payer
    core("account", 0, 1000)
    core("join", *who, 0)
    core("charge", *who, 900)
    core("settle", *who, 900, 600)
    assert core.numbers("usage", 0)["used"] == 600
    core("settle", *who, 600, 1600)
    assert core.numbers("usage", 0) == {"limit": 1000, "used": 1600, "peak": 1600, "refused": 0, "room": 0}
    core("uncharge", *who, 1600)


def test_an_account_that_joins_pays_for_what_is_there(payer: tuple[Core, tuple[int, int]]) -> None:
    core, who = payer
    core("charge", *who, 700)
    core("account", 0, 500)
    core("join", *who, 0)
    assert core.numbers("usage", 0)["used"] == 700
    assert core.error("charge", *who, 1) == ENOMEM
    core("leave", *who, 0)
    assert core.numbers("usage", 0)["used"] == 0
    core("charge", *who, 1)
    core("uncharge", *who, 701)


def test_the_view_is_that_of_the_tightest_account(payer: tuple[Core, tuple[int, int]]) -> None:
    core, who = payer
    assert core.numbers("view", *who) == {"limit": NO_LIMIT, "room": NO_LIMIT}
    for account, limit in enumerate((1000, 600, 800)):
        core("account", account, limit)
        core("join", *who, account)
    core("force", *who, 500)
    core("force", CLIENT, 1, 7)
    assert core.numbers("view", *who) == {"limit": 600, "room": 100}
    core("force", *who, 200)
    assert core.numbers("view", *who) == {"limit": 600, "room": 0}
    core("uncharge", *who, 700)
    core("uncharge", CLIENT, 1, 7)


@pytest.mark.parametrize(("threads", "unit"), [(2, 300_000), (8, 300_000), (8, 1_000_000), (16, 200_000)])
def test_threads_that_race_never_get_more_than_the_limit(core: Core, threads: int, unit: int) -> None:
    race = core.numbers("race", threads, 100_000, 1_000_000, unit)
    assert race["over"] == 0
    assert race["left"] == 0
    assert 0 < race["peak"] <= 1_000_000
    assert race["granted"] > 0
    assert race["refused"] > 0


@dataclass
class Account:
    limit: int
    used: int = 0
    peak: int = 0
    refused: int = 0


@dataclass
class Payer:
    accounts: list[int] = field(default_factory=list)
    own: int = 0


AMOUNTS = st.one_of(st.integers(0, 200), st.integers(0, 5000), st.integers(0, (1 << 64) - 1))


class Accounting(RuleBasedStateMachine):
    """Payers and accounts against the sentence that defines them; `program` is set by the test below."""

    program: object = None
    payers = Bundle("payers")

    @initialize()
    def begin(self) -> None:
        self.core = Core(type(self).program)  # type: ignore[arg-type]
        self.accounts = [Account(limit) for limit in (1000, 3000, 500, 0, NO_LIMIT)]
        for number, account in enumerate(self.accounts):
            self.core("account", number, account.limit)
        self.model = {(CLIENT + client, gpu): Payer() for client in range(2) for gpu in range(2)}
        for client in range(2):
            self.core("client", CLIENT + client)

    def count(self, who: tuple[int, int], bytes_: int) -> None:
        self.model[who].own += bytes_
        for number in self.model[who].accounts:
            account = self.accounts[number]
            account.used += bytes_
            account.peak = max(account.peak, account.used)

    WHO = st.tuples(st.integers(CLIENT, CLIENT + 1), st.integers(0, 1))

    @rule(who=WHO, bytes_=AMOUNTS)
    def charge(self, who: tuple[int, int], bytes_: int) -> None:
        payer = self.model[who]
        full = [n for n in payer.accounts if bytes_ and self.accounts[n].used + bytes_ > self.accounts[n].limit]
        error = self.core.error("charge", *who, bytes_)
        if payer.own + bytes_ > NO_LIMIT:
            assert error == ENOMEM
        elif full:
            assert error == ENOMEM
            self.accounts[full[0]].refused += 1
        else:
            assert error == 0
            self.count(who, bytes_)

    @rule(who=WHO, part=st.floats(0, 1))
    def uncharge(self, who: tuple[int, int], part: float) -> None:
        bytes_ = int(self.model[who].own * part) if self.model[who].own < 1 << 50 else self.model[who].own
        self.core("uncharge", *who, bytes_)
        self.count(who, -bytes_)

    @rule(who=WHO, bytes_=st.integers(0, 5000))
    def force(self, who: tuple[int, int], bytes_: int) -> None:
        if self.model[who].own + bytes_ > NO_LIMIT or any(
            self.accounts[n].used + bytes_ > NO_LIMIT for n in self.model[who].accounts
        ):
            return
        self.core("force", *who, bytes_)
        self.count(who, bytes_)

    @rule(who=WHO, number=st.integers(0, 4))
    def join(self, who: tuple[int, int], number: int) -> None:
        payer, account = self.model[who], self.accounts[number]
        if account.used + payer.own > NO_LIMIT:
            return
        known = number in payer.accounts
        assert self.core.error("join", *who, number) == (17 if known else 0)
        if not known:
            payer.accounts.append(number)
            account.used += payer.own
            account.peak = max(account.peak, account.used)

    @rule(who=WHO, number=st.integers(0, 4))
    def leave(self, who: tuple[int, int], number: int) -> None:
        payer = self.model[who]
        known = number in payer.accounts
        assert self.core.error("leave", *who, number) == (0 if known else 2)
        if known:
            payer.accounts.remove(number)
            self.accounts[number].used -= payer.own

    @rule(number=st.integers(0, 4), limit=st.one_of(st.integers(0, 5000), st.integers(0, (1 << 64) - 1)))
    def limit(self, number: int, limit: int) -> None:
        self.core("limit", number, limit)
        self.accounts[number].limit = min(limit, NO_LIMIT)

    @invariant()
    def sums_agree(self) -> None:
        if not hasattr(self, "core"):
            return
        for number, account in enumerate(self.accounts):
            assert self.core.numbers("usage", number) == {
                "limit": account.limit,
                "used": account.used,
                "peak": account.peak,
                "refused": account.refused,
                "room": max(account.limit - account.used, 0),
            }
        for who, payer in self.model.items():
            assert self.core.numbers("payer", *who)["own"] == payer.own

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.core.close()


def test_accounts_hold_what_their_payers_hold(shell_program: object) -> None:
    from hypothesis import settings
    from hypothesis.stateful import run_state_machine_as_test

    Accounting.program = shell_program
    run_state_machine_as_test(Accounting, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
