# SPDX-License-Identifier: Apache-2.0
"""kmod/rm/rota.c and gang.c, compiled for user space, and what they read and write."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

RM = Path(__file__).parents[3] / "kmod" / "rm"
MS = 1_000_000
NEVER = 2**64 - 1
NONE, TURN, WINDOW = range(3)
GPUS = 32
U64, U32 = ctypes.c_uint64, ctypes.c_uint32


class Tenant(ctypes.Structure):
    _fields_ = [
        ("key", U64), ("rank", U32), ("weight", U32), ("floor", U32), ("share", U32), ("turn", U64),
        ("wants", ctypes.c_bool), ("ran", U64), ("deficit", U64), ("over", U64), ("saved", U64),
        ("rested", ctypes.c_bool),
    ]  # fmt: skip


class State(ctypes.Structure):
    _fields_ = [
        ("tenants", ctypes.POINTER(Tenant)), ("count", ctypes.c_uint), ("stepped", U64), ("holder", U64), ("last", U64),
        ("kind", ctypes.c_int), ("left", U64), ("used", U64), ("waited", ctypes.c_bool), ("apart", U64),
    ]  # fmt: skip


class Place(ctypes.Structure):
    _fields_ = [("wanted", U64), ("ran", U64), ("floor", U32), ("wants", ctypes.c_bool)]


class Gang(ctypes.Structure):
    _fields_ = [("tenant", Tenant), ("rank", U32), ("at", Place * GPUS), ("told", U64), ("on", U32)]


class Others(ctypes.Structure):
    _fields_ = [("want", ctypes.c_bool), ("rank", U32), ("floor", U32), ("turn", U64)]


class Gangs(ctypes.Structure):
    _fields_ = [
        ("tenants", ctypes.POINTER(Gang)), ("scratch", ctypes.POINTER(Tenant)), ("count", ctypes.c_uint),
        ("room", ctypes.c_uint), ("rota", State), ("since", U64), ("rest", Tenant),
        ("others", Others * GPUS), ("covered", U32), ("closed", U32),
    ]  # fmt: skip


class Word(ctypes.Structure):
    _fields_ = [
        ("here", ctypes.c_bool), ("taken", ctypes.c_bool), ("holder", U64), ("kind", ctypes.c_int), ("left", U64),
        ("next", U64), ("again", U32),
    ]  # fmt: skip


def build(folder: Path) -> ctypes.CDLL:
    target = folder / "rota.so"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-pthread", "-D_GNU_SOURCE"]
    sources = [str(RM / name) for name in ("rota.c", "gang.c")]
    done = subprocess.run(["gcc", *flags, "-o", str(target), *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = ctypes.CDLL(str(target))
    made.rm_rota_step.restype = U64
    made.rm_rota_divide.restype = None
    made.rm_rota_yield.restype = None
    made.rm_gang_step.restype = None
    return made


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("rota"))
