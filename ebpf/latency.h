/* SPDX-License-Identifier: GPL-2.0-only */
/* Keys and values of latency.bpf.c's maps; detshare.ebpf.latency reads them by struct formats of its own. */
#ifndef DETSHARE_EBPF_LATENCY_H
#define DETSHARE_EBPF_LATENCY_H

#define DS_BUCKETS 40	/* powers of two of ns */

enum ds_latency_kind {
	DS_L_IOCTL = 1,	/* system calls on the driver's files; detail: escape */
	DS_L_DRIVER,	/* the driver's own function in them */
	DS_L_FAULT,	/* faults on doorbells, waiting included */
	DS_L_GATE,	/* waits at a gate */
	DS_L_HELD,	/* from gated to opened; detail: GPU */
	DS_L_PAUSED,	/* from paused to resumed; detail: GPU */
};

struct ds_latency_key {
	u32 pid;
	u16 kind;
	u16 detail;
};

struct ds_latency {
	u64 count;
	u64 sum;
	u64 most;
	u64 buckets[DS_BUCKETS];
};

struct ds_since_key {
	u64 who;	/* pid_tgid, or a vctx */
	u64 kind;
};

struct ds_since {
	u64 when;
	u64 detail;
};

#endif
