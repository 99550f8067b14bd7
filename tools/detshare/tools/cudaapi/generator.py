# SPDX-License-Identifier: Apache-2.0
"""Writes runtime/gen/ from runtime/api.json: the driver's table, wrappers that only redirect, and their addresses."""

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
    """gen/real.h: struct ds_real and the prototypes of what is exported."""
    lines = [
        HEAD.format(source=API),
        "#ifndef DS_GEN_REAL_H\n#define DS_GEN_REAL_H\n",
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
        case Kind.CONTEXT:
            lines += [
                f"\tCUresult result = real->{function.name}({passed(function)});",
                "",
                "\tds_context_changed();",
                "\treturn result;",
            ]
    return "\n".join([*lines, "}", ""])


def wrappers(functions: list[Function]) -> str:
    """gen/wrappers.c: what only redirects."""
    bodies = [redirect(one) for one in functions if one.kind in GENERATED]
    return "\n".join([HEAD.format(source=API), '#include "runtime.h"\n', *bodies])


def table(functions: list[Function]) -> str:
    """gen/entries.c: name, place in struct ds_real and wrapper of each function, sorted by name."""
    lines = [HEAD.format(source=API), '#include "entry.h"\n']
    lines += ["const struct ds_entry ds_entries[] = {"]
    for one in sorted(functions, key=lambda function: function.name):
        if one.called:
            wrapper = f"(void (*)(void)){one.name}" if one.wrapped else "NULL"
            lines.append(f'\t{{"{one.name}", offsetof(struct ds_real, {one.name}), {wrapper}}},')
    lines += ["};", "", "const unsigned int ds_entry_count = sizeof(ds_entries) / sizeof(ds_entries[0]);", ""]
    return "\n".join(lines)


def render(root: Path) -> dict[Path, str]:
    """Every generated file of the checkout at `root`, by path within it."""
    functions = load(root)
    folder = Path("runtime/gen")
    return {
        folder / "real.h": real_header(functions),
        folder / "wrappers.c": wrappers(functions),
        folder / "entries.c": table(functions),
    }
