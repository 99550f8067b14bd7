# SPDX-License-Identifier: Apache-2.0
"""What people read in a terminal. Texts of other processes never reach it unfiltered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from detshare.ctl.core import words
from detshare.ctl.core.classes import CLASSES
from detshare.ctl.core.gputime import SLOTS
from detshare.ctl.core.verbs import VERBS

Json = Mapping[str, Any]

_COLUMNS = (
    ("PID", True),
    ("GPU", False),
    ("CLASS", False),
    ("SLICE", True),
    ("LEVEL", False),
    ("MEM", True),
    ("LIMIT", True),
    ("SMS", True),
    ("SHARE", True),
    ("LATELY", True),
    ("TURN", False),
    ("STATE", False),
)
"""name, and whether it is set to the right; LIMIT, SMS, LATELY and TURN only where somebody can have one"""

_LATELY = 10
"""cells of a history"""

_STATE_STYLE = {
    "running": "green",
    "active": "green",
    "paused": "yellow",
    "gated": "yellow",
    "spatial": "green",
    "parked": "cyan",
    "no-context": "dim",
    "not-understood": "red",
    "read-only": "magenta",
}


def count(number: int, name: str) -> str:
    """The number with the name: 1 channel group, 4 channel groups."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def clean(text: object, limit: int = 0) -> str:
    """Printable text: escape sequences in a command line must not reach a terminal. `limit` 0: any length."""
    shown = "".join(c if c.isprintable() else "?" for c in str(text))
    return shown if not limit or len(shown) <= limit else shown[: limit - 1] + "…"


def duration(us: float) -> str:
    """Microseconds in seven characters at most; exact below 10 ms."""
    for unit, length in (("s", 1e6), ("ms", 1e3)):
        if us >= max(length, 10_000):
            return f"{us / length:.4g}{unit}"
    return f"{us:g}us"


def size(count: float | None) -> str:
    """Bytes in at most six characters; "-" where unknown."""
    if count is None:
        return "-"
    for unit, scale in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if count >= scale:
            value = count / scale
            return f"{value:.1f}{unit}" if value < 100 else f"{value:.0f}{unit}"
    return f"{count:.0f}"


def command(text: str) -> str:
    """A command line without the folder of its program."""
    first, space, rest = clean(text).partition(" ")
    return first.rpartition("/")[2] + space + rest


def _several(values: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(values))
    return ",".join(distinct) if len(distinct) < 3 else f"{len(distinct)} kinds"


def compute(program: Json) -> list[Json]:
    """The compute channel groups of a program."""
    return [tsg for tsg in program["tsgs"] if tsg["kind"] == "compute"]


def klass(program: Json) -> str:
    """The class; the weight where that was set instead."""
    if program.get("class"):
        return clean(program["class"])
    return f"w{program['weight']}" if program.get("weight") is not None else "-"


class Lines:
    """A table of strings whose widths are known: rich's own measures each cell, 0.7 s for a thousand programs."""

    def __init__(self, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]], styled: int) -> None:
        """`columns`: name, and whether it is to the right. `styled`: number of the column that has _STATE_STYLE."""
        self._columns, self._rows, self._styled = columns, rows, styled

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        last = len(self._columns) - 1
        lines = [[name for name, _ in self._columns], *self._rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        head = console.get_style("table.header")
        styles = {state: console.get_style(name) for state, name in _STATE_STYLE.items()}
        for row, cells in enumerate(lines):
            left = options.max_width
            for number, (cell, (_, right)) in enumerate(zip(cells, self._columns, strict=True)):
                wide = cell.rjust(widths[number]) if right else cell.ljust(widths[number])
                shown = cell if number == last else wide + " "
                if number == last and cell_len(shown) > left:
                    shown = set_cell_size(shown, max(left, 0))
                style = styles.get(cell.partition(" ")[0]) if row and number == self._styled else None
                left -= len(shown)
                yield Segment(shown, style if row else head)
            yield Segment.line()


def programs(answer: Json, width: int, ascii_only: bool = False) -> Lines:
    """The table of `ps` for a terminal of `width` columns; what is too long is the command."""
    index = gpu_numbers(answer)
    limits = holds_limits(answer)
    spatial = any(program.get("spatial") for program in answer["programs"])
    lately = any(program.get("gpu_time") for program in answer["programs"])
    turns = any(program.get("places") for program in answer["programs"])
    optional = (("LIMIT", limits), ("SMS", spatial), ("LATELY", lately), ("TURN", turns))
    hidden = {name for name, shown in optional if not shown}
    servers = [program for program in answer["programs"] if program["state"] == "mps-server"]
    rows = []
    for program in sorted(answer["programs"], key=lambda p: p["pid"]):
        tsgs = compute(program)
        share = program.get("gpu_share")
        doing = program.get("activity")
        state = clean(program["state"])
        if doing and state == "running":
            state = clean(doing["state"])
        elif doing and doing["reasons"]:
            state += f" ({','.join(map(clean, doing['reasons']))})"
        rows.append(
            (
                str(program["pid"]),
                ",".join(index.get(uuid, "?") for uuid in program["gpus"]) or "-",
                klass(program),
                _several(duration(tsg["slice_us"]) for tsg in tsgs) or "-",
                _several(clean(tsg["level"] or "-") for tsg in tsgs) or "-",
                size(program.get("memory_bytes")),
                *([size(program.get("memory_limit"))] if limits else []),
                *([_sms(program)] if spatial else []),
                words.SERVED if words.servers(program, servers) else f"{share:.0%}" if share is not None else "-",
                *([words.spark(words.history(program), _LATELY, ascii_only, SLOTS)] if lately else []),
                *([words.turn(program) or "-"] if turns else []),
                state,
                command(program["command"]),
            )
        )
    columns = [column for column in _COLUMNS if column[0] not in hidden]
    used = sum(max(len(name), *(len(row[number]) for row in rows)) + 1 for number, (name, _) in enumerate(columns))
    cut = [(*cells, clean(text, max(width - used, 12))) for *cells, text in rows]
    return Lines([*columns, ("COMMAND", False)], cut, len(columns) - 1)


def _sms(program: Json) -> str:
    """How many SMs a program of the spatial lane has, and its pCtx where that is not all of them."""
    if not program.get("spatial"):
        return "-"
    count, pctx = program["spatial"]["idle_sms"], clean(program.get("pctx") or "")
    return f"{count} {pctx}" if pctx and pctx != "100%" else str(count)


def holds_limits(answer: Json) -> bool:
    """Whether the kernel module is in force, or somebody has a limit of it."""
    return answer["backend"] == "kmod" or any(program.get("limits") for program in answer["programs"])


def proof(answer: Json) -> Text:
    """Which backend sees this, and how far it may be believed."""
    if answer["backend"] not in ("kmod", "root") and answer["proof"] == "model":
        return Text("model: simulated programs, no GPU is touched", style="bold yellow")
    told = f"backend {clean(answer['backend'])}, driver {clean(answer['driver'])}"
    if answer["backend"] == "kmod":
        told += "; memory limits are held by the kernel"
    if answer["proof"] in ("driver", "model"):
        return Text(f"{told}; proof level {answer['proof']}", style="bold yellow")
    return Text(told, style="dim")


def account(each: Json) -> str:
    """One limit in words."""
    gpu = "" if each["gpu"] is None else f" on GPU {each['gpu']}"
    more = f", refused {count(each['refused'], 'request')}" if each["refused"] else ""
    name = f"{clean(each['kind'])} {clean(each['name'])}{gpu}"
    return f"{name}, {size(each['used'])} of {size(each['limit'])}, at most {size(each['peak'])}{more}"


def accounts(found: Iterable[Json]) -> Table:
    """Limits as a table."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("LIMIT OF", "GPU", "USED", "LIMIT", "PEAK", "REFUSED"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("LIMIT OF", "GPU") else "right")
    for each in found:
        name, gpu = f"{clean(each['kind'])} {clean(each['name'])}", "each" if each["gpu"] is None else str(each["gpu"])
        sizes = (size(each["used"]), size(each["limit"]), size(each["peak"]))
        table.add_row(Text(name), gpu, *sizes, str(each["refused"]))
    return table


def tenants(answer: Json) -> Table:
    """The table of `tenant list`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("TENANT", "LIMITS", "PROGRAMS"):
        table.add_column(name, overflow="fold")
    for tenant in answer["tenants"]:
        mine = [a for a in answer["accounts"] if a["kind"] == "tenant" and a["name"] == tenant["name"]]
        limits = "; ".join(account(each).partition(" ")[2].removeprefix(f"{tenant['name']}, ") for each in mine)
        pids = ", ".join(str(pid) for pid in tenant["pids"])
        table.add_row(Text(clean(tenant["name"])), Text(limits or "no memory limit"), Text(pids or "-"))
    return table


def warnings(answer: Json) -> list[Text]:
    """What the look could not see or do, and who makes no progress."""
    return [Text(f"warning: {clean(text)}", style="yellow") for text in answer.get("warnings", ())]


def rotations(answer: Json) -> list[Text]:
    """What MIG made of GPUs, and the rotation of each that has one: who holds the turn, who comes then."""
    numbers = gpu_numbers(answer)
    cut = [Text(f"GPU {gpu['minor']}: {text}", style="cyan") for gpu in answer["gpus"] if (text := words.mig(gpu))]
    return cut + [
        Text(f"GPU {numbers.get(each['gpu'], '?')}: {words.schedule(each)}", style="cyan")
        for each in words.schedules(answer)
    ]


def gpu_numbers(answer: Json) -> dict[str, str]:
    """UUID -> number of each GPU, that of its device node: by it `--gpu` and `migrate` name it."""
    return {gpu["uuid"]: str(gpu["minor"]) for gpu in answer["gpus"]}


def _floors(rows: Sequence[Json], order: Mapping[str, int]) -> Table:
    """Floors of classes where that is all that a class has: first those of all GPUs, then those of single ones."""
    made = _table("CLASS", "GPU", "FLOOR")
    for row in sorted(rows, key=lambda row: (order.get(row["name"], len(order)), row["uuid"] != "", row["gpu"] or 0)):
        gpu = "each"
        if row["uuid"]:
            gpu = str(row["gpu"]) if row["gpu"] is not None else f"{clean(row['uuid'])} (absent)"
        made.add_row(clean(row["name"]), gpu, f"{100 * row['floor']:g}%")
    return made


def standing(answer: Json) -> list[Table]:
    """The tables of `classes`: rows; orders of cgroups and tenants, buckets and holds where there are any."""
    order = {name: place for place, name in enumerate(CLASSES)}
    if not answer["classes"] and answer.get("floors"):
        return [_floors(answer["floors"], order)]
    made = [_table("CLASS", "GPU", "WEIGHT", "SLICE", "LEVEL", "TURN", "FLOOR", "CONTEXTS")]
    for row in sorted(answer["classes"], key=lambda each: (order.get(each["name"], len(order)), each["name"])):
        made[0].add_row(
            clean(row["name"]),
            "each" if row["gpu"] is None else str(row["gpu"]),
            str(row["weight"] or "-"),
            duration(row["slice_us"]) if row["slice_us"] else "-",
            clean(row["level"] or "-"),
            duration(row["turn_us"]) if row["turn_us"] else "-",
            f"{row['floor_permille'] / 10:g}%",
            str(row["entities"]),
        )
    if answer["orders"]:
        made.append(_table("ORDER FOR", "ORDER"))
        for each in answer["orders"]:
            made[-1].add_row(_whose(each), clean(each["text"]))
    if answer["buckets"]:
        made.append(_table("BUCKET OF", "RATE", "BURST", "LEFT", "USED", "EMPTIED", "NOW"))
        for each in answer["buckets"]:
            amounts = [duration(each[name]) for name in ("burst_us", "level_us", "used_us")]
            now = "empty" if each["empty"] else "-"
            made[-1].add_row(_whose(each), f"{each['rate_us'] / 1e4:.4g}%", *amounts, str(each["emptied"]), now)
    if answer["holds"]:
        made.append(_table("HELD", "HOW", "LEASE"))
        for each in answer["holds"]:
            how = "paused" if each["pause"] else "gated"
            lease = "renewed" if each["renewed"] else f"{each['lease_ms'] / 1000:.0f} s left"
            made[-1].add_row(_whose(each), how, lease)
    return made


def _whose(each: Json) -> Text:
    return Text(f"{clean(each['kind'])} {clean(each['name'])}")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def outcome(answer: Json) -> list[Text]:
    """What a verb changed, a line each; not what it left alone."""
    lines = []
    for change in answer["changed"]:
        verb = str(answer["verb"])
        steers = verb.startswith("set-")
        groups = f", {count(len(change['tsgs']), 'channel group')}" if change["tsgs"] and not steers else ""
        done = VERBS[verb].done if verb in VERBS and VERBS[verb].done else f"{clean(verb)} done"
        limit = change.get("limit")
        if limit is not None:
            lines.append(Text(_limit(limit) + _note(change)))
            continue
        whom = f"{change['pid']}: " if change["pid"] else ""
        lines.append(Text(f"{whom}{done}{groups}{_note(change)}"))
        for tsg in change["tsgs"] if steers else ():
            was, now = duration(tsg["before_us"]), duration(tsg["slice_us"])
            moved = now if was == now else f"{was} -> {now}"
            level = f", level {clean(tsg['level'])}" if tsg["level"] else ""
            lines.append(Text(f"  TSG {tsg['handle']:#x} on {clean(tsg['gpu'], 16)}: slice {moved}{level}"))
    return lines


def _limit(limit: Json) -> str:
    before, now = (size(limit[key]) if limit[key] is not None else "none" for key in ("before", "limit"))
    gpu = "" if limit["gpu"] is None else f" on GPU {limit['gpu']}"
    return f"{clean(limit['account'])}{gpu}: memory limit {before} -> {now}, uses {size(limit['used'])}"


def _note(change: Json) -> str:
    return f" ({clean(change['note'])})" if change.get("note") else ""


CHECKS_WIDTH: Final = 60
"""columns of `doctor` at least: in fewer, nothing is left for what was found; a narrow terminal folds its lines"""


def checks(answer: Json) -> Table:
    """The table of `doctor`."""
    marks = {True: ("ok", "green"), False: ("FAIL", "bold red"), None: ("note", "cyan")}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in answer["checks"]:
        mark, style = marks[check["ok"]]
        text = clean(check["detail"])
        if check["advice"] and check["ok"] is not True:
            text += f"\nnext: {clean(check['advice'])}"
        table.add_row(Text(mark, style=style), Text(clean(check["name"])), Text(text))
    return table


def event(item: Json) -> str:
    """One event in one line."""
    when = time.localtime(item["when"])
    today = when[:3] == time.localtime()[:3]
    moment = time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", when)
    pid = f" {item['pid']}" if item["pid"] is not None else ""
    return f"{moment} {clean(item['kind'])}{pid}: {clean(item['text'])}"
