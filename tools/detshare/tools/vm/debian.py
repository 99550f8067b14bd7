# SPDX-License-Identifier: Apache-2.0
"""Debian packages without touching the host's apt: a package list and a download folder of our own for each suite.

The mirror and the trust are the host's: its apt sources name the mirror, its Debian keyring checks what comes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from detshare.tools.vm import cache
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.say import step

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_RELEASES = {
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "sid",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
}
# What the host lets run after an update (desktop catalogues, notifications) is none of ours; proxies and retries stay.
_CONFIG = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::CNF;
APT::Default-Release "";
APT::Sandbox::User "";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State "@/state";
Dir::State::status "@/status";
Dir::Cache "@/cache";
Dir::Etc::SourceList "@/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
"""


@dataclass(frozen=True)
class Package:
    """A package of a suite: name, version, and what it depends on in plain names (alternatives: the first)."""

    name: str
    version: str
    depends: tuple[str, ...]


def mirror() -> str:
    """Where the host gets Debian from: $DETSHARE_MIRROR, else the first Debian archive of its apt sources."""
    told = os.environ.get("DETSHARE_MIRROR")
    if told:
        return told.rstrip("/")
    asked = "find a Debian mirror"
    if shutil.which("apt-get") is None:
        raise VmError(asked, "this machine has no apt-get", "run on Debian, or in a Debian container")
    form = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", form, "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        uri, release, component = line.split("\t")
        if release in _RELEASES and component == "main":
            return uri.rstrip("/")
    raise VmError(
        asked,
        "the apt sources of this machine name no Debian archive",
        "set DETSHARE_MIRROR to the address of one (the folder that holds dists/ and pool/)",
    )


class Suite:
    """One component of one Debian suite, with its own apt state in the cache."""

    def __init__(self, suite: str, component: str) -> None:
        self.name = f"{suite}/{component}"
        self._suite, self._component = suite, component
        self._folder = cache.root() / "apt" / f"{suite}-{component}"

    def _apt(self, tool: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tool, "-q", "-c", str(self._folder / "apt.conf"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )

    def update(self) -> None:
        """Fetches the package list. Callers hold the lock of what they fetch; the list has a lock of its own."""
        with cache.lock(f"apt {self.name}"), step(f"reading the package list of Debian {self.name}"):
            folder = self._folder
            for below in ("state/lists/partial", "cache/archives/partial"):
                (folder / below).mkdir(parents=True, exist_ok=True)
            (folder / "status").touch()
            signed = f"signed-by={_KEYRING} " if _KEYRING.exists() else ""
            source = f"deb [arch=amd64 {signed}] {mirror()} {self._suite} {self._component}\n"
            (folder / "sources.list").write_text(source, encoding="utf-8")
            (folder / "apt.conf").write_text(_CONFIG.replace("@", str(folder)), encoding="utf-8")
            done = self._apt("apt-get", "update", "--error-on=any")
        if done.returncode:
            raise VmError(
                f"read the package list of Debian {self.name} from {mirror()}",
                _last(done.stderr),
                "check the network and the host's apt sources, or set DETSHARE_MIRROR to another Debian mirror",
            )

    def package(self, name: str) -> Package:
        """The newest package of that name; VmError when the suite has none."""
        done = self._apt("apt-cache", "show", "--no-all-versions", name)
        fields = dict(re.findall(r"^(Package|Version|Depends|Pre-Depends): (.*)$", done.stdout, re.MULTILINE))
        if done.returncode or "Version" not in fields:
            raise VmError(
                f"find the package {name} in Debian {self.name}",
                _last(done.stderr) or "it is not there",
                "check that the mirror carries this suite, or set DETSHARE_MIRROR to one that does",
            )
        depends = tuple(re.findall(r"(?:^|, )([a-z0-9][a-z0-9.+-]+)", fields.get("Depends", "")))
        return Package(fields["Package"], fields["Version"], depends)

    def names(self, prefix: str) -> list[str]:
        """The packages whose names begin so."""
        return self._apt("apt-cache", "pkgnames", prefix).stdout.split()

    def unpack(self, names: list[str], into: Path) -> None:
        """Downloads the packages, checked against the signed list, and unpacks their files below `into`."""
        debs = into / ".debs"
        debs.mkdir(parents=True)
        with step(f"downloading {', '.join(names)}"):
            done = self._apt("apt-get", "download", *names, cwd=debs)
        if done.returncode:
            raise VmError(
                f"download {', '.join(names)}",
                _last(done.stderr),
                "run it again; if it persists: detshare-vm prepare --update",
            )
        for deb in sorted(debs.glob("*.deb")):
            with step(f"unpacking {deb.name.split('_')[0]}"):
                unpacked = subprocess.run(
                    ["dpkg-deb", "-x", str(deb), str(into)], capture_output=True, text=True, check=False
                )
            if unpacked.returncode:
                raise VmError(f"unpack {deb.name}", _last(unpacked.stderr), "check the free space of the cache folder")
        cache.remove(debs)


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return "; ".join(lines[-2:])
