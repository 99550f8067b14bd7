// SPDX-License-Identifier: Apache-2.0
/* Random values, and calls of nvidiactl and nvidia0 made of them. */
#include "fuzz.h"

/* xorshift64* */
u64 fuzz_next(void)
{
	fuzz.state ^= fuzz.state >> 12;
	fuzz.state ^= fuzz.state << 25;
	fuzz.state ^= fuzz.state >> 27;
	return fuzz.state * 0x2545f4914f6cdd1dull;
}

u32 fuzz_below(u32 n)
{
	return (u32)(fuzz_next() >> 33) % n;
}

u64 fuzz_pointer(void)
{
	switch (fuzz_below(8)) {
	case 0:
		return 0;
	case 1:
		return fuzz_next() | 1ull << 63; /* no user address */
	case 2:
		return ARENA + ARENA_SIZE - fuzz_below(64); /* runs over the end */
	default:
		return ARENA + 0x2000 + fuzz_below(0x8000);
	}
}

static u32 a_handle(void)
{
	switch (fuzz_below(6)) {
	case 0:
		return 0;
	case 1:
		return (u32)fuzz_next();
	case 2:
		return fuzz.client_count ? fuzz.clients[fuzz_below(fuzz.client_count)] : 0xc1dfff00;
	default:
		return NV_OBJECTS + fuzz_below(24);
	}
}

static u32 a_class(void)
{
	static const u16 classes[] = { 0x0, 0x1, 0x41, 0x80, 0x2080, 0x90f1, 0xa06c, 0x9067, 0xc86f, 0xcbc0, 0xc8b5, 0xc661,
				       0x40, 0x3e, 0x3f, 0x42, 0x50a0, 0x70, 0x71, 0x81, 0x82, 0xc2, 0xf3, 0xf8, 0xfd, 0xfe,
				       0xe0, 0xde, 0x900e, 0x503b, 0x503c, 0x79, 0x5, 0x2, 0x2081, 0x2082, 0x83de, 0xcb33 };

	return fuzz_below(8) ? classes[fuzz_below(sizeof(classes) / sizeof(classes[0]))] : (u32)fuzz_next();
}

static u32 a_command(void)
{
	static const u32 commands[] = { 0x0, 0x101, 0x201, 0x202, 0x205, 0x214, 0xd01, 0xd02, 0xd05, 0x13d, 0x3d05, 0x3d06, 0x3d0a,
					0x20801303, 0x20801301, 0x2080014a, 0x2080018d, 0x2080110b, 0x20801123, 0xa06c0101,
					0xa06c0103, 0xa06c0104, 0xa06c0107, 0xa06f0103, 0xc36f0108, 0x410110, 0x906f0101,
					0x90670102, 0x900101, 0x20808159 };

	return fuzz_below(8) ? commands[fuzz_below(sizeof(commands) / sizeof(commands[0]))] : (u32)fuzz_next();
}

/* Single ones of the lower bits have a meaning; all at once would only be refused for the first of them. */
static u32 a_flags(void)
{
	switch (fuzz_below(16)) {
	case 0:
		return (u32)fuzz_next();
	case 1:
		return 1u << fuzz_below(4);
	default:
		return 0;
	}
}

u32 fuzz_size(u32 right)
{
	switch (fuzz_below(10)) {
	case 0:
		return fuzz_below(512);
	case 1:
		return (u32)fuzz_next() & 0x3fff;
	default:
		return right;
	}
}

void fuzz_bytes(u8 *at, u32 size)
{
	u32 i;

	for (i = 0; i < size; i += 8)
		memcpy(at + i, &(u64){ fuzz_below(3) ? 0 : fuzz_next() }, 8);
}

/* Memory requests stay small enough that one round cannot fill a heap; the order of refusals would depend on others. */
static void tame(u8 *params)
{
	u64 size = fuzz_below(16) ? fuzz_below(1 << 24) : fuzz_next();

	rm_put64(params, fuzz.abi->memory.size, size);
}
static void fill_alloc21(u8 *block)
{
	u8 *params = (u8 *)ARENA + 0x4000;

	rm_put32(block, fuzz.abi->nvos21.hRoot, a_handle());
	rm_put32(block, fuzz.abi->nvos21.hObjectParent, a_handle());
	rm_put32(block, fuzz.abi->nvos21.hObjectNew, a_handle());
	rm_put32(block, fuzz.abi->nvos21.hClass, a_class());
	fuzz_bytes(params, 0x400);
	tame(params);
	rm_put64(block, fuzz.abi->nvos21.pAllocParms, fuzz_below(4) ? (uintptr_t)params : fuzz_pointer());
	rm_put32(block, fuzz.abi->nvos21.paramsSize, fuzz_below(3) ? 0 : fuzz_size(128));
}

static void fill_alloc64(u8 *block)
{
	u8 *params = (u8 *)ARENA + 0x4000;

	rm_put32(block, fuzz.abi->nvos64.hRoot, a_handle());
	rm_put32(block, fuzz.abi->nvos64.hObjectParent, a_handle());
	rm_put32(block, fuzz.abi->nvos64.hObjectNew, a_handle());
	rm_put32(block, fuzz.abi->nvos64.hClass, a_class());
	fuzz_bytes(params, 0x400);
	tame(params);
	rm_put64(block, fuzz.abi->nvos64.pAllocParms, fuzz_below(4) ? (uintptr_t)params : fuzz_pointer());
	rm_put32(block, fuzz.abi->nvos64.paramsSize, fuzz_below(3) ? 0 : fuzz_size(128));
	rm_put32(block, fuzz.abi->nvos64.flags, a_flags());
}

static void fill_control(u8 *block)
{
	fuzz_bytes((u8 *)ARENA + 0x4000, 0x1000);
	rm_put32(block, fuzz.abi->nvos54.hClient, a_handle());
	rm_put32(block, fuzz.abi->nvos54.hObject, a_handle());
	rm_put32(block, fuzz.abi->nvos54.cmd, a_command());
	rm_put32(block, fuzz.abi->nvos54.flags, a_flags());
	rm_put64(block, fuzz.abi->nvos54.params, fuzz_below(4) ? ARENA + 0x4000 : fuzz_pointer());
	rm_put32(block, fuzz.abi->nvos54.paramsSize, fuzz_size(1u << fuzz_below(12)));
}

/*
 * The first words are handles, the others are not: a client's handle in a field of another meaning would make the answer
 * depend on how many clients the driver had before.
 */
static void fill_handles(u8 *block, u32 handles)
{
	u32 i;

	fuzz_bytes(block, 64);
	for (i = 0; i < handles; i++)
		memcpy(block + 4 * i, &(u32){ a_handle() }, 4);
}

static void fill_three(u8 *block)
{
	fill_handles(block, 3);
}

static void fill_four(u8 *block)
{
	fill_handles(block, 4);
}

static void fill_five(u8 *block)
{
	fill_handles(block, 5);
}

static void fill_share(u8 *block)
{
	fill_handles(block, 3);
	memcpy(block + fuzz.abi->nvos57.sharePolicy_type.off, &(u16){ (u16)fuzz_below(9) }, 2);
}

/* hRoot, hObjectParent, hObjectNew, hClass */
static void fill_classed(u8 *block)
{
	fill_handles(block, 3);
	memcpy(block + 12, &(u32){ a_class() }, 4);
}

static void fill_heap(u8 *block)
{
	rm_put32(block, fuzz.abi->nvos32.hRoot, a_handle());
	rm_put32(block, fuzz.abi->nvos32.hObjectParent, a_handle());
	rm_put32(block, fuzz.abi->nvos32.function, fuzz_below(0x20));
	fuzz_bytes(block + fuzz.abi->nvos32.data_AllocSize_hMemory.off, 0x60);
	rm_put32(block, fuzz.abi->nvos32.data_AllocSize_hMemory, a_handle());
	rm_put64(block, fuzz.abi->nvos32.data_AllocSize_size, fuzz_below(1 << 24));
}

static void fill_map(u8 *block)
{
	fill_handles(block, 3);
	rm_put64(block, fuzz.abi->nvos33.offset, fuzz_below(2) ? 0 : fuzz_next() & 0xfffff);
	rm_put64(block, fuzz.abi->nvos33.length, fuzz_below(2) ? 0x1000 : fuzz_next() & 0xfffff);
	rm_put32(block, fuzz.abi->nvos33.fd, fuzz_below(2) ? (u32)fuzz.fd[fuzz_below(DEVICES)] : fuzz_below(400));
}

static void fill_garbage(u8 *block)
{
	fuzz_bytes(block, 256);
}

static void fill_pointer(u8 *block)
{
	memcpy(block, &(u64){ fuzz_pointer() }, 8);
}

static void fill_version(u8 *block)
{
	rm_put32(block, fuzz.abi->version_str.cmd, fuzz_below(4) ? '2' : (u32)fuzz_next());
}

static void fill_descriptor(u8 *block)
{
	rm_put32(block, fuzz.abi->register_fd.ctl_fd, fuzz_below(2) ? (u32)fuzz.fd[CTL] : fuzz_below(400));
}

bool fuzz_escape(struct escape *e)
{
	const struct rm_abi *abi = fuzz.abi;
	const struct escape all[] = {
		{ NV_ESC_RM_ALLOC, abi->nvos64.len, abi->nvos64.status.off, fill_alloc64, CTL },
		{ NV_ESC_RM_ALLOC, abi->nvos64.len, abi->nvos64.status.off, fill_alloc64, CTL },
		{ NV_ESC_RM_ALLOC, abi->nvos21.len, abi->nvos21.status.off, fill_alloc21, CTL },
		{ NV_ESC_RM_CONTROL, abi->nvos54.len, abi->nvos54.status.off, fill_control, CTL },
		{ NV_ESC_RM_CONTROL, abi->nvos54.len, abi->nvos54.status.off, fill_control, CTL },
		{ NV_ESC_RM_FREE, abi->nvos00.len, abi->nvos00.status.off, fill_three, CTL },
		{ NV_ESC_RM_DUP_OBJECT, abi->nvos55.len, abi->nvos55.status.off, fill_five, CTL },
		{ NV_ESC_RM_SHARE, abi->nvos57.len, abi->nvos57.status.off, fill_share, CTL },
		{ NV_ESC_RM_VID_HEAP_CONTROL, abi->nvos32.len, abi->nvos32.status.off, fill_heap, CTL },
		{ NV_ESC_RM_MAP_MEMORY, abi->nvos33.len, abi->nvos33.status.off, fill_map, CTL },
		{ NV_ESC_RM_UNMAP_MEMORY, abi->nvos34.len, abi->nvos34.status.off, fill_three, CTL },
		{ NV_ESC_RM_MAP_MEMORY_DMA, abi->nvos46.len, abi->nvos46.status.off, fill_four, CTL },
		{ NV_ESC_RM_UNMAP_MEMORY_DMA, abi->nvos47.len, abi->nvos47.status.off, fill_four, CTL },
		{ NV_ESC_RM_ALLOC_CONTEXT_DMA2, abi->nvos39.len, abi->nvos39.status.off, fill_classed, CTL },
		{ NV_ESC_RM_ALLOC_OBJECT, abi->nvos05.len, abi->nvos05.status.off, fill_classed, CTL },
		{ NV_ESC_RM_ALLOC_MEMORY, abi->nvos02.len, abi->nvos02.status.off, fill_classed, GPU },
		{ NV_ESC_CHECK_VERSION_STR, abi->version_str.len, 4, fill_version, CTL },
		{ NV_ESC_REGISTER_FD, abi->register_fd.len, 0, fill_descriptor, GPU },
		{ NV_ESC_CARD_INFO, 72 * (1 + fuzz_below(40)), 0, fill_garbage, CTL },
		{ NV_ESC_SYS_PARAMS, 8, 0, fill_garbage, CTL },
		{ NV_ESC_STATUS_CODE, 12, 8, fill_garbage, CTL },
		{ NV_ESC_RM_GET_EVENT_DATA, 16, 12, fill_pointer, CTL },
		{ fuzz_below(256), 4 * fuzz_below(64), 0, fill_garbage, fuzz_below(2) },
	};
	u32 n = sizeof(all) / sizeof(all[0]);

	*e = all[fuzz_below(n)];
	return e->nr == NV_ESC_SET_NUMA_STATUS || e->nr == NV_ESC_RM_IDLE_CHANNELS || e->nr == NV_ESC_RM_LOCKLESS_DIAGNOSTIC ||
	       e->nr == NV_ESC_ATTACH_GPUS_TO_FD || e->nr == NV_ESC_WAIT_OPEN_COMPLETE ||
	       e->nr == NV_ESC_RM_ACCESS_REGISTRY || e->nr == NV_ESC_RM_I2C_ACCESS;
}
