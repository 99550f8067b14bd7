# SPDX-License-Identifier: Apache-2.0
"""Who gets what of the page in a real browser: texts of programs, other sites, who may look only."""

from __future__ import annotations

import contextlib
import http.server
import json
import select
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from seen import ROWS, cell, opened, program, row

from detshare.ctl.core.rundir import SOCKET_NAME
from detshare.tools.browser.chromium import Tab
from detshare.tools.browser.stage import ODD
from tests.rest import after_first

pytestmark = pytest.mark.e2e


def test_no_text_of_a_program_becomes_markup(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    page = opened(tab(), stage().client)
    odd = next(each["pid"] for each in stage_programs(page) if "odd.py" in each["command"])
    page.click(row(odd))
    page.until("document.querySelector('#detail-body .command').textContent.includes('<img')")
    assert ODD.replace("\u202e", "?") in page.eval(cell(odd, "COMMAND"))
    assert page.eval("document.querySelectorAll('img').length") == 0
    assert page.eval("document.title") != "taken"


def stage_programs(page: Tab) -> list[dict[str, Any]]:
    told = page.eval("[...document.querySelectorAll('#rows tr')].map((each) => [each.dataset.key, each.innerText])")
    return [{"pid": int(key.partition(":")[0]), "command": text} for key, text in told]


def test_the_policy_of_the_page_lets_nothing_else_in(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    daemon = stage()
    page = opened(tab(), daemon.client)
    own = f"http://127.0.0.1:{daemon.port}/"
    assert [each for each in page.asked if not each.startswith(own)] == []
    assert "#" not in page.eval("location.href")
    page.eval("document.body.append(Object.assign(document.createElement('script'), {id: 'late'}))")
    for script in (
        "document.querySelector('#late').textContent = 'window.taken = true'",
        "document.body.innerHTML = '<b>taken</b>'",
        "eval('window.taken = true')",
        "new Function('window.taken = true')()",
        "document.write('taken')",
    ):
        with pytest.raises(RuntimeError, match=r"TrustedHTML|TrustedScript|unsafe-eval|Content Security Policy"):
            page.eval(script)
    assert page.eval("(async () => { try { await fetch('https://example.org/'); } catch (e) { return 'kept in'; } })()")
    page.eval("document.body.setAttribute('style', 'color: red')")
    assert page.eval("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    assert page.eval("typeof window.taken") == "undefined"
    assert page.complaints  # each of them was a breach
    page.complaints.clear()


ATTACK = """<!doctype html><title>waiting</title><link rel="icon" href="data:,"><script type="module">
const found = [];
const ask = async (name, path, options) => {
  try {
    const answer = await fetch('%(target)s' + path, options);
    found.push(name + ' ' + answer.type + ' ' + (answer.type === 'opaque' ? '' : await answer.text()).length);
  } catch (error) { found.push(name + ' kept out'); }
};
const plain = {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}, body: '{"who": "1000"}'};
await ask('blind', 'v1/verbs/pause', plain);
await ask('asked', 'v1/verbs/pause', {...plain, mode: 'cors', headers: {'Content-Type': 'application/json'}});
await ask('read', 'v1/programs', {});
await ask('blind read', 'page/view', {mode: 'no-cors'});
const form = Object.assign(document.createElement('form'), {method: 'post', enctype: 'text/plain', target: 'frame'});
form.action = '%(target)s' + 'v1/verbs/pause';
form.append(Object.assign(document.createElement('input'), {name: '{"who": "1000", "x": "', value: '"}'}));
const frame = Object.assign(document.createElement('iframe'), {name: 'frame'});
document.body.append(frame, form);
const sent = new Promise((done) => frame.addEventListener('load', done));
form.submit();
await sent;
const inside = Object.assign(document.createElement('iframe'), {src: '%(target)s'});
const loaded = new Promise((done) => inside.addEventListener('load', done));
document.body.append(inside);
await loaded;
document.title = JSON.stringify(found);
</script><body></body>"""


@pytest.mark.parametrize("way", after_first(["address", "forwarded"]))
def test_another_site_in_the_same_browser_gets_nothing(
    way: str, tab: Callable[..., Tab], stage: Callable[..., Any], run_dir: Path
) -> None:
    daemon = stage()
    page = opened(tab(), daemon.client)
    with contextlib.ExitStack() as stack:
        port = daemon.port if way == "address" else stack.enter_context(forwarded(run_dir / SOCKET_NAME))
        if way == "forwarded":  # as the person has it: without a token, with all rights
            page.go(f"http://localhost:{port}/")
            page.until(f"{ROWS} === 8")
            page.click(row(1001))
            page.click("[data-verb=pause]")
            page.until(f"{cell(1001, 'STATE')} === 'paused'")
        site = stack.enter_context(served(ATTACK % {"target": f"http://localhost:{port}/"}))
        page.go(f"http://127.0.0.1:{site}/")
        page.until("document.title !== 'waiting'")
        found = json.loads(page.eval("document.title"))
        assert {"asked kept out", "read kept out"} <= set(found)
        assert all(each.endswith(("kept out", "opaque 0")) for each in found), found
        assert program(daemon.client, 1000)["state"] == "running"
        # what the browser says of a request that it kept back may come after the answer, but not after the site
        page.go("about:blank")
        # a name that an attacker leads to this machine (DNS rebinding) is none of ours
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(f"GET /v1/programs HTTP/1.1\r\nHost: rebound.example:{port}\r\n\r\n".encode())
            assert b" 403 " in raw.recv(64)
    page.complaints.clear()


@contextlib.contextmanager
def served(body: str) -> Iterator[int]:
    """Another site on this machine; its port."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextlib.contextmanager
def forwarded(path: Path) -> Iterator[int]:
    """A port that leads to a UNIX socket, as `ssh -L` makes one."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as far:
                far.connect(str(path))
                ends = {self.request: far, far: self.request}
                with contextlib.suppress(ConnectionError):
                    while True:
                        for each in select.select(list(ends), [], [])[0]:
                            if not (data := each.recv(65536)):
                                return
                            ends[each].sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forward) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.rest
def test_as_it_comes_the_page_can_be_looked_at_only(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage(changes=False).client
    page = opened(tab(), client)
    page.click(row(1000))
    page.until("document.querySelector('#detail .acts .hint').textContent.includes('page.changes')")
    assert page.eval("[...document.querySelectorAll('.acts button, .acts input')].every((each) => each.disabled)")
    assert "page.changes" in page.text("#notices")


@pytest.mark.rest
def test_an_address_that_was_used_opens_nothing(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage().client
    address = client.page()["address"]
    first, second, bare = tab(), tab(), tab()
    first.go(address)
    first.until(f"{ROWS} === 8")
    second.go(address)
    second.until("!document.querySelector('#login').hidden")
    assert "used before" in second.text("#login-why")
    bare.go(address.partition("#")[0])
    bare.until("!document.querySelector('#login').hidden")
    assert "detshare-ctl page" in bare.text("#login")
    # the same tab goes on after a reload, and after a new address
    first.send("Page.reload")
    first.until(f"window.same === undefined && {ROWS} === 8")
    client.page_revoke()
    first.until("!document.querySelector('#login').hidden")
    first.eval(f"location.hash = {json.dumps(client.page()['address'].partition('#')[2])}")
    first.until(f"document.querySelector('#login').hidden && {ROWS} === 8")
    for each in (first, second, bare):
        each.complaints[:] = [each_ for each_ in each.complaints if "401" not in each_ and "403" not in each_]
