# SPDX-License-Identifier: Apache-2.0
"""The driver as a process: killed between prepare and unprepare, and what it says of itself. Kubelet double."""

from __future__ import annotations

import asyncio
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from cluster import Cluster
from node import World, run, until

from detshare.ctl.kubernetes.api import Api, ApiError
from detshare.ctl.kubernetes.command import main


@contextmanager
def driver(w: World, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as file, subprocess.Popen(w.command, stderr=file) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.e2e
def test_killed_between_prepare_and_unprepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        log = tmp_path / "log"
        pod, cgroup = w.pod()
        claim = w.claim("a", pod, consumed={"memory": "8Gi", "share": "30"})
        with driver(w, log):
            await until(w.kubelet.sockets, said=log.read_text)
            await w.kubelet.register()
            names = await w.kubelet.prepare(claim)
        # its sockets are still there, and nobody listens
        assert w.kubelet.sockets()
        assert w.module.limits == {(cgroup, 0): 8 << 30}
        before = w.kubelet.sockets()[0].stat().st_ctime_ns
        with driver(w, log) as process:
            await until(lambda: [p for p in w.kubelet.sockets() if p.stat().st_ctime_ns != before], said=log.read_text)
            await w.kubelet.register()
            assert await w.kubelet.prepare(claim) == names
            await w.kubelet.unprepare(claim)
            assert w.module.limits == {}
            process.send_signal(signal.SIGTERM)
            await until(lambda: process.poll() is not None, said=log.read_text)
            assert process.returncode == 0
        assert w.kubelet.sockets() == []

    run(tmp_path, monkeypatch, test)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--help"], 0, "Example: python3 -m detshare.ctl.kubernetes"),
        ([], 2, "Missing option '--node'"),
        (["--node", "a", "--resource", "x"], 2, "gives no number of containers"),
        (["--node", "a", "--no-dra"], 2, "offer something"),
        (["--node", "a"], 1, "run it in a pod, or give --api-server"),
        (["--node", "a", "--api-server", "http://10.0.0.1"], 2, "is not https"),
        (["--node", "a", "--api-server", "https://10.0.0.1"], 1, "is the service account mounted?"),
    ],
)
def test_bad_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.setattr("detshare.ctl.kubernetes.command.logging.basicConfig", lambda **named: None)
    folders = ["--kubelet", str(tmp_path), "--cdi", str(tmp_path / "cdi"), "--service-account", str(tmp_path)]
    result = CliRunner().invoke(main, [*words, *folders])
    assert said in result.output
    assert result.exit_code == code


def certified(folder: Path, name: str) -> ssl.SSLContext:
    """Of a server called so, by an authority as EKS and MicroK8s make theirs, without key identifiers: ca.crt there."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-config", "empty.cnf")
    (folder / "empty.cnf").write_text(
        f"[req]\ndistinguished_name=dn\n[dn]\n[ca]\nbasicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=none\n"
        f"[server]\nsubjectAltName={name}\nsubjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n"
    )
    openssl(*new, "-x509", "-extensions", "ca", "-subj", "/CN=kubernetes", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(*new, "-subj", "/CN=kube-apiserver", "-keyout", "server.key", "-out", "server.csr")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "empty.cnf", "-extensions", "server")
    openssl("x509", "-req", "-in", "server.csr", *signed, "-out", "server.crt")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "server.crt", folder / "server.key")
    return made


@pytest.mark.parametrize(
    ("name", "whose", "refused"),
    [("IP:127.0.0.1", "", ""), ("DNS:other.example", "", "mismatch"),
     ("IP:127.0.0.1", "other", "verify failed")],
)  # fmt: skip
def test_a_cluster_s_own_authority_is_believed_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, whose: str, refused: str
) -> None:
    real = ssl.create_default_context

    def of_python_3_13(**named: str) -> ssl.SSLContext:
        made = real(**named)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    async def whole() -> None:
        w = World(tmp_path, Cluster())
        tls = certified(w.account, name)
        if whose:
            (tmp_path / whose).mkdir()
            tls = certified(tmp_path / whose, name)
        async with w.cluster.serving(tls), Api(w.cluster.address, w.account) as api:
            if refused:
                with pytest.raises(ApiError, match=refused):
                    await api.get("api/v1/nodes/worker-1")
            else:
                assert (await api.get("api/v1/nodes/worker-1"))["kind"] == "Node"

    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    asyncio.run(whole())
