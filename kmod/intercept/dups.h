/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Duplicates of programs' memory that parts of the driver make for themselves: nvidia-uvm for its mappings, nvidia.ko for DMA
 * buffers. Each has a memref as long as it exists. Replacements for the hooks of driver.c, which passes the hook on.
 */
#ifndef DETSHARE_DUPS_H
#define DETSHARE_DUPS_H

#include "hook.h"

/*
 * nvUvmInterfaceDupMemory(device, hClient, hMemory, hDup *, info) and nvUvmInterfaceFreeDupedHandle(device, hDup). `undo`: the address
 * of the other one; 0: it is not hooked, and nothing is kept.
 */
u32 ds_dups_uvm_make(const struct ds_hook *hook, void *device, u32 client, u32 memory, u32 *dup, void *info,
		     unsigned long undo);
u32 ds_dups_uvm_free(const struct ds_hook *hook, void *device, u32 dup);

/*
 * nv_dma_buf_dup_mem_handles(sp, buffer, params), nv_dma_buf_undup_mem_handles(sp, index, count, buffer) and
 * nv_dma_buf_release(dma_buf): `buffer` is the driver's own of a DMA buffer. `seen`: are the other two hooked? Else who has a
 * limit is refused.
 */
u32 ds_dups_dmabuf_make(const struct ds_hook *hook, void *sp, void *buffer, const void *params, bool seen);
void ds_dups_dmabuf_free(const struct ds_hook *hook, void *sp, u32 index, u32 count, void *buffer);
void ds_dups_dmabuf_release(const struct ds_hook *hook, void *dma_buf);

/* nvidia-uvm, or the whole driver, has gone with all that it had. */
void ds_dups_forget_uvm(void);
void ds_dups_forget(void);

#endif
