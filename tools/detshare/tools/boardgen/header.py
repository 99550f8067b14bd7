# SPDX-License-Identifier: Apache-2.0
"""runtime/shm/board.h from the layout. The compiler asserts each offset, so a wrong idea of padding cannot pass."""

from __future__ import annotations

from collections.abc import Iterator

from detshare.tools.boardgen.layout import SCALARS, Field, Layout, Packed, Struct

__all__ = ["header"]

_C = {"u8": "uint8_t", "char": "char", "u32": "uint32_t", "s32": "int32_t", "u64": "uint64_t"}
_KEYWORDS = {"class": "class_"}


def header(layout: Layout) -> str:
    """The whole file."""
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0 */",
        "/* Made from runtime/board.json by python -m detshare.tools.boardgen; do not edit. */",
        "#ifndef DETSHARE_BOARD_H",
        "#define DETSHARE_BOARD_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
    ]
    for constant in layout.constants:
        value = f"{constant.text}U" if constant.value >= 1 << 31 else constant.text
        if constant.doc:
            lines.append(f"/* {constant.doc} */")
        lines.append(f"#define DS_{constant.name} {value}")
    for packed in layout.packed:
        lines += ["", *_packed(packed)]
    for struct in layout.structs:
        lines += ["", *_struct(struct)]
    return "\n".join([*lines, "", "#endif", ""])


def _packed(packed: Packed) -> Iterator[str]:
    yield f"/* {packed.doc} */"
    for part in packed.parts:
        kind = "uint32_t" if part.bits > 8 else "uint8_t"
        yield f"static inline {kind} ds_{packed.name}_{part.name}(uint64_t word)"
        yield "{"
        yield (
            f"\treturn ({kind})(word >> {part.shift});"
            if part.bits in (8, 32)
            else (f"\treturn ({kind})((word >> {part.shift}) & {(1 << part.bits) - 1:#x});")
        )
        yield "}"


def _declaration(field: Field) -> str:
    of = _C[field.type] if field.type in SCALARS else f"struct ds_{field.type}"
    count = f"[{field.count}]" if field.count else ""
    return f"{of} {_KEYWORDS.get(field.name, field.name)}{count};"


def _struct(struct: Struct) -> Iterator[str]:
    yield f"/* {struct.doc} */"
    yield f"struct ds_{struct.name} {{"
    for field in struct.fields:
        yield f"\t{_declaration(field)}" + (f" /* {field.doc} */" if field.doc else "")
    if struct.used < struct.size:
        yield f"\tuint8_t _rest[{struct.size - struct.used}];"
    yield f"}} __attribute__((aligned({struct.align})));"
    yield f'_Static_assert(sizeof(struct ds_{struct.name}) == {struct.size}, "ds_{struct.name}");'
    for field in struct.fields:
        name = _KEYWORDS.get(field.name, field.name)
        yield (
            f"_Static_assert(offsetof(struct ds_{struct.name}, {name}) == {field.offset}, "
            f'"ds_{struct.name}.{field.name}");'
        )
