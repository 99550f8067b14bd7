/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What a call on the driver's files asks for.
 *
 * An ioctl on /dev/nvidiactl or /dev/nvidiaN is decoded from a copy of its
 * argument block that nobody else can write (the shadow call). Only the
 * number counts, _IOC_NR(cmd): the driver looks at no other bit. A block is
 * decoded the same way before the call (what is asked) and after it (status,
 * handles and sizes that the driver wrote).
 *
 * Nothing here takes memory, sleeps or keeps state.
 */
#ifndef DETSHARE_RM_DECODE_H
#define DETSHARE_RM_DECODE_H

#include "abi.h"

/* Largest block the driver takes (NV_ABSOLUTE_MAX_IOCTL_SIZE). */
#define RM_BLOCK_MAX 16384
/* Largest parameters of an RM_ALLOC or of a control that DetShare looks into. */

enum rm_op {
	RM_OP_OTHER,		/* known escape that changes nothing DetShare follows */
	RM_OP_XFER,		/* the argument lies elsewhere: rm_decode_xfer() */
	RM_OP_ALLOC,		/* RM_ALLOC, NVOS21 or NVOS64 */
	RM_OP_ALLOC_MEMORY,	/* legacy: class, flags, limit in the block */
	RM_OP_ALLOC_OBJECT,	/* legacy: class without parameters */
	RM_OP_CTXDMA,		/* RM_ALLOC_CONTEXT_DMA2: makes an object too */
	RM_OP_VID_HEAP,		/* RM_VID_HEAP_CONTROL: see function */
	RM_OP_FREE,
	RM_OP_DUP,
	RM_OP_SHARE,
	RM_OP_CONTROL,
	RM_OP_MAP,		/* arms fd for the next mmap */
	RM_OP_UNMAP,
	RM_OP_MAP_UPDATE,	/* RM_UPDATE_DEVICE_MAPPING_INFO */
	RM_OP_MAP_DMA,
	RM_OP_UNMAP_DMA,
	RM_OP_BIND_CTXDMA,
	RM_OP_IDLE,		/* RM_IDLE_CHANNELS: may name other clients */
	RM_OP_REGISTER_FD,	/* binds this file to the ctl file fd */
	RM_OP_OS_EVENT,
	RM_OP_EXPORT_DMABUF,
	RM_OP_VERSION,		/* CHECK_VERSION_STR */
};

/* Members that a call does not have are 0; fd is -1. */
struct rm_call {
	enum rm_op op;
	u32 nr;
	u32 client;		/* hRoot or hClient */
	u32 parent;		/* hObjectParent, hParent, hDevice */
	u32 object;		/* the object made, freed, controlled, mapped, shared */
	u32 class;
	u32 cmd;		/* of a control */
	u32 flags;
	u32 src_client;		/* dup: whose object */
	u32 src_object;		/* dup: which; MAP_DMA, CTXDMA: hMemory */
	u32 function;		/* of VID_HEAP: NVOS32_FUNCTION_* */
	s32 fd;
	u64 params;		/* user address of nested parameters, 0: none */
	u32 params_size;	/* bytes; 0 from NVOS21 and NVOS64 means: as the class has */
	u64 offset;		/* MAP, MAP_DMA */
	u64 length;		/* MAP, MAP_DMA; CTXDMA: limit + 1 */
	u64 limit;		/* ALLOC_MEMORY */
	u64 address;		/* MAP, UNMAP: linear address; MAP_UPDATE: the new one */
	u32 status;		/* as the block holds it: of use after the call only */
	/* byte offsets within the block, RM_ABSENT where there is none */
	u16 off_status;
	u16 off_object;		/* where the driver writes the new handle */
	u16 off_params;		/* where the user address of the parameters lies */
	u16 off_params_size;
};

/*
 * 0: *call says what it is. -EINVAL: the driver has this number but takes no
 * block of this size; it refuses it by itself. -ENOENT: not of interest.
 * *call is filled in all cases. Never reads beyond block + size.
 */
int rm_decode(const struct rm_abi *abi, u32 nr, const void *block, u32 size,
	      struct rm_call *call);

/*
 * Reads an nv_ioctl_xfer_t. *nr is the escape's bare number, which may not be
 * IOCTL_XFER_CMD again. -EINVAL: size is not that of the header, or *size is
 * above RM_BLOCK_MAX: the driver refuses it by itself.
 */
int rm_decode_xfer(const struct rm_abi *abi, const void *block, u32 block_size,
		   u32 *nr, u32 *size, u64 *ptr);

/* Root classes that user space names become NV01_ROOT_CLIENT in the driver. */
static inline bool rm_class_is_root(u32 class)
{
	return class == NV01_ROOT || class == NV01_ROOT_NON_PRIV ||
	       class == NV01_ROOT_CLIENT;
}

/* ---- allocation parameters (alloc.c) ---------------------------------- */

#define RM_DEPS_MAX 5

struct rm_alloc {
	enum rm_kind kind;
	u32 class;
	/*
	 * Bytes asked for, before rounding. Which memory is meant say the
	 * bits below; only vidmem is charged.
	 */
	u64 bytes;
	u64 alignment;		/* 0: none asked */
	u32 attr, attr2, alloc_flags;	/* NVOS32_ATTR_*, NVOS32_ALLOC_FLAGS_* */
	bool vidmem;		/* takes, or keeps, GPU memory: charge it */
	bool sysmem;
	bool virtual;		/* addresses only */
	/*
	 * The whole frame buffer or the registers: takes no memory, shows
	 * everybody's. Not to be granted to who has a limit.
	 */
	bool window;
	/*
	 * Fabric and multicast objects take no memory by themselves, but
	 * memory attached to them stays after its own handle is freed. Their
	 * size bounds it and is charged, for attaching names no size.
	 */
	bool fabric;
	u32 attached;		/* fabric: hVidMem, channel: of its USERD; that memory is held then, none is new */
	u32 device_id;		/* NV01_DEVICE_0: instance */
	u32 subdevice_id;
	u32 engine;		/* NV2080_ENGINE_TYPE_* of a TSG, channel, copy object */
	u32 vaspace;
	u32 ctxshare;
	u32 userd_memory;
	u64 userd_offset;
	u64 gpfifo_va;
	u32 gpfifo_entries;
	bool bar1_doorbell;	/* usermode object: by BAR1, mappable for the GPU too */
	/* objects of the same client with which it dies, besides its parent */
	u32 deps[RM_DEPS_MAX];
	u8 n_deps;
};

/* Bytes of a class's parameters; 0: it has none, or the class is not known. */
u32 rm_alloc_params_size(const struct rm_abi *abi, u32 class);

/*
 * Reads the parameters of an RM_ALLOC. params may be NULL (size 0). -EINVAL:
 * the class wants parameters of another size; the driver refuses that too.
 * -ENOENT: unknown class, *alloc says RM_KIND_OTHER and nothing more.
 */
int rm_decode_alloc(const struct rm_abi *abi, u32 class, const void *params,
		    u32 size, struct rm_alloc *alloc);

/*
 * The same for a VID_HEAP block (rm_decode() said RM_OP_VID_HEAP), for the
 * functions that allocate. -ENOENT: this function allocates nothing. class is
 * what the driver will make of it. *handle: the handle asked for, 0: any.
 */
int rm_decode_vid_heap(const struct rm_abi *abi, const void *block, u32 size,
		       struct rm_alloc *alloc, u32 *handle);

/* The same for an ALLOC_MEMORY block (RM_OP_ALLOC_MEMORY). */
int rm_decode_alloc_memory(const struct rm_abi *abi, const void *block, u32 size,
			   struct rm_alloc *alloc);

/* The handle that VID_HEAP's FREE or HW_FREE frees; -ENOENT: another function. */
int rm_decode_vid_heap_free(const struct rm_abi *abi, const void *block, u32 size,
			    u32 *handle);

/*
 * The most GPU memory that the driver may take for a request, so what to
 * charge before the call: bytes rounded up to the largest page that it may
 * get. 0 if it is no vidmem. RM_U64_MAX if the sum overflows: refuse it.
 */
u64 rm_round_up_request(const struct rm_alloc *alloc);

/*
 * What the driver took, from its answer (decoded again by the same function
 * after the call): what to settle the charge to. Smaller than 64 KiB is
 * 64 KiB, the driver's smallest piece of GPU memory. Never above
 * rm_round_up_request(asked) unless the answer is forged.
 */
u64 rm_answer_bytes(const struct rm_alloc *asked, const struct rm_alloc *answer);

/* ---- controls that move memory between clients (share.c) --------------- */

#define RM_EXPORT_MAX 512

/*
 * Objects that leave the client by a file descriptor, or come in by one:
 * their memory lives on in the file. Handles are read by rm_export_handle().
 */
struct rm_export {
	bool import;
	s32 fd;			/* of an export: -1 before the driver made one */
	u32 parent;		/* of imported objects */
	u32 device;
	u32 index;		/* first slot in the file */
	u32 count;		/* handles, at most RM_EXPORT_MAX */
	u16 off_handles;	/* of the first within params; they are u32 in a row */
	u16 off_fd;
};

/* -ENOENT: cmd is no such control; -EINVAL: wrong size or count. */
int rm_decode_export(const struct rm_abi *abi, u32 cmd, const void *params,
		     u32 size, struct rm_export *export);

static inline u32 rm_export_handle(const struct rm_export *export,
				   const void *params, u32 i)
{
	struct rm_f32 f = { (u16)(export->off_handles + 4 * i) };

	return rm_get32(params, f);
}

/* dma-buf: handles of RM_OP_EXPORT_DMABUF, in the block itself. */
int rm_decode_dmabuf(const struct rm_abi *abi, const void *block, u32 size,
		     struct rm_export *export);

#endif /* DETSHARE_RM_DECODE_H */
