# SPDX-License-Identifier: Apache-2.0
"""A node of the tests: the daemon's own surface over a backend in memory that holds limits of cgroups, pods' cgroups as
folders, both doubles, and the driver itself."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from cluster import TOKEN, Cluster
from fake_backend import FakeBackend
from kubelet import DeviceManager, Kubelet, edits

from detshare.ctl.backends.module import orders
from detshare.ctl.client import Client
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.patience import Patience
from detshare.ctl.core.rundir import SOCKET_NAME
from detshare.ctl.core.snapshot import Account, AccountKind, Change, Gpu, LimitChange, Outcome, Skip, Snapshot
from detshare.ctl.core.snapshot import StandingOrder as Standing
from detshare.ctl.daemon import daemon as daemon_module
from detshare.ctl.daemon.daemon import Daemon
from detshare.ctl.daemon.detshared import listen
from detshare.ctl.kubernetes.command import Place, serve
from detshare.ctl.netlink.records import ClassRow
from detshare.ctl.oneshot import Built
from tests.patience import IDLE_S

GPUS = (
    Gpu("GPU-00000000-1111-2222-3333-444444444444", 0, "NVIDIA H100 80GB HBM3", "0000:01:00.0", 80 << 30),
    Gpu("GPU-55555555-6666-7777-8888-999999999999", 1, "NVIDIA H100 80GB HBM3", "0000:02:00.0", 80 << 30),
)
FIRST, SECOND = (gpu.uuid.lower() for gpu in GPUS)


async def until(true: Callable[[], Any], said: Callable[[], object] = str) -> Any:
    """tests.patience.until for a test that is itself the event loop."""
    patience = Patience(IDLE_S)
    while not (answer := true()):
        if why := patience.spent():
            raise AssertionError(f"did not come true: what was waited for {why} {said()}".rstrip())
        await asyncio.sleep(0.005)
    return answer


class Module(FakeBackend):
    """What the kernel module holds of cgroups. A verb for a cgroup that is not there is refused, as by the module."""

    name = "kmod"

    def __init__(self, cgroups: Path) -> None:
        super().__init__()
        self.programs = []
        self.cgroups = cgroups
        self.gpus = list(GPUS)
        self.limits: dict[tuple[str, int], int] = {}
        self.orders: dict[str, str] = {}
        self.classes: dict[str, Mapping[str, object]] = {}
        self.done: list[tuple[object, ...]] = []

    def look(self, *, enforce: bool = True) -> Snapshot:
        found = super().look(enforce=enforce)
        accounts = tuple(Account(AccountKind.CGROUP, name, gpu, size) for (name, gpu), size in self.limits.items())
        standing = tuple(Standing(AccountKind.CGROUP, name, text) for name, text in self.orders.items())
        return replace(found, gpus=tuple(self.gpus), accounts=accounts, orders=standing)

    def reload(self) -> None:
        """The module was unloaded and loaded again."""
        self.limits.clear()
        self.orders.clear()

    def set_memory(self, who: str, limit: int | None, gpu: int | None = None) -> Outcome:
        self._there(who)
        assert gpu is not None
        assert gpu in {each.minor for each in self.gpus}
        self.done.append(("set-memory", who, limit, gpu))
        before = self.limits.pop((who, gpu), None)
        if limit is not None:
            self.limits[who, gpu] = limit
        elif before is None:
            return Outcome("set-memory", skipped=(Skip(0, f"cgroup {who} has no memory limit"),))
        return Outcome("set-memory", (Change(0, limit=LimitChange(f"cgroup {who}", gpu, before, limit)),))

    def set_weight(self, who: str, weight: int) -> Outcome:
        return self._order("set-weight", who, f"weight {weight}")

    def set_priority(
        self, who: str, klass: str, weight: int | None = None, floor: float | None = None, tenant: str = ""
    ) -> Outcome:
        if floor is not None or tenant:
            raise BadRequest("the module has floors of classes, and tenants by tenant attach")
        rows = [ClassRow(name, turn_us=int(str(row.get("turn_us", 0)))) for name, row in self.classes.items()]
        orders.check_class(rows, klass, turns=weight is not None)
        return self._order("set-priority", who, f"class {klass}" + (f", weight {weight}" if weight else ""))

    def set_class(self, klass: str, change: Mapping[str, object] | None) -> Outcome:
        assert change is not None
        self.classes[klass] = change
        return Outcome("set-class", (Change(0, note=klass, stands=True),))

    def release(self, who: str) -> Outcome:
        self._there(who)
        self.done.append(("release", who))
        if self.orders.pop(who, None) is None:
            return Outcome("release", skipped=(Skip(0, "it is not managed: nothing to put back"),))
        return Outcome("release", (Change(0, note=f"cgroup {who}: put back"),))

    def _order(self, verb: str, who: str, text: str) -> Outcome:
        self._there(who)
        self.done.append((verb, who, text))
        self.orders[who] = text
        return Outcome(verb, (Change(0, note=text, stands=True),))

    def _there(self, who: str) -> None:
        if not who.startswith("/") or not (self.cgroups / who[1:]).is_dir():
            raise BadRequest(f"there is no cgroup {who} below {self.cgroups}")


class World:
    """All of it, below one folder; the hierarchy of cgroups and the daemon may be real ones elsewhere."""

    def __init__(
        self, folder: Path, cluster: Cluster, cgroups: Path | None = None, run_dir: Path | None = None
    ) -> None:
        self.folder = folder
        self.cluster = cluster
        self.kubelet = Kubelet(folder / "kubelet")
        self.manager = DeviceManager(folder / "kubelet")
        self.cgroups = cgroups or folder / "cgroup"
        self.run_dir = run_dir or folder / "run"
        self.account = folder / "account"
        self.cdi = (folder / "etc-cdi", folder / "run-cdi")
        for each in (self.cgroups, self.run_dir, self.account, *self.cdi):
            each.mkdir(mode=0o700, exist_ok=True)
        (self.account / "token").write_text(TOKEN)
        self.module = Module(self.cgroups)
        self._daemon: asyncio.Task[None] | None = None
        self._driver: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    # -- parts that come and go -----------------------------------------------------------------------------------

    async def start_daemon(self) -> None:
        ready = asyncio.Event()
        self._daemon = asyncio.create_task(self._serve_daemon(ready))
        await ready.wait()

    async def _serve_daemon(self, ready: asyncio.Event) -> None:
        daemon = Daemon(self.run_dir, 0.02, None)
        await daemon.open("fake")
        runner, listening = await listen(daemon, self.run_dir / SOCKET_NAME)
        looking = asyncio.create_task(daemon.keep_looking())
        ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            looking.cancel()
            (self.run_dir / SOCKET_NAME).unlink()
            listening.close()
            daemon.end_readers()
            await daemon.close()
            await runner.cleanup()

    async def stop_daemon(self) -> None:
        if self._daemon is not None:
            self._daemon.cancel()
            await asyncio.gather(self._daemon, return_exceptions=True)
            self._daemon = None

    async def start_driver(self, *, dra: bool = True, resources: Mapping[str, int] | None = None) -> None:
        """Until kubelet has it."""
        place = Place(
            "worker-1", self.kubelet.folder, self.cgroups, self.cdi, self.cluster.address, self.account, interval=0.02
        )
        self._stop = asyncio.Event()
        client = Client(self.run_dir)
        self._driver = asyncio.create_task(
            serve(place, client, dra=dra, resources=dict(resources or {}), stop=self._stop)
        )
        if dra:
            await until(lambda: self._driver is None or self._driver.done() or self.kubelet.sockets())
            if self._driver.done():
                self._driver.result()
            await self.kubelet.register()

    async def stop_driver(self) -> None:
        if self._driver is not None:
            self._stop.set()
            await self._driver
            self._driver = None

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*[task for task in (self._driver,) if task is not None], return_exceptions=True)
        await self.stop_daemon()

    @property
    def command(self) -> list[str]:
        """The driver as a process of its own."""
        words = [sys.executable, "-m", "detshare.ctl.kubernetes", "--node", "worker-1", "--run-dir", str(self.run_dir)]
        words += ["--api-server", self.cluster.address, "--service-account", str(self.account)]
        words += ["--kubelet", str(self.kubelet.folder), "--cgroups", str(self.cgroups)]
        return words + [word for folder in self.cdi for word in ("--cdi", str(folder))]

    # -- pods and claims ------------------------------------------------------------------------------------------

    def pod(self, uid: str = "", systemd: bool = True) -> tuple[str, str]:
        """A pod whose cgroup kubelet has made: its UID and that. `systemd`: kubelet's cgroup driver."""
        uid = uid or str(uuid.uuid4())
        inner = f"kubepods/burstable/pod{uid}"
        if systemd:
            inner = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        (self.cgroups / inner).mkdir(parents=True)
        return uid, f"/{inner}"

    def claim(
        self,
        name: str,
        *pods: str,
        devices: tuple[str, ...] = (FIRST,),
        consumed: Mapping[str, str] | None = None,
        of_class: Mapping[str, object] | None = None,
        of_claim: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """One that the scheduler has allocated and reserved for pods."""
        result: dict[str, Any] = {"driver": "gpu.detshare.io", "pool": "worker-1", "request": "gpu"}
        if consumed is not None:
            result |= {"consumedCapacity": dict(consumed), "shareID": str(uuid.uuid4())}
        said = (("FromClass", of_class), ("FromClaim", of_claim))
        config = [_config(source, parameters) for source, parameters in said if parameters is not None]
        results = [{**result, "device": each} for each in devices]
        made = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "detshare-normal"}}]}},
            "status": {
                "allocation": {"devices": {"results": results, "config": config}},
                "reservedFor": [{"resource": "pods", "name": f"pod-{each[:4]}", "uid": each} for each in pods],
            },
        }
        return self.cluster.put(f"apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}", made)

    def edits(self, name: str) -> dict[str, list[Any]]:
        return edits(self.cdi, name)


def _config(source: str, parameters: Mapping[str, object]) -> dict[str, Any]:
    head = {"apiVersion": "gpu.detshare.io/v1", "kind": "GpuParameters"}
    return {
        "source": source,
        "requests": [],
        "opaque": {"driver": "gpu.detshare.io", "parameters": {**head, **parameters}},
    }


@asynccontextmanager
async def world(folder: Path, monkeypatch: pytest.MonkeyPatch, consumable: bool = True) -> AsyncIterator[World]:
    """With daemon and API server, without driver."""
    made = World(folder, Cluster(consumable))
    monkeypatch.setattr(daemon_module, "build_backend", lambda name, where: Built(made.module, None))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(made.cluster.serving())
        stack.push_async_callback(made.stop)
        await made.start_daemon()
        yield made


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, test: Any, **named: Any) -> None:
    """A test that is a coroutine of a World."""

    async def whole() -> None:
        async with world(folder, monkeypatch, **named) as made:
            await test(made)

    asyncio.run(whole())
