# SPDX-License-Identifier: Apache-2.0
"""The list of packages, and libdetshare.so for wheels; everything else is in pyproject.toml.

Every folder below ctl/, runtime/, ebpf/ and tools/ is a package of that part, with or without an ``__init__.py``
(folders of data and of workload scripts have none), so a new one needs no entry anywhere. package/ is the top package
itself: what `import detshare` gives to programs.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PARTS = ("ctl", "runtime", "ebpf", "tools")


class Build(build_py):
    """Compiles the library into what is packed; an editable install uses the one that `make setup` builds."""

    def run(self):
        if not self.editable_mode:
            # found by package_data; a wheel without them needs bcc, or clang where it is installed
            built = subprocess.run(["make", "-s", "tree"], check=False).returncode == 0 and subprocess.run(
                [sys.executable, "-m", "detshare.ebpf.build"],
                env={**os.environ, "PYTHONPATH": "build/tree"},
                stdout=subprocess.DEVNULL,
                check=False,
            ).returncode == 0
            if not built:
                print("no prebuilt eBPF programs: install clang and libbpf-dev for them", file=sys.stderr)
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib).resolve() / "detshare" / "runtime"
        objects = Path(self.get_finalized_command("build").build_temp).resolve() / "runtime"
        try:
            subprocess.run(["make", "-s", "-C", "runtime", f"OUT={folder}", f"BUILD={objects}"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"runtime/libdetshare.so cannot be built ({error}): install make and gcc") from error


class Wheel(bdist_wheel):
    """For any Python 3, but for one kind of machine."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


packages = ["detshare"]
for part in PARTS:
    packages.append(f"detshare.{part}")
    found = find_namespace_packages(part, exclude=["*__pycache__*"])
    packages += [f"detshare.{part}.{name}" for name in found]

setup(packages=packages, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
