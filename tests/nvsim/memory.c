// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory: device memory is an amount taken from a GPU's heap, system memory an amount of nothing; both get host pages
 * when somebody maps or touches them. Pinned memory is the caller's own pages.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "methods.h"
#include "sim.h"

#define BAR1_BASE	0x100000000000ull
#define SYSMEM_BASE	0x000100000000ull

atomic_long_t sim_host_pages;
static unsigned int host_percent = 40;
module_param(host_percent, uint, 0644);
MODULE_PARM_DESC(host_percent, "share of this machine's memory that may stand behind simulated memory");

u64 sim_page_size(u64 size, u32 attr, u32 attr2)
{
	switch (NV_BITS(attr, NVOS32_ATTR_PAGE_SIZE)) {
	case NVOS32_ATTR_PAGE_SIZE_4KB:
		return 4096;
	case NVOS32_ATTR_PAGE_SIZE_BIG:
		return 65536;
	case NVOS32_ATTR_PAGE_SIZE_HUGE:
		switch (NV_BITS(attr2, NVOS32_ATTR2_PAGE_SIZE_HUGE)) {
		case NVOS32_ATTR2_PAGE_SIZE_HUGE_512MB:
			return 512ull << 20;
		case NVOS32_ATTR2_PAGE_SIZE_HUGE_256GB:
			return 256ull << 30;
		}
		return 2 << 20;
	}
	return size >= 2 << 20 ? 2 << 20 : 65536;
}

struct sim_memory *sim_memory_create(struct sim_gpu *gpu, enum sim_memory_type type, u64 size)
{
	struct sim_memory *memory = kzalloc(sizeof(*memory), GFP_KERNEL);

	if (!memory)
		return NULL;
	kref_init(&memory->ref);
	memory->gpu = gpu;
	memory->type = type;
	memory->size = size;
	memory->page_size = PAGE_SIZE;
	mutex_init(&memory->lock);
	xa_init(&memory->pages);
	return memory;
}

struct sim_memory *sim_memory_get(struct sim_memory *memory)
{
	kref_get(&memory->ref);
	return memory;
}
EXPORT_SYMBOL_GPL(sim_memory_get);

static void memory_release(struct kref *ref)
{
	struct sim_memory *memory = container_of(ref, struct sim_memory, ref);
	struct page *page;
	unsigned long index, freed = 0;

	WARN_ON(memory->charged);
	xa_for_each(&memory->pages, index, page) {
		put_page(page);
		if (!(++freed & 1023))
			cond_resched();
	}
	atomic_long_sub(freed, &sim_host_pages);
	xa_destroy(&memory->pages);
	if (memory->pinned) {
		if (memory->found)
			for (index = 0; index < memory->pinned_count; index++)
				put_page(memory->pinned[index]);
		else
			unpin_user_pages_dirty_lock(memory->pinned, memory->pinned_count, true);
		kvfree(memory->pinned);
	}
	if (memory->bell)
		sim_doorbell_destroy(memory->bell);
	kfree(memory);
}

void sim_memory_put(struct sim_memory *memory)
{
	if (memory)
		kref_put(&memory->ref, memory_release);
}
EXPORT_SYMBOL_GPL(sim_memory_put);

void sim_memory_use(struct sim_memory *memory)
{
	sim_memory_get(memory);
	atomic_inc(&memory->users);
}
EXPORT_SYMBOL_GPL(sim_memory_use);

/* With the last handle or UVM reference the heap has the memory back; pages that are still mapped stay. */
void sim_memory_unuse(struct sim_memory *memory)
{
	if (atomic_dec_and_test(&memory->users) && memory->charged) {
		sim_heap_give(&memory->gpu->heap, memory->charged);
		memory->charged = 0;
	}
	sim_memory_put(memory);
}
EXPORT_SYMBOL_GPL(sim_memory_unuse);

/* The heap is handed out in pieces of 64 KiB at least, also to memory with smaller pages. */
NV_STATUS sim_memory_charge(struct sim_memory *memory)
{
	u64 bytes = ALIGN(memory->size, 65536);

	if (!sim_heap_take(&memory->gpu->heap, bytes, &memory->offset))
		return NV_ERR_NO_MEMORY;
	memory->charged = bytes;
	return NV_OK;
}

NV_STATUS sim_memory_pin(u64 address, u64 size, bool write, struct sim_memory **result)
{
	u64 count = DIV_ROUND_UP_ULL(size, PAGE_SIZE);
	NV_STATUS status = NV_ERR_INVALID_ADDRESS;
	struct sim_memory *memory;
	long got;

	if (count > totalram_pages())
		return NV_ERR_NO_MEMORY;
	memory = sim_memory_create(NULL, SIM_PINNED, count << PAGE_SHIFT);
	if (!memory)
		return NV_ERR_NO_MEMORY;
	memory->pinned = kvmalloc_array(count, sizeof(struct page *), GFP_KERNEL | __GFP_NOWARN);
	if (!memory->pinned) {
		sim_memory_put(memory);
		return NV_ERR_NO_MEMORY;
	}
	while (memory->pinned_count < count) {
		got = pin_user_pages_fast(address + (memory->pinned_count << PAGE_SHIFT),
					  min_t(u64, count - memory->pinned_count, 1024), write ? FOLL_WRITE : 0,
					  memory->pinned + memory->pinned_count);
		if (got <= 0)
			break;
		memory->pinned_count += got;
	}
	if (memory->pinned_count == count)
		status = NV_OK;
	else if (!memory->pinned_count)
		status = sim_memory_look_up(memory, address, count);
	if (status == NV_OK)
		*result = memory;
	else
		sim_memory_put(memory);
	return status;
}

static bool host_has_room(void)
{
	return atomic_long_read(&sim_host_pages) < (long)(totalram_pages() / 100 * min(host_percent, 90u));
}

/* The host page behind page `index`; NULL if there is none and `make` is not set or no memory is left. */
struct page *sim_memory_page(struct sim_memory *memory, unsigned long index, bool make)
{
	struct page *page;

	if (memory->pinned)
		return index < memory->pinned_count ? memory->pinned[index] : NULL;
	if (index >= DIV_ROUND_UP_ULL(memory->size, PAGE_SIZE))
		return NULL;
	page = xa_load(&memory->pages, index);
	if (page || !make)
		return page;
	mutex_lock(&memory->lock);
	page = xa_load(&memory->pages, index);
	if (!page && host_has_room()) {
		page = alloc_page(GFP_KERNEL | __GFP_ZERO | __GFP_NORETRY | __GFP_NOWARN);
		if (page && xa_err(xa_store(&memory->pages, index, page, GFP_KERNEL))) {
			put_page(page);
			page = NULL;
		}
		if (page)
			atomic_long_inc(&sim_host_pages);
	}
	mutex_unlock(&memory->lock);
	return page;
}
EXPORT_SYMBOL_GPL(sim_memory_page);

int sim_memory_populate(struct sim_memory *memory, unsigned long first, unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		if (!sim_memory_page(memory, first + i, true))
			return -ENOMEM;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* A store to the doorbell rings; the rest of the registers reads as zeros and forgets what is written. */
static int touch_registers(struct sim_memory *memory, u64 offset, void *buffer, size_t n, bool write)
{
	u32 token;

	if (!write) {
		memset(buffer, 0, n);
		return 0;
	}
	if (offset > SIM_USERMODE_DOORBELL || offset + n < SIM_USERMODE_DOORBELL + sizeof(token))
		return 0;
	memcpy(&token, (u8 *)buffer + SIM_USERMODE_DOORBELL - offset, sizeof(token));
	if (memory->bell)
		sim_doorbell_post(memory->bell, token);
	return 0;
}

/* Reads or writes memory as the GPU does. What nobody wrote reads as zeros. -EFAULT outside it, -ENOMEM. */
int sim_memory_copy(struct sim_memory *memory, u64 offset, void *buffer, size_t n, bool write)
{
	if (offset > memory->size || n > memory->size - offset)
		return -EFAULT;
	if (memory->type == SIM_REGISTERS)
		return touch_registers(memory, offset, buffer, n, write);
	while (n) {
		size_t part = min_t(size_t, n, PAGE_SIZE - offset_in_page(offset));
		struct page *page = sim_memory_page(memory, offset >> PAGE_SHIFT, write);

		if (page) {
			u8 *at = (u8 *)kmap_local_page(page) + offset_in_page(offset);

			if (write)
				memcpy(at, buffer, part);
			else
				memcpy(buffer, at, part);
			kunmap_local(at);
		} else if (write) {
			return -ENOMEM;
		} else {
			memset(buffer, 0, part);
		}
		buffer = (u8 *)buffer + part;
		offset += part;
		n -= part;
	}
	return 0;
}

/* An address to tell user space apart by: where a byte of memory would be on the bus. */
u64 sim_memory_linear(const struct sim_memory *memory, u64 offset)
{
	u64 base = memory->type == SIM_VIDMEM ? BAR1_BASE + memory->offset :
					       SYSMEM_BASE + (((u64)(unsigned long)memory & 0xffffffffffull) << 4);

	return (base & PAGE_MASK) + offset;
}
