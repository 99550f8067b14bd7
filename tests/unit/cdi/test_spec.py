# SPDX-License-Identifier: Apache-2.0
"""What `detshare-ctl cdi` writes, lists and refuses."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from published import wrong

from detshare.ctl.cdi import files, form, machine, spec
from detshare.ctl.cdi.machine import Machine
from detshare.ctl.cli.hook import main as hook
from detshare.ctl.cli.main import main
from detshare.ctl.core import config
from detshare.ctl.core.containers import Containers, Device
from detshare.ctl.core.errors import ControlError

GIB = 1 << 30
CONFIG = """\
[containers]
required = true
[containers.devices.inference-high]
priority = "high"
memory = "20G"
gpus = [1]
[containers.devices."batch.low"]
priority = "low"
weight = 3
floor = 5
library = "loaded"
memory = "4G"
reports = true
[containers.devices.tools]
library = "mounted"
"""


@pytest.fixture(autouse=True)
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands see a machine with two GPUs."""
    monkeypatch.setattr("detshare.ctl.cli.cdi.machine.find", lambda asked: machine)


def ctl(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["cdi", *map(str, words)])


def generated(*words: str | Path) -> dict[str, Any]:
    done = ctl("generate", *words)
    assert done.exit_code == 0, done.output
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def by_name(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each["containerEdits"] for each in made["devices"]}


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    path = tmp_path / "detshare.toml"
    path.write_text(CONFIG)
    return path


def test_without_a_configuration_there_is_a_device_for_each_class(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    made = generated("--config", tmp_path / "empty.toml")
    assert (made["cdiVersion"], made["kind"]) == ("0.3.0", "detshare.io/gpu")
    assert list(by_name(made)) == ["high", "normal", "low", "idle"]
    assert [each["path"] for each in made["containerEdits"]["deviceNodes"]] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert [each["path"] for each in by_name(made)["low"]["deviceNodes"]] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert "--required" not in by_name(made)["low"]["hooks"][0]["args"]
    assert "mounts" not in by_name(made)["low"]
    assert "env" not in by_name(made)["low"]


def test_devices_are_as_the_configuration_says(configured: Path) -> None:
    made = by_name(generated("--config", configured))
    high, low, tools = made["inference-high"], made["batch.low"], made["tools"]
    assert [each["path"] for each in high["deviceNodes"]] == ["/dev/nvidia1"]
    created, stopped = high["hooks"]
    assert created["hookName"] == "createRuntime"
    assert created["path"] == created["args"][0] == sys.executable
    assert created["args"][-5:] == ["--priority", "high", "--memory", str(20 * GIB), "--required"]
    assert (stopped["hookName"], stopped["args"][-1]) == ("poststop", "--forget")
    assert low["hooks"][0]["args"][-8:-1] == ["low", "--memory", str(4 * GIB), "--weight", "3", "--floor", "5"]
    assert [each["containerPath"] for each in low["mounts"]] == [
        spec.INSIDE, "/run/detshare/boards.sock", "/run/detshare/reports.sock",
    ]  # fmt: skip
    assert f"LD_PRELOAD={spec.INSIDE}" in low["env"]
    assert f"DETSHARE_MEMORY={4 * GIB}" in low["env"]
    assert [each["containerPath"] for each in tools["mounts"]] == [spec.INSIDE]
    assert not any(each.startswith("LD_PRELOAD") for each in tools["env"])


@pytest.mark.parametrize("words", [[], ["--device", "a:library=loaded,memory=1G,reports=true,gpus=0+1,floor=2.5"]])
def test_what_is_written_is_what_engines_take(configured: Path, words: list[str]) -> None:
    made = generated("--config", configured, *words)
    assert wrong(made) == []
    assert form.problems(made) == []
    assert made["cdiVersion"] == form.least_version(made) == "0.3.0"


def test_the_daemons_socket_is_in_no_container(configured: Path) -> None:
    assert "detshared.sock" not in json.dumps(generated("--config", configured))


def test_flags_go_before_the_configuration(configured: Path) -> None:
    made = by_name(generated("--config", configured, "--device", "gold:priority=high,memory=8G", "--not-required"))
    assert list(made) == ["gold"]
    assert made["gold"]["hooks"][0]["args"][-4:] == ["--priority", "high", "--memory", str(8 * GIB)]


def test_what_a_hook_is_told_it_can_read(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("detshare.ctl.cli.hook._run", lambda words, container: given.append(words))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=SimpleNamespace(read=lambda _: b'{"id": "a", "pid": 1}')))
    for edits in by_name(generated("--config", configured)).values():
        for each in edits["hooks"]:
            assert each["args"][1:4] == ["-I", "-m", "detshare.ctl.cli.hook"]
            assert hook(each["args"][4:]) == 0
    assert [each.priority for each in given if not each.forget] == ["high", "low", "normal"]
    assert [each.memory for each in given if not each.forget] == [20 * GIB, 4 * GIB, None]
    assert sum(each.forget for each in given) == 3


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("1a", "a letter, then letters"),
        ("a-", "a letter, then letters"),
        ("a b", "a letter, then letters"),
        ("a:priority", "no KEY=VALUE"),
        ("a:priority=low,priority=high", "priority is given twice"),
        ("a:colour=red", "a device takes priority"),
        ("a:priority=urgent", "it is a class: high"),
        ("a:memory=lots", "it is a size"),
        ("a:memory=max", "it is a size"),
        ("a:weight=0.5", "whole number from 1"),
        ("a:weight=1001", "whole number from 1"),
        ("a:floor=60", "percentage from 0 to 50"),
        ("a:floor=nan", "percentage from 0 to 50"),
        ("a:gpus=x", "list of numbers"),
        ("a:gpus=64", "no number of a GPU"),
        ("a:gpus=7", "there is no GPU 7; there are 0, 1"),
        ("a:library=here", "one of off, mounted, loaded"),
        ("a:reports=maybe", "true or false"),
    ],
)
def test_a_device_that_cannot_be_meant_is_refused(device: str, told: str, tmp_path: Path) -> None:
    done = ctl("generate", "--device", device, "--output", tmp_path / "x.json")
    assert done.exit_code == 2, done.output
    assert told in done.stderr
    assert "next: " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_two_devices_of_one_name_are_refused() -> None:
    assert "two devices are called a" in ctl("generate", "--device", "a", "--device", "a:memory=1G").stderr


def test_the_configuration_says_what_is_wrong_with_line_and_key() -> None:
    text = '[containers]\n[containers.devices.a]\nmemory = "1G"\n[containers.devices.b]\nmemory = 5\n'
    with pytest.raises(config.ConfigError) as caught:
        config.parse(text.encode())
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (5, "containers.devices.b.memory")
    assert config.Config().containers == Containers(False, {n: Device(n) for n in ("high", "normal", "low", "idle")})


def test_the_library_has_to_be_there(machine: Machine) -> None:
    bare = Machine(machine.gpus, machine.control)
    with pytest.raises(ControlError, match=r"there is no libdetshare\.so"):
        spec.make({"a": Device(library="mounted")}, bare)
    assert "mounts" not in spec.make({"a": Device()}, bare)["containerEdits"]


# -- files --------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_for_all_to_read(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        done = ctl("generate", "--output", tmp_path, "--json")
    finally:
        os.umask(umask)
    assert done.exit_code == 0, done.output
    path = tmp_path / "detshare.io-gpu.json"
    told = json.loads(done.stdout)
    assert told["path"] == str(path)
    assert told["devices"]["high"]["priority"] == "high"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    before = path.stat().st_ino
    assert ctl("generate", "--output", path, "--device", "a").exit_code == 0
    assert path.stat().st_ino != before, "written into the file that an engine may be reading"
    assert [each["name"] for each in json.loads(path.read_text())["devices"]] == ["a"]


def test_a_folder_of_engines_is_made_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc" / "cdi"
    monkeypatch.setattr(files, "FOLDERS", (folder,))
    assert ctl("generate", "--output", folder).exit_code == 0
    assert [each.name for each in folder.iterdir()] == ["detshare.io-gpu.json"]
    assert stat.S_IMODE(folder.stat().st_mode) & 0o755 == 0o755


def test_where_it_cannot_be_written_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "x.json"
    old.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detshare.ctl.cdi.files.os.fsync", full)
    done = ctl("generate", "--output", old)
    assert done.exit_code == 1
    assert "No space left on device" in done.stderr
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("x.json", "old")]


@pytest.mark.parametrize(("name", "code"), [("x.yaml", 2), ("x", 2), ("nowhere/x.json", 1)])
def test_an_output_that_no_engine_would_read_is_refused(tmp_path: Path, name: str, code: int) -> None:
    done = ctl("generate", "--output", tmp_path / name)
    assert done.exit_code == code
    assert list(tmp_path.iterdir()) == []


def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A specification all of which is on this machine."""
    monkeypatch.setattr(files, "_is_device", lambda path: True)
    path = tmp_path / "a.json"
    assert ctl("generate", "--output", path, "--device", "a:priority=low,memory=2G").exit_code == 0
    made = json.loads(path.read_text())
    del made["containerEdits"]["mounts"]
    path.write_text(json.dumps(made))
    return path


def test_check_and_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = there(tmp_path, monkeypatch)
    assert ctl("check", path).stdout == f"{path}: nothing is wrong\n"
    listed = ctl("list", "--folder", tmp_path)
    assert listed.stdout == (f"detshare.io/gpu=a: class low, memory limit 2G; /dev/nvidia0, /dev/nvidia1 ({path})\n")
    (row,) = json.loads(ctl("list", "--folder", tmp_path, "--json").stdout)["devices"]
    assert row["name"] == "a"
    told = json.loads(ctl("check", "--folder", tmp_path, "--json").stdout)
    assert told == {"ok": True, "files": [{"path": str(path), "problems": []}]}


def test_check_tells_what_a_container_would_not_start_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "detshare.io-gpu.json"
    monkeypatch.setattr(files, "_is_device", lambda path: path != "/dev/nvidia1")
    assert ctl("generate", "--output", path, "--device", "a:library=loaded").exit_code == 0
    made = json.loads(path.read_text())
    made["devices"][0]["containerEdits"]["hooks"][0]["path"] = "/nowhere/python3"
    path.write_text(json.dumps(made))
    done = ctl("check", "--folder", tmp_path)
    assert done.exit_code == 1
    for each in ("no device /dev/nvidia1", "no /run/detshare/boards.sock to mount", "no program /nowhere/python3"):
        assert each in done.stdout
    assert "no device" in ctl("list", "--folder", tmp_path).stdout


def test_doctor_tells_what_went_with_the_driver_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FOLDERS", (tmp_path,))

    def doctor() -> list[tuple[bool, str]]:
        words = ["--run-dir", str(tmp_path / "run"), "--backend", "model", "doctor", "--json"]
        said = json.loads(CliRunner().invoke(main, words).stdout)["checks"]
        return [(each["ok"], each["detail"]) for each in said if each["name"] == "containers"]

    assert doctor() == []
    library = tmp_path / "libcuda.so.580"
    library.touch()
    path = there(tmp_path, monkeypatch)
    made = json.loads(path.read_text())
    made["containerEdits"]["mounts"] = [{"hostPath": str(library), "containerPath": "/usr/lib/libcuda.so.1"}]
    path.write_text(json.dumps(made))
    assert doctor() == [(True, f"{path}: nothing is wrong")]
    library.unlink()
    assert doctor() == [(False, f"{path}: containerEdits: there is no {library} to mount")]


def test_two_files_of_one_folder_that_have_the_same_device_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = there(tmp_path, monkeypatch)
    (tmp_path / "b.json").write_text(path.read_text())
    assert f"device a: {tmp_path}/b.json has it too" in ctl("check", "--folder", tmp_path).stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b'{"kind": "a/b", "kind": "a/b"}', "'kind' occurs twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "it is an object"),
        (None, "it cannot be read"),
    ],
)
def test_a_file_that_is_no_specification_is_told(tmp_path: Path, text: bytes | None, told: str) -> None:
    path = tmp_path / "detshare.io-gpu.json"
    if text is not None:
        path.write_bytes(text)
    done = ctl("check", path)
    assert done.exit_code == 1
    assert told in done.stdout


def test_other_vendors_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"kind": "example.com/gpu"}')
    assert files.look([tmp_path]) == []
    assert "there is no specification" in ctl("check", "--folder", tmp_path).stdout


# -- this machine -------------------------------------------------------------------------------------------------


def test_devices_are_known_by_their_numbers_and_libraries_by_the_drivers_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    numbers = {"nvidiactl": 255, "nvidia0": 0, "nvidia1": 1, "nvidia3": 2, "nvidia-uvm": 0}
    for name in (*numbers, "nvidia2"):
        (tmp_path / name).touch()

    def device(path: Path) -> object:
        number = numbers.get(path.name)
        return None if number is None else SimpleNamespace(st_rdev=os.makedev(195, number))

    monkeypatch.setattr(machine, "stat_of", device)
    monkeypatch.setattr("detshare.ctl.core.procfs.driver_version", lambda: "580.1")
    lib = tmp_path / "lib"
    lib.mkdir()
    for name in ("libcuda.so.580.1", "libcuda.so.470.2", "libnvidia-ml.so.580.1", "libGLX_nvidia.so.580.1"):
        (lib / name).touch()
    (lib / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    (lib / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")
    found = machine.find("test", tmp_path, (str(tmp_path / "none"), str(lib)))
    assert found.gpus == {0: f"{tmp_path}/nvidia0", 1: f"{tmp_path}/nvidia1"}
    assert {Path(name).name: Path(file).name for file, name in found.driver} == {
        "libcuda.so.1": "libcuda.so.580.1",
        "libcuda.so.580.1": "libcuda.so.580.1",
        "libnvidia-ml.so.1": "libnvidia-ml.so.580.1",
        "libnvidia-ml.so.580.1": "libnvidia-ml.so.580.1",
    }
    del numbers["nvidia-uvm"]
    with pytest.raises(ControlError, match="nvidia-uvm"):
        machine.find("test", tmp_path)
