# SPDX-License-Identifier: Apache-2.0
"""Requests to language models: from CSV traces or made up. Times in seconds from the first request."""

from __future__ import annotations

import csv
import datetime
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from detshare.ctl.sim.errors import SimError

__all__ = ["AZURE", "BURSTGPT", "Trace", "azure", "burstgpt", "bursts", "diurnal", "gamma", "load", "poisson"]

AZURE: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT: Final = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
MOST_TOKENS: Final = 10_000_000


@dataclass(frozen=True)
class Trace:
    """Arrays of equal length: arrival in seconds, never going back; tokens of prompt and of answer, at least 1."""

    name: str
    times: Any
    prompt: Any
    answer: Any
    skipped: int = 0
    """rows without an answer (failed requests), which no server generates tokens for"""

    def __len__(self) -> int:
        return len(self.times)

    def part(self, seconds: float, speed: float = 1.0) -> Trace:
        """The first ``seconds`` after arrivals were sped up by ``speed``."""
        times = self.times / speed
        keep = times < seconds
        return Trace(self.name, times[keep], self.prompt[keep], self.answer[keep], self.skipped)


def _rows(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Line number and fields of each row; SimError with file, line and reason."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, strict=True)
            header = [name.strip() for name in next(reader, [])]
            missing = [name for name in wanted if name not in header]
            if missing:
                raise SimError(f"{path}:1: no column {missing[0]!r}; the header must name {', '.join(wanted)}")
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise SimError(
                        f"{path}:{reader.line_num}: {len(fields)} fields where the header names {len(header)}"
                    )
                yield reader.line_num, dict(zip(header, fields, strict=True))
    except OSError as error:
        raise SimError(f"{path}: cannot be read: {error.strerror}; name a CSV file") from error
    except UnicodeDecodeError as error:
        raise SimError(f"{path}: is not UTF-8 text at byte {error.start}; name a CSV file") from error
    except csv.Error as error:
        raise SimError(f"{path}:{reader.line_num}: is no CSV: {error}") from error


def _tokens(path: Path, line: int, name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise SimError(f"{path}:{line}: {name} is {text!r}; it must be a whole number of tokens") from None
    if not 0 <= value <= MOST_TOKENS:
        raise SimError(f"{path}:{line}: {name} is {value}; it must lie between 0 and {MOST_TOKENS}")
    return value


def _azure_time(text: str) -> float:
    # The traces have seven digits of a second, one more than Python 3.11 was made for; none is lost that matters.
    whole, _, fraction = text.strip().partition(".")
    zone = next((index for index, each in enumerate(fraction) if not each.isdigit()), len(fraction))
    moment = datetime.datetime.fromisoformat(whole + fraction[zone:])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.timestamp() + (float(f"0.{fraction[:zone]}") if fraction[:zone] else 0.0)


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _read(path: Path, header: tuple[str, ...], columns: tuple[str, str, str], time: Callable[[str], float]) -> Trace:
    times, prompts, answers, skipped = [], [], [], 0
    for line, row in _rows(path, header):
        try:
            moment = time(row[columns[0]])
        except ValueError:
            raise SimError(f"{path}:{line}: {columns[0]} is {row[columns[0]]!r}, which is no time") from None
        prompt = _tokens(path, line, columns[1], row[columns[1]])
        answer = _tokens(path, line, columns[2], row[columns[2]])
        if answer == 0:
            skipped += 1
            continue
        times.append(moment)
        prompts.append(max(prompt, 1))
        answers.append(answer)
    if not times:
        raise SimError(f"{path}: holds no request with an answer, so there is nothing to simulate")
    order = np.argsort(np.asarray(times), kind="stable")
    sorted_times = np.asarray(times)[order]
    return Trace(
        path.stem, sorted_times - sorted_times[0], np.asarray(prompts)[order], np.asarray(answers)[order], skipped
    )


def azure(path: Path) -> Trace:
    """An Azure LLM inference trace of 2023."""
    return _read(path, AZURE, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure_time)


def burstgpt(path: Path) -> Trace:
    """A trace in the format of BurstGPT."""
    return _read(path, BURSTGPT, ("Timestamp", "Request tokens", "Response tokens"), _seconds)


def load(path: Path) -> Trace:
    """Either format, told by the header."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as stream:
            header = [name.strip() for name in stream.readline().split(",")]
    except OSError as error:
        raise SimError(f"{path}: cannot be read: {error.strerror}; name a CSV file") from error
    if set(AZURE) <= set(header):
        return azure(path)
    if set(BURSTGPT) <= set(header):
        return burstgpt(path)
    raise SimError(
        f"{path}:1: is neither an Azure trace ({', '.join(AZURE)}) nor a BurstGPT one ({', '.join(BURSTGPT)})"
    )


def _lengths(random: Any, count: int, prompt: float, answer: float) -> tuple[Any, Any]:
    """Lognormal lengths with these means and a coefficient of variation of 1."""
    sigma = math.sqrt(math.log(2))
    drawn = [np.exp(random.normal(math.log(mean) - sigma**2 / 2, sigma, count)) for mean in (prompt, answer)]
    return np.maximum(1, drawn[0].round().astype(int)), np.maximum(1, drawn[1].round().astype(int))


def _thinned(rate: Callable[[Any], Any], most: float, seconds: float, random: Any) -> Any:
    """A Poisson process with a changing rate: drawn at the highest one, then thinned."""
    count = random.poisson(most * seconds)
    times = np.sort(random.uniform(0, seconds, count))
    return times[random.uniform(0, most, count) < rate(times)]


def _made(name: str, times: Any, random: Any, prompt: float, answer: float) -> Trace:
    return Trace(name, times, *_lengths(random, len(times), prompt, answer))


def poisson(rate: float, seconds: float, seed: int, prompt: float = 1000, answer: float = 200) -> Trace:
    """``rate`` requests a second; mean tokens."""
    random = np.random.default_rng(seed)
    return _made(
        "poisson", _thinned(lambda times: np.full(len(times), rate), rate, seconds, random), random, prompt, answer
    )


def bursts(
    rate: float,
    seconds: float,
    seed: int,
    prompt: float = 1000,
    answer: float = 200,
    *,
    peak: float = 5.0,
    part: float = 0.1,
) -> Trace:
    """``rate`` on average, ``peak`` times that for ``part`` of each 10 s."""
    if not (peak >= 1 and 0 < part < 1 and peak * part <= 1):
        raise SimError(f"bursts of {peak:g} times the rate for {part:g} of the time would be more than all requests")
    random = np.random.default_rng(seed)
    low = rate * (1 - peak * part) / (1 - part)
    times = _thinned(lambda times: np.where(times % 10.0 < 10.0 * part, rate * peak, low), rate * peak, seconds, random)
    return _made("bursts", times, random, prompt, answer)


def diurnal(
    rate: float, seconds: float, seed: int, prompt: float = 1000, answer: float = 200, *, day: float = 86_400.0
) -> Trace:
    """``rate`` on average, from a fifth of it at midnight to 1.8 times at noon."""
    random = np.random.default_rng(seed)
    times = _thinned(lambda times: rate * (1 - 0.8 * np.cos(2 * np.pi * times / day)), rate * 1.8, seconds, random)
    return _made("diurnal", times, random, prompt, answer)


def gamma(
    rate: float, seconds: float, seed: int, prompt: float = 1000, answer: float = 200, *, variation: float = 2.0
) -> Trace:
    """``rate`` on average, with gamma-distributed gaps; a coefficient of variation above 1 makes bunches."""
    if not variation > 0:
        raise SimError(f"gaps cannot vary by {variation:g}; use a coefficient of variation above 0")
    random = np.random.default_rng(seed)
    shape = variation**-2
    gaps = random.gamma(shape, 1 / (rate * shape), max(16, round(rate * seconds * 2)))
    times = np.cumsum(gaps)
    while times[-1] < seconds:
        times = np.concatenate((times, times[-1] + np.cumsum(random.gamma(shape, 1 / (rate * shape), len(gaps)))))
    return _made("gamma", times[times < seconds], random, prompt, answer)
