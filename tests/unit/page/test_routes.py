# SPDX-License-Identifier: Apache-2.0
"""The page over TCP and on the socket: who gets what, and who may change what."""

from __future__ import annotations

import gzip
import http.client
import os
import socket
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import FakeBackend

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon import access
from detshare.ctl.daemon.page import files
from detshare.ctl.daemon.page.routes import VERBS
from detshare.tools.browser import shots


def test_without_a_token_there_are_the_files_and_nothing_else(paged) -> None:
    page = paged()
    for path in ("/", *(f"/page/{name}" for name in files.names())):
        status, _, headers = page.ask("GET", path)
        assert status == 200
        assert headers["content-security-policy"] == files.HEADERS["Content-Security-Policy"]
    for method, path in (
        ("GET", "/page/view"), ("GET", "/page/programs/4242"), ("GET", "/v1/why/4242"), ("GET", "/v1/decisions"),
        ("GET", "/page/../view"), ("GET", "/page/nosuch"), ("GET", "/v1/programs"), ("GET", "/metrics"),
        ("POST", "/v1/verbs/pause"), ("POST", "/v1/page/link"), ("POST", "/v1/page/revoke"), ("OPTIONS", "/page/view"),
    ):  # fmt: skip
        assert page.ask(method, path, {} if method == "POST" else None)[0] == 401, path
    status, told, _ = page.ask("GET", "/page/view", token="0.9999999999." + "0" * 64)
    assert status == 401
    assert "detshare-ctl page" in told["error"]["next"]


def test_with_a_token_there_is_the_page_and_not_the_rest_of_the_api(paged) -> None:
    page = paged(changes=True)
    token = page.token()
    status, told, headers = page.ask("GET", "/page/view", token=token)
    assert status == 200
    assert [each["pid"] for each in told["rows"]] == [4242, 4300, 4400]
    assert headers["cache-control"] == "no-store"
    assert page.ask("GET", "/page/programs/4242", token=token)[1]["pid"] == 4242
    assert page.ask("GET", "/v1/why/4242", token=token)[1]["pid"] == 4242
    assert page.ask("GET", "/v1/decisions", token=token)[0] == 200
    for path in ("/v1/programs", "/metrics", "/v1/policy", "/page/nosuch", "/page/programs/7"):
        assert page.ask("GET", path, token=token)[0] == 404
    for path in ("/v1/verbs/set-slice", "/v1/verbs/hold", "/v1/policy/set", "/v1/page/link", "/v1/page/revoke"):
        assert page.ask("POST", path, {"who": "4242"}, token)[0] == 404
    for path in ("/page/view?since=x", "/page/view?events=-2", "/page/programs/x"):
        assert page.ask("GET", path, token=token)[0] == 400


def test_an_address_is_good_once(paged) -> None:
    page = paged()
    code = page.code()
    assert page.ask("POST", "/page/session", {"code": code})[0] == 200
    status, told, _ = page.ask("POST", "/page/session", {"code": code})
    assert status == 403
    assert "used before" in told["error"]["stopped"]
    for body in ({}, {"code": 7}, {"code": None}, {"code": ""}):
        assert page.ask("POST", "/page/session", body)[0] == 403
    assert page.ask("GET", "/page/session")[0] in (401, 405)


def test_to_revoke_ends_what_is_open(paged) -> None:
    page = paged()
    token = page.token()
    assert page.ask("GET", "/page/view", token=token)[0] == 200
    assert page.client.page_revoke() == {"revoked": True}
    assert page.ask("GET", "/page/view", token=token)[0] == 401


def test_as_it_comes_the_page_only_looks(paged, caplog: pytest.LogCaptureFixture) -> None:
    page = paged()
    token, before = page.token(), page.backend.state()
    assert page.ask("GET", "/page/view", token=token)[1]["may"]["change"] == []
    for verb in VERBS:
        status, told, _ = page.ask("POST", f"/v1/verbs/{verb}", {"who": "4242"}, token)
        assert status == 403
        assert "page.changes" in told["error"]["stopped"]
    assert page.backend.state() == before
    assert page.backend.calls == []
    assert "refused" in caplog.text
    # who is no browser has the API on the socket as ever; a browser that somebody led there has not
    assert page.client.verb("pause", "4242")["changed"]
    assert page.ask_socket("POST", "/v1/verbs/resume", {"who": "4242"}, Origin="http://localhost")[0] == 403
    assert page.ask_socket("POST", "/v1/verbs/resume", {"who": "4242"}, Sec_Fetch_Site="none")[0] == 403


def test_where_it_may_each_verb_of_the_page_is_done(paged, caplog: pytest.LogCaptureFixture) -> None:
    backend = FakeBackend()
    backend.name = "kmod"
    page = paged(backend, changes=True)
    token = page.token()
    assert page.ask("GET", "/page/view", token=token)[1]["may"]["change"] == list(VERBS)
    for verb, args in (
        ("set-priority", {"class": "low"}), ("set-weight", {"weight": 3}), ("set-memory", {"limit": "8G"}),
        ("pause", {}), ("resume", {}), ("park", {}), ("release", {}),
    ):  # fmt: skip
        status, told, _ = page.ask("POST", f"/v1/verbs/{verb}", {"who": "4242", **args}, token)
        assert (status, [each["pid"] for each in told["changed"]]) == (200, [4242]), told
    assert ("set-memory", "4242", 8 << 30, None) in backend.calls
    assert "page at 127.0.0.1: set-priority 4242 low: changed" in caplog.text


def test_a_change_shows_in_the_very_next_answer(paged) -> None:
    page = paged(changes=True)
    token = page.token()
    first = page.ask("GET", "/page/view", token=token)[1]
    page.ask("POST", "/v1/verbs/set-priority", {"who": "4242", "class": "idle"}, token)
    query = f"boot={first['boot']}&since={first['version']}&events={first['told']}"
    told = page.ask("GET", f"/page/view?{query}", token=token)[1]
    assert [(each["pid"], each["class"]) for each in told["rows"]] == [(4242, "idle")]
    assert "change" in {each["kind"] for each in told["events"]}


def test_the_rights_are_those_of_who_asked_for_the_address(paged, monkeypatch: pytest.MonkeyPatch) -> None:
    page = paged(changes=True)
    token = page.token()
    monkeypatch.setattr(access.os, "geteuid", lambda: 4_000_000)
    monkeypatch.setattr("detshare.ctl.daemon.page.sessions.Sessions.uid_of", lambda self, token: 65534)
    may = page.ask("GET", "/page/view", token=token)[1]["may"]
    assert (may["change"], may["lower"]) == (["set-priority"], True)
    status, told, _ = page.ask("POST", "/v1/verbs/pause", {"who": "4242"}, token)
    assert status == 403
    assert "may not change anything but lower the class of his own programs" in told["error"]["stopped"]
    # PID 4242 of the fake backend is nobody's
    status, told, _ = page.ask("POST", "/v1/verbs/set-priority", {"who": "4242", "class": "idle"}, token)
    assert status == 403
    assert page.backend.calls == []


def test_another_sites_requests_change_and_tell_nothing(paged) -> None:
    page = paged(changes=True)
    token = page.token()
    for method, path, body in (
        ("POST", "/v1/verbs/pause", {"who": "4242"}), ("GET", "/page/view", None), ("GET", "/page/main.js", None),
        ("POST", "/page/session", {"code": page.code()}),
    ):  # fmt: skip
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Host": f"evil.example:{page.port}"},
        ):
            assert page.ask(method, path, body, token, **headers)[0] == 403
            assert page.ask_socket(method, path, body, **headers)[0] == 403
    assert page.backend.calls == []
    status, told, _ = page.ask_socket("GET", "/v1/programs", Host="evil.example")
    assert status == 403
    assert "no name of this page" in told["error"]["stopped"]


def test_no_get_acts(paged) -> None:
    page = paged(changes=True)
    token = page.token()
    for verb in VERBS:
        assert page.ask("GET", f"/v1/verbs/{verb}?who=4242", token=token)[0] == 405
    assert page.backend.calls == []


def test_on_the_socket_the_kernel_says_who_it_is(paged) -> None:
    page = paged(changes=True)
    status, told, headers = page.ask_socket("GET", "/page/view")
    assert (status, told["may"]["change"]) == (200, list(VERBS))
    assert told["may"]["user"].startswith(f"uid {os.geteuid()}")
    assert page.ask_socket("GET", "/")[0] == 200
    assert headers["content-security-policy"]
    host = {"Host": "localhost:9000", "Origin": "http://localhost:9000", "Sec_Fetch_Site": "same-origin"}
    assert page.ask_socket("POST", "/v1/verbs/pause", {"who": "4242"}, **host)[0] == 200
    assert page.ask_socket("POST", "/v1/page/link", {}, **host)[0] == 403


def test_an_unchanged_file_is_not_sent_again_and_a_large_answer_is_small(paged) -> None:
    backend = FakeBackend()
    first = backend.programs[0]
    backend.programs = [replace(first, id=ProcessId(10_000 + number, 1)) for number in range(1000)]
    page = paged(backend)
    tag = page.ask("GET", "/page/main.js")[2]["etag"]
    assert page.ask("GET", "/page/main.js", If_None_Match=tag)[0] == 304
    made = http.client.HTTPConnection("127.0.0.1", page.port)
    made.request("GET", "/page/view", headers={"Authorization": f"Bearer {page.token()}", "Accept-Encoding": "gzip"})
    answer = made.getresponse()
    data = answer.read()
    made.close()
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(data) < len(gzip.decompress(data)) / 8


def certificate(folder: Path) -> Path:
    path = folder / "page.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=gpu1.example.org", "-addext", "subjectAltName=DNS:gpu1.example.org,IP:127.0.0.1",
         "-keyout", str(path), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + (folder / "cert.pem").read_bytes())
    return path


def test_with_a_certificate_it_speaks_tls_and_nothing_else(paged, tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    page = paged(certificate=str(pem), changes=True)
    context = ssl.create_default_context(cafile=str(pem))
    assert page.settings.address == f"https://127.0.0.1:{page.port}/"
    assert page.ask("GET", "/", context=context)[0] == 200
    made = page.ask("POST", "/page/session", {"code": page.code()}, context=context)[1]
    origin = {"Origin": f"https://127.0.0.1:{page.port}"}
    pause = ("POST", "/v1/verbs/pause", {"who": "4242"}, made["token"], context)
    assert page.ask(*pause, **origin)[0] == 200
    assert page.ask(*pause, Origin=f"http://127.0.0.1:{page.port}")[0] == 403
    with pytest.raises((OSError, http.client.HTTPException)):
        page.ask("GET", "/")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listen": "0.0.0.0"}, "there is no TLS"),
        ({"certificate": "/nosuch.pem"}, "cannot be used"),
        ({"certificate": "/etc/hostname"}, "cannot be used"),
    ],
)
def test_what_cannot_be_served_is_told(paged, settings: dict[str, str], said: str) -> None:
    with pytest.raises(ControlError, match=said):
        paged(**settings)


def test_a_port_that_is_taken_is_told(paged, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(shots, "free_port", lambda: port)
        with pytest.raises(ControlError, match=f"page.listen: 127.0.0.1:{port} cannot be listened on"):
            paged()
