# SPDX-License-Identifier: Apache-2.0
"""The list of packages; everything else is in pyproject.toml.

Every folder below ctl/, runtime/, ebpf/ and tools/ is a package of that part, with or without an ``__init__.py``
(folders of data and of workload scripts have none), so a new one needs no entry anywhere.
"""

from setuptools import find_namespace_packages, setup

PARTS = ("ctl", "runtime", "ebpf", "tools")

packages = []
for part in PARTS:
    packages.append(f"detshare.{part}")
    found = find_namespace_packages(part, exclude=["*__pycache__*"])
    packages += [f"detshare.{part}.{name}" for name in found]

setup(packages=packages)
