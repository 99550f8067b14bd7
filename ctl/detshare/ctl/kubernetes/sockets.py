# SPDX-License-Identifier: Apache-2.0
"""gRPC on UNIX sockets: services by their names and methods, without generated code."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from detshare.ctl.core.errors import ControlError

__all__ = ["Method", "Service", "call", "serve", "stop"]

MOST_PATH: Final = 107
"""bytes of a socket's path (unix(7))"""


@dataclass(frozen=True, slots=True)
class Method:
    """`answer` takes a message of class `request` and gives one, or several where `stream` is set."""

    request: Any
    answer: Callable[[Any], Awaitable[Any]] | Callable[[Any], AsyncIterator[Any]]
    stream: bool = False

    @property
    def handler(self) -> Any:
        make = grpc.unary_stream_rpc_method_handler if self.stream else grpc.unary_unary_rpc_method_handler
        return make(
            _without_context(self.answer, self.stream),
            request_deserializer=self.request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )


def _without_context(answer: Any, stream: bool) -> Any:
    async def one(request: Any, context: Any) -> Any:
        return await answer(request)

    async def many(request: Any, context: Any) -> AsyncIterator[Any]:
        async for each in answer(request):
            yield each

    return many if stream else one


@dataclass(frozen=True, slots=True)
class Service:
    """`name` with its package: "pluginregistration.Registration"."""

    name: str
    methods: Mapping[str, Method]


async def serve(path: Path, services: Sequence[Service]) -> Any:
    """A started grpc.aio server, which `stop` ends. ControlError where it cannot listen there."""
    if len(os.fsencode(path)) > MOST_PATH:
        stopped = f"{path} is longer than the {MOST_PATH} bytes that a socket's path may have"
        raise ControlError("listen for kubelet", stopped, "give a shorter folder", usage=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(each.name, {name: m.handler for name, m in each.methods.items()})
            for each in services
        ]
    )
    try:
        path.unlink(missing_ok=True)  # of a process before us
        if not server.add_insecure_port(f"unix:{path}"):
            raise OSError("gRPC did not bind it")
        await server.start()
    except (OSError, RuntimeError) as error:
        stopped = f"{path} cannot be made ({error})"
        raise ControlError("listen for kubelet", stopped, "is kubelet's folder mounted, and writable?") from error
    return server


async def stop(server: Any, path: Path, grace_s: float | None = None) -> None:
    """End a server; first its socket goes, so that kubelet sees it go. `grace_s`: for calls that are under way."""
    path.unlink(missing_ok=True)
    await server.stop(grace_s)


async def call(path: Path, method: str, request: Any, answer: Any, seconds: float) -> Any:
    """Ask once. `method`: "/package.Service/Method". ControlError."""
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        ask = channel.unary_unary(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            return await ask(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            stopped = f"{error.code().name}: {error.details()}"
            raise ControlError(f"call {method}", stopped, f"is kubelet there, at {path}?") from error
