# SPDX-License-Identifier: Apache-2.0
"""What the boards told of each command's kernels in earlier runs, and the lane that follows from it."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Final

BUCKETS: Final = 32
"""bucket n counts times of 2^n to 2^(n+1)-1 ns"""
SHORT_BUCKETS: Final = 18
"""the first 18 buckets: kernels below 262 us, about what switching the GPU between two programs costs"""
SHORT_GRAPHS: Final = 20
"""graphs below 1.05 ms: a request of that length pays two switches of the temporal lane, a third of it"""
LEAST_SAMPLES: Final = 8
"""of the first 128 launches of any kernel as many are timed"""
IDLE_SHARE: Final = 0.5
"""of the GPU's SMs, over its kernels' time: a program that leaves so many idle by itself is better beside others"""
_MOST_COMMANDS: Final = 500
_SET: Final = ": "
_INTERPRETERS: Final = ("python", "pypy", "bash", "sh", "perl", "node", "julia", "ruby")


class Lane:
    """Names of the lanes, as they are typed."""

    AUTO: Final = "auto"
    SPATIAL: Final = "spatial"
    TEMPORAL: Final = "temporal"


LANES: Final = (Lane.AUTO, Lane.SPATIAL, Lane.TEMPORAL)


def key(command: Sequence[str]) -> str:
    """A name that runs of one program have in common: the program, an interpreter's script or module, and behind ": "
    a number of how it was set, such as by a model's name; numbers and paths differ from run to run and are left out.

    Of what was typed nothing else is kept: it may be a secret.
    """
    words, rest = [PurePath(command[0]).name], iter(command[1:])
    if words[0].startswith(_INTERPRETERS):
        for word in rest:
            if word in ("-m", "-c"):
                text = next(rest, "")
                words += [word, text if word == "-m" else _number(text)]
                break
            if not word.startswith("-"):
                words.append(PurePath(word).name)
                break
    how = " ".join(filter(None, map(_setting, rest)))
    return " ".join(words)[:200] + (f"{_SET}{_number(how)}" if how else "")


def _number(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x}"


def _setting(word: str) -> str:
    """What a word of a command says of how its program works; empty where that is a number or a path."""
    option, given, value = word.partition("=")
    if given:
        kept = _setting(value)
        return f"{option}={kept}" if kept else option
    try:
        float(word)
    except ValueError:
        return "" if "/" in word else word
    return ""


@dataclass(frozen=True, slots=True)
class Profile:
    """Sampled times from launch to finish, in log2 buckets of nanoseconds; a graph counts as one."""

    kernels: tuple[int, ...] = (0,) * BUCKETS
    graphs: tuple[int, ...] = (0,) * BUCKETS
    timed_ns: int = 0
    """GPU time of the sampled kernels; of graphs it is not known how many SMs they reach"""
    filled_ns: int = 0
    """the same, each kernel's times the share of the SMs that its blocks can reach at most"""

    @property
    def samples(self) -> int:
        return sum(self.kernels) + sum(self.graphs)

    @property
    def short(self) -> float:
        """The share of GPU time, 0..1, that is spent in kernels below 262 us, and graphs below 1.05 ms."""
        kernels, graphs = _times(self.kernels), _times(self.graphs)
        whole = sum(kernels) + sum(graphs)
        return (sum(kernels[:SHORT_BUCKETS]) + sum(graphs[:SHORT_GRAPHS])) / whole if whole else 0.0

    @property
    def idle(self) -> float:
        """The share of the GPU's SMs, 0..1, that its work leaves idle at least; graphs count as filling all."""
        graphs = sum(_times(self.graphs))
        time = self.timed_ns + graphs
        return (self.timed_ns - self.filled_ns) / time if time else 0.0

    def plus(self, other: Profile) -> Profile:
        """Both together."""
        return Profile(
            tuple(a + b for a, b in zip(self.kernels, other.kernels, strict=True)),
            tuple(a + b for a, b in zip(self.graphs, other.graphs, strict=True)),
            self.timed_ns + other.timed_ns,
            self.filled_ns + other.filled_ns,
        )


def _times(counts: Sequence[int]) -> list[float]:
    """Nanoseconds by bucket."""
    return [count * 1.5 * 2.0**n for n, count in enumerate(counts)]


def known(profile: Profile | None) -> bool:
    """Whether a lane can follow from it."""
    return profile is not None and profile.samples >= LEAST_SAMPLES


def choose(name: str, profile: Profile | None) -> tuple[str, str]:
    """The lane for a command with this profile, and why, in words.

    Short work gains from running beside the others, and so does work that leaves SMs idle; for work of milliseconds
    that fills the GPU time slices do as well, and each program keeps its own fault domain.
    """
    if profile is None or not known(profile):
        return Lane.TEMPORAL, f"too little is known of {name!r} yet; it is watched in this run"
    seen = f"of the GPU time of {name!r} in earlier runs ({profile.samples} samples)"
    if profile.short >= 0.5:
        return Lane.SPATIAL, f"{profile.short:.0%} {seen} went to kernels below 0.26 ms and graphs below 1 ms"
    if profile.idle >= IDLE_SHARE:
        return Lane.SPATIAL, f"kernels of {name!r} left {profile.idle:.0%} of the SMs idle in earlier runs"
    return Lane.TEMPORAL, f"{1 - profile.short:.0%} {seen} went to longer kernels than 0.26 ms and graphs than 1 ms"


class Profiles:
    """Profiles by command, in one file. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Profile] = {}
        try:
            for name, entry in json.loads(path.read_bytes()).items():
                timed, filled = (int(entry.get(field, 0)) for field in ("timed_ns", "filled_ns"))
                if not 0 <= filled <= timed:
                    raise ValueError("more is filled than was timed")
                profile = Profile(_buckets(entry["kernels"]), _buckets(entry["graphs"]), timed, filled)
                self._known[str(name)] = profile
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # worth nothing but a better guess: forgotten rather than misread
            with contextlib.suppress(OSError):
                path.unlink()

    def get(self, name: str) -> Profile | None:
        """What is known of a command; set as it never was, of all its runs."""
        known = self._known.get(name)
        return known if known and known.samples >= LEAST_SAMPLES else self._known.get(name.partition(_SET)[0], known)

    def add(self, name: str, seen: Profile) -> None:
        """Remember what one run showed. OSError: it is remembered until this process ends."""
        if not seen.samples:
            return
        for each in {name, name.partition(_SET)[0]}:
            self._known[each] = self._known.pop(each, Profile()).plus(seen)
        while len(self._known) > _MOST_COMMANDS:  # dicts keep their order: the longest unseen goes
            self._known.pop(next(iter(self._known)))
        entries = {name: asdict(profile) for name, profile in self._known.items()}
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(entries) + "\n", encoding="utf-8")
        draft.chmod(0o600)
        draft.replace(self._path)


def _buckets(values: Sequence[int]) -> tuple[int, ...]:
    counts = tuple(int(value) for value in values)
    if len(counts) != BUCKETS or min(counts) < 0:
        raise ValueError("a histogram has 32 counts")
    return counts
