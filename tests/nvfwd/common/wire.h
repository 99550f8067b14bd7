/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What guest and helper say to each other. A call is one chain of the queue: nvf_req, `len` bytes to the host, nvf_rep, room for
 * what comes back. Neither side trusts the other: the helper looks at its own copies only.
 */
#ifndef NVFWD_WIRE_H
#define NVFWD_WIRE_H

#include "port.h"

#define NVF_VIRTIO_ID	38	/* QEMU ends itself at an id that it has no name for; of this one Linux has no driver */
#define NVF_SHMID	0
#define NVF_MAX_IN	(1u << 20)
#define NVF_MAX_OUT	(64u << 10)
#define NVF_MAX_RUNS	(NVF_MAX_IN / sizeof(struct nvf_run))
#define NVF_MAX_PIN	(4ull << 30)
#define NVF_MAX_PINS	1024
/* QEMU ends itself where it has more than 512 regions, RAM's among them. */
#define NVF_MAX_MAPS	480

enum nvf_op {
	NVF_HELLO = 1,	/* out: nvf_hello */
	NVF_TEXT,	/* a: enum nvf_text, b: GPU; out: text */
	NVF_OPEN,	/* a: enum nvf_dev, b: GPU -> val: handle */
	NVF_CLOSE,	/* handle; what it has of mappings goes with it */
	/*
	 * cmd: number of the escape, or UVM's whole command; a: bytes of the block. in: the parts that nvf_shape names, out: the same
	 * after the call. Where a descriptor stands, a handle; where memory is registered, pin << 32 | offset. -> val: what ioctl()
	 * returned.
	 */
	NVF_IOCTL,
	NVF_KERNEL,	/* the same of another kernel module; no handle: the client in the block says whose */
	NVF_MMAP,	/* a: offset, b: bytes -> val: offset in the shared region; until the handle is closed; -EMFILE: NVF_MAX_MAPS, -ENOSPC: no room */
	NVF_PIN,	/* in: nvf_run[], a: bytes -> val: pin; -ENOSPC: NVF_MAX_PINS */
	NVF_UNPIN,	/* a: pin */
	NVF_POLL,	/* a: events; answered when there are some, or at the close (-ECANCELED) -> val: events */
	NVF_STAT,	/* out: nvf_stat */
};

enum nvf_text { NVF_TEXT_VERSION, NVF_TEXT_PARAMS, NVF_TEXT_GPU };

struct nvf_req {
	u32 op;
	s32 handle;
	u32 cmd;
	u32 len;
	u64 a, b, c;
};

struct nvf_rep {
	s32 err;	/* 0, -errno */
	u32 len;
	s64 val;
};

struct nvf_run {	/* guest physical, whole pages */
	u64 gpa, len;
};

#define NVF_GPUS 8

struct nvf_hello {
	char version[32];
	u32 gpus, replayed;
	u32 minors[NVF_GPUS];
	char slots[NVF_GPUS][16];	/* as in /proc/driver/nvidia/gpus */
};

struct nvf_stat {
	u32 handles, maps, pins, waits, descriptors, replayed;
	u64 calls, refused, unrecorded, questions, pages_written;
};

#endif
