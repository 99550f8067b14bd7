# SPDX-License-Identifier: Apache-2.0
"""The model refuses what the driver refuses, with the status that an H100 gave."""

from __future__ import annotations

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from tests.unit.model import programs

TSG = 0x5C000015
DEVICE = 0x5C000002
SUBDEVICE = 0x5C000003
ABSENT = 0x5C00FFFF
CHANNELS = [0x5C00001C, 0x5C000022, 0x5C000026, 0x5C00002A, 0x5C00002E, 0x5C000032, 0x5C000036, 0x5C00003A]


class Program:
    def __init__(self, driver: ModelDriver, process: ModelProcess | None = None) -> None:
        self.driver = driver
        self.abi = driver.abi
        self.process = process or scenario.cuda_process(driver)
        self.fd = self.process.opener().control_fds[0]
        self.client = driver.rm.clients_of(self.process.fds[self.fd])[0].handle

    def ask(self, command: str, target: int, client: int | None = None, **values: int) -> tuple[str, bytearray]:
        control = self.abi.control(command)
        params = self.abi.layout(control.params).pack(**values)
        status = self.raw(control.number, target, params, client)
        return status, params

    def raw(self, number: int, target: int, params: bytearray, client: int | None = None) -> str:
        with self.driver.borrow(self.process.id, self.fd) as descriptor:
            status = descriptor.control(client if client is not None else self.client, target, number, params)
        return self.abi.status_name(status)

    def disable(self, channels: list[int], disable: int = 1, count: int | None = None) -> str:
        control = self.abi.control("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
        layout = self.abi.layout(control.params)
        params = layout.pack(bDisable=disable, numChannels=len(channels) if count is None else count)
        for index, channel in enumerate(channels):
            layout.put(params, "hClientList", self.client, index)
            layout.put(params, "hChannelList", channel, index)
        return self.raw(control.number, SUBDEVICE, params)


@pytest.fixture
def program() -> Program:
    return Program(ModelDriver())


GET = "NVA06C_CTRL_CMD_GET_TIMESLICE"
SET = "NVA06C_CTRL_CMD_SET_TIMESLICE"


@pytest.mark.parametrize(
    ("target", "client", "status"),
    [
        (TSG, None, "NV_OK"),
        (ABSENT, None, "NV_ERR_OBJECT_NOT_FOUND"),
        (DEVICE, None, "NV_ERR_NOT_SUPPORTED"),
        (TSG, 0xC1D00001, "NV_ERR_INVALID_CLIENT"),
        (TSG, 0, "NV_ERR_INVALID_CLIENT"),
        (TSG, 0x12345678, "NV_ERR_INVALID_CLIENT"),
    ],
)
def test_a_question_is_answered_for_the_descriptors_own_client_only(
    program: Program, target: int, client: int | None, status: str
) -> None:
    assert program.ask(GET, target, client)[0] == status


def test_another_processes_client_is_refused_though_it_lives(program: Program) -> None:
    other = Program(program.driver)
    assert program.ask(GET, TSG, other.client)[0] == "NV_ERR_INVALID_CLIENT"
    assert other.ask(GET, TSG)[0] == "NV_OK"


def test_sizes_and_commands_are_exact(program: Program) -> None:
    number = program.abi.control(GET).number
    assert program.raw(number, TSG, bytearray(4)) == "NV_ERR_INVALID_ARGUMENT"
    assert program.raw(0xA06C0999, TSG, bytearray(8)) == "NV_ERR_NOT_SUPPORTED"
    # GET_INTERLEAVE_LEVEL is in the header and in no export table
    assert program.raw(0xA06C0108, TSG, bytearray(4)) == "NV_ERR_NOT_SUPPORTED"


@pytest.mark.parametrize("slice_us", [0, 1, 50, 2048, 1_000_000, 1 << 40])
def test_any_slice_is_taken_and_read_back(program: Program, slice_us: int) -> None:
    assert program.ask(SET, TSG, timesliceUs=slice_us)[0] == "NV_OK"
    status, params = program.ask(GET, TSG)
    assert status == "NV_OK"
    assert program.abi.params(GET).get(params, "timesliceUs") == slice_us


@pytest.mark.parametrize(
    ("level", "status"),
    [(0, "NV_OK"), (1, "NV_OK"), (2, "NV_OK"), (3, "NV_ERR_NOT_SUPPORTED"), (7, "NV_ERR_NOT_SUPPORTED")],
)
def test_levels(program: Program, level: int, status: str) -> None:
    command = "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL"
    assert program.ask(command, TSG, tsgInterleaveLevel=level)[0] == status


def test_level_needs_an_administrator(program: Program) -> None:
    control = program.abi.control("NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL")
    file = program.process.fds[program.fd]
    status = program.driver.rm.control(file, program.client, TSG, control.number, bytearray(control.size), admin=False)
    assert program.abi.status_name(status) == "NV_ERR_INSUFFICIENT_PERMISSIONS"


def test_handle_info_names_class_and_parent_of_any_object(program: Program) -> None:
    command = "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO"
    layout = program.abi.params(command)
    _, parent = program.ask(command, program.client, hObject=TSG, index=1)
    _, klass = program.ask(command, program.client, hObject=TSG, index=2)
    assert layout.get(parent, "data.hResult") == DEVICE
    assert layout.get(klass, "data.iResult") == 0xA06C
    # memory too, whose class the tables do not name
    _, klass = program.ask(command, program.client, hObject=0x5C00000E, index=2)
    assert layout.get(klass, "data.iResult") == 0x40
    assert program.ask(command, program.client, hObject=ABSENT, index=2)[0] == "NV_ERR_OBJECT_NOT_FOUND"
    assert program.ask(command, program.client, hObject=TSG, index=9)[0] == "NV_ERR_INVALID_ARGUMENT"
    assert program.ask(command, TSG, hObject=TSG, index=2)[0] == "NV_ERR_NOT_SUPPORTED"


def test_child_by_internal_class(program: Program) -> None:
    command = "NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE"
    layout = program.abi.params(command)

    def child(parent: int, internal: str) -> tuple[str, int]:
        number = program.abi.constant(f"__nvoc_class_id_{internal}")
        status, params = program.ask(command, program.client, hParent=parent, classId=number)
        return status, layout.get(params, "hObject")

    assert child(program.client, "Device") == ("NV_OK", DEVICE)
    assert child(DEVICE, "Subdevice") == ("NV_OK", SUBDEVICE)
    assert child(DEVICE, "KernelChannelGroupApi") == ("NV_OK", TSG)
    assert child(program.client, "MpsApi")[0] == "NV_ERR_OBJECT_NOT_FOUND"
    status, _ = program.ask(command, program.client, hParent=DEVICE, classId=0xDEAD)
    assert status == "NV_ERR_OBJECT_NOT_FOUND"


def test_disable_channels_validates_its_list_and_pauses(program: Program) -> None:
    tsg = program.driver.rm.clients[program.client].objects[TSG].tsg
    assert tsg is not None
    assert program.disable([]) == "NV_ERR_INVALID_PARAM_STRUCT"
    assert program.disable([], count=65) == "NV_ERR_INVALID_PARAM_STRUCT"
    assert program.disable([CHANNELS[0], 0x5C00FFFE]) == "NV_ERR_INVALID_CHANNEL"
    assert not tsg.paused
    assert program.disable(CHANNELS[:7]) == "NV_OK"
    assert not tsg.paused
    for _ in range(2):
        assert program.disable(CHANNELS) == "NV_OK"
        assert tsg.paused
    for paused in (True, False, False):  # what was switched off twice wants to be switched on twice
        assert program.disable(CHANNELS, disable=0) == "NV_OK"
        assert tsg.paused is paused


def test_engines_and_gpu_name(program: Program) -> None:
    command = "NV906F_CTRL_GET_CLASS_ENGINEID"
    layout = program.abi.params(command)
    for channel, target, engine in ((0x1C, 0x1D, 1), (0x1C, 0x1E, 0xA), (0x40, 0x41, 0xB)):
        status, params = program.ask(command, 0x5C000000 + channel, hObject=0x5C000000 + target)
        assert (status, layout.get(params, "engineID")) == ("NV_OK", engine)
    assert program.ask(command, CHANNELS[0], hObject=TSG)[0] == "NV_ERR_OBJECT_NOT_FOUND"
    command = "NV2080_CTRL_CMD_GPU_GET_GID_INFO"
    status, params = program.ask(command, SUBDEVICE)
    layout = program.abi.params(command)
    text = layout.raw(params, "data")[: layout.get(params, "length") - 1].decode()
    assert (status, text) == ("NV_OK", program.driver.gpus()[0].uuid)


def test_client_handles_count_up_and_wrap() -> None:
    driver = ModelDriver()
    assert [driver.newest_client() for _ in range(2)] == [0xC1D00000, 0xC1D00001]
    kept = Program(driver).client
    driver.rm.next_client = (1 << 20) - 1
    assert driver.newest_client() == 0xC1DFFFFF
    driver.rm.next_client = kept - 0xC1D00000
    assert driver.newest_client() != kept


def test_parents_and_duplicates_are_checked(program: Program) -> None:
    rm, abi = program.driver.rm, program.abi
    file = program.process.fds[program.fd]

    def make(parent: int, handle: int, name: str) -> str:
        return abi.status_name(rm.alloc(file, program.client, parent, handle, abi.klass(name))[0])

    assert make(program.client, 0x77, "KEPLER_CHANNEL_GROUP_A") == "NV_ERR_INVALID_OBJECT_PARENT"
    assert make(ABSENT, 0x77, "KEPLER_CHANNEL_GROUP_A") == "NV_ERR_OBJECT_NOT_FOUND"
    assert make(DEVICE, TSG, "KEPLER_CHANNEL_GROUP_A") == "NV_ERR_INSERT_DUPLICATE_NAME"
    assert make(DEVICE, 0x77, "KEPLER_CHANNEL_GROUP_A") == "NV_OK"


@pytest.mark.parametrize("call", ["alloc", "free", "dup", "share"])
def test_a_client_that_is_not_there_and_one_of_another_file_are_refused_differently(
    program: Program, call: str
) -> None:
    rm, file, own = program.driver.rm, program.process.fds[program.fd], program.client
    foreign = Program(program.driver).client

    def refused(client: int) -> str:
        status = {
            "alloc": lambda: rm.alloc(file, client, DEVICE, 0x77, program.abi.klass("KEPLER_CHANNEL_GROUP_A"))[0],
            "free": lambda: rm.free(file, client, DEVICE),
            "dup": lambda: rm.dup(file, client, DEVICE, 0x77, own, TSG)[0],
            "share": lambda: rm.share(file, client, TSG),
        }[call]()
        return program.abi.status_name(status)

    assert refused(foreign) == "NV_ERR_INVALID_CLIENT"
    assert refused(0xC1DFFFF0) == "NV_ERR_INVALID_OBJECT_HANDLE"


@pytest.mark.parametrize(
    ("parent", "giver", "source", "status"),
    [
        (DEVICE, None, TSG, "NV_OK"),
        (ABSENT, None, TSG, "NV_ERR_OBJECT_NOT_FOUND"),
        (DEVICE, None, ABSENT, "NV_ERR_OBJECT_NOT_FOUND"),
        (DEVICE, 0xC1DFFFF0, TSG, "NV_ERR_INVALID_OBJECT_HANDLE"),
    ],
)
def test_what_a_dup_names_must_be_there(
    program: Program, parent: int, giver: int | None, source: int, status: str
) -> None:
    client, file = program.client, program.process.fds[program.fd]
    found, _ = program.driver.rm.dup(file, client, parent, 0x77, client if giver is None else giver, source)
    assert program.abi.status_name(found) == status


def test_freeing_a_device_frees_all_below(program: Program) -> None:
    rm = program.driver.rm
    file = program.process.fds[program.fd]
    assert rm.free(file, program.client, DEVICE) == 0
    assert program.driver.gpu_models[0].tsgs == []
    assert program.ask(GET, TSG)[0] == "NV_ERR_OBJECT_NOT_FOUND"
    # the driver calls an unknown handle no error
    assert rm.free(file, program.client, DEVICE) == 0


def test_group_numbers_are_per_runlist_and_reused() -> None:
    driver = ModelDriver()
    first, second = Program(driver), Program(driver)

    def number(program: Program) -> int:
        _, params = program.ask("NVA06C_CTRL_CMD_GET_INFO", TSG)
        return program.abi.params("NVA06C_CTRL_CMD_GET_INFO").get(params, "tsgID")

    assert (number(first), number(second)) == (0, 1)
    driver.machine.kill(first.process)
    assert number(Program(driver)) == 0


def test_pausing_one_mps_client_hangs_the_other() -> None:
    driver = ModelDriver()
    server = programs.mps_server(driver)
    victim, other = (programs.mps_client(driver, server) for _ in range(2))
    program = Program(driver, victim)
    objects = driver.rm.clients[program.client].objects
    shared = objects[0x5C00000F].tsg
    assert shared is not None
    channels = [h for h, n in objects.items() if n.channel is not None and n.tsg is shared]
    assert len(channels) == 2
    control = driver.abi.control("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
    layout = driver.abi.layout(control.params)
    params = layout.pack(bDisable=1, numChannels=2)
    for index, channel in enumerate(channels):
        layout.put(params, "hClientList", program.client, index)
        layout.put(params, "hChannelList", channel, index)
    assert program.raw(control.number, 0x5C000004, params) == "NV_OK"
    assert shared.hung
    assert driver.alive(other.id)
