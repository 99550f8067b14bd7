# SPDX-License-Identifier: Apache-2.0
"""The instrumented kernel: Debian's sources of the 6.12 kernel, unmodified, built with what finds broken modules.

KASAN, lockdep, kmemleak, sleep-in-atomic checks: debug.config says all. Made once for a configuration and a compiler.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from detshare.tools.vm import cache, toolchain
from detshare.tools.vm.debian import Suite
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.say import step

SUITE = "bookworm-backports"
PACKAGE = "linux-source-6.12"
CONFIG = Path(__file__).with_name("debug.config")
_FORMAT = "1"  # changes when the same sources and configuration shall be built in another way
_INFO = "kernel.json"
_ASKED = "build the kernel debug"


def folder() -> Path:
    """Where the kernel lies once it is made."""
    name = cache.key(_FORMAT, CONFIG.read_bytes(), toolchain.compiler_version())
    return cache.root() / "kernel" / f"debug-{name}"


def tree(*, update: bool = False) -> tuple[str, Path]:
    """Release, and the cached tree laid out as Debian's packages are; built when it is missing.

    500 s on two idle CPUs, 2 GB while it is made. `update`: from the suite's newest sources.
    """
    wanted = folder()
    name = f"kernel/{wanted.name}"
    if update and wanted.exists():
        suite = Suite(SUITE, "main")
        suite.update()
        with cache.lock(name):
            if wanted.exists() and _info(wanted)[PACKAGE] != suite.package(PACKAGE).version:
                cache.remove(wanted)
    made = cache.ensure(name, _make)
    return _info(made)["release"], made


def _info(made: Path) -> dict[str, str]:
    loaded = json.loads((made / _INFO).read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def _make(stage: Path) -> None:
    _check_tools()
    suite = Suite(SUITE, "main")
    suite.update()
    version = suite.package(PACKAGE).version
    package = stage / "package"
    suite.unpack([PACKAGE], package)
    packed = next((package / "usr" / "src").glob("linux-source-*.tar.*"), None)
    if packed is None:
        raise VmError(_ASKED, f"{PACKAGE} {version} holds no sources", "report it; the package's layout has changed")
    sources = stage / "sources"
    sources.mkdir()
    with step(f"unpacking the sources of {PACKAGE} {version}"):
        _run(stage, ["tar", "-xf", str(packed), "-C", str(sources), "--strip-components=1"])
    cache.remove(package)
    configure(sources)
    with step(f"building {PACKAGE} {version} with {CONFIG.name} (500 s with two CPUs)"):
        run_make(sources, "bzImage", "modules")
    release = install(sources, stage)
    cache.remove(sources)
    (stage / _INFO).write_text(json.dumps({"release": release, PACKAGE: version}) + "\n", encoding="utf-8")


def _check_tools() -> None:
    absent = [name for name in ("flex", "bison", "bc", "xz") if shutil.which(name) is None]
    if not Path("/usr/include/libelf.h").exists():
        absent.append("libelf.h")
    if absent:
        packages = "flex bison bc xz-utils libelf-dev"
        raise VmError(_ASKED, f"missing here: {', '.join(absent)}", f"as root: apt-get install {packages}")


def configure(sources: Path) -> None:
    """Writes .config; VmError when a line of debug.config does not hold in it."""
    run_make(sources, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig")
    held = set((sources / ".config").read_text(encoding="utf-8").splitlines())
    lost = missing(CONFIG.read_text(encoding="utf-8"), held)
    if lost:
        raise VmError(_ASKED, f"these sources do not take {', '.join(lost)}", f"mend {CONFIG.name}")


def missing(wanted: str, held: set[str]) -> list[str]:
    """Lines of a configuration (settings, and options that are to be off) that do not hold."""
    lines = [line for line in wanted.splitlines() if line.startswith(("CONFIG_", "# CONFIG_"))]
    return [line for line in lines if line not in held]


def install(sources: Path, stage: Path) -> str:
    """Image, modules and what modules are built against, from a built tree into `stage`; the release."""
    release = (sources / "include" / "config" / "kernel.release").read_text(encoding="utf-8").strip()
    (stage / "boot").mkdir()
    shutil.copy2(sources / "arch" / "x86" / "boot" / "bzImage", stage / "boot" / f"vmlinuz-{release}")
    run_make(sources, f"INSTALL_MOD_PATH={stage}", "modules_install")
    headers = stage / "usr" / "src" / f"linux-headers-{release}"
    run_make(sources, "run-command", f"KBUILD_RUN_COMMAND=scripts/package/install-extmod-build {headers}")
    (headers / ".config").write_bytes((sources / ".config").read_bytes())
    for name in ("build", "source"):
        (stage / "lib" / "modules" / release / name).unlink(missing_ok=True)
    return release


def run_make(sources: Path, *words: str) -> None:
    """make in a tree of the kernel's sources, behind whatever else the machine does."""
    compiler = toolchain.compiler()
    command = ["nice", "-n", "10", "make", "-C", str(sources), f"-j{os.cpu_count()}", "-s"]
    _run(sources.parent, [*command, f"CC={compiler}", f"HOSTCC={compiler}", *words])


def _run(stage: Path, command: list[str]) -> None:
    log_file = stage / "build.log"
    names = {"KBUILD_BUILD_USER": "detshare", "KBUILD_BUILD_HOST": "detshare", "LC_ALL": "C.UTF-8"}
    with log_file.open("a", encoding="utf-8") as log:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False, env=os.environ | names
        )
    if done.returncode:
        text = log_file.read_text(encoding="utf-8", errors="replace")
        kept = cache.root() / "debug-kernel.log"
        shutil.copy2(log_file, kept)
        raise VmError(_ASKED, toolchain.failure(text, 20), f"read {kept}")
