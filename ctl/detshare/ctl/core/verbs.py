# SPDX-License-Identifier: Apache-2.0
"""The verbs: each is defined here once. Commands, the HTTP API, the library, policies and backends read it from here.

What the spatial lane's sets of SMs and pools have is known to their own GPU only; its backend checks those.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from detshare.ctl.core import accounts, classes, select
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.config_values import MOST_GPUS, MOST_SMS
from detshare.ctl.core.kinds import Flag, Level, Number, Permille, Rate, Size, Sms, Text, Whole, shown
from detshare.ctl.core.verb import Arg, Lane, Request, Verb, Whom

LEVELS: Final = Level.names
LONGEST_WAIT: Final = 30.0
"""seconds that set-sm, bind and park may wait"""

_PERCENT: Final = Whole(classes.PERCENTS, "a share in percent")
_WEIGHT: Final = Whole(classes.WEIGHTS, "weight")
_FLOOR: Final = Number(100 * classes.MOST_FLOOR, "percentage", 0.01)
_TENANT: Final = Text(classes.check_tenant)
_LEASE: Final = "Let go by itself after that.  [default: held as long as the daemon lives]"
_GPU: Final = Whole(range(MOST_GPUS), "GPU")
_WAIT: Final = Number(LONGEST_WAIT, "number of seconds")
_PID: Final = Whole(range(1, 4_194_305), "PID")
_TIMEOUT: Final = Arg("timeout", _WAIT, "SECONDS", "How long to wait for the program.  [default: 5]", "timeout")


def _bucket(args: dict[str, Any]) -> dict[str, Any]:
    if "burst_us" in args and "rate_us" not in args:
        raise BadRequest("a burst without a rate: give both, or off alone")
    return args


def _row(args: dict[str, Any]) -> dict[str, Any]:
    """The part of a class's row that was named; None: as by default; a GPU alone: there as on the others."""
    if args.pop("reset", False):
        if set(args) - {"gpu"}:
            raise BadRequest("reset takes nothing besides gpu: the whole row is set back")
        return {"change": args or None}
    if not set(args) - {"gpu"}:
        raise BadRequest("nothing is to be changed: name weight, slice, level, floor, turn or reset")
    if "weight" in args and args.get("slice_us"):
        raise BadRequest("weight and slice rule the same thing: give one of them")
    return {"change": args}


_ALL: Final = (
    Verb(
        "set-priority",
        """Set the class: high, normal, low, idle, or one made by set-class.

        The program goes on running. With detshare.ko WHO may be a cgroup or a tenant: whoever belongs to it, now or
        later, has the class. For a process that has no GPU context yet the daemon applies it when it makes one.
        """,
        "4242 low --weight 3 --floor 5",
        (
            Arg("class", Text(), "CLASS", to="klass", required=True),
            Arg("weight", _WEIGHT, "N", "Part of the turns.", "weight"),
            Arg("floor", _FLOOR, "PCT", "Time that it has at least.", "floor"),
            Arg("tenant", _TENANT, "NAME", "Have turns together with the others of that name.", "tenant"),
        ),
        waits=True,
    ),
    Verb(
        "set-weight",
        """Share GPU time in proportion to weights.

        Programs with weights 3 and 1 that both always have work get three quarters and one quarter of the GPU.
        """,
        "'python train.py*' 3",
        (Arg("weight", _WEIGHT, "N", required=True),),
        waits=True,
    ),
    Verb(
        "set-slice",
        """Set the time slice itself, in microseconds.

        It is the longest turn on the GPU of each of the program's compute channel groups while others wait.
        """,
        "4242 2000 --level high",
        (
            Arg("slice_us", Whole(classes.SLICES_US, "slice"), "US", required=True),
            Arg("level", Level(), "", "Level on the run list.  [default: medium]", "level"),
        ),
        waits=True,
    ),
    Verb(
        "set-sm",
        """Confine a program of the spatial lane to a share of the SMs.

        It takes the largest set of SMs that is no more than PCT percent; 100 gives all back. The command returns when
        nothing that was launched before runs on other SMs any more. Needs the daemon.
        """,
        "4242 25",
        (Arg("percent", _PERCENT, "PCT", required=True), _TIMEOUT),
        lane=Lane.SPATIAL,
        daemon=True,
    ),
    Verb(
        "hold",
        """Let no new work of a program begin.

        Its launches wait at the doorbell; what is on the GPU already goes on (`pause` stops that too). A program of the
        spatial lane stops at its next kernel boundary. Until `resume` or `release`; if the daemon ends, it goes on
        after ten seconds at most. With --lease no daemon is needed, but detshare.ko.
        """,
        "/train.slice --lease 60",
        (
            Arg("lease", Whole(classes.LEASES_S, "lease"), "SECONDS", _LEASE, "lease", to="lease_s"),
        ),
        Whom.HELD,
        done="held",
        daemon=True,
        unless="lease",
    ),
    Verb(
        "set-reserve",
        """Keep the first SMS SMs of each GPU for class high.

        Everybody else in the spatial lane gets the rest, at all times. SMS is a multiple of what the GPU cuts its SMs
        by (8 on Hopper), or off.
        """,
        "32",
        (Arg("sms", Sms(range(1, MOST_SMS + 1), "SMs", words={"off": None}), "SMS"),),
        Whom.ALL,
        Lane.SPATIAL,
        command="reserve",
        daemon=True,
    ),
    Verb(
        "set-reflex",
        """Set what a class means in the spatial lane.

        SET is full, first:32 or rest:32. What is not given is as by default.
        """,
        "low --busy rest:32",
        (
            Arg("idle", Text(), "SET", "SMs while no higher class is active.", "idle"),
            Arg("busy", Text(), "SET", "SMs while one is, or hold: stop at the next kernel boundary.", "busy"),
            Arg("linger_us", Whole(range(1_000_001), "linger"), "US", "Active that long after work.", "linger"),
            Arg("floor_permille", Whole(classes.PERMILLES, "floor"), "N", "Run N/1000 while held.", "floor"),
        ),
        Whom.OURS,
        Lane.SPATIAL,
        daemon=True,
        check=lambda args: {"change": args},
    ),
    Verb(
        "set-busy",
        """Set what a program of the spatial lane has while a higher class is active.

        SMS is a number of SMs: it gets the largest set of at most so many. hold: it stops at its next kernel boundary.
        default: as its class says (set-reflex).
        """,
        "4242 16",
        (Arg("sms", Sms(range(MOST_SMS + 1), "SMs", words={"hold": 0, "default": None}), "SMS|hold|default"),),
        lane=Lane.SPATIAL,
        daemon=True,
    ),
    Verb(
        "bind",
        """Bind a program to a pCtx of its GPU's pool.

        PCTX is a tier such as 25%, or the name of an exclusive one: then everybody else of the spatial lane runs on the
        rest. A program of the temporal lane gets a ceiling of that share (needs detshare.ko). `bind WHO 100%` undoes
        it; `detshare-ctl pool` lists what there is. Needs the daemon.
        """,
        "4242 25%",
        (Arg("pctx", Text(), "PCTX", required=True), _TIMEOUT),
        daemon=True,
    ),
    Verb(
        "set-memory",
        """Limit GPU memory; the kernel holds it.

        SIZE is 512M, 8G, a number of bytes, or max for no limit. A request beyond the limit gets the driver's own
        answer for a full GPU. Needs detshare.ko; without it the own library of a PID of the spatial lane holds it.
        """,
        "4242 8G",
        (
            Arg("limit", Size(), "SIZE", required=True),
            Arg("gpu", _GPU, "", "Only this GPU.  [default: each GPU by itself]", "gpu"),
        ),
        Whom.ACCOUNT,
        lacks="no memory limits",
    ),
    Verb(
        "set-bucket",
        """Limit GPU time by a token bucket; the kernel holds it.

        RATE is a share of each second such as 25%, a number of microseconds in each second, or off. While the bucket is
        empty launches wait and running work is paused. Needs detshare.ko.
        """,
        "/train.slice 25%",
        (
            Arg("rate_us", Rate(classes.RATES_US, "rate"), "RATE"),
            Arg("burst_us", Whole(classes.BURSTS_US, "burst"), "US", "Most at once.  [default: RATE/10]", "burst"),
        ),
        Whom.HELD,
        Lane.TEMPORAL,
        "no buckets of GPU time",
        check=_bucket,
    ),
    Verb(
        "set-ceiling",
        """Confine compute work to a share of the TPCs.

        100 gives all back. Needs detshare.ko, and a driver that takes it: see doctor.
        """,
        "4242 40",
        (Arg("percent", Whole(classes.PERCENTS, "ceiling"), "PCT", required=True),),
        Whom.HELD,
        Lane.TEMPORAL,
        "no TPC ceilings",
    ),
    Verb(
        "set-class",
        """Change what a class means, or make one.

        Programs of classes with a turn run one at a time; a higher class on the GPU, or whose turn comes first, leaves
        them their floor. What is not given stays as it is. Without detshare.ko a class has its floor alone to be set;
        with it the module keeps the row until it is unloaded.
        """,
        "low --floor 5",
        (
            Arg("weight", _WEIGHT, "N", "Of programs without one of their own.", "weight"),
            Arg("slice_us", Whole(range(60_000_001), "slice"), "US", "0: as the program has it.", "slice"),
            Arg("level", Level(), "", "Level on the run list.", "level"),
            Arg("floor_permille", Permille(classes.PERMILLES, "floor"), "PCT", "Time that it has at least.", "floor"),
            Arg(
                "turn_us", Whole(classes.TURNS_US, "turn", zero=True), "US",
                "One program at a time, 5000 or more; 0: all at once.", "turn",
            ),
            Arg("gpu", _GPU, "", "Only on this GPU.  [default: on each]", "gpu"),
            Arg(
                "reset", Flag(), "",
                "As by default, with --gpu as on the others; a class that is not one of ours is forgotten.", "reset",
            ),
        ),
        Whom.CLASS,
        Lane.TEMPORAL,
        "no rows of classes",
        check=_row,
    ),
    Verb("tenant-add", "Make a tenant.", "red", (), Whom.TENANT, Lane.TEMPORAL, "no memory limits", "tenant add"),
    Verb(
        "tenant-attach",
        "Put a program, and the children that it makes later, under a tenant.",
        "red 4242",
        (Arg("tenant", Text(accounts.check_tenant), "NAME", to="name", required=True),),
        lane=Lane.TEMPORAL,
        lacks="no memory limits",
        command="tenant attach",
        last=True,
    ),
    Verb(
        "tenant-del",
        "Forget a tenant and its limits; its programs go on without them.",
        "red", (), Whom.TENANT, Lane.TEMPORAL, "no memory limits", "tenant del",
    ),
    Verb(
        "pause",
        """Take a program off the GPU until `resume`.

        Whatever it runs, an endless kernel too; it loses nothing. If the daemon ends, the program runs again. The ranks
        of a job that detshare run started stop between two collectives, if they come to such a point within 0.5 s.
        """,
        "4242",
        done="paused",
        daemon=True,
    ),
    Verb(
        "resume",
        """Let a paused program run on, and bring the memory of a parked one back.

        A program parked by its library comes back by itself when it launches, copies, frees or asks for memory. One in
        the driver's checkpoint waits for this. With --lazy, or park.lazy in the configuration, it runs at once over
        host memory while its memory comes back, if it was parked for that; else it does after its next park.
        """,
        "4242",
        (Arg("lazy", Flag(), "", "It runs while its memory comes back.", "lazy"),),
        done="runs again",
        undoes=True,
    ),
    Verb(
        "park",
        """Copy a program's GPU memory into host memory, and let it go.

        Addresses and contents stay what they are: its next launch, copy or free brings all of it back, and waits for
        that. What it runs now is waited for. In the spatial lane `pause` it as well to keep it away. That is for
        programs that were started with `detshare run --park`, in either lane. Any other one goes into the driver's
        checkpoint, with driver 570 and cuda-bindings: some seconds, and it waits until `resume`. With --deep the
        driver's checkpoint takes after that what the library leaves, the context and the code, of a program in the
        temporal lane: then it has no GPU memory at all, and its next call still brings all back. Needs the daemon.
        """,
        "4242",
        (
            Arg("timeout", _WAIT, "SECONDS", "How long to wait for the program.  [default: 20]", "timeout"),
            Arg("room_for", _PID, "PID", "It stays away until that one has the memory that it waits for.", "room-for"),
            Arg("deep", Flag(), "", "Its context leaves too, by the driver's checkpoint.", "deep"),
        ),
        lane=Lane.SPATIAL,  # its backend has the boards of both lanes
        done="parked",
        daemon=True,
    ),
    Verb(
        "migrate",
        """Move a program to another GPU of the same chip, while it waits for some seconds.

        By the driver's checkpoint, with driver 580 and cuda-bindings 13: its memory goes into its own host memory and
        comes back there, at the same addresses. GPU is a number or the beginning of a UUID. Whom the driver does not
        move runs on where it was. Not for MPS, thus not for the spatial lane. Needs the daemon.
        """,
        "4242 1",
        (
            Arg("gpu", Text(), "GPU", required=True),
            Arg("timeout", _WAIT, "SECONDS", "How long what it runs may take to end.  [default: 10]", "timeout"),
        ),
        lane=Lane.SPATIAL,
        done="moves",
        daemon=True,
    ),
    Verb(
        "preempt",
        """Take a program off the GPU once.

        What it runs is saved and goes on at its next turn.
        """,
        "4242",
        done="preempted",
    ),
    Verb(
        "release",
        """Put a program back as it was found.

        Its slices and levels are as before DetShare, and nothing is remembered for it.
        """,
        "--all",
        done="released",
        undoes=True,
    ),
)  # fmt: skip

VERBS: Final[Mapping[str, Verb]] = {verb.name: verb for verb in _ALL}


def check_who(who: object) -> str:
    """`who` as a selector that can be meant. BadRequest otherwise."""
    if not isinstance(who, str):
        raise BadRequest(f"who is {shown(who)}; it is a string: a PID, a container id or a command pattern")
    if not who.isprintable():
        raise BadRequest(f"who {shown(who)} holds characters that cannot be printed; a command pattern may use * or ?")
    select.parse(who)
    return who


def request(name: str, who: object, /, **args: object) -> Request:
    """What a backend is asked: the verb with its arguments as JSON has them, None for one that is not given.

    BadRequest where it cannot be meant.
    """
    verb = VERBS.get(name)
    if verb is None:
        raise BadRequest(f"there is no verb {shown(name)}; verbs are {', '.join(VERBS)}")
    known = {arg.name for arg in verb.args}
    for given in args:
        if given not in known:
            takes = ", ".join(("who", *(arg.name for arg in verb.args)))
            raise BadRequest(f"{name} has no argument {shown(given)}; it takes {takes}")
    who = check_who(who)
    if verb.whom is Whom.TENANT:
        accounts.check_tenant(who)
    elif verb.whom is Whom.CLASS:
        classes.check_name(who)
    elif verb.whom is Whom.OURS:
        classes.setting(who)
    made = {
        arg.to or arg.name: arg.kind.read(name, arg.name, args.get(arg.name))
        for arg in verb.args
        if arg.required or args.get(arg.name) is not None
    }
    return Request(verb, who, made if verb.check is None else verb.check(made))


def quoted(value: object, most: int = 80) -> str:
    """A value as it would be typed, in quotes where a shell would split it; what cannot be printed is escaped."""
    if not isinstance(value, str) or not value.isprintable():
        return shown(value)[:most]
    text = value[:most]
    return text if text and " " not in text else shlex.quote(text)


def describe(name: str, who: object, args: Mapping[str, object]) -> str:
    """The request in one short line, as it would be typed."""
    verb = VERBS.get(name)
    known = {arg.name: arg for arg in verb.args} if verb is not None else {}
    words = []
    for key, value in args.items():
        if value is not None:
            arg = known.get(key)
            text = quoted(value, 40)
            text = arg.kind.say(value) if arg is not None and isinstance(arg.kind, Permille) else text
            text = "" if arg is not None and isinstance(arg.kind, Flag) and value is True else text
            words += [f"--{arg.option}", *filter(None, [text])] if arg is not None and arg.option else [text]
    whom = "--all" if (name, who) == ("release", "*") else quoted(who)
    if verb is None:
        return " ".join((name, whom, *words))
    if verb.whom is not Whom.ALL:
        words.insert(len(words) if verb.last else 0, whom)
    return " ".join((verb.words, *words))
