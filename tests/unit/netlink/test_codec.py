# SPDX-License-Identifier: Apache-2.0
"""Messages to bytes and back, as they cross the socket; what the kernel does with them is tested in the VM."""

from __future__ import annotations

import errno
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import events, genl, presence, records
from detshare.ctl.netlink.errors import KernelRefused, told

FAMILY = 41


def encoded(kind: Any, cmd: int, *attributes: tuple[str, Any], flags: int = 0) -> bytes:
    msg = kind()
    msg["cmd"], msg["version"] = cmd, 1
    msg["attrs"] = [(kind.name2nla(name), value) for name, value in attributes]
    msg["header"].update(type=FAMILY, flags=flags, sequence_number=0, pid=0)
    msg.encode()
    return bytes(msg.data)


def decoded(data: bytes) -> list[Any]:
    marshal = genl.MarshalDetShare()
    marshal.prid = FAMILY
    return list(marshal.parse(data))


def test_a_dump_of_two_contexts() -> None:
    rows = [("vctx_id", 7), ("pid", 42), ("client", 0xC1D00001), ("start_time", 99), ("comm", "python"), ("gpu", 1)]
    data = encoded(genl.detshare_vctx_msg, genl.DETSHARE_CMD_VCTX_GET, *rows, ("memory_used", 3 << 40), ("mps", 1))
    data += encoded(genl.detshare_vctx_msg, genl.DETSHARE_CMD_VCTX_GET, *rows[:3])
    first, second = (records.record(records.VctxRow, msg) for msg in decoded(data))
    assert first == records.VctxRow(7, 42, 0xC1D00001, 99, "python", gpu=1, memory_used=3 << 40, mps=True)
    assert (second.gpu, second.memory_used, second.comm) == (None, 0, "")


def test_messages_of_different_sets_in_one_buffer() -> None:
    data = encoded(genl.detshare_limit_msg, genl.DETSHARE_CMD_LIMIT_GET, ("kind", 2), ("tenant", "red"), ("limit", 5))
    data += encoded(
        genl.detshare_status_msg,
        genl.DETSHARE_CMD_STATUS_GET,
        ("module_version", "0.1"),
        ("abi", 2),
        ("mode", 2),
        ("hook", "nvidia:nvidia_open"),
        ("hook", "nvidia:nvidia_close"),
        ("shield", 1),
    )
    limit, status = decoded(data)
    assert records.record(records.LimitRow, limit) == records.LimitRow(2, tenant="red", limit=5)
    found = records.record(records.Status, status)
    assert found.hooks == ("nvidia:nvidia_open", "nvidia:nvidia_close")
    assert found.shield is True
    assert found.driver_version is None


def test_a_tenant_has_one_pid_for_each_process() -> None:
    data = encoded(genl.detshare_tenant_msg, genl.DETSHARE_CMD_TENANT_GET, ("name", "red"), ("pid", 1), ("pid", 2))
    assert records.record(records.TenantRow, decoded(data)[0]) == records.TenantRow("red", (1, 2))


def test_a_command_name_that_is_no_text() -> None:
    data = encoded(genl.detshare_vctx_msg, 3, ("vctx_id", 1), ("pid", 2), ("client", 3), ("comm", "abc"))
    data = data.replace(b"abc", b"\xff\xfec")
    assert records.record(records.VctxRow, decoded(data)[0]).comm == "\ufffd\ufffdc"


def test_an_attribute_of_a_newer_module_is_passed_over() -> None:
    data = encoded(genl.detshare_gpu_msg, genl.DETSHARE_CMD_GPU_GET, ("gpu", 0), ("used", 5))
    extra = presence.attribute(200, b"\1\2\3\4")
    data = struct.pack("=I", len(data) + len(extra)) + data[4:] + extra
    assert records.record(records.GpuRow, decoded(data)[0]) == records.GpuRow(0, used=5)


def test_an_answer_that_lacks_what_must_be_there() -> None:
    data = encoded(genl.detshare_vctx_msg, genl.DETSHARE_CMD_VCTX_GET, ("pid", 2))
    with pytest.raises(ValueError, match="lacks vctx_id, client"):
        records.record(records.VctxRow, decoded(data)[0])


def test_a_refusal_keeps_the_words_of_the_kernel() -> None:
    words = "limit pid 1 to 0 bytes: the kernel module refused: a limit of 0"
    with pytest.raises(KernelRefused, match=words) as caught, told("limit pid 1 to 0 bytes"):
        raise NetlinkError(errno.EINVAL, "a limit of 0 ..., use limit-del")
    assert caught.value.code == errno.EINVAL
    with pytest.raises(KernelRefused, match="No such process"), told("x"):
        raise NetlinkError(errno.ESRCH)


def test_refused_as_an_event() -> None:
    data = encoded(
        genl.detshare_event_msg, genl.DETSHARE_CMD_REFUSED, ("seq", 9), ("pid", 42), ("comm", "train"), ("kind", 2),
        ("tenant", "red"), ("gpu", 0), ("asked", 1 << 30), ("used", 7 << 30), ("limit", 15 << 29),
    )  # fmt: skip
    found = events.event(records.record(records.EventRow, decoded(data)[0]))
    assert (found.kind, found.pid) == ("refused", 42)
    assert found.text == "train: 1G refused on GPU 0: tenant red uses 7G of 7.5G"
    assert found.data["source"] == "kernel"
    assert found.data["asked"] == 1 << 30


@pytest.mark.parametrize("cmd", events.NAMES)
def test_every_event_has_a_text_whatever_is_absent(cmd: int) -> None:
    found = events.event(records.EventRow(cmd))
    assert found.kind == events.NAMES[cmd]
    assert found.text
    assert "None" not in events.event(records.EventRow(cmd, pid=1, kind=0, used=1, limit=2, asked=3, vctx_id=4)).text


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_end_in_records_or_the_error_that_is_told(body: bytes) -> None:
    data = struct.pack("=IHHII", 16 + len(body), FAMILY, 0, 0, 0) + body
    if len(body) < 4:
        return  # generic netlink itself lets no shorter message through
    for msg in decoded(data):
        if msg["header"]["error"] is None and msg["cmd"] in events.NAMES:
            try:
                events.event(records.record(records.EventRow, msg))
            except ValueError:
                continue


def test_a_gap_is_a_loss_only_when_it_stays_one() -> None:
    numbers = events.Numbers()
    for number in (7, 8, 10, 9, 11, 14):
        numbers.take(number, 100.0)
    assert numbers.lost(100.1) == 0
    numbers.take(12, 100.1)
    assert numbers.lost(100.3) == 1  # 13
    assert numbers.lost(101) == 0
    numbers.take(100_014, 102.0)
    assert numbers.lost(102.0) + numbers.lost(103.0) == 99_999


def test_presence_finds_a_family_that_every_kernel_has() -> None:
    assert presence.family_id("nlctrl") == 16
    assert presence.family_id("nosuchfamily") is None


def test_without_the_module_it_says_so() -> None:
    if presence.loaded():
        pytest.skip("detshare.ko is loaded here")
    from detshare.ctl.netlink.errors import ModuleAbsent
    from detshare.ctl.netlink.events import Listener
    from detshare.ctl.netlink.link import Link

    with pytest.raises(ModuleAbsent, match="not loaded"):
        Link().status()
    with pytest.raises(ModuleAbsent, match="not loaded"):
        Listener()
