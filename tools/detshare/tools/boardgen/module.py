# SPDX-License-Identifier: Apache-2.0
"""board_layout.py of detshare.runtime from the layout: constants and, for each structure, where each field lies."""

from __future__ import annotations

from detshare.tools.boardgen.layout import SCALARS, Layout, Struct

__all__ = ["module"]


def module(layout: Layout) -> str:
    """The whole file."""
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""Made from runtime/board.json by python -m detshare.tools.boardgen; do not edit.',
        "",
        "Offsets count from the start of a structure. `count` is 0 for a single value.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass",
        "",
        "",
        "@dataclass(frozen=True, slots=True)",
        "class Field:",
        '    """Where one field lies."""',
        "",
        "    offset: int",
        "    type: str",
        "    count: int",
        "",
        "",
    ]
    for constant in layout.constants:
        doc = f"  # {constant.doc}" if constant.doc else ""
        line = f"{constant.name} = {constant.text}{doc}"
        lines.append(line if len(line) <= 120 else f"# {constant.doc}\n{constant.name} = {constant.text}")
    for packed in layout.packed:
        lines += ["", f"# {packed.doc}: (shift, bits)"]
        parts = ", ".join(f'"{part.name}": ({part.shift}, {part.bits})' for part in packed.parts)
        lines.append(f"{packed.name.upper()}_PARTS = {{{parts}}}")
    for struct in layout.structs:
        lines += ["", *_struct(struct)]
    return "\n".join([*lines, ""])


def _struct(struct: Struct) -> list[str]:
    name = struct.name.upper()
    lines = [f"{name}_SIZE = {struct.size}", f"{name}_FIELDS = {{"]
    for field in struct.fields:
        if field.name.startswith("_"):
            continue
        kind = field.type if field.type in SCALARS else field.type.upper()
        lines.append(f'    "{field.name}": Field({field.offset}, "{kind}", {field.count or 0}),')
    return [*lines, "}"]
