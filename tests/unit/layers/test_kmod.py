# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from detshare.tools.layers import kmod
from detshare.tools.layers.circles import circles
from detshare.tools.layers.kmod import Known

ROOT = Path(__file__).resolve().parents[3]
NOTHING = Known()
RULE = "a file uses what is in its own folder and in lower ones"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three layers and main.c, each using what is below it only."""
    put(tmp_path, "Kbuild", "layers := rm base api\n")
    put(tmp_path, "kmod/detshare_uapi.h", "enum detshare_kind { DETSHARE_KIND_PID };\n")
    put(tmp_path, "kmod/rm/tree.h", "int rm_tree(void);\n")
    put(tmp_path, "kmod/rm/tree.c", '#include "tree.h"\nint rm_tree(void)\n{\n\treturn 0;\n}\n')
    put(tmp_path, "kmod/base/log.h", '#include "detshare_uapi.h"\n#include "rm/tree.h"\nint ds_log(void);\n')
    put(tmp_path, "kmod/base/log.c", '#include "log.h"\nint ds_log(void)\n{\n\treturn rm_tree();\n}\n')
    put(tmp_path, "kmod/api/msg.h", '#include "log.h"\nint ds_msg(void);\nextern int ds_count;\n')
    put(tmp_path, "kmod/api/msg.c", '#include "msg.h"\nint ds_count;\nint ds_msg(void)\n{\n\treturn ds_log();\n}\n')
    put(tmp_path, "kmod/main.c", '#include "msg.h"\nstatic int (*const parts[])(void) = { ds_msg };\n')
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def add(root: Path, name: str, text: str) -> None:
    (root / name).write_text((root / name).read_text() + text)


def test_nothing_goes_up(tree: Path) -> None:
    assert kmod.check(tree, NOTHING) == []


def test_an_include_of_a_higher_folder(tree: Path) -> None:
    add(tree, "kmod/base/log.c", '#include "msg.h"\n')
    assert kmod.check(tree, NOTHING) == [f"base/log.c -> api/msg.h: base lies below api; {RULE}"]


@pytest.mark.parametrize("name", ['"api/msg.h"', '"../api/msg.h"', "<api/msg.h>", "<msg.h>"])
def test_an_include_by_the_folder_counts_too(tree: Path, name: str) -> None:
    add(tree, "kmod/base/log.h", f"# include {name}\n#include <linux/module.h>\n")
    assert kmod.check(tree, NOTHING) == [f"base/log.h -> api/msg.h: base lies below api; {RULE}"]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("int ds_msg(void);\nstatic int f(void)\n{\n\treturn ds_msg();\n}\n", "ds_msg"),
        ("extern int ds_count;\nstatic int *const at = &ds_count;\n", "ds_count"),
        ("struct ops {\n\tint (*f)(void);\n};\nstatic struct ops ops = { .f = ds_msg };\n", "ds_msg"),
        ("#define AGAIN \\\n\tds_msg()\n", "ds_msg"),
    ],
)
def test_a_use_without_an_include(tree: Path, use: str, name: str) -> None:
    add(tree, "kmod/base/log.c", use)
    assert kmod.check(tree, NOTHING) == [f"base/log.c -> api/msg.c ({name}): base lies below api; {RULE}"]


def test_what_is_no_use(tree: Path) -> None:
    add(tree, "kmod/base/log.c", "/* ds_msg() */\nint ds_msg(void);\n")
    body = 'puts("ds_msg");\n\tx->ds_msg = x[0].ds_msg;'
    add(tree, "kmod/base/log.c", f"static void f(struct ds_msg *x)\n{{\n\t{body}\n}}\n")
    assert kmod.check(tree, NOTHING) == []


def test_a_static_function_is_nobody_elses(tree: Path) -> None:
    add(tree, "kmod/api/msg.c", "static int ds_own(void)\n{\n\treturn 0;\n}\n")
    add(tree, "kmod/base/log.c", "static int ds_own(void);\nstatic int f(void)\n{\n\treturn ds_own();\n}\n")
    assert kmod.check(tree, NOTHING) == []


def test_macros_and_assembly_define_too(tree: Path) -> None:
    add(tree, "kmod/api/msg.c", "DEFINE_MUTEX(ds_msg_lock);\nstruct queue *ds_one, *ds_two[2];\n")
    put(tree, "kmod/api/past.S", "SYM_FUNC_START(ds_past)\n\tret\nSYM_FUNC_END(ds_past)\n")
    add(tree, "kmod/base/log.c", "static void f(void)\n{\n\tlock(&ds_msg_lock, ds_one, ds_two, ds_past);\n}\n")
    assert [message.partition(":")[0] for message in kmod.check(tree, NOTHING)] == [
        "base/log.c -> api/msg.c (ds_msg_lock)",
        "base/log.c -> api/msg.c (ds_one)",
        "base/log.c -> api/past.S (ds_past)",
        "base/log.c -> api/msg.c (ds_two)",
    ]


def test_nobody_uses_main(tree: Path) -> None:
    add(tree, "kmod/main.c", "int ds_main;\n")
    add(tree, "kmod/api/msg.c", "static int f(void)\n{\n\treturn ds_main;\n}\n")
    assert kmod.check(tree, NOTHING) == [f"api/msg.c -> main.c (ds_main): api lies below main.c; {RULE}"]


def test_a_known_edge_is_let_be_and_must_be_there(tree: Path) -> None:
    known = Known(edges={"base/log.c -> api/msg.h": "a reason"})
    assert kmod.check(tree, known) == [
        "base/log.c -> api/msg.h: is listed as known, and is no more: take it off the list"
    ]
    add(tree, "kmod/base/log.c", '#include "msg.h"\n')
    assert kmod.check(tree, known) == []


def circle(tree: Path, count: int) -> None:
    for i in range(count):
        after = (i + 1) % count
        put(tree, f"kmod/api/c{i}.h", f"int ds_c{i}(void);\n")
        put(tree, f"kmod/api/c{i}.c", f'#include "c{after}.h"\nint ds_c{i}(void)\n{{\n\treturn ds_c{after}();\n}}\n')


def test_a_circle_of_four_may_be(tree: Path) -> None:
    circle(tree, 4)
    assert kmod.check(tree, NOTHING) == []


def test_a_larger_circle(tree: Path) -> None:
    circle(tree, 5)
    assert kmod.check(tree, NOTHING) == [
        "api/: 5 files use each other in a circle, 4 may: api/c0, api/c1, api/c2, api/c3, api/c4"
    ]
    assert kmod.check(tree, Known(circles={"api": (5, "a reason")})) == []
    assert kmod.check(tree, Known(circles={"api": (6, "a reason")})) == [
        "api/: a circle of 6 files is listed as known, and it is smaller: mend the list"
    ]


def test_the_inside_of_a_file_is_no_file_of_its_own(tree: Path) -> None:
    circle(tree, 4)
    put(tree, "kmod/api/c0_impl.h", '#include "c0.h"\nint ds_c0_inside(void);\n')
    add(tree, "kmod/api/c3.c", '#include "c0_impl.h"\n')
    add(tree, "kmod/api/c0.c", '#include "c0_impl.h"\n')
    assert kmod.check(tree, NOTHING) == []


@pytest.mark.parametrize("name", ["more/a.c", "a.c", "base/deep/a.h"])
def test_a_file_in_no_layer(tree: Path, name: str) -> None:
    put(tree, f"kmod/{name}", "int ds_a;\n")
    assert kmod.check(tree, NOTHING) == [f"{name}: is in no folder that Kbuild's `layers` names"]


def test_an_include_of_nothing_and_a_name_that_is_there_twice(tree: Path) -> None:
    put(tree, "kmod/api/log.h", '#include "none.h"\n')
    assert sorted(kmod.check(tree, NOTHING)) == [
        "api/log.h: includes none.h, which is nowhere in kmod/",
        "base/log.h: has the name of api/log.h, so an include means either",
    ]


def test_without_a_list_of_layers(tmp_path: Path) -> None:
    put(tmp_path, "Kbuild", "obj-m := detshare.o\n")
    assert kmod.check(tmp_path, NOTHING) == [
        "Kbuild: has no line `layers := ...` that names the folders of kmod/ from the lowest up"
    ]


def test_this_checkout() -> None:
    assert kmod.check(ROOT) == []


def test_circles() -> None:
    graph = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert circles(graph) == [["a", "b", "c"], ["d", "e"]]
