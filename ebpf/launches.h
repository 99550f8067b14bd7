/* SPDX-License-Identifier: GPL-2.0-only */
/* Keys and values of launches.bpf.c's maps; detshare.ebpf.launches reads them by struct formats of its own. */
#ifndef DETSHARE_EBPF_LAUNCHES_H
#define DETSHARE_EBPF_LAUNCHES_H

enum ds_launch_kind {
	DS_LAUNCH = 1,		/* function, grid, block, ..., as cuLaunchKernel */
	DS_LAUNCH_CONFIG,	/* a CUlaunchConfig and the function, as cuLaunchKernelEx */
	DS_LAUNCH_OLD,		/* function and at most a grid; block set before */
	DS_GRAPH,
	DS_COPY_HTOD,
	DS_COPY_DTOH,
	DS_COPY_DTOD,
	DS_COPY_OTHER,		/* direction not told by the call */
	DS_COPY_2D,		/* a CUDA_MEMCPY2D; counted under one of the above */
	DS_COPY_3D,
	DS_MEMSET,
	DS_SYNC,
	DS_SYNC_EVENT,
};

struct ds_count_key {
	u32 pid;
	u32 kind;	/* of the calls: DS_LAUNCH for all ways to launch a kernel, no DS_COPY_2D or _3D, DS_SYNC for both */
	u64 stream;	/* a sync of a context or an event: 0 */
};

struct ds_count {
	u64 calls;
	u64 bytes;
	u64 ns;		/* time inside, of syncs */
	u64 most_ns;
};

struct ds_shape {
	u32 pid;
	u32 grid[3];
	u32 block[3];
	u32 spare;
	u64 function;
};

#define DS_REQUEST_BITS	4	/* buckets for each power of two ns: 16 */

struct ds_request_key {
	u32 pid;
	u32 bucket;	/* the power of two, then the bits that follow the highest */
};

struct ds_wait {
	u64 since;
	u64 stream;
	u32 pid;
	u32 cookie;	/* whose return ends it: functions of libcuda call each other */
};

#endif
