# SPDX-License-Identifier: Apache-2.0
"""The screen, the demo, setup."""

from __future__ import annotations

import contextlib
import io
import shutil
from types import SimpleNamespace
from typing import Any

import click
from stage import Stage, makes, raising
from troubles import ROOT

from detshare.ctl.cli import top
from detshare.ctl.core import kinds
from detshare.ctl.top import keys
from detshare.tools import main as detshare
from tests.patience import run


@makes("a live screen needs a terminal; for a script or a pipe: --once (or --json)")
def _(stage: Stage) -> str:
    return stage.process("detshare.ctl.cli.top", "--run-dir", str(stage.run_dir))


@makes("no daemon answers: this was one read-only look")
def _(stage: Stage) -> str:
    stage.program()
    seen = stage.backend().look().to_json()
    source: Any = SimpleNamespace(look=lambda: seen, can_act=False)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        top._once(source, keys.View())
    return said.getvalue()


@makes("the selected program is not here any more")
def _(stage: Stage) -> str:
    view = keys.View(selected=(77, 1))
    assert keys.handle(view, "p", [], can_act=True) is None
    return view.message


@makes("weight is a whole number from 1 to 1000")
def _(stage: Stage) -> str:
    return stage.refused(lambda: kinds.Whole(range(1, 1001), "weight").typed("many"))


@makes("detshare X needs MODULE, which is not installed")
def _(stage: Stage) -> str:
    where = detshare._Subcommand("detshare.nosuch_module", "main", "x", "detshare bench")
    stage.patch.setattr(detshare.importlib, "import_module", raising(ModuleNotFoundError("x", name="matplotlib")))
    try:
        detshare._load("bench", where)
    except click.ClickException as error:
        return error.message
    return ""


def _setup(stage: Stage, python: str) -> str:
    """What tools/setup.sh says on a machine whose Python is that."""
    (stage.folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "setup.sh", stage.folder / "tools")
    fake = stage.folder / "python"
    fake.write_text(f"#!/bin/bash\n{python}\n")
    fake.chmod(0o755)
    empty = stage.folder / "bin"
    empty.mkdir()
    for name in ("bash", "env", "dirname", "head", "mkdir", "rm", "grep"):
        (empty / name).symlink_to(str(shutil.which(name)))
    done = run(
        ["bash", str(stage.folder / "tools" / "setup.sh")],
        capture_output=True, text=True, env={"PATH": str(empty), "PYTHON": str(fake), "HOME": str(stage.folder)},
    )  # fmt: skip
    assert done.returncode != 0
    return done.stdout + done.stderr


@makes("DetShare needs Python 3.11 or newer")
def _(stage: Stage) -> str:
    return _setup(stage, '[[ $1 == --version ]] && { echo Python 3.9; exit 0; }; exit 1')


@makes("cannot make virtual environments", "still missing (make lint, some tests and guests need them): ...")
def _(stage: Stage) -> str:
    without = _setup(stage, '[[ $2 == *ensurepip* ]] && exit 1; exit 0')
    shutil.rmtree(stage.folder / "tools")
    shutil.rmtree(stage.folder / "bin")
    return without + _setup(stage, 'exit 0')


@makes("pip could not install DetShare's dependencies")
def _(stage: Stage) -> str:
    makes_it = 'mkdir -p "$3/bin"; printf "#!/bin/bash\\nexit 1\\n" >"$3/bin/python"; chmod +x "$3/bin/python"'
    return _setup(stage, f'[[ $1 == -m && $2 == venv ]] && {{ {makes_it}; }}; exit 0')


@makes("no daemon answers here, so this is read-only")
def _(stage: Stage) -> str:
    view = keys.View()
    keys.handle(view, "p", [], can_act=False)
    return view.message
