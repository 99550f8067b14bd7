# SPDX-License-Identifier: Apache-2.0
"""What kubelet asks of a container runtime, by the Container Runtime Interface v1: one pod with one container.

Field numbers: kubernetes/kubernetes, staging/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto. Enumerations are int32
here, and bytes that are text are strings: the same on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detshare.ctl.kubernetes import sockets
from detshare.ctl.kubernetes.wire import Messages
from tests.patience import LONG_S

IMAGE = "localhost/pod:1"
NODE, CONTAINER = 2, 1
"""NamespaceMode"""

CRI = Messages(
    "runtime.v1",
    {
        "VersionRequest": {"version": (1, "string")},
        "VersionResponse": {"runtime_name": (2, "string"), "runtime_version": (3, "string")},
        "NamespaceOption": {"network": (1, "int32"), "pid": (2, "int32"), "ipc": (3, "int32")},
        "LinuxSandboxSecurityContext": {"namespace_options": (1, "NamespaceOption")},
        "LinuxPodSandboxConfig": {
            "cgroup_parent": (1, "string"),
            "security_context": (2, "LinuxSandboxSecurityContext"),
        },
        "PodSandboxMetadata": {"name": (1, "string"), "uid": (2, "string"), "namespace": (3, "string")},
        "PodSandboxConfig": {
            "metadata": (1, "PodSandboxMetadata"),
            "log_directory": (3, "string"),
            "linux": (8, "LinuxPodSandboxConfig"),
        },
        "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig")},
        "RunPodSandboxResponse": {"pod_sandbox_id": (1, "string")},
        "StopPodSandboxRequest": {"pod_sandbox_id": (1, "string")},
        "StopPodSandboxResponse": {},
        "RemovePodSandboxRequest": {"pod_sandbox_id": (1, "string")},
        "RemovePodSandboxResponse": {},
        "LinuxContainerSecurityContext": {"namespace_options": (3, "NamespaceOption")},
        "LinuxContainerConfig": {"security_context": (2, "LinuxContainerSecurityContext")},
        "ContainerMetadata": {"name": (1, "string")},
        "ImageSpec": {"image": (1, "string")},
        "CDIDevice": {"name": (1, "string")},
        "ContainerConfig": {
            "metadata": (1, "ContainerMetadata"),
            "image": (2, "ImageSpec"),
            "command": (3, "[string]"),
            "log_path": (11, "string"),
            "linux": (15, "LinuxContainerConfig"),
            "CDI_devices": (17, "[CDIDevice]"),
        },
        "CreateContainerRequest": {
            "pod_sandbox_id": (1, "string"),
            "config": (2, "ContainerConfig"),
            "sandbox_config": (3, "PodSandboxConfig"),
        },
        "CreateContainerResponse": {"container_id": (1, "string")},
        "StartContainerRequest": {"container_id": (1, "string")},
        "StartContainerResponse": {},
        "ExecSyncRequest": {"container_id": (1, "string"), "cmd": (2, "[string]")},
        "ExecSyncResponse": {"stdout": (1, "string"), "stderr": (2, "string"), "exit_code": (3, "int32")},
    },
)


class Runtime:
    """A runtime behind its socket. Methods raise ControlError with its own words."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def ask(self, method: str, **fields: Any) -> Any:
        request, answer = getattr(CRI, f"{method}Request"), getattr(CRI, f"{method}Response")
        return await sockets.call(
            self._socket, f"/runtime.v1.RuntimeService/{method}", request(**fields), answer, LONG_S
        )

    async def start(self, uid: str, cgroup: str, image: str, devices: Sequence[str]) -> tuple[str, str]:
        """The pod's sandbox and its container, which runs until the pod is removed; their ids."""
        namespaces = {"network": NODE, "pid": CONTAINER, "ipc": NODE}
        sandbox = {
            "metadata": {"name": f"pod-{uid[:8]}", "uid": uid, "namespace": "default"},
            "log_directory": f"/var/log/pods/{uid}",
            "linux": {"cgroup_parent": cgroup, "security_context": {"namespace_options": namespaces}},
        }
        pod = (await self.ask("RunPodSandbox", config=sandbox)).pod_sandbox_id
        container = {
            "metadata": {"name": "main"},
            "image": {"image": image},
            "command": ["/bin/sleep", "100000"],
            "log_path": "main.log",
            "linux": {"security_context": {"namespace_options": namespaces}},
            "CDI_devices": [{"name": each} for each in devices],
        }
        made = await self.ask("CreateContainer", pod_sandbox_id=pod, config=container, sandbox_config=sandbox)
        await self.ask("StartContainer", container_id=made.container_id)
        return pod, made.container_id

    async def run(self, container: str, line: str) -> tuple[int, str]:
        """A line for the container's shell: its status and output."""
        done = await self.ask("ExecSync", container_id=container, cmd=["/bin/sh", "-c", line])
        return done.exit_code, done.stdout + done.stderr

    async def remove(self, pod: str) -> None:
        await self.ask("StopPodSandbox", pod_sandbox_id=pod)
        await self.ask("RemovePodSandbox", pod_sandbox_id=pod)
