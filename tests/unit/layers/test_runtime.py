# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from detshare.tools.layers import runtime

ROOT = Path(__file__).resolve().parents[3]
HEAD = "runtime/base/log.c -> runtime/api/msg"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three layers, each using what is below it only, under the Makefile of runtime/."""
    if not all(shutil.which(tool) for tool in ("gcc", "make", "nm")):
        pytest.skip("needs gcc and make; as root: apt-get install gcc libc6-dev make")
    makefile = (ROOT / "runtime" / "Makefile").read_text().splitlines()
    put(
        tmp_path,
        "Makefile",
        "\n".join("layers := base gate api" if each.startswith("layers :=") else each for each in makefile) + "\n",
    )
    put(tmp_path, "base/log.h", "int ds_log(void);\n")
    put(tmp_path, "base/log.c", '#include "log.h"\nint ds_log(void)\n{\n\treturn 0;\n}\n')
    put(tmp_path, "gate/gate.h", '#include "log.h"\nint ds_gate(void);\n')
    put(tmp_path, "gate/gate.c", '#include "gate.h"\nint ds_gate(void)\n{\n\treturn ds_log();\n}\n')
    put(tmp_path, "api/msg.h", "int ds_msg(void);\nextern int ds_count;\n")
    put(
        tmp_path,
        "api/msg.c",
        '#include "gate.h"\n#include "msg.h"\nint ds_count;\nint ds_msg(void)\n{\n\treturn ds_gate();\n}\n',
    )
    return tmp_path


def put(tree: Path, name: str, text: str) -> None:
    path = tree / "runtime" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add(tree: Path, name: str, text: str) -> None:
    path = tree / "runtime" / name
    path.write_text(path.read_text() + text)


def test_nothing_goes_up(tree: Path) -> None:
    assert runtime.check(tree) == []


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("base/log.c", '"msg.h"'),
        ("base/log.h", '"msg.h"'),
        ("base/log.c", "<msg.h>"),
        ("base/log.c", '"../api/msg.h"'),
        ("base/log.c", "<../api/msg.h>"),
    ],
)
def test_an_include_of_a_higher_folder(tree: Path, where: str, name: str) -> None:
    add(tree, where, f"# include {name}\n#include <sys/types.h>\n")
    assert runtime.check(tree) == [
        f"runtime/{where} -> runtime/api/msg.h: base lies below api; "
        "a file includes what is in its own folder and in lower ones"
    ]


def test_an_include_of_a_higher_folder_does_not_compile_either(tree: Path) -> None:
    # a name that a macro makes is not read, and what is nowhere for the checker's order is nowhere for the compiler
    add(tree, "gate/gate.c", '#define UPPER "log.h"\n#include UPPER\n')
    assert runtime.check(tree) == []
    add(tree, "base/log.c", "#define UPPER <msg.h>\n#include UPPER\n")
    (message,) = runtime.check(tree)
    assert message.startswith("runtime/: does not compile, so who calls whom is not known: ")
    assert "msg.h: No such file" in message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("int ds_msg(void);\nint ds_mine(void);\nint ds_mine(void)\n{\n\treturn ds_msg();\n}\n", "ds_msg"),
        ("extern int ds_count;\nextern int *const ds_at;\nint *const ds_at = &ds_count;\n", "ds_count"),
        (
            "#define PASTE(x) ds_##x\nint ds_msg(void);\nint ds_mine(void);\n"
            "int ds_mine(void)\n{\n\treturn PASTE(msg)();\n}\n",
            "ds_msg",
        ),
    ],
)
def test_a_symbol_of_a_higher_folder(tree: Path, text: str, name: str) -> None:
    add(tree, "base/log.c", text)
    assert runtime.check(tree) == [
        f"{HEAD}.c ({name}): base lies below api; a file calls what is in its own folder and in lower ones"
    ]


def test_what_a_name_of_the_programs_interface_takes_counts_too(tree: Path) -> None:
    add(tree, "api/msg.c", "int cuThing(void);\nint cuThing(void)\n{\n\treturn 0;\n}\n")
    add(tree, "gate/gate.c", "int cuThing(void);\nint ds_more(void);\nint ds_more(void)\n{\n\treturn cuThing();\n}\n")
    assert runtime.check(tree) == [
        "runtime/gate/gate.c -> runtime/api/msg.c (cuThing): gate lies below api; "
        "a file calls what is in its own folder and in lower ones"
    ]


def test_an_entry_of_a_list_is_no_edge(tree: Path) -> None:
    shutil.copy(ROOT / "runtime" / "base" / "list.h", tree / "runtime" / "base")
    add(tree, "base/log.c", '#include "list.h"\nDS_LIST(ds_all, int);\n')
    add(tree, "base/log.c", "int ds_walk(void);\nint ds_walk(void)\n{\n\tconst int *const *at;\n\tint sum = 0;\n\n")
    add(tree, "base/log.c", "\tds_list_each(at, ds_all)\n\t\tsum += **at;\n\treturn sum;\n}\n")
    add(tree, "api/msg.c", '#include "list.h"\nstatic const int one = 1;\nDS_LIST_ADD(ds_all, one);\n')
    assert runtime.check(tree) == []


def test_a_source_that_went_away_leaves_no_edge(tree: Path) -> None:
    add(tree, "base/log.c", "int ds_old(void);\nint ds_more(void);\nint ds_more(void)\n{\n\treturn ds_old();\n}\n")
    put(tree, "api/old.c", "int ds_old(void);\nint ds_old(void)\n{\n\treturn 0;\n}\n")
    assert len(runtime.check(tree)) == 1
    (tree / "runtime" / "api" / "old.c").unlink()
    assert runtime.check(tree) == []


def circle(tree: Path, count: int) -> None:
    for i in range(count):
        after = (i + 1) % count
        put(tree, f"api/c{i}.h", f"int ds_c{i}(void);\n")
        body = f"int ds_c{i}(void);\nint ds_c{i}(void)\n{{\n\treturn ds_c{after}();\n}}\n"
        put(tree, f"api/c{i}.c", f'#include "c{after}.h"\n{body}')


def test_a_circle_of_four_may_be(tree: Path) -> None:
    circle(tree, 4)
    assert runtime.check(tree) == []


def test_a_larger_circle(tree: Path) -> None:
    circle(tree, 5)
    assert runtime.check(tree) == [
        "runtime/: 5 files use each other in a circle, 4 may: api/c0, api/c1, api/c2, api/c3, api/c4"
    ]


@pytest.mark.parametrize("name", ["more/a.c", "a.h", "base/deep/a.h"])
def test_a_file_in_no_layer(tree: Path, name: str) -> None:
    put(tree, name, "int ds_a;\n")
    assert runtime.check(tree) == [f"runtime/{name}: is in no folder that `layers` of runtime/Makefile names"]


def test_an_include_of_nothing_and_a_name_that_is_there_twice(tree: Path) -> None:
    put(tree, "gate/log.h", '#include "none.h"\n')
    assert runtime.check(tree) == ["runtime/gate/log.h: has the name of runtime/base/log.h, so an include means either"]
    (tree / "runtime" / "gate" / "log.h").unlink()
    add(tree, "api/msg.h", '#include "none.h"\n')
    assert runtime.check(tree) == ["runtime/api/msg.h: includes none.h, which is nowhere in runtime/"]


def test_without_a_list_of_layers(tmp_path: Path) -> None:
    put(tmp_path, "Makefile", "all:\n")
    assert runtime.check(tmp_path) == [
        "runtime/Makefile: has no line `layers := ...` that names the folders from the lowest up"
    ]


def test_this_checkout() -> None:
    assert runtime.check(ROOT) == []
