# SPDX-License-Identifier: Apache-2.0
"""The GPU's context-switch log on the real driver: FECS records in an event buffer that an administrator may read.

Nothing is hooked in any program: the firmware of the graphics engine writes a record at each switch, for all programs.
Sources: cl90cd.h, cl90cdfecs.h, ctrl90cd.h, ctrl2080gr.h, fecs_event_list.c, event_buffer.c of the open driver.
"""

from __future__ import annotations

import struct
import time
from typing import Final

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.driver import NotAllowed
from detshare.ctl.core.gputime import Switch
from detshare.ctl.rm.session import Session

RECORDS: Final = 32768
"""as the firmware logs two records a switch: seconds of the fastest switching that was seen"""
TELL: Final = RECORDS // 8
"""the driver is told once so many were taken: to it the others are free, and what it overwrites counts as lost"""
_RECORD_BYTES: Final = 32
_DRIFT: Final = 10_000
"""the GPU's clock and ours part by less than one in so many"""
_HEADER: Final = 0xD0000011
_BUFFER: Final = 0xD0000012
_EVENTS: Final = 0xD0000013
_HEADER_BYTES: Final = 4096


class OtherGpu(NotAllowed):
    """The driver's device of that number is another GPU."""


class FecsLog:
    """One GPU's log (protocol detshare.ctl.core.driver.SwitchLog). NotAllowed where the driver refuses it."""

    def __init__(self, abi: Abi, minor: int, uuid: str, instance: int) -> None:
        """`minor` of the GPU's node, `instance` as RM counts devices: OtherGpu where it is not the one of `uuid`."""
        self._session = Session(abi)
        try:
            self._open(abi, minor, uuid, instance)
        except OSError as error:
            self.close()
            raise NotAllowed(f"opening the context-switch log of GPU {minor}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def _open(self, abi: Abi, minor: int, uuid: str, instance: int) -> None:
        session, constant = self._session, abi.constant
        self._subdevice = session.subdevice(minor, instance)
        if (there := session.uuid(self._subdevice)) != uuid:
            raise OtherGpu(f"opening the context-switch log of GPU {minor}: device {instance} of the driver is {there}")
        event = session.os_event()
        self._header = session.memory(_HEADER, _HEADER_BYTES)
        self._records = session.memory(_BUFFER, _RECORD_BYTES * RECORDS)
        params = abi.layout("NV_EVENT_BUFFER_ALLOC_PARAMETERS").pack(
            recordSize=_RECORD_BYTES, recordCount=RECORDS, recordsFreeThreshold=RECORDS // 2, notificationHandle=event,
            hSubDevice=self._subdevice, hBufferHeader=_HEADER, hRecordBuffer=_BUFFER,
        )  # fmt: skip
        session.alloc("an event buffer", session.client, _EVENTS, "NV_EVENT_BUFFER", params)
        bind = "NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID"
        level = constant("NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE")
        params = abi.params(bind).pack(hEventBuffer=_EVENTS, recordSize=_RECORD_BYTES, levelOfDetail=level, bAllUsers=1)
        session.control("reading every user's context switches", self._subdevice, bind, params)
        enable = "NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS"
        newest = constant("NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_NEWEST")
        session.control("switching the log on", _EVENTS, enable, abi.params(enable).pack(enable=1, flags=newest))
        header, record = abi.layout("NV_EVENT_BUFFER_HEADER"), abi.layout("NV_EVENT_BUFFER_FECS_RECORD_V1")
        self._at = header.record("recordPut", "recordCount", "recordDropcount")
        offset = abi.layout("NV_EVENT_BUFFER_RECORD_HEADER").size
        plain = record.record("tag", "context_id", "pid", "timestamp")
        self._record = struct.Struct(f"<{offset}x{plain.format[1:]}{_RECORD_BYTES - offset - record.size}x")
        self._start = constant("NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START")
        self._end = constant("NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END")
        self._flush = abi.control("NV_EVENT_BUFFER_CTRL_CMD_FLUSH").number
        self._update = abi.params("NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET")
        self._get = 0
        self._untold = 0
        self._dropped = 0
        self._offset_ns: int | None = None
        self._set_ns = 0

    @property
    def dropped(self) -> int:
        return self._dropped

    def read(self) -> list[Switch]:
        """Have the firmware's records now (0.06 ms), and take them."""
        session = self._session
        session.control("reading context switches", _EVENTS, "NV_EVENT_BUFFER_CTRL_CMD_FLUSH", bytearray())
        put, _, self._dropped = self._at.unpack(self._header[: self._at.size])
        get, self._get = self._get, put % RECORDS
        if get == self._get:
            return []
        size = _RECORD_BYTES
        data = self._records[get * size : (self._get if self._get > get else RECORDS) * size]
        if self._get < get:
            data += self._records[: self._get * size]
        self._untold += len(data) // size
        if self._untold >= TELL:
            update = self._update.pack(recordBufferGet=self._get)
            session.control("reading context switches", _EVENTS, "NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET", update)
            self._untold = 0
        start, known = self._start, (self._start, self._end)
        make = tuple.__new__  # thousands a second: Switch() takes thrice as long
        found = [
            make(Switch, (at, pid, context, tag == start))
            for tag, context, pid, at in self._record.iter_unpack(data)
            if tag in known
        ]
        if found:
            self._set_clock(max(found).at_ns)  # they are ordered by time first
        return found

    def _set_clock(self, newest_ns: int) -> None:
        """The newest record was written before now: the clock shows that much at least. It drifts slowly."""
        now = time.monotonic_ns()
        least = newest_ns - now
        if self._offset_ns is not None:
            least = max(least, self._offset_ns - (now - self._set_ns) // _DRIFT)
        self._offset_ns, self._set_ns = least, now

    def now_ns(self) -> int:
        """Of the records' own clock, which no control tells: not behind the newest record, and hardly ahead of the GPU.

        0 before the first record.
        """
        return 0 if self._offset_ns is None else time.monotonic_ns() + self._offset_ns

    def close(self) -> None:
        """Free it. Idempotent."""
        self._session.close()
