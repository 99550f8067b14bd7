# SPDX-License-Identifier: Apache-2.0
"""Verbs are defined once: what is made of the definitions, and what names verbs besides, fits them."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_backend import FakeBackend

import detshare
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.module.backend import KmodBackend
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.spatial.backend import ShimBackend
from detshare.ctl.backends.verbs import LOAD_MODULE
from detshare.ctl.cli import act
from detshare.ctl.cli.link import Place
from detshare.ctl.cli.main import main
from detshare.ctl.client import Client
from detshare.ctl.core.backend import BadRequest, NeedsModule, NoSpatialLane
from detshare.ctl.core.kinds import Permille
from detshare.ctl.core.snapshot import Outcome
from detshare.ctl.core.verb import Lane, Verb, Whom
from detshare.ctl.core.verbs import VERBS, describe, request
from detshare.ctl.daemon import access
from detshare.ctl.policy import ledger
from detshare.ctl.top.prompts import PROMPTS

BACKENDS = [KmodBackend, RootBackend, ShimBackend, FakeBackend]
EACH = pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)


def table(kind: type[Any]) -> dict[str, Callable[..., Outcome]]:
    """A backend's table, of one that was never opened."""
    made = object.__new__(kind)
    if kind is FakeBackend:
        made.name = "kmod"
    return dict(made.table)


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_backend_takes_each_verb_of_its_table_with_all_its_arguments(kind: type[Any]) -> None:
    for name, method in table(kind).items():
        verb = VERBS[name]
        together = verb.check is not None and "change" in verb.check({"reset": True} if name == "set-class" else {})
        names = ["change"] if together else [arg.to or arg.name for arg in verb.args]
        inspect.signature(method).bind("4242", **dict.fromkeys(names))


@EACH
def test_somebody_does_each_verb_and_who_does_not_is_told_what_is_missing(verb: Verb, tmp_path: Path) -> None:
    lanes = {Lane.TEMPORAL: [KmodBackend], Lane.SPATIAL: [ShimBackend], Lane.EACH: [KmodBackend, ShimBackend]}
    for kind in lanes[verb.lane]:
        assert verb.name in table(kind) or verb.name == "bind"  # in the temporal lane that is set-ceiling
    backend = RootBackend(ModelDriver(), tmp_path)
    if verb.name not in backend.table:
        wrong: type[Exception] = NeedsModule if verb.lacks else NoSpatialLane
        assert (verb.lane is Lane.SPATIAL) <= (wrong is NoSpatialLane)
        values: dict[str, Any] = {"percent": 5, "limit": "8G", "gpu": "1"}
        args = {arg.name: values.get(arg.name, "red") for arg in verb.args if arg.required}
        with pytest.raises(wrong, match=verb.lacks or "spatial lane is off"):
            backend.do(request(verb.name, "high" if verb.whom is Whom.OURS else "red", **args))
    backend.close()


@EACH
def test_the_example_of_a_command_is_a_request_that_reads_as_it_was_typed(
    verb: Verb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes: list[tuple[str, str, dict[str, object], str]] = []

    def change(place: Place, as_json: bool, name: str, who: str, args: dict[str, object], wait=None, none="", asked=""):
        changes.append((name, who, args, asked or describe(name, who, args)))
        return 0

    monkeypatch.setattr(act, "change", change)
    monkeypatch.setattr(Client, "alive", lambda self: True)
    words = [*verb.words.split(), *shlex.split(verb.example)]
    done = CliRunner().invoke(main, ["--run-dir", str(tmp_path), *words])
    assert done.exit_code == 0, done.output
    [(name, who, args, asked)] = changes
    assert name == verb.name
    assert request(name, who, **args).who == who
    assert asked == f"{verb.words} {verb.example}"


def test_the_library_asks_what_can_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def verb(self: Client, name: str, who: str, **args: object) -> dict[str, Any]:
        given = {("class" if key == "klass" else key): value for key, value in args.items() if value is not None}
        asked.append(request(name, who, **given).verb.name)
        return {"verb": name, "changed": [], "skipped": [], "seconds": 0.0}

    monkeypatch.setattr(Client, "verb", verb)
    client = detshare.Client("/nowhere")
    values = {"priority": "low", "weight": 3, "floor": 5, "slice_us": 900, "level": "low", "percent": 25,
              "limit": "8G", "gpu": 0, "pctx": "25%", "lease_s": 9, "deep": True, "lazy": True}  # fmt: skip
    for name in sorted(set(dir(client)) & {each.replace("-", "_") for each in VERBS}):
        method = getattr(client, name)
        given = {each: values[each] for each in inspect.signature(method).parameters if each != "who"}
        method(4242, **given)
        assert asked[-1] == name.replace("_", "-")
    assert len(asked) == 13


def test_what_names_verbs_names_those_that_there_are() -> None:
    assert {*ledger.BY_VERB, access.LOWERS} <= set(VERBS)
    assert {prompt.verb for prompt in PROMPTS.values()} - {"", "policy-set"} <= set(VERBS)


@pytest.mark.parametrize(
    ("mode", "text", "args"),
    [
        ("weight", "3", {"weight": 3}),
        ("sms", "100", {"percent": 100}),
        ("memory", "8G", {"limit": "8G"}),
        ("weight", "0", None),
        ("weight", "1001", None),
        ("sms", "101", None),
        ("sms", "٣", None),
        ("memory", "much", None),
    ],
)
def test_what_is_typed_in_top_is_the_verbs_first_argument(mode: str, text: str, args: dict[str, object] | None) -> None:
    if args is None:
        with pytest.raises(BadRequest):
            PROMPTS[mode].read(text)
    else:
        assert PROMPTS[mode].read(text) == args


def test_who_lacks_the_module_is_sent_to_a_page_that_loads_it() -> None:
    (page,) = re.findall(r"docs/[a-z/]+\.md", LOAD_MODULE)
    assert "insmod detshare.ko" in (Path(__file__).parents[3] / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(("text", "made"), [("0", 0), ("0.1", 1), ("2.5", 25), ("100", 1000)])
def test_a_percentage_is_kept_to_a_tenth(text: str, made: int) -> None:
    assert Permille(range(1001), "floor").typed(text) == made


@pytest.mark.parametrize("text", ["0.04", "1e-9", "-0.04", "nan", "inf", "100.1", "5 %"])
def test_a_percentage_that_cannot_be_kept_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        Permille(range(1001), "floor").typed(text)
