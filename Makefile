# SPDX-License-Identifier: Apache-2.0
# On a fresh Debian 12 machine: `make demo` and `make test`. Both call `make setup`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# targets share .venv; pytest and mypy gain nothing from running beside each other
.NOTPARALLEL:
# pytest keeps what it makes of the tests' asserts: without, each worker begins with 8 s of CPU time for it
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PARTS := ctl runtime ebpf tools
# as the tools find it; what mypy knows of files outlives a clone, it is held against their content
CACHE := $(or $(DETSHARE_CACHE),$(or $(XDG_CACHE_HOME),$(or $(HOME),$(shell echo ~))/.cache)/detshare)

# A .venv holds absolute paths: one that was made for another folder is made again.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(READY): FORCE
endif

.PHONY: help setup library observers demo deb image release man screenshots test lint lint-python lint-shell lint-kernel lint-runtime lint-generated \
	test-all test-unit test-e2e test-once test-rest test-debug test-thorough test-gpu clean FORCE

# what `make lint-kernel` compiles with -Wextra -Werror (their Kbuild) and reads with sparse
MODULES := . tests/nvsim tests/nvfwd tests/fakegpu
KERNELS := 6.1 6.12

# two tests at a time; a worker without work takes over what another one has not begun
TWO := -n 2 --dist worksteal
# of those that start no guest, and of the few that start one each: many wait for a clock, a daemon or a kernel's start
THREE := -n 3 --dist worksteal

help: ## show these lines
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' Makefile

setup: $(READY) library observers ## system packages (apt, where missing), .venv with DetShare and its tools, libdetshare.so, eBPF
	@:

# what `detshare run` preloads into programs
library: $(READY)
	@if command -v cc >/dev/null; then $(MAKE) -s -C runtime; \
	else echo "setup: no C compiler, so no libdetshare.so and no spatial lane; as root: apt-get install gcc libc6-dev" >&2; fi

# what detshare-trace loads where bcc and the kernel's headers are not there
observers: $(READY)
	@$(BIN)/python -m detshare.ebpf.build >/dev/null || echo "setup: so no prebuilt eBPF programs" >&2

$(READY): pyproject.toml setup.py tools/setup.sh
	@tools/setup.sh

demo: setup ## latency of a program before and after set-priority; on a model where there is no GPU
	@$(BIN)/detshare demo

deb: setup ## Debian packages and their source, in build/release; Debian 12's serve 13 too
	@$(BIN)/python -m detshare.tools.release deb

image: deb ## OCI image of the daemon, from the Debian package, with buildah, in build/release
	@packaging/container/build "$$(ls -t build/release/detshare_*_amd64.deb | head -n 1)" build/release/detshare-image.tar

release: setup ## all that users are given: Debian packages, wheel, source archive, sums, in build/release
	@$(BIN)/python -m detshare.tools.release

man: setup ## man pages of the commands, from their own help, in build/man
	$(BIN)/python -m detshare.tools.manpages build/man

screenshots: setup ## docs/images: detshare-top and the page on the model backend, and what a published mix measured
	$(BIN)/python -m detshare.tools.screenshots docs/images
	$(BIN)/python -m detshare.tools.browser.shots docs/images
	$(BIN)/python -m detshare.tools.mix_picture docs/results docs/images

test: setup lint test-unit test-e2e test-once ## lint, unit tests, end to end tests, and a guest for each part of the module

test-all: test test-rest test-debug ## the same, all other tests in guests, and the kernel that looks for faults

lint: setup lint-python lint-shell lint-generated lint-runtime lint-kernel ## ruff, mypy --strict, layers, shellcheck, sparse, licences, generated files
	@echo "lint: all clean"

lint-python: setup
	$(BIN)/ruff check .
	MYPY_CACHE_DIR="$(CACHE)/mypy" $(BIN)/mypy --strict
	$(BIN)/python -m detshare.tools.layers

lint-shell: setup
	@command -v shellcheck >/dev/null || { echo "lint: shellcheck is missing; as root: apt-get install shellcheck" >&2; exit 1; }
	$(BIN)/python -m detshare.tools.spdx --list-shell | xargs -0 -r shellcheck

lint-kernel: setup
	@for kernel in $(KERNELS); do for module in $(MODULES); do \
		$(BIN)/detshare-vm build --check --kernel $$kernel $$module >/dev/null; done; done

lint-runtime: setup
	@$(MAKE) -s -C runtime lint

lint-generated: setup
	$(BIN)/python -m detshare.tools.spdx
	$(BIN)/python -m detshare.tools.abi --check
	$(BIN)/python -m detshare.tools.genl --check
	$(BIN)/python -m detshare.tools.cudaapi --check
	$(BIN)/python -m detshare.tools.boardgen --check
	$(BIN)/detshare results check

test-unit: setup ## unit and property tests, no GPU
	$(BIN)/pytest -q $(THREE) tests -m "not gpu and not e2e and not vm and not rest and not thorough"

test-e2e: setup ## daemons, programs under libdetshare.so, demo and terminals as real processes; no GPU
	$(BIN)/pytest -q $(THREE) tests/unit -m "e2e and not rest and not gpu and not thorough"

test-once: setup ## one guest kernel in QEMU for each part: module, doorbells, turns, daemon, a genuine driver; no GPU
	@$(BIN)/detshare-vm prepare >/dev/null
	$(BIN)/pytest -q $(THREE) tests/vm -m "vm and once"

test-rest: setup ## all other guests, but for other kernels and whole lists of the same, and roots of Debian; no GPU
	@$(BIN)/detshare-vm prepare >/dev/null
	$(BIN)/pytest -q $(THREE) tests/unit -m "rest and not gpu and not thorough"
	$(BIN)/pytest -q $(TWO) tests/vm -m "vm and not once and not alone and not debug and not thorough"
	$(BIN)/pytest -q tests/vm -m "vm and alone and not thorough"

test-debug: setup ## guests with KASAN, lockdep and kmemleak; builds that kernel where the cache has none
	@$(BIN)/detshare-vm prepare >/dev/null
	@$(BIN)/detshare-vm prepare --kernel debug >/dev/null
	$(BIN)/pytest -q $(TWO) tests/vm -m "vm and debug"

test-thorough: setup ## what the others leave out for its time: the same on other kernels and drivers, whole lists
	@$(BIN)/detshare-vm prepare >/dev/null
	$(BIN)/pytest -q $(TWO) tests/unit -m "thorough and not gpu"
	$(BIN)/pytest -q $(TWO) tests/vm -m "vm and thorough and not alone"
	$(BIN)/pytest -q tests/vm -m "vm and thorough and alone"

test-gpu: setup ## tests on this machine's GPU (as root)
	$(BIN)/pytest tests -m gpu

clean: ## remove what make made: .venv, build/, caches
	rm -rf runtime/libdetshare.so ebpf/*.bpf.o $(VENV) build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(wildcard $(PARTS) tests) -name __pycache__ -type d -prune -exec rm -rf {} +
