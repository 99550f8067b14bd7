/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The shape of a call: how large its block is, what its pointers point to, where descriptors stand in it. The guest gathers by it, the
 * helper takes apart by it; what it does not know does not pass. Pure: reads what it is given, within the size that it is given.
 */
#ifndef NVFWD_SHAPE_H
#define NVFWD_SHAPE_H

#include "port.h"
#include "tables.h"

#define NVF_NOWHERE	0xffff
#define NVF_PARTS	5		/* the block, its parameters, what those point to */
#define NVF_BLOCK_MAX	16384		/* NV_ABSOLUTE_MAX_IOCTL_SIZE */
#define NVF_PART_MAX	32768
#define NVF_CLASS_OS_DESCRIPTOR 0x71
#define NVF_CLASS_OS_EVENT	0x79
#define NVF_CLASS_EVENT_BUFFER	0x90cd
#define NVF_CLASS_DEVICE	0x80

enum nvf_dev { NVF_CTL, NVF_GPU, NVF_UVM };

struct nvf_escape { u32 nr, size; u16 fd_at; u16 array; const char *name; };
struct nvf_control { u32 cmd, size; u16 fd_at; const char *name; };
struct nvf_embedded { u32 cmd; u16 count_at, each, at; };
struct nvf_class { u32 class, size; const char *name; };
struct nvf_uvm { u32 cmd, size; u16 fd_at; const char *name; };
struct nvf_name { u32 cmd; const char *name; };

extern const struct nvf_escape nvf_escapes[];
extern const struct nvf_control nvf_controls[];
extern const struct nvf_embedded nvf_embeddeds[];
extern const struct nvf_class nvf_classes[];
extern const struct nvf_uvm nvf_uvms[];
extern const struct nvf_name nvf_names[];
extern const unsigned int nvf_escapes_count, nvf_controls_count, nvf_embeddeds_count, nvf_classes_count, nvf_uvms_count,
	nvf_names_count;

/* A part of a call. Part 0 is the block; another one is what the pointer at `at` of part `in` points to. */
struct nvf_part {
	u32 size;
	u8 in;
	u16 at;
};

struct nvf_shape {
	const char *name;	/* of the call, or of what is refused; never NULL */
	u32 cmd;		/* of an RM_CONTROL, else 0 */
	u32 class;		/* of an RM_ALLOC or RM_ALLOC_MEMORY, else 0 */
	u32 count;
	struct nvf_part parts[NVF_PARTS];
	bool nested;		/* part 1 is there, and may point to more: nvf_shape_inner() must be asked */
	u32 fds;
	struct { u8 in; u16 at; u8 width; } fd[2];
	bool pins;		/* RM_ALLOC_MEMORY of memory of the caller's */
	u16 status_at;		/* in the block; NVF_NOWHERE */
};

enum nvf_verdict {
	NVF_OK,
	NVF_UNKNOWN,	/* name says what */
	NVF_BAD_SIZE,	/* of the block */
	NVF_BAD_PARAMS,	/* a pointer where none is forwarded, a list that is too long */
};

/* The block alone: `block` has `size` bytes. */
enum nvf_verdict nvf_shape_outer(struct nvf_shape *shape, enum nvf_dev dev, u32 nr, const void *block, u32 size);
/* With the parameters, parts[1].size bytes; only if shape->nested. */
enum nvf_verdict nvf_shape_inner(struct nvf_shape *shape, const void *nested);
/* Where a part begins among the parts; for parts == count, where all end. */
u32 nvf_part_at(const struct nvf_shape *shape, u32 part);

#endif
