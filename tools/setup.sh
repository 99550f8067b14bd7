#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes .venv in the checkout with DetShare installed in it, editable, with its development tools.
# System packages that are missing are installed by apt where we may. Called by `make setup`; safe to run again.
set -euo pipefail
unset CDPATH  # tools/.. would be looked for there first
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$1"; say "next: $2"; exit 1; }

missing=()
need() { # PACKAGE COMMAND...: PACKAGE is missing where COMMAND fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

python=${PYTHON:-python3}
# Debian builds its Python with profiles. One that pyenv built needs half as much time again: minutes of `make test`.
if [[ -z ${PYTHON:-} ]] && /usr/bin/python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=/usr/bin/python3
fi
find_missing() {
    missing=()
    if [[ $python == python3 ]]; then
        need python3 python3 --version
        # Debian splits ensurepip out of python3; a python3 of other origin (pyenv, conda) has its own
        need python3-venv python3 -c 'import ensurepip, venv'
    fi
    need gcc bash -c 'command -v gcc'
    need libc6-dev test -e /usr/include/stdio.h
    need make bash -c 'command -v make'
    need git bash -c 'command -v git'
    need shellcheck bash -c 'command -v shellcheck'
    # the eBPF programs: prebuilt objects, and libbpf to load them
    need clang bash -c 'command -v clang || compgen -c | grep -qxE "clang-[0-9]+"'
    need libbpf-dev test -e /usr/include/bpf/bpf_helpers.h
    # the test bed: guests with stock kernels, and modules built for them
    need qemu-system-x86 bash -c 'command -v qemu-system-x86_64'
    need busybox-static dpkg -s busybox-static
    need kmod test -e /usr/sbin/depmod -o -e /sbin/depmod
    need dwarves bash -c 'command -v pahole'
    need sparse bash -c 'command -v sparse'
    need libelf-dev test -e /usr/include/libelf.h
    # the tests and pictures of the page
    need chromium bash -c 'command -v chromium'
    # the instrumented kernel of `make test-debug` is built from its sources
    local tool
    for tool in flex bison bc; do need "$tool" bash -c "command -v $tool"; done
    need xz-utils bash -c 'command -v xz'
}

find_missing
if ((${#missing[@]})); then
    as_root=()
    may=yes
    if ((EUID != 0)); then
        as_root=(sudo)
        # -n asks no password; a person at a terminal may be asked
        if ! sudo -n true 2>/dev/null && ! { [[ -t 0 ]] && command -v sudo >/dev/null; }; then may=no; fi
    fi
    if [[ $may == yes ]] && command -v apt-get >/dev/null; then
        say "installing by apt: ${missing[*]}"
        install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120)
        # a fresh image has no package lists: update only then, or when the install failed without it
        "${install[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
            "${install[@]}" update >&2 || say "apt-get update failed; trying the install with what is there"
            "${install[@]}" install -y --no-install-recommends "${missing[@]}" >&2 ||
                say "apt-get could not install ${missing[*]}"
        }
        find_missing
    fi
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    die "DetShare needs Python 3.11 or newer; $python is $("$python" --version 2>&1 || true)" \
        "install one, then: make setup PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python cannot make virtual environments (no ensurepip)" "as root: apt-get install python3-venv"
# compiler, lint and test bed are for tests and lint: what needs them says so again
((${#missing[@]} == 0)) || say "still missing (make lint, some tests and guests need them): ${missing[*]}"

# A .venv that was moved with its checkout, or whose Python is gone, points to nothing: make a new one.
here=$PWD/.venv
if [[ -e .venv ]]; then
    prefix=$(.venv/bin/python -c 'import sys; print(sys.prefix)' 2>/dev/null || true)
    # a path that no first line can hold (a space, length) stands in the second one, quoted where it must be
    shebang=$(head -n 2 .venv/bin/pip 2>/dev/null || true)
    if [[ ! $prefix -ef $here || $shebang != @("#!"|*"exec' "|*"exec' \"")"$here/bin/"* ]]; then
        say "removing a .venv that does not work here"
        rm -rf .venv
    fi
fi
if [[ ! -e .venv ]]; then
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv || { rm -rf .venv; die "could not make .venv" "read the lines above"; }
fi

say "installing DetShare (editable) and its development tools"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' ||
    die "pip could not install DetShare's dependencies" "check the network or pip's index (pip config list), then: make setup"
# the test bed is no part of a wheel, so its command is none of the installed ones
# for a shell and for Python, as pip's own: a first line holds no space and no long path
cat >.venv/bin/detshare-vm <<EOF
#!/bin/sh
'''exec' "$PWD/.venv/bin/python" "\$0" "\$@"
' '''
from detshare.tools.vm.cli import main
main()
EOF
chmod 755 .venv/bin/detshare-vm
# guests run it too, where compiling takes ten times as long and is lost; also with PYTHONDONTWRITEBYTECODE or pip's no-compile
.venv/bin/python -m compileall -q .venv/lib ctl ebpf runtime tools tests >/dev/null || say "not all bytecode could be made"
printf '%s\n' "$PWD" >.venv/.ready
say "ready: .venv/bin/detshare --help"
