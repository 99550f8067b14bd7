# SPDX-License-Identifier: Apache-2.0
"""A root of Debian as a machine of its own: a disk that boots its own kernel and systemd, and a user's shell in it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from detshare.tools.vm import builds, emulator, tsc
from tests import patience
from tests.debian.roots import Root, archives
from tests.unit.builds import ROOT
from tests.unit.pages import Session

USER: Final = "alice"
HERE: Final = f"/home/{USER}/packages"
"""the folder that the reader of a page is in"""
SYSTEM: Final = ("systemd-sysv", "udev", "kmod", "linux-image-amd64", "linux-headers-amd64")
"""what makes a minimal root a machine that can have modules"""
BUSY_S: Final = 3600.0
"""an emulated processor works all the time: only one that is not asked for anything, or for an hour, hangs"""
_MEMORY: Final = 2048
_DISK: Final = "5G"
_SHELL: Final = f"""\
[Unit]
Description=What the test says, as {USER}
After=multi-user.target
[Service]
ExecStart=/bin/bash -c 'until [[ -e /dev/virtio-ports/shell ]]; do sleep 0.2; done; \
exec <>/dev/virtio-ports/shell >&0 2>&1; \
exec runuser -u {USER} -- env -C {HERE} HOME=/home/{USER} USER={USER} LANG=C.UTF-8 COLUMNS=100 bash'
[Install]
WantedBy=multi-user.target
"""
# `make modules` of sources that were compiled for this kernel already, on the host: an emulated processor takes
# ten times as long. All else that DKMS does, signing and installing among it, it does in the machine.
_MAKE: Final = """\
#!/bin/bash
for word in "$@"; do [[ $word == M=* ]] && folder=${word#M=}; done
if [[ " $* " == *" modules "* ]]; then
    for sums in /srv/built/*.sums; do
        (cd "$folder" && sha256sum --check --status "$sums") || continue
        exec cp "${sums%.sums}.ko" "$folder/detshare.ko"
    done
fi
exec /usr/bin/make "$@"
"""
# What is only recommended, a tool chain for user space say, takes the machine minutes and nobody here uses it. Packages
# are set up without /usr/local on the path otherwise, where `make` lies.
_APT: Final = """\
APT::Install-Recommends "false";
DPkg::Path "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
"""
CLIENTS: Final = "/srv/nvclient"
"""programs of tests/nvclient in a machine with the simulated driver"""
_SIM: Final = "/srv/nvsim"
_DRIVER: Final = f"""\
[Unit]
Description=The simulated driver of one GPU, and its device files
Before=detshared.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={_SIM}/load
[Install]
WantedBy=multi-user.target
"""
_LOAD: Final = f"""\
#!/bin/bash
set -eu
insmod {_SIM}/nvidia.ko gpus=1
insmod {_SIM}/nvidia-uvm.ko
umask 0
mknod /dev/nvidiactl c 195 255
mknod /dev/nvidia0 c 195 0
mknod /dev/nvidia-uvm c "$(sed -n 's/ nvidia-uvm$//p' /proc/devices)" 0
"""
# Debian's timers fetch lists when they like: what apt does here is the page's doing alone
_QUIET: Final = ("apt-daily.timer", "apt-daily-upgrade.timer", "systemd-networkd-wait-online.service")


def inhabit(root: Root) -> None:
    """Makes the root a machine with one user, whose shell answers."""
    root.does(f"useradd --create-home --shell /bin/bash {USER} && mkdir {HERE} && chown {USER}: {HERE}")
    sudoers = root.folder / "etc/sudoers.d/test"
    sudoers.write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)
    (root.folder / "etc/systemd/system/shell.service").write_text(_SHELL)
    (root.folder / "etc/hostname").write_text("debian\n")
    (root.folder / "etc/hosts").write_text("127.0.0.1 localhost debian\n")
    root.does("systemctl enable shell.service && systemctl mask " + " ".join(_QUIET))


def furnish(root: Root, debs: Path) -> None:
    """Makes the root a machine with one user and a mirror on its disk of all that the packages in `debs` want."""
    inhabit(root)
    shutil.copytree(debs, root.folder / "tmp/debs", ignore=shutil.ignore_patterns("*.xz", "*.dsc", "*.log", "*SUMS"))
    root.does("apt-get update --quiet")
    (root.folder / "etc/apt/apt.conf.d/90test").write_text(_APT)
    wanted = "linux-headers-amd64 /tmp/debs/*.deb"
    root.does(f"apt-get install --yes --download-only {wanted}")
    # with nothing fetched it names all; what lies in debs is no file of the mirror's
    asked = f"mkdir -p /tmp/none/partial; apt-get install --yes --print-uris -o Dir::Cache::archives=/tmp/none {wanted}"
    named = re.findall(r"^'http\S+' (\S+\.deb) \d+", root.does(asked), re.MULTILINE)
    mirror = root.folder / "srv/debian"
    mirror.mkdir()
    for each in archives(root.release).glob("*.deb"):
        if each.name in named:
            shutil.copy(each, mirror)
    for left in ("debs", "none"):
        shutil.rmtree(root.folder / "tmp" / left)
    listed = patience.run(["dpkg-scanpackages", "--multiversion", "."], cwd=mirror, capture_output=True, check=True)
    (mirror / "Packages").write_bytes(listed.stdout)
    for path in (root.folder / "etc/apt").glob("sources.list*/*"):
        path.unlink()
    (root.folder / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/debian ./\n")


def compile_ahead(root: Root, debs: Path) -> None:
    """Compiles the source of detshare-dkms for the root's kernel, with its compiler, for `make` in the machine."""
    built = root.folder / "srv/built"
    source = built / "source"
    source.mkdir(parents=True)
    patience.run(["dpkg-deb", "-x", next(debs.glob("detshare-dkms_*.deb")), source], check=True)
    folder = next(source.glob("usr/src/*"))
    inside = f"/{folder.relative_to(root.folder)}"
    root.does(f"cd {inside} && find . -type f | xargs sha256sum >/srv/built/{folder.name}.sums")
    _modules(root, inside)
    shutil.move(folder / "detshare.ko", built / f"{folder.name}.ko")
    shutil.rmtree(source)
    script = root.folder / "usr/local/bin/make"
    script.write_text(_MAKE)
    script.chmod(0o755)


def _modules(root: Root, folder: str) -> None:
    # make is none of a fresh root's: the host's compiles nothing, it only calls the root's compiler
    shutil.copy("/usr/bin/make", root.folder / "srv/make")
    root.does(f"/srv/make -s -j2 -C /lib/modules/*/build M={folder} modules")


def simulate(root: Root, clients: Path) -> None:
    """Gives the machine the simulated driver, which it loads as it boots, and the built programs of tests/nvclient."""
    folder = ROOT / "tests/nvsim"
    base, files = builds.sources(folder)
    stage = root.folder / "tmp/nvsim"
    for file in files:
        to = stage / file.relative_to(base)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)
    inside = folder.relative_to(base)
    written = builds.generated(folder)
    assert written is not None
    shutil.copytree(written, stage / inside, dirs_exist_ok=True)
    _modules(root, f"/tmp/nvsim/{inside}")
    made = root.folder / _SIM.lstrip("/")
    made.mkdir()
    for module in (stage / inside).glob("*.ko"):
        shutil.move(module, made / module.name)
    shutil.rmtree(stage)
    (made / "load").write_text(_LOAD)
    (made / "load").chmod(0o755)
    (root.folder / "etc/systemd/system/driver.service").write_text(_DRIVER)
    root.does("systemctl enable driver.service")
    there = root.folder / CLIENTS.lstrip("/")
    there.mkdir()
    for name in ("nvalloc", "nvbackground"):
        shutil.copy(clients / name, there / name)


def give(root: Root, folder: str, debs: Path) -> None:
    """Puts packages into a folder of the root, for its user."""
    (root.folder / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for each in debs.glob("*.deb"):
        shutil.copy(each, root.folder / folder.lstrip("/") / each.name)


def disk(root: Root, image: Path) -> Path:
    """A disk with the root's files; the root is not needed after it."""
    patience.run(["mke2fs", "-q", "-t", "ext4", "-E", "nodiscard", "-d", root.folder, image, _DISK], check=True)
    return image


class Machine:
    """Boots a disk, again and again; `log` has the serial console of all boots."""

    def __init__(self, root: Root, image: Path, log: Path) -> None:
        boot = root.folder / "boot"
        self._kernel = shutil.copy(next(boot.glob("vmlinuz-*")), image.with_suffix(".kernel"))
        self._initrd = shutil.copy(next(boot.glob("initrd.img-*")), image.with_suffix(".initrd"))
        self._image, self._log = image, log

    def boot(self) -> Session:
        """A shell of the machine's user, which ends with the machine."""
        append = ["root=/dev/vda", "rw", "console=ttyS0", "loglevel=4", "panic=-1", "oops=panic", "mitigations=off"]
        append += ["nokaslr", "tsc=reliable", "random.trust_cpu=on", "audit=0", "watchdog_thresh=60"]
        append += ["rcupdate.rcu_cpu_stall_timeout=120", "systemd.default_timeout_start_sec=900"]
        rate = tsc.khz()
        append += [f"tsc_early_khz={rate}"] if rate else []
        drive = f"id=disk,file={self._image},format=raw,if=none,cache=unsafe"
        words = [
            *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
            *(*emulator.command(), "-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-smp", "2"),
            *("-m", f"{_MEMORY}M", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none"),
            *("-kernel", self._kernel, "-initrd", self._initrd, "-append", " ".join(append)),
            *("-drive", drive, "-device", "virtio-blk-pci,drive=disk,vectors=0", "-device", "virtio-rng-pci,vectors=0"),
            *("-chardev", f"file,id=log,path={self._log},append=on", "-serial", "chardev:log"),
            *("-chardev", "stdio,id=shell,signal=off", "-device", "virtio-serial-pci,vectors=0"),
            *("-device", "virtserialport,chardev=shell,name=shell"),
        ]
        return Session(list(map(str, words)), busy_s=BUSY_S)

    def ended(self, session: Session) -> int:
        """QEMU's exit code, once it has ended by itself: the machine was told to reboot or to power off."""
        return patience.ended(session.process)


def faults(log: Path) -> list[str]:
    """Lines of a console that tell of a fault in the kernel."""
    text = log.read_text(errors="replace")
    return re.findall(r"^.*(?:\bBUG:|\bOops\b|WARNING: CPU|Kernel panic|Call Trace).*$", text, re.MULTILINE)
