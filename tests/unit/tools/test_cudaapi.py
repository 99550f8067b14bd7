# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from detshare.tools.cudaapi.__main__ import main
from detshare.tools.cudaapi.api import API, BadApi, Kind, function, load
from detshare.tools.cudaapi.generator import redirect, render

CHECKOUT = Path(__file__).parents[3]


def entry(**fields: Any) -> dict[str, Any]:
    return {"name": "cuThing", "params": ["int", "CUstream"], "kind": "follow", "stream": 1, **fields}


def test_every_stream_that_is_passed_is_thought_of() -> None:
    for one in load(CHECKOUT):
        streams = [kind for kind in one.params if kind in ("CUstream", "CUstream *")]
        asks = one.name.startswith(("cuStreamGet", "cuStreamIs", "cuStreamUpdateCapture", "cuGreenCtxStreamCreate"))
        assert one.wrapped or not streams or asks, one.name


def test_per_thread_variants_have_the_kind_of_their_base() -> None:
    functions = {one.name: one for one in load(CHECKOUT)}
    for name, one in functions.items():
        base = name.removesuffix("_ptsz").removesuffix("_ptds")
        if base != name:
            assert functions[base].kind is one.kind, name
            assert functions[base].params == one.params, name
            assert one.per_thread or one.kind in (Kind.NONE, Kind.PLAIN), name


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "thing"}, "no name of an entry point"),
        ({"params": "int"}, "not a list"),
        ({"kind": "other"}, "is not one of"),
        ({"stream": 0}, "is no stream"),
        ({"stream": 7}, "is no stream"),
        ({"stream": None}, "needs the index"),
        ({"params": ["int", "CUstream *"]}, "passed by value"),
        ({"colour": 1}, "unknown fields colour"),
        ({"per_thread": "yes"}, "true or absent"),
    ],
)
def test_bad_entries_are_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(BadApi, match=says):
        function(entry(**wrong))


def test_wrappers_pair_use_and_done() -> None:
    follow = redirect(function(entry()))
    assert "real->cuThing(p0, ds_stream_cur(stream))" in follow
    assert follow.count("ds_stream_done(stream)") == 1
    home = redirect(function(entry(kind="home", params=["int", "CUstream *"], per_thread=True)))
    assert "ds_stream_of(p1 ? *p1 : NULL, true)" in home
    assert "real->cuThing(p0, p1)" in home
    legacy = redirect(function(entry(kind="legacy", params=["int"], stream=None)))
    assert "ds_stream_of(NULL, false)" in legacy


def test_check_finds_a_file_that_was_edited(tmp_path: Path) -> None:
    for path in (API, *render(CHECKOUT)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / path, tmp_path / path)
    runner = CliRunner()
    assert runner.invoke(main, ["--check", "--root", str(tmp_path)]).exit_code == 0
    with (tmp_path / "runtime" / "api" / "wrappers.c").open("a") as file:
        file.write("\n")
    result = runner.invoke(main, ["--check", "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert "wrappers.c" in result.output
    assert runner.invoke(main, ["--root", str(tmp_path)]).exit_code == 0
    assert runner.invoke(main, ["--check", "--root", str(tmp_path)]).exit_code == 0


def test_a_list_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    (tmp_path / API).write_text(json.dumps({"functions": [entry(), entry()]}))
    result = CliRunner().invoke(main, ["--check", "--root", str(tmp_path)])
    assert result.exit_code == 1
    assert "named twice: cuThing" in result.output
