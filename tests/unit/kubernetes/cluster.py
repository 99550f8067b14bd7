# SPDX-License-Identifier: Apache-2.0
"""API-server double: the part of resource.k8s.io/v1 and core v1 that a node's driver meets, over real HTTP.

It refuses what a server refuses: a wrong token (401), what the shipped ClusterRole does not allow (403), unknown fields
and wrong types (400), an object that is there (409), an update of another version than the present one (409), a change
of what may not change (422), a watch from a version that is forgotten (410).
"""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "packaging/kubernetes"
OPENAPI: dict[str, Any] = json.loads(Path(__file__).with_name("openapi.json").read_text())
TOKEN = "of-the-service-account"


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def problems(made: Mapping[str, Any]) -> list[str]:
    """What a strict decoder says of an object; [] is good."""
    name = OPENAPI["kinds"].get(made.get("kind", ""))
    if name is None:
        return [f"no kind {made.get('kind')} here"]
    # a definition's "apiVersion" names the only one that it has; here it must be said
    schema = {"$ref": f"#/$defs/{name}", "$defs": OPENAPI["$defs"], "required": ["apiVersion", "kind", "metadata"]}
    found = Draft202012Validator(schema).iter_errors(made)
    return [f"{'.'.join(map(str, each.absolute_path))}: {each.message[:200]}" for each in found]


def rules() -> list[dict[str, Any]]:
    """Of the shipped ClusterRole."""
    (role,) = [each for each in documents(MANIFESTS / "dra/access.yaml") if each["kind"] == "ClusterRole"]
    found: list[dict[str, Any]] = role["rules"]
    return found


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Cluster:
    """`consumable`: whether the server knows KEP-5075; one that does not drops its fields."""

    def __init__(self, consumable: bool = True) -> None:
        self.consumable = consumable
        self.objects: dict[str, dict[str, Any]] = {}
        self.used: set[tuple[str, str, str]] = set()
        """(group, resource, verb) that somebody asked for"""
        self.address = ""
        self.down = False
        self._version = 100
        self._events: list[tuple[int, str, dict[str, Any]]] = []
        self._oldest = 0
        self._news = asyncio.Condition()
        self.watches = 0
        self.put("api/v1/nodes/worker-1", {"kind": "Node", "metadata": {"name": "worker-1"}})

    # -- what tests do --------------------------------------------------------------------------------------------

    def put(self, path: str, made: Mapping[str, Any]) -> dict[str, Any]:
        """Write as an administrator, or a scheduler, would."""
        made = copy.deepcopy(dict(made))
        before = self.objects.get(path)
        self._version += 1
        about = made.setdefault("metadata", {})
        about["uid"] = before["metadata"]["uid"] if before else about.get("uid") or str(uuid.uuid4())
        about["resourceVersion"] = str(self._version)
        self.objects[path] = made
        self._events.append((self._version, "MODIFIED" if before else "ADDED", copy.deepcopy(made)))
        return made

    async def tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def forget_events(self) -> None:
        self._oldest = self._version + 1
        self._events.clear()

    def claim(self, name: str) -> dict[str, Any]:
        return self.objects[f"apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"]

    async def change(self, name: str, **annotations: str | None) -> None:
        made = copy.deepcopy(self.claim(name))
        known = made["metadata"].setdefault("annotations", {})
        for key, value in annotations.items():
            known[f"gpu.detshare.io/{key.replace('_', '-')}"] = value
        made["metadata"]["annotations"] = {key: value for key, value in known.items() if value is not None}
        self.put(f"apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}", made)
        await self.tell()

    @property
    def slices(self) -> list[dict[str, Any]]:
        return [each for path, each in self.objects.items() if "/resourceslices/" in path]

    # -- HTTP -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.address = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            if self.down:
                raise Refused(503, "the server is currently unable to handle the request")
            return await self._do(request)
        except Refused as error:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(error)}
            return web.json_response({**status, "code": error.status}, status=error.status)

    async def _do(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        words = path.split("/")
        group, words = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
        if words[0] == "namespaces" and len(words) > 2:
            words = words[2:]
        resource, name = words[0], words[1] if len(words) > 1 else ""
        watching = request.query.get("watch") in ("1", "true")
        verb = (
            "watch"
            if watching
            else {"GET": "get" if name else "list", "POST": "create", "PUT": "update"}.get(
                request.method, request.method.lower()
            )
        )
        self._allow(request, group, resource, verb)
        if verb == "watch":
            return await self._watch(request, path)
        if verb == "get":
            return web.json_response(self._there(path))
        made = await request.json()
        if found := problems(made):
            raise Refused(400, f"strict decoding error: {found[0]}")
        self._drop(made)
        if verb == "create":
            path = f"{path}/{made['metadata'].get('name', '')}"
            if "resourceVersion" in made["metadata"]:
                raise Refused(400, "resourceVersion should not be set on objects to be created")
            if path in self.objects:
                raise Refused(409, f"{resource} {made['metadata']['name']} already exists")
        else:
            self._check_update(self._there(path), made)
        answer = self.put(path, made)
        await self.tell()
        return web.json_response(answer, status=201 if verb == "create" else 200)

    def _allow(self, request: web.Request, group: str, resource: str, verb: str) -> None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "Unauthorized")
        self.used.add((group, resource, verb))
        for rule in rules():
            if group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]:
                return
        who = "system:serviceaccount:detshare:detshare"
        raise Refused(403, f'{resource} is forbidden: User "{who}" cannot {verb} resource in API group "{group}"')

    def _there(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise Refused(404, f"{path} not found")
        return self.objects[path]

    def _drop(self, made: dict[str, Any]) -> None:
        """What a server without the feature does: fields of it are left out, and nothing is said."""
        for each in made["spec"].get("devices", ()) if not self.consumable else ():
            each.pop("allowMultipleAllocations", None)
            for capacity in each["capacity"].values():
                capacity.pop("requestPolicy", None)

    def _check_update(self, before: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        if made["metadata"].get("resourceVersion") != before["metadata"]["resourceVersion"]:
            raise Refused(409, "the object has been modified; please apply your changes to the latest version")
        if made["metadata"].get("uid") != before["metadata"]["uid"]:
            raise Refused(422, "metadata.uid: field is immutable")
        if (before["spec"]["driver"], before["spec"]["nodeName"]) != (made["spec"]["driver"], made["spec"]["nodeName"]):
            raise Refused(422, "spec: field is immutable")
        if made["spec"]["pool"]["generation"] < before["spec"]["pool"]["generation"]:
            raise Refused(422, "spec.pool.generation: must not decrease")

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        field, _, wanted = request.query.get("fieldSelector", "").partition("=")
        assert field in ("", "metadata.name"), field
        after = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watches += 1
        try:
            while True:
                if after + 1 < self._oldest:
                    gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
                    await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                    break
                for version, kind, found in self._events:
                    name = found["metadata"]["name"]
                    if version > after and f"{path}/{name}" in self.objects and wanted in ("", name):
                        await response.write(json.dumps({"type": kind, "object": found}).encode() + b"\n")
                    after = max(after, version)
                if self.down:
                    break
                async with self._news:
                    await self._news.wait()
        finally:
            self.watches -= 1
        return response
