# SPDX-License-Identifier: Apache-2.0
"""The process: options, the passes, signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from detshare.ctl.client import Client
from detshare.ctl.core import options
from detshare.ctl.core.errors import ControlError
from detshare.ctl.kubernetes import deviceplugin
from detshare.ctl.kubernetes.api import ACCOUNT, Api, ApiError, server_address
from detshare.ctl.kubernetes.cdi import Specifications
from detshare.ctl.kubernetes.checkpoint import Checkpoint
from detshare.ctl.kubernetes.deviceplugin import DevicePlugins
from detshare.ctl.kubernetes.driver import Driver
from detshare.ctl.kubernetes.node import Gpu, Node, State
from detshare.ctl.kubernetes.parameters import DRIVER
from detshare.ctl.kubernetes.plugin import Plugin
from detshare.ctl.kubernetes.slices import Publisher

__all__ = ["Place", "main", "serve"]

log = logging.getLogger("detshare.kubernetes")

AWAY_S: Final = 30.0
"""after which a daemon that does not answer takes the node's GPUs off the offer; restarts of it are shorter"""
CHECK_S: Final = 60.0
"""from one look for the slice at the API server to the next"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where things lie on a node."""

    node: str
    kubelet: Path
    cgroups: Path
    cdi: tuple[Path, ...]
    """specifications of claims are written into the last"""
    server: str = ""
    """the API server's address; without DRA nobody asks it"""
    account: Path = ACCOUNT
    interval: float = 2.0
    """seconds from one pass to the next"""

    @property
    def folder(self) -> Path:
        """The driver's own, among kubelet's plugins."""
        return self.kubelet / "plugins" / DRIVER


class _Passes:
    """What is done again and again: the offer, the tenants, the named devices."""

    def __init__(self, node: Node, driver: Driver | None, publisher: Publisher | None, plugins: DevicePlugins) -> None:
        self._node = node
        self._driver = driver
        self._publisher = publisher
        self._plugins = plugins
        self._seen = time.monotonic()
        self._checked = float("-inf")
        self._told = ""

    async def one(self) -> None:
        """One pass. What fails is told, and tried again in the next."""
        try:
            state: State | None = await asyncio.to_thread(self._node.state)
            self._seen = time.monotonic()
        except ControlError as error:
            state = None
            self._complain(error)
        await self._plugins.keep(state is not None)
        if self._driver is not None and state is not None:
            await self._driver.keep(state)
        gpus: Sequence[Gpu] = state.gpus if state is not None else ()
        if self._publisher is not None and (state is not None or time.monotonic() - self._seen > AWAY_S):
            await self._offer(self._publisher, gpus, state.driver if state is not None else "")
        elif state is not None:
            self._told = ""

    async def _offer(self, publisher: Publisher, gpus: Sequence[Gpu], driver: str) -> None:
        now = time.monotonic()
        check = now - self._checked > CHECK_S
        try:
            if await publisher.publish(gpus, driver, check=check):
                log.info("offered: %s", ", ".join(gpu.device for gpu in gpus) or "no GPU")
            if check:
                self._checked = now
            if gpus:
                self._told = ""
        except ApiError as error:
            self._complain(error)

    def _complain(self, error: ControlError) -> None:
        text = str(error).replace("\n", "; ")
        if text != self._told:
            self._told = text
            log.warning("%s", text)


async def serve(place: Place, client: Client, *, dra: bool, resources: dict[str, int], stop: asyncio.Event) -> None:
    """Serve kubelet until `stop`. ControlError where it cannot begin."""
    node = Node(client)
    async with contextlib.AsyncExitStack() as stack:
        plugins = DevicePlugins(resources, place.kubelet / "device-plugins", place.cdi)
        stack.push_async_callback(plugins.stop)
        driver = publisher = None
        if dra:
            place.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            place.cdi[-1].mkdir(mode=0o755, parents=True, exist_ok=True)
            api = await stack.enter_async_context(Api(place.server, place.account))
            checkpoint = Checkpoint(place.folder / "checkpoint.json")
            driver = Driver(api, node, checkpoint, Specifications(place.cdi[-1], place.cdi), place.cgroups)
            publisher = Publisher(api, place.node)
            await driver.start()
            stack.push_async_callback(driver.stop)
            plugin = Plugin(driver, place.kubelet / "plugins_registry", place.folder)
            stack.push_async_callback(plugin.stop)
            await plugin.start()
        passes = _Passes(node, driver, publisher, plugins)
        while not stop.is_set():
            await passes.one()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), place.interval)


async def _until_signal(place: Place, client: Client, dra: bool, resources: dict[str, int]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(place, client, dra=dra, resources=resources, stop=stop)


def _resources(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    try:
        return dict(map(deviceplugin.parse, given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_FOLDER: Final = click.Path(path_type=Path)


@click.command("detshare.ctl.kubernetes", context_settings={"help_option_names": ["-h", "--help"]})
@options.run_dir("Folder of the daemon's socket.")
@click.option("--node", envvar="NODE_NAME", required=True, help="Name of this Node.  [default: NODE_NAME]")
@click.option("--api-server", metavar="URL", help="[default: that of the cluster that this pod is in]")
@click.option("--service-account", type=_FOLDER, default=ACCOUNT, show_default=True, help="Folder of token and ca.crt.")
@click.option("--kubelet", type=_FOLDER, default="/var/lib/kubelet", show_default=True, help="Its folder.")
@click.option("--cgroups", type=_FOLDER, default="/sys/fs/cgroup", show_default=True, help="The host's hierarchy.")
@click.option(
    "--cdi",
    type=_FOLDER,
    multiple=True,
    default=("/etc/cdi", "/var/run/cdi"),
    show_default=True,
    help="Folders of specifications, several times; those of claims go into the last.",
)
@click.option("--dra/--no-dra", default=True, help="Dynamic resource allocation.  [default: yes]")
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME=N",
    callback=_resources,
    help="Offer N times detshare.io/NAME, a named device of CDI, by the device-plugin API.",
)
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
def main(
    run_dir: Path,
    node: str,
    api_server: str | None,
    service_account: Path,
    kubelet: Path,
    cgroups: Path,
    cdi: tuple[Path, ...],
    dra: bool,
    resources: dict[str, int],
    log_level: str,
) -> None:
    """Give pods of this node parts of its GPUs; runs in the foreground, beside detshared.

    Example: python3 -m detshare.ctl.kubernetes --node worker-1 --resource inference-high=4
    """
    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    try:
        if not dra and not resources:
            raise ControlError("serve kubelet", "--no-dra without --resource", "offer something", usage=True)
        server = api_server or (server_address() if dra else "")
        place = Place(node, kubelet, cgroups, cdi, server, service_account)
        asyncio.run(_until_signal(place, Client(run_dir), dra, resources))
    except ControlError as error:
        click.echo(f"detshare.ctl.kubernetes: {error}", err=True)
        sys.exit(2 if error.usage else 1)
