# SPDX-License-Identifier: Apache-2.0
"""Writes C files from runtime/api.json: the driver's table, wrappers that only redirect, and their addresses."""

from __future__ import annotations

from pathlib import Path

from detshare.tools.cudaapi.api import API, GENERATED, Function, Kind, load

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Made by `python -m detshare.tools.cudaapi` from {source}; do not edit. */
"""


def types(function: Function) -> str:
    """The parameter list without names."""
    return ", ".join(function.params) or "void"


def declared(function: Function) -> str:
    """The parameter list with names p0, p1, ..."""
    named = [f"{kind}{'' if kind.endswith('*') else ' '}p{index}" for index, kind in enumerate(function.params)]
    return ", ".join(named) or "void"


def passed(function: Function, stream: str | None = None) -> str:
    """The arguments of a call, with another expression for the stream where one is given."""
    names = [f"p{index}" for index in range(len(function.params))]
    if stream is not None and function.stream is not None:
        names[function.stream] = stream
    return ", ".join(names)


def real_header(functions: list[Function]) -> str:
    """base/real.h: struct ds_real and the prototypes of what is exported."""
    lines = [
        HEAD.format(source=API),
        "#ifndef DS_REAL_H\n#define DS_REAL_H\n",
        '#include "compiler.h"\n#include "cuda.h"\n',
        "/* The driver's own functions. One that the driver lacks is ds_absent(): see ds_has(). */",
        "struct ds_real {",
    ]
    lines += [f"\tCUresult (*{one.name})({types(one)});" for one in functions if one.called]
    lines += ["};", "", "/* What libdetshare.so exports in their place. */"]
    lines += [f"DS_EXPORT CUresult {one.name}({types(one)});" for one in functions if one.wrapped]
    lines += ["", "#endif", ""]
    return "\n".join(lines)


_ANNOUNCES = ("cuMemcpyHtoD", "cuMemcpyAsync")
"""copies that kernels are likely to follow"""


def redirect(function: Function) -> str:
    """The C text of one wrapper that only redirects."""
    per_thread = "true" if function.per_thread else "false"
    lines = [f"CUresult {function.name}({declared(function)})", "{"]
    match function.kind:
        case Kind.FOLLOW:
            lines += [
                f"\tstruct ds_stream *stream = ds_stream_of(p{function.stream}, {per_thread});",
                "\tCUresult result;",
                "",
                "\tif (!stream)",
                f"\t\treturn real->{function.name}({passed(function)});",
                *(["\tds_active_soon(stream);"] if function.name.startswith(_ANNOUNCES) else []),
                f"\tresult = real->{function.name}({passed(function, 'ds_stream_cur(stream)')});",
                "\tds_stream_done(stream);",
                "\treturn result;",
            ]
        case Kind.HOME | Kind.LEGACY:
            handle = "NULL"
            if function.stream is not None:
                handle = f"p{function.stream}"
                if function.params[function.stream].endswith("*"):
                    handle = f"{handle} ? *{handle} : NULL"
            lines += [
                f"\tstruct ds_stream *stream = ds_stream_of({handle}, {per_thread});",
                "\tCUresult result;",
                "",
                "\tif (!stream)",
                f"\t\treturn real->{function.name}({passed(function)});",
                "\tds_stream_home(stream);",
                f"\tresult = real->{function.name}({passed(function)});",
                "\tds_stream_done(stream);",
                "\treturn result;",
            ]
        case Kind.PLAIN:
            lines += [f"\treturn real->{function.name}({passed(function)});"]
        case Kind.MEMORY:
            lines += [f"\treturn ds_home_call(real->{function.name}({passed(function)}));"]
        case Kind.ROOM:
            call = f"real->{function.name}({passed(function)})"
            lines += [f"\treturn ds_room_own(ds_device_current(), {call}, {call});"]
        case Kind.CONTEXT:
            lines += [
                f"\tCUresult result = real->{function.name}({passed(function)});",
                "",
                "\tds_context_changed();",
                "\treturn result;",
            ]
    return "\n".join([*lines, "}", ""])


def wrappers(functions: list[Function]) -> str:
    """api/wrappers.c: what only redirects."""
    bodies = [redirect(one) for one in functions if one.kind in GENERATED]
    headers = "".join(f'#include "{name}.h"\n' for name in ("gate", "home", "move", "primary", "room"))
    return "\n".join([HEAD.format(source=API), headers, *bodies])


def places(functions: list[Function]) -> str:
    """base/places.c: where each function of the driver lies in struct ds_real."""
    lines = [HEAD.format(source=API), '#include "entry.h"\n', "const struct ds_place ds_places[] = {"]
    lines += [f'\t{{"{one.name}", offsetof(struct ds_real, {one.name})}},' for one in _by_name(functions) if one.called]
    lines += ["};", "", "const unsigned int ds_place_count = sizeof(ds_places) / sizeof(ds_places[0]);", ""]
    return "\n".join(lines)


def entries(functions: list[Function]) -> str:
    """api/entries.c: name, place in struct ds_real and wrapper of each function that is wrapped and called, by name."""
    lines = [HEAD.format(source=API), '#include "entries.h"\n', "const struct ds_entry ds_entries[] = {"]
    lines += [
        f'\t{{"{one.name}", offsetof(struct ds_real, {one.name}), (void (*)(void)){one.name}}},'
        for one in _by_name(functions)
        if one.called and one.wrapped
    ]
    lines += ["};", "", "const unsigned int ds_entry_count = sizeof(ds_entries) / sizeof(ds_entries[0]);", ""]
    return "\n".join(lines)


def _by_name(functions: list[Function]) -> list[Function]:
    return sorted(functions, key=lambda function: function.name)


def render(root: Path) -> dict[Path, str]:
    """Every generated file of the checkout at `root`, by path within it."""
    functions = load(root)
    folder = Path("runtime")
    return {
        folder / "base" / "real.h": real_header(functions),
        folder / "base" / "places.c": places(functions),
        folder / "api" / "entries.c": entries(functions),
        folder / "api" / "wrappers.c": wrappers(functions),
    }
