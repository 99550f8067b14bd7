# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon.page.sessions import CODE_S, KEY_NAME, MOST_CODES, TOKEN_S, Sessions


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(tmp_path: Path, clock: Clock) -> Sessions:
    return Sessions(tmp_path, clock)


def token(sessions: Sessions, uid: int = 1000) -> str:
    made = sessions.begin(sessions.code(uid))
    assert made is not None
    return made[0]


def test_a_code_gives_one_token_for_its_user(sessions: Sessions, clock: Clock) -> None:
    code = sessions.code(1000)
    made = sessions.begin(code)
    assert made is not None
    assert made[1] == clock.now + TOKEN_S
    assert sessions.uid_of(made[0]) == 1000
    assert sessions.begin(code) is None


def test_a_code_waits_for_minutes_and_a_token_is_good_for_hours(sessions: Sessions, clock: Clock) -> None:
    late, made = sessions.code(0), token(sessions)
    clock.now += CODE_S
    assert sessions.begin(late) is None
    clock.now += TOKEN_S - CODE_S - 1
    assert sessions.uid_of(made) == 1000
    clock.now += 1
    assert sessions.uid_of(made) is None


def test_a_token_outlives_the_daemon_and_a_code_does_not(tmp_path: Path, sessions: Sessions, clock: Clock) -> None:
    code, made = sessions.code(0), token(sessions)
    after = Sessions(tmp_path, clock)
    assert after.uid_of(made) == 1000
    assert after.begin(code) is None


def test_nobody_makes_or_changes_a_token(sessions: Sessions) -> None:
    made = token(sessions)
    uid, expires, signature = made.split(".")
    for forged in (
        f"0.{expires}.{signature}", f"{uid}.{int(expires) + 1}.{signature}", f"{uid}.{expires}.{'0' * 64}",
        f"{uid}.{expires}.", "", ".", "..", "0..", made[:-1], made + "0", "\ud800.1.2", "ä.ö.ü",
    ):  # fmt: skip
        assert sessions.uid_of(forged) is None
    assert sessions.uid_of(made) == 1000


def test_to_revoke_ends_codes_and_tokens(tmp_path: Path, sessions: Sessions, clock: Clock) -> None:
    code, made = sessions.code(0), token(sessions)
    sessions.revoke()
    assert sessions.begin(code) is None
    assert sessions.uid_of(made) is None
    assert Sessions(tmp_path, clock).uid_of(made) is None
    assert Sessions(tmp_path, clock).uid_of(token(sessions)) == 1000


def test_the_key_is_for_the_daemon_alone_and_one_that_is_cut_off_is_made_anew(
    tmp_path: Path, sessions: Sessions, clock: Clock
) -> None:
    made = token(sessions)
    path = tmp_path / KEY_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(path.read_bytes()[:-1])
    assert Sessions(tmp_path, clock).uid_of(made) is None
    assert len(path.read_bytes()) == 32


def test_a_key_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match=r"page\.key cannot be read or written"):
        Sessions(tmp_path / "gone").code(0)


def test_codes_that_nobody_uses_do_not_pile_up(sessions: Sessions) -> None:
    codes = [sessions.code(0) for _ in range(MOST_CODES + 1)]
    assert sessions.begin(codes[0]) is None
    assert sessions.begin(codes[1]) is not None
