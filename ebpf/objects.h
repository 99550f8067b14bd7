/* SPDX-License-Identifier: GPL-2.0-only */
/* What objects.bpf.c tells; read by detshare.ebpf.objects, which knows these layouts from struct formats of its own. */
#ifndef DETSHARE_EBPF_OBJECTS_H
#define DETSHARE_EBPF_OBJECTS_H

#define DS_BLOCK	192	/* bytes of a call's parameter block that are kept at most */

enum ds_object_event {
	DS_CALL = 1,	/* an RM call has returned; block: its parameters as the driver left them */
	DS_HOLD,	/* fd names an open file of the driver from now on; other: 1 when it was just opened */
	DS_CLOSE,	/* fd is about to be closed */
	DS_CLOSE_RANGE,	/* descriptors fd to other are about to be closed */
	DS_FORK,	/* process `other` begins with a copy of pid's descriptors */
	DS_EXEC,	/* pid goes on as another program: descriptors marked close-on-exec are gone */
	DS_EXIT,	/* the last thread of pid is ending: its descriptors are about to go */
};

struct ds_object_record {
	u64 when;	/* CLOCK_MONOTONIC ns; the ring is in the order of these but for events of the same moment */
	u64 file;	/* names the open file while it is open; 0: unknown */
	u32 pid;
	u32 fd;
	u32 other;
	s32 ret;
	u16 event;
	u16 minor;
	u16 escape;
	u16 bytes;	/* of block */
	u8 block[DS_BLOCK];
};

#define DS_RECORD_HEAD	40

/* The one control that is told of; no command: none. */
struct ds_control {
	u32 escape;	/* by which controls are asked for */
	u32 offset;	/* of the command in their block */
	u32 command;
	u32 spare;
};

#endif
