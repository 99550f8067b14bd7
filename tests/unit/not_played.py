# SPDX-License-Identifier: Apache-2.0
"""Commands of README and docs/use that test_played.py does not play: why, and which test does the same elsewhere."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NOT_PLAYED", "SESSIONS", "Row"]

SESSIONS = {
    "README.md": "unit/docs/test_commands.py::test_the_readmes_session_is_true",
    "module.md": "vm/guest/ctl_page.py::test_the_session_is_true",
    "operations.md": "unit/cli/test_operations.py::test_the_session_is_true",
    "install.md": "vm/test_packages.py::test_the_page_is_true",
}
"""Pages whose blocks with $ a test plays word for word."""


class Row(NamedTuple):
    why: str
    elsewhere: str
    """tests of the same, comma between; "": none"""
    commands: tuple[str, ...]


SYSTEMD = "systemd of this machine"
DKMS = "the kernel and the DKMS of this machine"
CLUSTER = "a cluster"
GPU = "a GPU"
OBSERVED = "eBPF on programs of a GPU's driver"
BENEATH = "the kernel module: the model holds no limits"
LANE = "a program under libdetshare.so, which the model has none of"

_LISTEN = (
    "sudo mkdir -p /etc/systemd/system/detshared.service.d",
    "printf '[Service]\\nRestrictAddressFamilies=AF_INET AF_INET6\\n'"
    " | sudo tee /etc/systemd/system/detshared.service.d/listen.conf",
    "sudo systemctl daemon-reload",
    "sudo systemctl restart detshared",
)
_PACKAGES = "vm/test_packages.py::test_the_page_is_true"
_LIMITS = "unit/kmod/test_commands.py::test_a_limit_is_set_shown_and_taken_away"
_TENANTS = "unit/kmod/test_commands.py::test_tenants"
_DAEMONS_DIRTY = "unit/daemon/test_dirty.py::test_the_command_shows_the_last_epochs_of_the_daemon"
_MODULE = "vm/test_kmod.py::test_on_the_simulated_driver"

NOT_PLAYED: dict[str, list[Row]] = {
    "README.md": [
        Row("it sets this machine up first", "unit/demo/test_demo.py::test_model_path_end_to_end", ("make demo",)),
        Row("it runs this test", "", ("make test",)),
        Row("apt of this machine", _PACKAGES, ("make deb", "sudo apt install ./build/release/detshare_*.deb")),
    ],
    "alternatives.md": [
        Row(GPU, "unit/field/test_peers.py::test_hami_is_built_and_its_library_is_in_each_program",
            ("sudo detshare bench field run --peer HAMi-core=/src/HAMi-core --peer-build HAMi-core=./build.sh",)),
        Row(GPU, "unit/field/test_peers.py::test_xscheds_server_runs_while_its_programs_do",
            ("sudo detshare bench field run --peer XSched=/src/xsched --peer-build 'XSched=make cuda'",)),
        Row(GPU, "unit/field/test_peers.py::test_any_other_has_a_command",
            ("sudo detshare bench field run --peer TGS=/src/tgs:bin/run",)),
    ],
    "configuration.md": [
        Row(LANE, "unit/spatial/test_pool.py::test_programs_are_bound_and_seen_where_they_are, "
            "unit/spatial/test_pool.py::test_an_exclusive_pctx_has_one_program_and_all_others_keep_off",
            ("sudo detshare-ctl bind 4242 25%", "sudo detshare-ctl bind 4300 inference",
             "sudo detshare-ctl bind 4300 100%")),
        Row("the journal of this machine", "unit/daemon/test_journald.py::test_a_real_journald_has_the_fields",
            ("journalctl -u detshared DETSHARE_EVENT=audit DETSHARE_RESULT=refused", "journalctl -u detshared -p err")),
    ],
    "containers.md": [
        Row("device files of a GPU",
            "vm/test_containers.py::test_a_specification_is_written_that_the_engine_takes",
            ("sudo detshare-ctl cdi generate --output /etc/cdi",
             "sudo detshare-ctl cdi generate --output /etc/cdi "
             "--device inference-high:priority=high,memory=20G --required")),
        Row("device files of a GPU, and podman",
            "vm/test_containers.py::test_its_limit_holds_and_is_what_its_program_is_told_that_there_is",
            ("sudo podman run --device detshare.io/gpu=high IMAGE",)),
        Row("buildah",
            "unit/packages/test_image.py::test_the_image_has_the_daemon_and_the_driver_of_kubernetes",
            ("make image",)),
        Row("podman", "",
            ("sudo podman load -i build/release/detshare-image.tar",
             "sudo podman run -d --name detshared --privileged --pid=host --network=host --cgroupns=host"
             " -v /run/detshare:/run/detshare -v /etc/detshare:/etc/detshare:ro detshare:VERSION")),
    ],
    "gpu-virt-bench.md": [
        Row(GPU, "unit/field/test_field.py::test_a_run_measures_each_way_and_what_fails_is_a_result",
            ("sudo detshare bench field run --suite field-gvb --budget-s 580",)),
    ],
    "install.md": [
        Row("Secure Boot, and somebody at the console",
            "unit/packages/test_signing.py::test_it_is_signed_by_the_key_that_was_there_and_else_by_one_that_is_made",
            ("sudo apt install mokutil", "sudo mokutil --import /var/lib/dkms/mok.pub", "sudo reboot")),
        Row("apt of this machine", "vm/test_package_upgrade.py::test_programs_and_settings_outlive_it",
            ("sudo apt install --yes -o Dpkg::Options::=--force-confold ./detshare*.deb",)),
    ],
    "kubernetes.md": [
        Row(CLUSTER, "unit/kubernetes/test_manifests.py::test_kustomize_builds_what_the_api_takes",
            ("kubectl apply -k packaging/kubernetes/dra", "kubectl apply -k packaging/kubernetes/device-plugin")),
        Row(CLUSTER, "unit/kubernetes/test_claims.py::test_annotations_are_decoded_strictly_and_those_of_others_left",
            ("kubectl annotate resourceclaim training gpu.detshare.io/memory=12Gi --overwrite",
             "kubectl annotate resourceclaim training gpu.detshare.io/class=idle gpu.detshare.io/memory-")),
        Row(CLUSTER, "", ("kubectl label node worker-1 detshare.io/gpu=true", "kubectl get resourceslices")),
    ],
    "metrics.md": [Row(SYSTEMD, "", _LISTEN)],
    "module.md": [
        Row("the kernel of this machine", _MODULE,
            ("make -C /lib/modules/$(uname -r)/build M=$PWD", "sudo insmod detshare.ko")),
    ],
    "operations.md": [
        Row("root's files of this machine, where a package does the same", _PACKAGES,
            ("sudo python3 -m venv /opt/detshare", "sudo /opt/detshare/bin/pip install .",
             "sudo ln -s /opt/detshare/bin/detshare* /usr/local/bin/",
             "sudo install -D -m 644 packaging/detshare.sysusers /etc/sysusers.d/detshare.conf",
             "sudo systemd-sysusers", "sudo usermod -a -G detshare alice",
             "sudo install -D -m 600 packaging/detshare.toml /etc/detshare/detshare.toml",
             "sudo install -m 644 packaging/detshared.service /etc/systemd/system/",
             "sudo /opt/detshare/bin/pip install --upgrade .",
             "sudo rm -f /etc/systemd/system/detshared.service /etc/sysusers.d/detshare.conf"
             " /etc/modules-load.d/detshare.conf",
             "sudo rm -rf /etc/detshare /run/detshare /dev/shm/detshare-0 /opt/detshare",
             "sudo find /usr/local/bin -lname '/opt/detshare/*' -delete", "sudo groupdel detshare")),
        Row(SYSTEMD, _PACKAGES,
            ("sudo systemctl daemon-reload", "sudo systemctl enable --now detshared", "systemctl status detshared",
             "journalctl -u detshared -f", "sudo systemctl stop detshared", "sudo systemctl start detshared",
             "sudo systemctl disable --now detshared")),
        Row(DKMS, _PACKAGES,
            ("sudo modprobe detshare", "echo detshare | sudo tee /etc/modules-load.d/detshare.conf",
             "sudo dkms install .", "sudo rmmod detshare", "sudo dkms remove detshare/0.1.0 --all")),
        Row(BENEATH, _LIMITS, ("sudo detshare-ctl set-memory 4242 20G", "sudo detshare-ctl set-memory red 40G")),
        Row(BENEATH, _TENANTS, ("sudo detshare-ctl tenant add red", "sudo detshare-ctl tenant attach red 4242")),
        Row(BENEATH, "unit/kmod/test_held_commands.py::test_commands_reach_the_backend",
            ("sudo detshare-ctl set-bucket /batch.slice 25%",)),
    ],
    "page.md": [
        Row(SYSTEMD, "", _LISTEN),
        Row("another machine", "", ("ssh -L 9000:/run/detshare/detshared.sock gpu1",)),
    ],
    "park.md": [
        Row(LANE, "unit/spatial/test_parking.py::test_the_command_says_what_became_of_it",
            ("sudo detshare-ctl park 4242", "sudo detshare-ctl resume 4242")),
        Row(LANE, "unit/spatial/test_deep.py::test_nothing_is_left_on_the_gpu_and_the_next_call_brings_it_back",
            ("sudo detshare-ctl park 4242 --deep",)),
        Row(LANE, "unit/spatial/test_lazy.py::test_resume_answers_when_it_can_run",
            ("sudo detshare-ctl resume 4242 --lazy",)),
        Row("a GPU and torch", "",
            ("detshare run --park-after 30s -- python docs/use/models/server.py --port 8001 --mib 40000",
             "curl 'http://127.0.0.1:8001/generate?seed=1&tokens=8'")),
    ],
    "policies.md": [
        Row("socat", "unit/daemon/test_requests.py::test_a_line_from_any_language_is_taken_and_garbage_is_refused",
            (r"printf '0.0182\n0.0175\n' | socat - UNIX-SENDTO:/run/detshare/reports.sock",)),
    ],
    "trace-dirty.md": [
        Row(OBSERVED,
            "vm/guest/ebpf_dirty_ctl.py::test_by_itself_it_tells_of_what_is_allocated_from_then_on",
            ("detshare-trace dirty --duration 16", "detshare-trace dirty --pid 21709 --interval 0.25 --json")),
        Row(OBSERVED, _DAEMONS_DIRTY, ("detshare-ctl dirty 21709 --epochs 2",)),
    ],
    "trace-latency.md": [
        Row(OBSERVED, "vm/guest/ebpf_latency.py::test_the_command_prints_histograms",
            ("detshare-trace latency --duration 10 --pid 4711",
             "detshare-trace latency --duration 10 --json"
             " | jq -c 'select(.kind == \"ioctl\") | [.pid, .detail, .count, .sum / .count]'")),
    ],
    "trace-launches.md": [
        Row(OBSERVED, "vm/guest/ebpf_launches.py::test_only_one_process_and_an_end_in_mid_trace",
            ("detshare-trace launches --duration 5", "detshare-trace launches --pid 24555 --interval 1",
             "detshare-trace launches --duration 5 --json | jq '.counts[] | select(.kind == \"launch\") | .calls'")),
    ],
    "trace-objects.md": [
        Row(OBSERVED, "vm/guest/ebpf_objects.py::test_the_command_tells_births_and_deaths",
            ("detshare-trace objects", "detshare-trace objects --duration 60 --count",
             "detshare-trace objects --json"
             " | jq -c 'select(.class == \"KEPLER_CHANNEL_GROUP_A\" and .born) | {pid, client, handle}'")),
    ],
}  # fmt: skip
