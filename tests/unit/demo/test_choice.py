# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detshare.tools.demo import choice
from detshare.tools.demo.errors import DemoError


def test_without_the_device_node_it_is_the_model(tmp_path: Path) -> None:
    chosen = choice.choose(tmp_path / "nvidiactl", lambda: ["H100"], 0)
    assert not chosen.gpu
    assert "does not exist" in chosen.why


@pytest.mark.parametrize(
    ("gpus", "uid", "gpu", "words"),
    [([], 0, False, "NVML finds no GPU"), (["H100"], 1000, False, "needs root"), (["H100"], 0, True, "H100")],
)
def test_with_the_device_node(tmp_path: Path, gpus: list[str], uid: int, gpu: bool, words: str) -> None:
    node = tmp_path / "nvidiactl"
    node.touch()
    chosen = choice.choose(node, lambda: gpus, uid)
    assert chosen.gpu is gpu
    assert words in chosen.why


def test_torch_is_preferred_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "interpreters", lambda asked: ["/a", "/b"])
    has = {"/a": {"cuda.bindings"}, "/b": {"torch", "torchvision"}}
    pair = choice.pair(look=has.__getitem__)
    assert pair.latency[0] == pair.background[0] == "/b"
    assert pair.latency[1].endswith("decode.py")
    assert pair.background[-2:] == ["--model", "resnet"]
    assert pair.unit == "images/s"


def test_torch_alone_trains_the_gpt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "interpreters", lambda asked: ["/a"])
    assert choice.pair(look=lambda _: {"torch"}).background[-1] == "gpt"


def test_without_torch_small_kernels_run_where_they_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "interpreters", lambda asked: ["/a", "/b"])
    monkeypatch.setattr(choice.shutil, "which", lambda name: None)
    pair = choice.pair(look={"/a": set(), "/b": {"cuda.bindings"}}.__getitem__)
    assert (pair.latency[0], pair.latency[2], pair.background[2]) == ("/b", "periodic", "saturate")
    monkeypatch.setattr(choice.shutil, "which", lambda name: "/usr/bin/nvcc")
    assert choice.pair(look=lambda _: set()).latency[0] == "/a"
    monkeypatch.setattr(choice.shutil, "which", lambda name: None)
    with pytest.raises(DemoError, match="no nvcc"):
        choice.pair(look=lambda _: set())


def test_the_programs_that_are_named_are_there_and_take_the_options() -> None:
    for script in ("decode.py", "train.py", "kernels.py"):
        assert (choice.WORKLOADS / script).is_file()


def test_an_interpreter_is_asked_without_importing(tmp_path: Path) -> None:
    for name in ("torch", "torchvision"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(3)")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert {"torch", "torchvision"} <= choice.modules(str(python))
    assert choice.modules(str(tmp_path / "absent")) == set()
