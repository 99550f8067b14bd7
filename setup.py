# SPDX-License-Identifier: Apache-2.0
"""The list of packages, and what a wheel has beside Python: libdetshare.so, eBPF programs. The rest: pyproject.toml.

A wheel has the product. What measures, checks and generates it (tools, but for the command `detshare`) is in a
checkout, where an editable install finds it, and in the Debian package detshare-bench.

Four folders hold a piece of the package each. Every folder below a piece is a package, with or without an
``__init__.py`` (folders of data and of workload scripts have none), so a new one needs no entry anywhere.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PARTS = ("ctl", "runtime", "ebpf")
COMMAND = {"__init__", "main"}
"""what of detshare.tools is product"""


class Build(build_py):
    """Compiles the library into what is packed; an editable install uses the one that `make setup` builds."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        packed = Path(self.build_lib).resolve() / "detshare"
        objects = Path(self.get_finalized_command("build").build_temp).resolve() / "runtime"
        try:
            make = ["make", "-s", "-C", "runtime", f"OUT={packed / 'runtime'}", f"BUILD={objects}"]
            subprocess.run(make, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"runtime/libdetshare.so cannot be built ({error}): install make and gcc") from error
        for source in (*Path("ebpf").glob("*.bpf.c"), *Path("ebpf").glob("*.h")):
            shutil.copy2(source, packed / "ebpf")
        # a wheel without them needs bcc, or clang where it is installed
        built = subprocess.run(
            [sys.executable, "-m", "detshare.ebpf.build"],
            env={**os.environ, "PYTHONPATH": str(packed.parent)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if built.returncode:
            print("no prebuilt eBPF programs: install clang and libbpf-dev for them", file=sys.stderr)


    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        return [each for each in found if package != "detshare.tools" or each[1] in COMMAND]


class Wheel(bdist_wheel):
    """For any Python 3, but for one kind of machine."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


found = (find_namespace_packages(part, include=["detshare*"], exclude=["*__pycache__*"]) for part in PARTS)
packages = sorted({"detshare.tools", *(name for names in found for name in names)})

setup(packages=packages, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
