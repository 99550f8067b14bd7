# SPDX-License-Identifier: Apache-2.0
"""models: four language models behind HTTP whose sum is twice the GPU's memory; time to first token after a wake.

Beside it: a cold start, and servers of which all but one have moved their weights to host memory by themselves.
Rounds are requests to each server.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import Final

from detshare.tools.bench.parking.room import events, full, part
from detshare.tools.bench.parking.served import Answer, Server, argv
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import PLAIN, How, Lanes
from detshare.tools.bench.stats import percentile

__all__ = ["run"]

COUNT: Final = 4
CONTEXTS: Final = COUNT
BESIDE_MIB: Final = 256
"""of a model: what it needs besides its weights"""
LANE: Final = "temporal"
AFTER_S: Final = 2.0
GAP_S: Final = (0.0, 2.5)
LOOKS_S: Final = 0.6
"""in which the daemon looks twice"""
STAGGER_S: Final = 3.0
"""between two starts: the servers load at nearly the same time, as they do after a boot"""
UNLOADS: Final = 2
LEAST_S: Final = 15.0
PERCENTS: Final = (50, 90, 99)


def start(session: Session, lanes: Lanes, stack: contextlib.ExitStack, number: int, how: How, mib: int) -> Server:
    """Start a server, which then loads its model."""
    command, words = lanes.command(how, argv(mib, number + 1))
    name = f"model {number + 1}, {how.lane}"
    server = Server(name, command, {**os.environ, **words}, session.folder / f"server-{number}-{how.lane}.log")
    stack.callback(server.end)
    return server


def unloaded(session: Session, lanes: Lanes, mib: int) -> dict[int, Answer]:
    """The baselines without DetShare: two servers, of which one at a time has its model on the GPU. Their answers."""
    colds, swaps, answers = [], [], {}
    with contextlib.ExitStack() as stack:
        servers: list[Server] = []
        for number in range(2):
            server = start(session, lanes, stack, number, PLAIN, mib)
            server.listens()
            answers[number] = server.ask(number)
            colds.append(time.monotonic() - server.began)
            server.unload()
            servers.append(server)
        there: Server | None = None
        for turn in range(2 * UNLOADS):
            server = servers[turn % 2]
            took = there.unload() if there is not None else 0.0
            answer = server.ask(turn % 2)
            if there is not None:
                swaps.append(took + answer.first_s)
                session.mark("unloaded", away_s=took, first_s=answer.first_s)
            there = server
    session.row("cold start, to the first token, of the second", colds[-1], "s")
    session.row("all but one unloaded: to the first token, p50", percentile(swaps, 50), "s")
    return answers


def looked(session: Session, pid: int) -> tuple[int, int]:
    """How often its next call brought a program's memory back, and how many parks made room for it."""
    program = session.steer.program(pid) or {}
    made = f"for PID {pid}"
    parks = sum(made in str(event["text"]) for event in session.steer.client.events() if event["kind"] == "park")
    return (program.get("parking") or {}).get("wakes", 0), parks


class Requests:
    """Requests to all servers, by where the model was when they came."""

    def __init__(self, session: Session, servers: list[Server], known: dict[int, Answer]) -> None:
        self.session, self.servers, self.known = session, servers, dict(known)
        self.first_s: dict[str, list[float]] = {"on the GPU": [], "parked": [], "parked, and the GPU is full": []}
        self.differ = 0

    def one(self, number: int, counted: bool = True) -> None:
        """A request, and what came of it."""
        server = self.servers[number]
        before = looked(self.session, server.pid)
        answer = server.ask(number)
        time.sleep(LOOKS_S)
        wakes, parks = (now - then for now, then in zip(looked(self.session, server.pid), before, strict=True))
        where = ("parked, and the GPU is full" if parks else "parked") if wakes else "on the GPU"
        self.session.mark("request", model=number, where=where, first_s=round(answer.first_s, 6), counted=counted)
        self.differ += answer.tokens != self.known.setdefault(number, answer).tokens
        if counted:
            self.first_s[where].append(answer.first_s)

    def report(self, asked: int) -> None:
        """Rows."""
        done = sum(map(len, self.first_s.values()))
        self.session.row("requests", done, "requests", asked, "== 1 x baseline")
        self.session.row("answers that differ from those before any park, or without DetShare", self.differ, "",
                         target="== 0")  # fmt: skip
        for where, values in self.first_s.items():
            self.session.row(f"{where}: requests", len(values), "requests")
            for percent in PERCENTS if values else ():
                self.session.row(f"{where}: to the first token, p{percent}", percentile(values, percent), "s")


def run(session: Session) -> None:
    """The whole experiment."""
    full(session, "park", 0.0)
    share = part(session, CONTEXTS)
    mib = share.mib // 2 - BESIDE_MIB
    session.row("weights of the models, sum", COUNT * mib, "MiB", share.mib)
    dice, rounds = random.Random(session.options.seed), session.options.rounds
    with Lanes(session) as lanes, contextlib.ExitStack() as stack, events(session):
        known = unloaded(session, lanes, mib)
        how, starts = How(LANE, after=f"{AFTER_S:g}s"), []
        servers: list[Server] = []
        requests = Requests(session, servers, known)
        for number in range(COUNT):
            servers.append(start(session, lanes, stack, number, how, mib))
            time.sleep(STAGGER_S)
        for number, server in enumerate(servers):
            server.listens()
            requests.one(number, counted=False)
            starts.append(time.monotonic() - server.began)
        session.row("start under DetShare, to the first token, longest of four", max(starts), "s")
        time.sleep(AFTER_S)
        for number in range(COUNT):  # the first park of a program gets host memory; it is no matter of requests
            requests.one(number, counted=False)
        asked = 0
        for _ in range(rounds):
            for number in dice.sample(range(COUNT), COUNT):
                if session.left > LEAST_S:
                    time.sleep(dice.uniform(*GAP_S))
                    asked += 1
                    requests.one(number)
        requests.report(asked)
    share.end()
