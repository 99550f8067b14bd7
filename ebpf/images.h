/* SPDX-License-Identifier: GPL-2.0-only */
/* Images that modules are loaded from, on their way to a reader. */
#ifndef DETSHARE_EBPF_IMAGES_H
#define DETSHARE_EBPF_IMAGES_H

#include "dirty.h"

/*
 * The image that a module was loaded from, a piece at a time, before the record of the module and by the same thread: who
 * loads it may free it at once. Left out are larger ones, what a wrapper points to (that stays), and all of them while the
 * ring is half full; a reader that lacks pieces looks into the program's memory.
 */
#define DS_IMAGE_PIECE	4096
#define DS_IMAGE_PIECES	256

struct ds_image_record {
	u64 when;
	u32 pid;
	u32 tid;
	u32 kind;
	s32 status;	/* bytes in this piece */
	u64 a;		/* the image's address */
	u64 b;		/* where in it the piece begins */
	u64 c;		/* bytes of the image; 0: not known yet */
	u8 bytes[DS_IMAGE_PIECE];
};

#define DS_FATBIN_WRAPPER	0x466243b1u
#define DS_FATBIN		0xba55ed50u
#define DS_ELF			0x464c457fu
#define DS_ELF_SECTION		64
#define DS_ELF_SEGMENT		56

/* Bytes of the image that begins so; 0: up to a zero, as a text ends. */
static __always_inline u64 image_length(const u64 head[8])
{
	u64 sections, segments;

	switch ((u32)head[0]) {
	case DS_FATBIN:
		return (head[0] >> 48) + head[1];
	case DS_ELF:
		/* a cubin ends with the table of its sections, or with that of its segments */
		sections = head[5] + (head[7] >> 32 & 0xffff) * DS_ELF_SECTION;
		segments = head[4] + (head[7] & 0xffff) * DS_ELF_SEGMENT;
		return sections > segments ? sections : segments;
	}
	return 0;
}

/* Tells a ring of an image. A text is told without the zero that ends it. */
static __always_inline void image_tell(void *ring, u32 pid, u64 image)
{
	struct ds_image_record *piece;
	u64 head[8] = { 0 }, total, at, size;
	bool text, last;
	long got;
	u32 i;

	if (bpf_probe_read_user(head, sizeof(head), (void *)image) || (u32)head[0] == DS_FATBIN_WRAPPER)
		return;
	total = image_length(head);
	text = !total;
	if (total > DS_IMAGE_PIECE * DS_IMAGE_PIECES ||
	    bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / 2)
		return;
	for (i = 0; i < DS_IMAGE_PIECES; i++) {
		/* places follow from i alone: what one piece was like must not multiply what the verifier has to look at */
		at = (u64)i * (text ? DS_IMAGE_PIECE - 1 : DS_IMAGE_PIECE);
		piece = bpf_ringbuf_reserve(ring, sizeof(*piece), 0);
		if (!piece)
			return;
		piece->when = 0;
		piece->pid = pid;
		piece->tid = (u32)bpf_get_current_pid_tgid();
		piece->kind = DS_IMAGE;
		piece->a = image;
		piece->b = at;
		if (text) {
			got = bpf_probe_read_user_str(piece->bytes, DS_IMAGE_PIECE, (void *)(image + at)) - 1;
			last = got < DS_IMAGE_PIECE - 1;
			piece->c = last ? at + got : 0;
		} else {
			size = total - at;
			last = size <= DS_IMAGE_PIECE;
			if (size > DS_IMAGE_PIECE)
				size = DS_IMAGE_PIECE;
			got = bpf_probe_read_user(piece->bytes, (u32)size, (void *)(image + at)) ? -1 : (long)size;
			piece->c = total;
		}
		if (got < 0) {
			bpf_ringbuf_discard(piece, 0);
			return;
		}
		piece->status = (s32)got;
		bpf_ringbuf_submit(piece, 0);
		if (last)
			return;
	}
}

#endif
