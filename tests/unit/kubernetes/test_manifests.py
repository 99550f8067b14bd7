# SPDX-License-Identifier: Apache-2.0
"""The shipped manifests, decoded strictly against the published OpenAPI types (openapi.json says of what)."""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import MANIFESTS, ROOT, documents, problems

from detshare.ctl.core.containers import Containers
from detshare.ctl.kubernetes.command import main
from detshare.ctl.kubernetes.parameters import DRIVER, decode
from tests.patience import run

FILES = sorted(path for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml")
PATCH = MANIFESTS / "device-plugin/daemonset.yaml"
OBJECTS = [(path, each) for path in FILES if path != PATCH for each in documents(path)]


@pytest.mark.parametrize(("path", "made"), OBJECTS, ids=[f"{p.stem}-{m['kind']}" for p, m in OBJECTS])
def test_manifests_are_what_the_api_takes(path: Path, made: dict[str, Any]) -> None:
    assert problems(made) == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("spec", "template", "spec", "containers", 0, "securityContext", "priviliged"), False),
        (("spec", "updateStrategy", "rollingUpdate", "maxSurge"), [0]),
        (("spec", "template", "spec", "volumes", 0, "hostpath"), {}),
        (("apiVersion",), "apps/v1beta2"),
        (("spec", "selector"), "detshare"),
    ],
)
def test_the_decoder_refuses_what_the_api_refuses(where: tuple[str | int, ...], value: object) -> None:
    made = copy.deepcopy(next(each for _, each in OBJECTS if each["kind"] == "DaemonSet"))
    at = made
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    assert problems(made) != []


def daemon_set() -> dict[str, Any]:
    return next(each for _, each in OBJECTS if each["kind"] == "DaemonSet")


def test_one_at_a_time_and_nothing_of_root_but_its_files() -> None:
    made = daemon_set()
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


@pytest.mark.parametrize("path", [MANIFESTS / "node/daemonset.yaml", PATCH])
def test_the_container_s_arguments_are_the_command_s(path: Path) -> None:
    (made,) = documents(path)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    context = main.make_context("x", [*container["args"], "--node", "worker-1"])
    assert context.params["dra"] is (path != PATCH)


def test_parameters_of_classes_and_examples_are_what_the_driver_reads() -> None:
    found = []
    for _, made in OBJECTS:
        spec = made.get("spec", {})
        spec = spec.get("spec", spec)
        found += [each["opaque"] for each in spec.get("config", [])]
        found += [each["opaque"] for each in spec.get("devices", {}).get("config", [])]
    assert len(found) == 3
    for each in found:
        assert each["driver"] == DRIVER
        decode(each["parameters"], "manifest")


def test_examples_name_classes_and_claims_that_there_are() -> None:
    classes = {each["metadata"]["name"] for _, each in OBJECTS if each["kind"] == "DeviceClass"}
    for path in sorted((MANIFESTS / "examples").glob("*.yaml")):
        made = documents(path)
        claims = {each["metadata"]["name"]: each for each in made if each["kind"] != "Pod"}
        for each in claims.values():
            spec = each["spec"].get("spec", each["spec"])
            assert {one["exactly"]["deviceClassName"] for one in spec["devices"]["requests"]} <= classes
        (pod,) = [each for each in made if each["kind"] == "Pod"]
        named = [each.get("resourceClaimName") or each["resourceClaimTemplateName"]
                 for each in pod["spec"].get("resourceClaims", [])]  # fmt: skip
        assert set(named) == set(claims)


@pytest.mark.parametrize("way", ["dra", "device-plugin"])
def test_kustomize_builds_what_the_api_takes(way: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    built = run(["kubectl", "kustomize", str(MANIFESTS / way)], capture_output=True, text=True, check=True).stdout
    made = [each for each in yaml.safe_load_all(built) if each]
    assert [found for each in made for found in problems(each)] == []
    kinds = {each["kind"] for each in made}
    assert ("DeviceClass" in kinds) is (way == "dra")
    assert ("ClusterRole" in kinds) is (way == "dra")
    (found,) = [each for each in made if each["kind"] == "DaemonSet"]
    assert found["metadata"]["namespace"] == "detshare"


def test_the_resources_of_the_plugin_are_devices_that_a_node_has_by_itself() -> None:
    (container,) = documents(PATCH)[0]["spec"]["template"]["spec"]["containers"]
    offered = {each.partition("=")[0] for each in container["args"] if "=" in each}
    (pod,) = documents(MANIFESTS / "examples/device-plugin.yaml")
    (asked,) = pod["spec"]["containers"][0]["resources"]["limits"]
    assert offered <= set(Containers().devices)
    assert asked.removeprefix("detshare.io/") in offered


def test_the_image_has_what_the_driver_imports(tmp_path: Path) -> None:
    """By stand-ins for buildah and dpkg-deb, which say what they were asked."""
    for name, says in (("buildah", f'printf "%s\\n" "$*" >>{tmp_path}/asked'), ("dpkg-deb", "echo 0.1.0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "x.deb").touch()
    words = [str(ROOT / "packaging/container/build"), str(tmp_path / "x.deb"), str(tmp_path / "image.tar")]
    run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, capture_output=True)
    (line,) = [each for each in (tmp_path / "asked").read_text().splitlines() if "apt-get install" in each]
    assert {"/tmp/detshare.deb", "python3-grpcio", "python3-protobuf"} <= set(line.split())
    done = run([*words[:2], str(tmp_path / "none/image.tar")], capture_output=True, text=True)
    assert (done.returncode, "there is no folder" in done.stderr) == (1, True), "before minutes of work"


def test_an_image_is_of_the_package_that_was_made_last(tmp_path: Path) -> None:
    made = tmp_path / "build/release"
    made.mkdir(parents=True)
    for age, version in enumerate(("0.2.0", "0.10.0", "0.1.0")):
        (made / f"detshare_{version}_amd64.deb").touch()
        os.utime(made / f"detshare_{version}_amd64.deb", (1000 - age, 1000 - age))
    script = tmp_path / "packaging/container/build"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\necho "$@"\n')
    script.chmod(0o755)
    words = ["make", "-f", str(ROOT / "Makefile"), "-C", str(tmp_path), "--no-print-directory", "-o", "deb", "image"]
    said = run(words, check=True, capture_output=True, text=True).stdout
    assert said == "build/release/detshare_0.2.0_amd64.deb build/release/detshare-image.tar\n"
