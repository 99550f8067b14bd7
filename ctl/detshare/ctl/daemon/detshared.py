# SPDX-License-Identifier: Apache-2.0
"""The process `detshared`: options, locks, the guardian, the socket, signals, systemd."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from aiohttp import web

from detshare.ctl.backends.verbs import explain
from detshare.ctl.core import config as configuration
from detshare.ctl.core import options, procfs, rundir, streams
from detshare.ctl.core.config import Config
from detshare.ctl.core.config_values import INTERVALS, LEVELS, Bad, check_page
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.rundir import REPORTS_NAME, SOCKET_NAME
from detshare.ctl.daemon import logs, settings
from detshare.ctl.daemon.api import Connection, make_app
from detshare.ctl.daemon.daemon import Daemon
from detshare.ctl.daemon.page.routes import Page
from detshare.ctl.daemon.page.serve import serve as serve_page
from detshare.ctl.daemon.scrape import scrape
from detshare.ctl.oneshot import AUTO, BACKENDS, Guard, require_root, resolve, start_guardian

log = logging.getLogger("detshared")

SWITCH_S: Final = 0.0005
"""after which a thread gives up the interpreter where another waits for it"""
FULL: Final = 100
"""collections of younger objects between two of all, which stop every thread for milliseconds: what looks leave behind
is in no cycles, so it is gone without them"""
DRIVER_PAUSE_S: Final = 1.0
"""between two looks for a driver that is not loaded yet"""
LONGEST: Final = 107
"""bytes of the name of a UNIX socket (unix(7)); that of the reports' is shorter than the daemon's own"""
LOCK_PATIENCE: Final = 1.0
"""seconds to wait for a daemon that is ending, or a guardian, to give up the lock"""
COMMAND_PATIENCE: Final = 60.0
"""the same for a one-shot command: on a slow machine it needs seconds"""


async def listen(
    daemon: Daemon, path: Path, load: Callable[[], Config] = configuration.load, page: Page | None = None
) -> tuple[web.AppRunner, asyncio.AbstractServer]:
    """Answer on a socket at `path`, mode 0660 and of the configured group where there is one, else 0600; take reports
    on another one beside it. `load` reads the configuration again.

    ControlError where it cannot be made.
    """
    app = make_app(daemon)
    settings.add(app, settings.Settings(daemon, load))
    (page or Page(daemon, daemon.config.page, path.parent)).add(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    server = runner.server
    assert server is not None
    loop = asyncio.get_running_loop()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)  # of a daemon that was killed: we hold the lock, so no living one owns it
        old = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old)
        _let_in(path, daemon.access.group)
        listening = await loop.create_unix_server(
            # None is what aiohttp's own runner passes for "no access log"
            lambda: Connection(
                server,
                loop=loop,
                access_log=None,  # type: ignore[arg-type]
                keepalive_timeout=30.0,
                lingering_time=1.0,  # for a client that is still sending a body we refused
            ),
            sock=listener,
            backlog=128,
        )
        daemon.reports.open(path.with_name(REPORTS_NAME), lambda made: _let_in(made, daemon.access.group))
    except OSError as error:
        listener.close()
        await runner.cleanup()
        stopped = f"{path} cannot be made ({error})"
        raise ControlError("start detshared", stopped, "is there room and a right to write?") from error
    return runner, listening


def _let_in(path: Path, group: int | None) -> None:
    """Let the members of a group connect; before anybody can, for nothing listens yet. OSError."""
    if group is None:
        return
    try:
        os.chown(path, -1, group)
    except PermissionError:  # no root, and no member of it: the daemon is for its user alone
        log.warning("%s stays with its user: you are no member of the group with number %d", path, group)
        return
    path.chmod(0o660)
    path.parent.chmod(stat.S_IMODE(path.parent.stat().st_mode) | 0o011)  # to pass through; nothing there is readable


async def serve(
    run_dir: Path,
    config: Config,
    guard: Guard | None,
    backend: str = "auto",
    why: str = "",
    load: Callable[[], Config] = configuration.load,
) -> int:
    """Run until SIGTERM or SIGINT. 0, or 1 where not everything could be restored (the guardian goes on then)."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    daemon = Daemon(run_dir, config.daemon.interval, guard, spatial=True, config=config)
    path = run_dir / SOCKET_NAME
    async with contextlib.AsyncExitStack() as stack:
        try:
            await daemon.open(backend, why)
            if config.metrics.listen:
                stack.push_async_callback((await scrape(daemon, config.metrics.listen)).cleanup)
            page = Page(daemon, config.page, run_dir)
            if config.page.listen:
                stack.push_async_callback(await serve_page(page, config.page))
            runner, listening = await listen(daemon, path, load, page)
        except Exception as error:
            if await daemon.close():
                daemon.dismiss_guardian()  # nothing is left to be put back
            log.debug("start failed", exc_info=error)
            raise explain(error, "start detshared") from error
        looking = asyncio.create_task(daemon.keep_looking())
        stack.callback(looking.cancel)
        log.info("ready on %s", path)
        notify("READY=1")
        await asyncio.wait((asyncio.create_task(stop.wait()), looking), return_when=asyncio.FIRST_COMPLETED)
        died = looking.done()
        if died:
            log.error("the look loop ended by itself", exc_info=looking.exception())
        notify("STOPPING=1")
        log.info("stopping: restoring every program")
        looking.cancel()
        path.unlink(missing_ok=True)
        listening.close()
        daemon.end_readers()
        restored = await daemon.close()
        await runner.cleanup()
    if not restored or died:
        return 1
    daemon.dismiss_guardian()
    return 0


def notify(state: str) -> None:
    """Tell systemd (sd_notify(3)); nothing where it did not ask."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError as error:
        log.warning("NOTIFY_SOCKET does not take %s: %s", state, error)


def _wait_for_driver(pause_s: float = DRIVER_PAUSE_S) -> None:
    """Return when an NVIDIA driver is loaded. A supervisor is told READY at once: who waits for the daemon goes on."""
    if procfs.driver_version() is not None:
        return
    said = 'no NVIDIA driver is loaded; waiting for it (to see the model instead: backend = "model")'
    log.info("%s", said)
    notify(f"READY=1\nSTATUS={said}")
    while procfs.driver_version() is None:
        time.sleep(pause_s)
    notify("STATUS=")


def run(run_dir: Path, config: Config, why: str = "", load: Callable[[], Config] = configuration.load) -> int:
    """The whole life of a daemon; its exit code. `why` this backend. `load` reads the configuration again.

    ControlError where it cannot start.
    """
    asked = "start detshared"
    backend, because = resolve(config.daemon.backend, model_too=True)
    why = why or because
    if backend == "model":
        log.warning("backend model (%s): a simulation in this process; no GPU and no real program is touched", why)
    else:
        require_root(asked)
    path = run_dir / SOCKET_NAME
    if len(os.fsencode(path)) > LONGEST:
        stopped = f"{path} is longer than the {LONGEST} bytes that a UNIX socket's name may have"
        raise ControlError(asked, stopped, "use a shorter --run-dir")
    rundir.prepare(run_dir, asked)
    # who decides waits for each of the daemon's other threads; Python's own 5 ms are all the time that a decision has
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()  # the collector need not look again at what stays as long as the daemon
    gc.set_threshold(*gc.get_threshold()[:2], FULL)
    with contextlib.ExitStack() as stack:
        for path in [run_dir / "lock", *([rundir.MACHINE] if backend != "model" else [])]:
            lock = rundir.Lock(path, "detshared")
            lock.acquire(asked, LOCK_PATIENCE, COMMAND_PATIENCE, lambda who: log.warning("waits for PID %s", who))
            stack.callback(lock.release)
        code = asyncio.run(serve(run_dir, config, start_guardian(run_dir, asked), backend, why, load))
        if code:
            log.error("ended with an error")
        return code


def _with_page(config: Config, listen: str | None, changes: bool | None) -> Config:
    """The configuration with what the command line says of the page. ControlError where that cannot be."""
    page = config.page
    if listen is not None:
        try:
            page = replace(page, listen=check_page(listen))
        except Bad as error:
            stopped = f"--page-listen: {error}"
            raise ControlError("start detshared", stopped, "see: detshared --help", usage=True) from error
    if changes is not None:
        page = replace(page, changes=changes)
    return replace(config, page=page)


@click.command("detshared", cls=streams.Tells, context_settings={"help_option_names": ["-h", "--help"]})
@options.run_dir("Folder of socket, lock and journal.")
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Configuration; options given here go before it.  [default: {configuration.DEFAULT_PATH}, where it is]",
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    help="kmod: this machine's programs through detshare.ko. root: the same through their own descriptors, without "
    "memory limits. model: a simulation in this process, no GPU is touched. auto: the first of these that can be had.  "
    "[default: auto]",
)
@click.option(
    "--interval",
    type=options.Seconds(*INTERVALS),
    help="Seconds from one look at the machine to the next.  [default: 0.25]",
)
@click.option(
    "--observers/--no-observers",
    default=None,
    help="With backend root: hear of new contexts by eBPF, besides looking.  [default: no]",
)
@click.option(
    "--page-listen",
    metavar="ADDRESS:PORT",
    help="Serve the page there besides the socket: 127.0.0.1:9836; with page.certificate of the configuration any "
    "address.  [default: nowhere]",
)
@click.option(
    "--page-changes/--no-page-changes",
    default=None,
    help="The page may change what the user may who opened it.  [default: no]",
)
@click.option(
    "--wait-for-driver",
    is_flag=True,
    help="Where no NVIDIA driver is loaded wait for one, whatever backend but model is asked for; for supervisors.",
)
@click.option("--log-level", type=click.Choice(LEVELS), help="[default: info]")
@click.option("--log-format", type=click.Choice(logs.FORMATS), help="Lines, or a JSON object each.  [default: text]")
def main(run_dir: Path, path: Path | None, wait_for_driver: bool, **given: Any) -> None:
    """Watch the GPU programs of this machine and keep them as asked; runs in the foreground.

    Example: sudo detshared, and in another terminal: sudo detshare-ctl ps
    """
    try:
        said = {name: value for name, value in given.items() if value is not None}
        page = said.pop("page_listen", None), said.pop("page_changes", None)

        def load() -> Config:
            found = _with_page(configuration.load(path), *page)
            return replace(found, daemon=replace(found.daemon, **said))

        config = load()
        why = f"{config.path} says so" if "backend" not in said and config.daemon.backend != AUTO else ""
        logs.begin(config.daemon.log_level, config.daemon.log_format)
        if config.path is not None:
            log.info("configuration: %s", config.path)
        if wait_for_driver and config.daemon.backend != "model":
            _wait_for_driver()
        code = run(run_dir, config, why, load)
    except ControlError as error:
        click.echo(f"detshared: {error}", err=True)
        sys.exit(2 if error.usage else 1)
    if sys.stderr is not None:  # closed
        sys.stderr.flush()
    if code:
        os._exit(code)  # a worker that hangs in the driver would keep the interpreter from ending
    sys.exit(0)


if __name__ == "__main__":
    main()
