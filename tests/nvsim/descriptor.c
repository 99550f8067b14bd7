// SPDX-License-Identifier: GPL-2.0-only
/*
 * OS descriptors over mappings of device files: pages that cannot be pinned are found by the page tables, as they are at
 * that moment. A doorbell among them makes memory whose writes ring.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "sim.h"

static int page_behind(struct vm_area_struct *vma, unsigned long address, struct page **page)
{
	unsigned long pfn;
	int error;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	struct follow_pfnmap_args args = { .vma = vma, .address = address };

	error = follow_pfnmap_start(&args);
	if (error)
		return error;
	pfn = args.pfn;
	follow_pfnmap_end(&args);
#else
	error = follow_pfn(vma, address, &pfn);
	if (error)
		return error;
#endif
	if (!pfn_valid(pfn))
		return -EFAULT;
	*page = pfn_to_page(pfn);
	get_page(*page);
	return 0;
}

static int pages_behind(u64 address, u64 count, struct page **pages, unsigned long *found)
{
	struct vm_area_struct *vma;
	int error = 0;

	mmap_read_lock(current->mm);
	vma = vma_lookup(current->mm, address);
	if (!vma || !(vma->vm_flags & (VM_IO | VM_PFNMAP)) || address + (count << PAGE_SHIFT) > vma->vm_end)
		error = -EFAULT;
	for (; *found < count && !error; ++*found) {
		error = page_behind(vma, address + (*found << PAGE_SHIFT), &pages[*found]);
		if (error)
			break;
	}
	mmap_read_unlock(current->mm);
	return error;
}

static struct sim_gpu *rung_by(const struct page *page)
{
	for (unsigned int i = 0; i < sim_gpu_count; i++)
		if (sim_doorbell_has(sim_gpus[i].engine, page))
			return &sim_gpus[i];
	return NULL;
}

/*
 * The driver's own name and arguments: other modules hook it. *page_array: page_count pages, each with a reference, to be
 * kvfree'd; *pte_array would be addresses that are no memory of the machine, of which there are none here.
 */
noinline __noclone NV_STATUS os_lookup_user_io_memory(void *address, u64 page_count, u64 **pte_array, void **page_array)
{
	struct page **pages = kvcalloc(page_count, sizeof(*pages), GFP_KERNEL);
	unsigned long found = 0;

	if (!pages)
		return NV_ERR_NO_MEMORY;
	if (sim_race_us)
		fsleep(sim_race_us);
	if (pages_behind((unsigned long)address, page_count, pages, &found)) {
		while (found)
			put_page(pages[--found]);
		kvfree(pages);
		return NV_ERR_INVALID_ADDRESS;
	}
	*page_array = pages;
	return NV_OK;
}

/* memory: made for that many pages, without any yet. On success it has them, each with a reference. */
NV_STATUS sim_memory_look_up(struct sim_memory *memory, u64 address, u64 count)
{
	void *pages = NULL;
	struct sim_gpu *gpu;
	NV_STATUS status;
	u64 *ptes;

	memory->found = true;
	status = os_lookup_user_io_memory((void *)(unsigned long)address, count, &ptes, &pages);
	if (status != NV_OK)
		return status;
	memcpy(memory->pinned, pages, count * sizeof(*memory->pinned));
	memory->pinned_count = count;
	kvfree(pages);
	gpu = rung_by(memory->pinned[0]);
	if (gpu) {
		memory->type = SIM_REGISTERS;
		memory->gpu = gpu;
	}
	return NV_OK;
}

/* The bell that writes through GPU addresses ring; made with the object that lets it be mapped there. */
NV_STATUS sim_memory_give_bell(struct sim_memory *memory, const char *way, const struct sim_object *object)
{
	const struct sim_doorbell_owner owner = {
		.way = way, .client = object->client->handle, .object = object->handle, .pid = object->client->pid,
	};
	struct sim_doorbell *bell = sim_doorbell_create(memory->gpu->engine, &owner, false);

	if (IS_ERR(bell))
		return NV_ERR_NO_MEMORY;
	memory->bell = bell;
	return NV_OK;
}
