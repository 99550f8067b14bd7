# SPDX-License-Identifier: Apache-2.0
"""Whose requests are taken: by Host, Origin and Sec-Fetch-Site."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from detshare.ctl.daemon.api import HttpError
from detshare.ctl.daemon.page.origin import Door

SOCKET = Door()
LOOPBACK = Door.tcp("127.0.0.1", (), secure=False)
NAMED = Door.tcp("192.0.2.7", ("gpu1.example.org",), secure=True)


@pytest.mark.parametrize(
    ("door", "host", "good"),
    [
        (SOCKET, "localhost:9000", True),
        (SOCKET, "detshared", True),
        (SOCKET, "x", True),
        (SOCKET, "", True),
        (SOCKET, "127.0.0.1:1", True),
        (SOCKET, "[::1]:1", True),
        (SOCKET, "evil.example", False),
        (SOCKET, "localhost.evil.example:9000", False),
        (SOCKET, "10.0.0.1", False),
        (LOOPBACK, "127.0.0.1:9836", True),
        (LOOPBACK, "localhost:9836", True),
        (LOOPBACK, "LOCALHOST", True),
        (LOOPBACK, "[::1]:9836", True),
        (LOOPBACK, "", False),
        (LOOPBACK, "x", False),
        (LOOPBACK, "evil.example:9836", False),
        (LOOPBACK, "127.0.0.1.evil.example", False),
        (LOOPBACK, "192.0.2.7", False),
        (LOOPBACK, "127.0.0.1:9836@evil.example", False),
        (LOOPBACK, "127.0.0.1:9836, evil.example", False),
        (NAMED, "gpu1.example.org:9836", True),
        (NAMED, "GPU1.example.org", True),
        (NAMED, "192.0.2.7:9836", True),
        (NAMED, "gpu2.example.org", False),
        (NAMED, "localhost", False),
        (NAMED, "", False),
    ],
)
def test_only_our_own_names_are_taken(door: Door, host: str, good: bool) -> None:
    assert door.admits(host) is good


def ask(door: Door, method: str = "GET", path: str = "/page/view", host: str = "127.0.0.1:9", **headers: str) -> None:
    sent = {"Host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
    door.check(make_mocked_request(method, path, headers=sent))


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("door", [SOCKET, LOOPBACK])
def test_another_sites_requests_are_refused(door: Door, method: str) -> None:
    ask(door, method)
    ask(door, method, Origin="http://127.0.0.1:9", Sec_Fetch_Site="same-origin")
    ask(door, method, Origin="https://127.0.0.1:9")  # a proxy with TLS before us
    for origin in ("https://evil.example", "http://127.0.0.1:10", "http://localhost:9", "null", "", "http://127.0.0.1"):
        with pytest.raises(HttpError) as refused:
            ask(door, method, Origin=origin)
        assert refused.value.status == 403
    for site in ("cross-site", "same-site", "anything"):
        with pytest.raises(HttpError):
            ask(door, method, Sec_Fetch_Site=site)


def test_a_link_to_the_page_may_be_followed_from_anywhere() -> None:
    ask(LOOPBACK, path="/", Sec_Fetch_Site="cross-site")
    with pytest.raises(HttpError):
        ask(LOOPBACK, "POST", "/", Sec_Fetch_Site="cross-site")


def test_with_tls_an_origin_without_is_another_site() -> None:
    ask(NAMED, host="gpu1.example.org", Origin="https://gpu1.example.org")
    with pytest.raises(HttpError):
        ask(NAMED, host="gpu1.example.org", Origin="http://gpu1.example.org")
