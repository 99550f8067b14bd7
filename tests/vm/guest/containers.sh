#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Containers of podman and crun, in the root on a guest's disk (vm-root): what tests/vm/test_containers.py judges, a step
# each. DetShare is installed there from its package; /srv/rootfs is what the containers see, /srv/glibc where a library is
# loaded.
set -u

truth=/sys/kernel/debug/nvsim/gpu0
rootfs=/srv/rootfs
glibc=/srv/glibc
engine=(podman --cgroup-manager cgroupfs --events-backend none)
daemon=

step() { # NAME COMMAND...
    local name=$1 status
    shift
    echo "--- step $name"
    "$@" 2>&1
    status=$?
    echo
    echo "--- step $status"
}

begin() {
    detshared --log-level warning >/tmp/daemon.log 2>&1 &
    daemon=$!
    until detshare-ctl ps >/dev/null 2>&1; do
        kill -0 "$daemon" || return 1
        sleep 0.5
    done
}

run() { # DEVICE WORDS...: a container in the foreground, with those words for sh -c
    "${engine[@]}" run --rm --network none --log-driver none --device "detshare.io/gpu=$1" --rootfs $rootfs /bin/sh -c "$2"
}

# Its program waits with its first context until the daemon stands still: who gives it its class then is the kernel.
late() {
    "${engine[@]}" run -d --name late --network none --log-driver none --device detshare.io/gpu=inference-high \
        --rootfs $rootfs /bin/sh -c 'until [ -e /tmp/go ]; do sleep 0.2; done; exec nvlatency --quiet'
}

born() {
    local status=0
    kill -STOP "$daemon"
    touch $rootfs/tmp/go
    # until it has computed: then nothing is left to be set
    until awk 'NR > 1 && $10 > 0 { found = 1 } END { exit !found }' $truth/tsgs; do
        [ -n "$("${engine[@]}" ps -q)" ] || {
            status=1
            break
        }
        sleep 0.2
    done
    cat $truth/tsgs
    kill -CONT "$daemon"
    return $status
}

ended() {
    "${engine[@]}" rm -f -t 0 late
    until ! detshare-ctl ps --json | grep libpod && ! cat /run/detshare/desired-*.json 2>/dev/null; do
        kill -0 "$daemon" || return 1
        sleep 0.5
    done >/dev/null
}

end() { # its exit code; what has ended and was not waited for is there still
    kill -TERM "$daemon"
    wait "$daemon"
}

allocate='printf "300m\n300m\ninfo\n" | nvalloc'

step versions sh -c 'podman --version; crun --version | head -n 1; detshare-ctl --run-dir /nowhere version | head -n 1'
step begin begin
step generate detshare-ctl cdi generate --output /etc/cdi --required \
    --device inference-high:priority=high,memory=1G --device batch:priority=low,memory=512M \
    --device library:priority=low,memory=256M,library=loaded
step file cat /etc/cdi/detshare.io-gpu.json
step check detshare-ctl cdi check
step limit run batch "$allocate"
step unknown run gold true
# shellcheck disable=SC2016  # these are of the container's shell
rootfs=$glibc step library run library 'cat /proc/self/maps; [ -S "$DETSHARE_SOCKET" ] && echo "memory $DETSHARE_MEMORY"'
step late late
step stands detshare-ctl ps --json
step born born
step runs detshare-ctl ps --json
step ended ended
step stop end
step alone run batch "$allocate"
step unload rmmod detshare
step closed run batch "$allocate"
step open_up detshare-ctl cdi generate --output /etc/cdi --device batch:priority=low,memory=512M
step open run batch "$allocate"
cat /tmp/daemon.log >&2
