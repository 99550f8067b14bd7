# SPDX-License-Identifier: Apache-2.0
"""/etc/detshare/detshare.toml: what the daemon does where the command line does not say otherwise.

Every value is checked before anything starts; what is wrong is told with file, line, key and reason, all of it at once.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import socket
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core.config_lines import Lines
from detshare.ctl.core.config_values import (
    Bad,
    arena_bytes,
    check_arena,
    check_backend,
    check_classes,
    check_exclusive,
    check_file,
    check_flag,
    check_gpu_policy,
    check_gpu_tables,
    check_group,
    check_hosts,
    check_interval,
    check_level,
    check_listen,
    check_log_format,
    check_page,
    check_parameters,
    check_policy,
    check_tables,
    check_tiers,
    check_users,
    check_wait,
    shown,
)
from detshare.ctl.core.containers import Containers, check_devices
from detshare.ctl.core.errors import ControlError

__all__ = [
    "DEFAULT_PATH",
    "Access",
    "Config",
    "ConfigError",
    "Containers",
    "Daemon",
    "Exclusive",
    "GpuPolicy",
    "Metrics",
    "Page",
    "Park",
    "Policy",
    "Pool",
    "load",
    "parse",
]

DEFAULT_PATH: Final = Path("/etc/detshare/detshare.toml")
LARGEST: Final = 1 << 20
"""bytes of a configuration file"""


@dataclass(frozen=True, slots=True)
class Daemon:
    """How the daemon works."""

    backend: str = "auto"
    interval: float = 0.25
    """seconds from one look to the next"""
    log_level: str = "info"
    log_format: str = "text"
    observers: bool = False
    """with backend root: hear of new contexts by eBPF"""
    dirty: bool = False
    """watch what programs write, from their begin on, by eBPF"""
    launches: bool = False
    """count what programs launch, by eBPF, for policies, `show`, `top`, `why` and metrics"""
    classes: Mapping[str, str] = field(default_factory=dict)
    """command pattern -> class of programs of which nobody asked anything; the first that matches counts"""


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """That of one GPU."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy that decides from the start on."""

    name: str = "slo-aware"
    """an entry point's name, or the path of a Python file"""
    parameters: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, GpuPolicy] = field(default_factory=dict)
    """number or UUID of a GPU -> its own"""


@dataclass(frozen=True, slots=True)
class Exclusive:
    """A pCtx that one program has to itself. `gpu` "": on every GPU, each by itself."""

    name: str
    sms: int
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """The pCtxs of each GPU."""

    tiers: tuple[int, ...] = (10, 25, 50, 75, 100)
    """percent of the SMs, shared by whoever is bound to them"""
    exclusive: tuple[Exclusive, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask, and who may change."""

    group: str = "detshare"
    """owns the socket: its members may read. Where there is no such group, root alone may"""
    users: tuple[str, ...] = ()
    """may change everything, besides root"""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where /metrics is to be had besides the socket: "127.0.0.1:9835"; empty: nowhere."""

    listen: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Where the page is to be had besides the socket, and what it may do."""

    listen: str = ""
    """ "127.0.0.1:9836"; with a certificate any address; empty: nowhere"""
    changes: bool = False
    """a browser may change what the user may who asked for its address; False: it may look"""
    certificate: str = ""
    """a PEM file, with what stands between it and its root"""
    key: str = ""
    """a PEM file; empty: the key is in the file of the certificate"""
    hosts: tuple[str, ...] = ()
    """names by which browsers ask for it, besides addresses; the first is the one that is printed"""

    @property
    def loopback(self) -> bool:
        """Whether other machines cannot reach it."""
        return ipaddress.ip_address(self._host).is_loopback

    @property
    def address(self) -> str:
        """For a browser on this machine: "http://127.0.0.1:9836/"."""
        host, port = self._host, self.listen.rpartition(":")[2]
        if self.hosts and not self.loopback:
            name = self.hosts[0]
        elif ipaddress.ip_address(host).is_unspecified:
            name = socket.gethostname()
        else:
            name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.certificate else 'http'}://{name}:{port}/"

    @property
    def _host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True)
class Park:
    """Host memory for programs whose GPU memory is parked."""

    arena: str = "50%"
    """for all of them together: a size, or a share of the host's"""
    wait: float = 0.0
    """seconds that an allocation which finds no room on the GPU waits for a policy to make some; 0: it fails at once"""
    incremental: bool = True
    """copies are kept after the way back, and the next park copies what changed"""
    lazy: bool = False
    """a parked program runs again over host memory, while its memory comes home"""
    huge_pages: bool = False
    """that host memory is of the kernel's pool of huge pages (2 MiB), as long as it has any"""

    @property
    def bytes(self) -> int:
        """The same as a number."""
        return arena_bytes(self.arena) or 0


@dataclass(frozen=True, slots=True)
class Config:
    """All of it. `path` None: there is no file, everything is as by default."""

    daemon: Daemon = field(default_factory=Daemon)
    policy: Policy = field(default_factory=Policy)
    pool: Pool = Pool()
    access: Access = Access()
    metrics: Metrics = Metrics()
    page: Page = Page()
    park: Park = Park()
    containers: Containers = field(default_factory=Containers)
    path: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """As TOML would have it."""
        made = asdict(self)
        made["path"] = None if self.path is None else str(self.path)
        return made


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `line` 0: it is about the whole file."""

    line: int
    key: str
    reason: str

    def text(self, path: Path) -> str:
        """For people: "/etc/detshare/detshare.toml:3: daemon.interval: ..."."""
        where = f"{path}:{self.line}" if self.line else str(path)
        return f"{where}: {self.key}: {self.reason}" if self.key else f"{where}: {self.reason}"


class ConfigError(ControlError):
    """A configuration that cannot be used."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.path = path
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        stopped = "\n  ".join(problem.text(path) for problem in self.problems)
        following = f"correct it, then: detshare-ctl config check {shlex.quote(str(path))}"
        super().__init__("read the configuration", stopped, following, usage=True)

    def to_json(self) -> dict[str, Any]:
        """The error, and each problem by itself."""
        problems = [asdict(problem) | {"file": str(self.path)} for problem in self.problems]
        return {"error": {**super().to_json()["error"], "problems": problems}}


_SECTIONS: Final[Mapping[str, Mapping[str, Callable[[object], Any]]]] = {
    "daemon": {
        "backend": check_backend,
        "interval": check_interval,
        "log_level": check_level,
        "log_format": check_log_format,
        "observers": check_flag,
        "dirty": check_flag,
        "launches": check_flag,
        "classes": check_classes,
    },
    "policy": {"name": check_policy, "parameters": check_parameters, "gpus": check_gpu_tables},
    "pool": {"tiers": check_tiers, "exclusive": check_tables},
    "access": {"group": check_group, "users": check_users},
    "metrics": {"listen": check_listen},
    "page": {
        "listen": check_page,
        "changes": check_flag,
        "certificate": check_file,
        "key": check_file,
        "hosts": check_hosts,
    },
    "park": {
        "arena": check_arena,
        "wait": check_wait,
        "incremental": check_flag,
        "lazy": check_flag,
        "huge_pages": check_flag,
    },
    "containers": {"required": check_flag, "devices": check_devices},
}
_MADE: Final[Mapping[str, Callable[..., Any]]] = {
    "daemon": Daemon,
    "policy": Policy,
    "pool": Pool,
    "access": Access,
    "metrics": Metrics,
    "page": Page,
    "park": Park,
    "containers": Containers,
}


def load(path: Path | None = None) -> Config:
    """The configuration in `path`; without one, that of DEFAULT_PATH where there is such a file. ConfigError."""
    where = path or DEFAULT_PATH
    try:
        with where.open("rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(where, [Problem(0, "", "it is no ordinary file")])
            _check_owner(where, found)
            data = stream.read(LARGEST + 1)
    except FileNotFoundError:
        if path is None:
            return Config()
        raise ConfigError(where, [Problem(0, "", "there is no such file")]) from None
    except OSError as error:
        raise ConfigError(where, [Problem(0, "", f"it cannot be read ({error.strerror})")]) from error
    except ValueError as error:  # a path with a NUL in it
        raise ConfigError(where, [Problem(0, "", f"it cannot be read ({error})")]) from error
    return parse(data, where)


def _check_owner(path: Path, found: os.stat_result) -> None:
    """It names who may change every program, and code that the daemon runs: nobody else may write it."""
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(path, [Problem(0, "", f"it belongs to uid {found.st_uid}, not to root or to you")])
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError(path, [Problem(0, "", f"others may write it (mode {mode:o}): chmod go-w {path}")])


def parse(data: bytes, path: Path = DEFAULT_PATH) -> Config:
    """The configuration that a file of this content is. ConfigError."""
    if len(data) > LARGEST:
        raise ConfigError(path, [Problem(0, "", f"it is longer than {LARGEST} bytes")])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(path, [Problem(line, "", "it is no UTF-8 text")]) from error
    lines = Lines(text)
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(path, [Problem(0, "", "it is nested too deeply")]) from None
    except ValueError as error:  # TOMLDecodeError, and what Python makes of numbers with thousands of digits
        line, reason = lines.of_error(str(error))
        raise ConfigError(path, [Problem(line, "", f"no TOML: {reason}")]) from error
    return _Reader(lines, path).read(tree)


class _Reader:
    """Checks every value and gathers what is wrong."""

    def __init__(self, lines: Lines, path: Path) -> None:
        self._lines = lines
        self._path = path
        self._problems: list[Problem] = []

    def _wrong(self, key: tuple[str | int, ...], reason: str) -> None:
        self._problems.append(Problem(self._lines.of(key), self._lines.name(key), reason))

    def read(self, tree: Mapping[str, Any]) -> Config:
        made: dict[str, Any] = {}
        for name, content in tree.items():
            if name not in _SECTIONS:
                self._wrong((name,), f"there is no such section; sections are {', '.join(_SECTIONS)}")
            elif not isinstance(content, dict):
                self._wrong((name,), f"it is {shown(content)}; it is a section: [{name}]")
            else:
                made[name] = self._section(name, content)
        if {"metrics", "page"} <= made.keys() and made["page"].listen and made["page"].listen == made["metrics"].listen:
            self._wrong(("page", "listen"), f"{made['page'].listen} is the address of metrics.listen too")
        if self._problems:
            raise ConfigError(self._path, self._problems)
        return Config(**made, path=self._path)

    def _section(self, section: str, content: Mapping[str, Any]) -> Any:
        checks = _SECTIONS[section]
        values: dict[str, Any] = {}
        for key, value in content.items():
            if key not in checks:
                self._wrong((section, key), f"there is no such key; [{section}] takes {', '.join(checks)}")
                continue
            try:
                values[key] = checks[key](value)
            except Bad as error:
                self._wrong((section, key, *error.below), str(error))
        if section == "pool" and "exclusive" in values:
            values["exclusive"] = self._exclusive(values["exclusive"])
        if section == "policy" and "gpus" in values:
            values["gpus"] = self._gpu_policies(values["gpus"])
        if section == "page":
            self._page(values)
        return _MADE[section](**values)

    def _gpu_policies(self, tables: Mapping[str, object]) -> dict[str, GpuPolicy]:
        made: dict[str, GpuPolicy] = {}
        for gpu, table in tables.items():
            try:
                made[gpu] = GpuPolicy(*check_gpu_policy(gpu, table))
            except Bad as error:
                self._wrong(("policy", "gpus", gpu, *error.below), str(error))
        return made

    def _page(self, values: Mapping[str, Any]) -> None:
        made = Page(**values)
        if made.key and not made.certificate:
            self._wrong(("page", "key"), "it is the key of a certificate, and page.certificate is not set")
        if made.listen and not made.loopback and not made.certificate:
            reason = f"{made.listen} is not this machine's loopback: that takes page.certificate and page.key"
            self._wrong(("page", "listen"), reason)

    def _exclusive(self, tables: list[dict[str, object]]) -> tuple[Exclusive, ...]:
        made: list[Exclusive] = []
        for index, table in enumerate(tables):
            try:
                name, sms, gpu = check_exclusive(table, [each.name for each in made])
                made.append(Exclusive(name, sms, gpu))
            except Bad as error:
                self._wrong(("pool", "exclusive", index, *error.below), str(error))
        for index, each in enumerate(made):
            same = (other.name for other in made[:index] if "" in (each.gpu, other.gpu) or each.gpu == other.gpu)
            if name := next(same, ""):
                reason = f"{name} is exclusive on that GPU already: SMs are cut in a first part and a rest, no further"
                self._wrong(("pool", "exclusive", index), reason)
        return tuple(made)
