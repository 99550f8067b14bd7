/* SPDX-License-Identifier: GPL-2.0-only */
/* Keys, values and events of dirty.bpf.c; detshare.ebpf.dirty reads them by struct formats of its own. */
#ifndef DETSHARE_EBPF_DIRTY_H
#define DETSHARE_EBPF_DIRTY_H

#include "kernel.h"

enum ds_dirty_kind {
	DS_D_ALLOC = 1,		/* target: where the address goes; bytes: its size (a product, with second) */
	DS_D_PITCH,		/* as cuMemAllocPitch: target, second: where the pitch goes, third: rows */
	DS_D_MAP,		/* target: the address; bytes; second: the physical allocation */
	DS_D_RESERVE,		/* target: where the address goes; bytes */
	DS_D_FREE,		/* target: the address; bytes: of a part of a reservation, if there is one */
	DS_D_MODULE,		/* target: where the handle goes; second: the image; third: 1 when that is a path */
	DS_D_FUNCTION,		/* target: where the handle goes; second: from what; third: the name, if there is one */
	DS_D_CONTEXT,		/* target: where the handle goes */
	DS_D_MANAGED,		/* as DS_D_ALLOC; the host writes it too, unseen */
	DS_D_SYNC,		/* stream, or none: the current context */
	DS_D_TIMED = DS_D_SYNC,	/* up to here the return is watched too */
	DS_D_LAUNCH,		/* function first, parameters and extra at 10 and 11 */
	DS_D_COOPERATIVE,	/* the same without extra */
	DS_D_LAUNCH_CONFIG,	/* a CUlaunchConfig, function, parameters, extra */
	DS_D_WRITE,		/* target: the address that is written from */
	DS_D_WRITE_2D,		/* target: a CUDA_MEMCPY2D */
	DS_D_WRITE_3D,		/* target: a CUDA_MEMCPY3D */
	DS_D_ANYWHERE,		/* writes we cannot tell where to */
	DS_D_GRAPH,
	DS_D_GRAPH_CHANGE,	/* puts into a graph what we do not follow */
	DS_D_CAPTURE,
	DS_D_CAPTURED,
	DS_D_UNLOAD,		/* functions go: a handle that is given out again may be another one's */
};

/* Words of the table `touched` that are no addresses. */
#define DS_ANYWHERE	1ull	/* may have written everything */
#define DS_GRAPHS	2ull	/* what was captured was launched */

#define DS_FORWARD	(1ull << 63)	/* in a word: it is written from there on, not before */

#define DS_CONTEXT_SYNC	(~0ull)	/* the stream of a sync of a whole context */

struct ds_touch_key {
	u32 pid;
	u32 tid;
	u64 stream;
	u64 word;
	u64 epoch;
};

struct ds_touch {
	u64 when;	/* CLOCK_MONOTONIC ns, the latest */
	u64 graph;	/* 1: also while a stream was captured, so again with each launch of a graph */
};

struct ds_bounds {
	u64 low;	/* of all allocations of a process */
	u64 high;
	u64 captures;	/* that are open */
	u64 unloads;	/* that have begun */
};

#define DS_WORDS 32

/* Where a kernel's parameters hold addresses that it may write from. */
struct ds_layout {
	u32 count;	/* DS_ANY_WORD: it may write anywhere */
	u32 unloads;	/* there were so many when its program got the function */
	struct {
		u16 parameter;
		u16 offset;	/* in the parameter */
		u16 packed;	/* in the buffer of all parameters */
		u16 size;	/* 8; more: an address may lie at every multiple of four in it */
	} words[DS_WORDS];
};

#define DS_ANY_WORD 0xffffffffu

/* Bytes of a launch's parameters that are looked through; reads may pass the end by as much. */
#define DS_SCAN 4096

/* Numbers stand here and not in variables, so that the verifier need not follow what each of them can be. */
struct ds_scan {
	u32 used;	/* bytes of `words` */
	u32 bad;	/* something could not be read, or did not fit */
	u32 words[2 * DS_SCAN / 4];
};

struct ds_layout_key {
	u64 pid;
	u64 function;
};

struct ds_sync_key {
	u64 pid;
	u64 stream;
};

struct ds_sync {
	u64 began;
	u64 tid;
};

#define DS_NAME 4096	/* of a kernel, which templates make long, or of a file */

/* Of a launch whose layout is not known yet: the begin of its first parameters, or of the buffer that holds them all. */
#define DS_RAW_PARAMETERS	16
#define DS_RAW_BYTES		64
#define DS_RAW			(DS_RAW_PARAMETERS * DS_RAW_BYTES)

/* The same form for all; `kind` says what the numbers are. */
struct ds_dirty_record {
	u64 when;
	u32 pid;
	u32 tid;
	u32 kind;
	s32 status;
	u64 a;		/* address, or handle */
	u64 b;		/* size, or image, or what a function is of */
	u64 c;		/* physical allocation; 1: b is a path */
	union {
		char name[DS_NAME];
		struct {
			u64 stream;
			u64 epoch;
			u64 captured;
			u64 packed;	/* 1: the buffer */
			u8 bytes[DS_RAW];
		} raw;
	};
};

#define DS_DIRTY_HEAD 48
#define DS_IMAGE 0xfd	/* kind: a piece of an image, a ds_image_record */
#define DS_UNKNOWN 0xfe	/* kind: a launch of a function whose layout is not known yet; a: the function */
#define DS_FREEING 0xff	/* kind: a free begins, whose end is told as DS_D_FREE */

struct ds_open {
	u64 began;
	u64 args[3];	/* target, second, third */
	u64 bytes;
	u64 stream;
	u32 kind;
	u32 pid;
	u64 cookie;	/* whose return ends it: functions of libcuda call each other */
};

#endif
