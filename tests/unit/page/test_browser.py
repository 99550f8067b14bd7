# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, on a real daemon of the model."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from fake_backend import FakeBackend
from seen import ROWS, cell, opened, program, row

from detshare.ctl.top.rows import row as top_row
from detshare.tools.browser.chromium import Tab
from detshare.tools.browser.shots import reports
from tests.patience import until

pytestmark = pytest.mark.e2e


def test_every_action(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage().client
    page = opened(tab(), client)
    page.click(row(1001))
    for klass in ("high", "normal", "low", "idle"):
        page.click(f"#detail [data-class={klass}]")
        page.until(f"{cell(1001, 'CLASS')} === '{klass}'")
        assert program(client, 1001)["class"] == klass
    assert page.eval("document.querySelector('#detail [data-class=idle]').getAttribute('aria-pressed')") == "true"
    page.click("#weight")
    page.type("7")
    page.click("form[data-verb=set-weight] button")
    page.until("document.querySelector('#said').textContent.includes('set-weight 7: done for 1001')")
    assert program(client, 1001)["weight"] == 7
    page.click("[data-verb=pause]")
    page.until(f"{cell(1001, 'STATE')} === 'paused'")
    assert program(client, 1001)["state"] == "paused"
    page.until("document.querySelector('[data-verb=pause]').textContent === 'Resume'")
    page.click("[data-verb=pause]")
    page.until(f"{cell(1001, 'STATE')} !== 'paused'")
    assert program(client, 1001)["state"] == "running"
    page.click("[data-verb=release]")
    page.until(f"{cell(1001, 'CLASS')} === '-'")
    assert (program(client, 1001)["class"], program(client, 1001)["weight"]) == (None, None)
    # the model holds no memory limits: the page says so instead of asking
    assert page.eval("document.querySelector('#limit').disabled")
    assert "detshare.ko" in page.text("#detail .acts .hint")
    page.until("document.querySelector('#events').innerText.includes('pause 1001')")
    page.click("#tab-decisions")
    page.until("document.querySelector('#decisions li') !== null && document.querySelector('#panel-events').hidden")


def test_a_memory_limit(tab: Callable[..., Tab], paged: Any) -> None:
    backend = FakeBackend()
    backend.name = "kmod"
    daemon = paged(backend, changes=True)
    page = opened(tab(), daemon.client, 3)
    page.click(row(4242))
    page.click("#limit")
    page.type("8G")
    page.click("form[data-verb=set-memory] button")
    page.until(f"{cell(4242, 'LIMIT')} === '8G'")
    assert ("set-memory", "4242", 8 << 30, None) in backend.calls
    page.eval("document.querySelector('#limit').value = ''")
    page.click("#limit")
    page.type("much")
    page.click("form[data-verb=set-memory] button")
    page.until("document.querySelector('#said').textContent.includes('was not done')")
    page.complaints[:] = [each for each in page.complaints if "400" not in each]  # the browser logs the refusal


def test_memory_leaves_and_comes_back(tab: Callable[..., Tab], paged: Any) -> None:
    daemon = paged(changes=True)
    page = opened(tab(), daemon.client, 3)
    page.click(row(4242))
    page.click("[data-verb=park]")
    page.until(f"{cell(4242, 'STATE')} === 'parked'")
    assert ("park", "4242") in daemon.backend.calls
    page.until("document.querySelector('[data-verb=park]').textContent === 'Resume'")
    assert page.text("[data-verb=pause]") == "Pause"
    page.click("[data-verb=park]")
    page.until(f"{cell(4242, 'STATE')} === 'running'")
    page.until("document.querySelector('[data-verb=park]').textContent === 'Park'")


def test_what_cannot_be_parked_is_told(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    page = opened(tab(), stage().client)
    page.click(row(1001))
    page.click("[data-verb=park]")
    page.until("document.querySelector('#said').textContent.includes('its memory cannot leave')")
    assert page.eval("document.querySelector('#said').dataset.bad") == ""


@pytest.mark.rest
def test_where_only_seconds_are_known_nobody_is_said_to_rest(tab: Callable[..., Tab], paged: Any) -> None:
    page = opened(tab(), paged().client, 3)
    page.until("document.querySelector('.gpu .used').textContent === '24%'")  # NVML's share, in steps
    assert page.text(".gpu .hint") == "Not known in tenths of a second."
    page.click("[data-span=long]")
    page.until("document.querySelectorAll('.lanes li').length === 1")
    assert page.text(".gpu .hint") == ""


@pytest.mark.rest
def test_two_browsers_see_what_the_other_does(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage().client
    one, other = opened(tab(), client), opened(tab(), client)
    one.click(row(1000))
    one.click("#detail [data-class=low]")
    other.until(f"{cell(1000, 'CLASS')} === 'low'")
    other.click(row(1000))
    other.click("[data-verb=pause]")
    one.until(f"{cell(1000, 'STATE')} === 'paused'")
    client.verb("release", "1000")
    for each in (one, other):
        each.until(f"{cell(1000, 'CLASS')} === '-'")


def test_the_page_outlives_its_daemon(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    first = stage()
    page = opened(tab(), first.client)
    page.click(row(1001))
    page.eval("window.same = true")
    first.send_signal(signal.SIGTERM)
    page.until("document.querySelector('#link').dataset.state === 'bad'")
    assert "trying again" in page.text("#link")
    first.wait()
    stage(port=first.port)
    page.until("document.querySelector('#link').textContent.includes('restarted')")
    assert page.eval("window.same && document.querySelector('#login').hidden")
    page.until(f"{ROWS} === 8 && document.querySelector('#detail-title').textContent === 'Program 1001'")
    page.click("#detail [data-class=low]")
    page.until(f"{cell(1001, 'CLASS')} === 'low'")
    # that nobody answered is what it is to complain about
    page.complaints[:] = [each for each in page.complaints if "net::ERR_" not in each]


@pytest.mark.rest
def test_keys_alone(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage().client
    page = opened(tab(), client)
    focused = "document.activeElement"

    def tab_to(what: str, backwards: bool = False) -> None:
        for _ in range(60):
            page.key("Tab", shift=backwards)
            assert page.eval(f"{focused}.matches(':focus-visible')")
            if page.eval(f"{focused}.matches({json.dumps(what)})"):
                return
        raise AssertionError(f"{what} is not reached")

    page.key("Tab")
    assert page.eval(f"{focused}.className") == "skip"
    tab_to("#rows tr")
    page.key("Home")
    first = page.eval(f"{focused}.dataset.key")
    page.key("ArrowDown")
    second = page.eval(f"{focused}.dataset.key")
    assert second != first
    page.key("End")
    page.key("ArrowUp")
    page.key("Home")
    assert page.eval(f"{focused}.dataset.key") == first
    page.key("ArrowDown")
    page.key("Enter")
    assert page.eval(f"{focused}.id") == "detail-title"
    assert page.text("#detail-title") == f"Program {second.partition(':')[0]}"
    tab_to("[data-class=low]")
    page.key("Enter")
    pid = int(second.partition(":")[0])
    page.until(f"{cell(pid, 'CLASS')} === 'low'")
    tab_to("#weight")
    page.type("9")
    page.key("Enter")
    page.until("document.querySelector('#said').textContent.includes('set-weight 9: done')")
    assert program(client, pid)["weight"] == 9
    tab_to("[data-verb=pause]")
    page.key("Space")
    page.until(f"{cell(pid, 'STATE')} === 'paused'")
    page.key("Escape")
    assert page.eval(f"document.querySelector('#detail').hidden && {focused}.dataset.key === {json.dumps(second)}")
    page.key("/")
    assert page.eval(f"{focused}.id") == "filter"
    page.type("vllm")
    page.until(f"{ROWS} === 1")
    page.key("Escape")
    page.until(f"{ROWS} === 8 && document.querySelector('#filter').value === ''")
    tab_to("#tab-events")
    page.key("ArrowRight")
    page.until("!document.querySelector('#panel-decisions').hidden")
    tab_to("[data-span=long]", backwards=True)
    page.key("Enter")
    assert page.eval(f"{focused}.getAttribute('aria-pressed')") == "true"
    tab_to("th.c-PID .sort")
    page.key("Enter")
    assert page.eval("document.querySelector('th.c-PID').getAttribute('aria-sort')") == "ascending"
    pids = page.eval("[...document.querySelectorAll('#rows tr')].map((each) => parseInt(each.dataset.key))")
    assert pids == sorted(pids)


@pytest.mark.rest
def test_a_thousand_programs(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage(programs=1000).client
    page = opened(tab(), client, 1000)
    assert page.text("#count") == "1000"
    # rows stay what they are, and only what changed in them is written
    page.eval(
        """(() => {
        window.nodes = [...document.querySelectorAll('#rows tr')];
        window.came = window.wrote = window.looks = 0;
        new MutationObserver((all) => {
          for (const each of all) {
            if (each.type === 'childList' && each.target.id === 'rows') {
              came += [...each.addedNodes].filter((node) => !nodes.includes(node)).length;
            } else wrote += 1;
          }
        }).observe(document.querySelector('#rows'), {childList: true, subtree: true, characterData: true});
        new PerformanceObserver((list) => {
          looks += list.getEntries().filter((each) => each.name.includes('/page/view')).length;
        }).observe({type: 'resource'});
        })()"""
    )
    page.until("looks >= 5")
    assert page.eval("came") == 0
    assert page.eval("nodes.every((node) => node.isConnected)")
    looks, wrote = page.eval("looks"), page.eval("wrote")
    assert wrote / looks < 1500  # a thousand rows have fourteen cells each
    sizes = page.eval(
        "performance.getEntriesByType('resource').filter((each) => each.name.includes('/page/view'))"
        ".slice(1).map((each) => each.encodedBodySize)"
    )
    assert max(sizes) < 150_000
    page.click("#filter")
    page.type("worker 77")
    page.until(f"{ROWS} === 11")
    page.key("Escape")
    page.until(f"{ROWS} === 1000")
    page.click(row(1001))
    page.click("#detail [data-class=low]")
    page.until(f"{cell(1001, 'CLASS')} === 'low'")
    page.eval("document.querySelector('#rows tr[tabindex=\"0\"]').focus()")
    page.key("End")
    page.until("document.activeElement === document.querySelector('#rows').lastElementChild")
    assert page.eval(
        "(() => { const box = document.activeElement.getBoundingClientRect();"
        " return box.top >= 0 && box.bottom <= innerHeight; })()"
    )


@pytest.mark.rest
def test_a_narrow_screen(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage().client
    page = opened(tab(360, 740, narrow=True), client)
    wide = "document.documentElement.scrollWidth <= innerWidth"
    assert page.eval(wide)
    heads = "[...document.querySelectorAll('#heads th')].filter((each) => each.offsetWidth)"
    assert page.eval(f"{heads}.map((each) => each.innerText)") == ["PID", "CLASS", "SHARE", "STATE", "COMMAND"]
    page.click(row(1001))
    page.until("document.querySelector('#detail').getBoundingClientRect().bottom === innerHeight")
    assert page.eval(wide)
    page.click("#detail [data-class=low]")
    page.until("document.querySelector('#said').textContent.includes('done for 1001')")
    assert page.eval("document.querySelector('#said').getBoundingClientRect().bottom") < 400  # not under the sheet
    acts = "[...document.querySelectorAll('.acts button, .acts input')].map((each) => each.getBoundingClientRect())"
    for width in (360, 320):
        page.shape(width, 740, narrow=True)
        page.until(f"innerWidth === {width}")
        assert page.eval(f"{acts}.every((box) => box.left >= 0 && box.right <= innerWidth)"), width
    page.click("#close")
    page.until("document.querySelector('#detail').hidden")
    for width in (320, 480, 700, 1000, 2500):
        page.shape(width, 740)
        page.until(f"innerWidth === {width}")
        assert page.eval(wide), width


CONTRASTS = """(() => {
  const number = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => rgb.map((each) => each / 255).map((each) =>
    each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)|transparent/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !node.offsetWidth || node.disabled) continue;
    const [a, b] = [light(number(getComputedStyle(node).color)), light(number(ground(node)))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([node.tagName, node.className, node.textContent.slice(0, 20), ratio.toFixed(2)]);
  }
  return found;
})()"""


@pytest.mark.rest
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_is_written_can_be_read(dark: bool, tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage().client
    for pid, klass in ((1000, "high"), (1001, "low"), (1002, "idle")):
        client.verb("set-priority", str(pid), klass=klass)
    client.verb("pause", "1003")
    page = opened(tab(dark=dark), client)
    page.until("document.querySelectorAll('.lanes li').length > 1")
    page.click(row(1000))
    page.click("#detail [data-class=high]")
    page.until("document.querySelectorAll('#detail-body .told li').length > 4")
    ground = page.eval("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(15, 19, 24)") is dark
    assert page.eval(CONTRASTS) == []
    page.shape(1400, 900, dark=dark, calm=True)
    assert page.eval("document.getAnimations().length") == 0


@pytest.mark.rest
def test_each_control_has_a_name_and_the_list_is_a_grid(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    page = opened(tab(), stage().client)
    page.click(row(1000))
    page.until("document.querySelectorAll('#detail-body .told li').length > 4")
    page.send("Accessibility.enable")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    told = [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in nodes if not each["ignored"]]
    controls = {"button", "textbox", "searchbox", "spinbutton", "tab", "grid", "row", "meter", "image", "complementary"}
    assert [each for each in told if each[0] in controls and not each[1].strip()] == []
    assert {"grid", "columnheader", "rowheader", "gridcell", "main", "banner", "tab", "tabpanel", "heading"} <= {
        role for role, _ in told
    }
    assert [name for role, name in told if role == "grid"] == ["Programs 8"]


@pytest.mark.rest
def test_its_words_are_those_of_top(tab: Callable[..., Tab], stage: Callable[..., Any]) -> None:
    client = stage().client
    client.verb("set-priority", "1000", klass="high")
    client.verb("pause", "1002")
    page = opened(tab(1800), client)
    page.until(f"{cell(1000, 'CLASS')} === 'high'")

    def differs() -> list[Any]:
        found = []
        for each in client.programs()["programs"]:
            shown = top_row(each, {each["gpus"][0]: "0"}).cells
            names = ("PID", "CLASS", "MEM", "SLICE", "LEVEL", "STATE", "GPU", "USER", "CONTAINER", "SHARE")
            for name in names:
                told = page.eval(cell(each["pid"], name))
                if told != shown[name] and name != "SHARE":
                    found.append((each["pid"], name, told, shown[name]))
        return found

    # a look lies between both questions
    until(lambda: differs() == [], said=differs)


@pytest.mark.rest
def test_latency_and_histories_are_drawn(tab: Callable[..., Tab], stage: Callable[..., Any], run_dir: Any) -> None:
    client = stage().client
    with reports(run_dir, 1000, 0.012):
        page = opened(tab(), client)
        page.until(f"{cell(1000, 'P99')} !== '-'")
        assert page.eval(cell(1000, "P99")).endswith("ms")
        page.click(row(1000))
        page.until("document.querySelector('#detail-body').innerText.includes('requests, reported')")
        drawn = "[...document.querySelectorAll('#detail-body svg.wide .line')].map((each) => each.getAttribute('d'))"
        page.until(f"{drawn}.every((each) => each.split('L').length > 3)")
        page.until("document.querySelector(\"#rows tr[data-key^='1000:'] .spark .area\").getAttribute('d').length > 60")
        assert page.eval("document.querySelectorAll('.lanes li').length") >= 2
        page.click("[data-span=long]")
        page.until("document.querySelector('.gpu .axis').innerText.includes('5 min ago')")
        page.until("document.querySelectorAll('.lanes li').length >= 2")
