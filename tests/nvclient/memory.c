// SPDX-License-Identifier: Apache-2.0
/* The ways to ask RM for memory, and what it says is left. */
#include "nvclient.h"

#define BLOCK 4096 /* above all parameters used here */

u32 nv_memory(const struct nv *nv, u32 client, u32 parent, u32 *handle,
	      const struct nv_memory_request *ask, u64 *granted)
{
	u8 params[BLOCK] = { 0 };
	u32 status;

	rm_put32(params, nv->abi->memory.owner, client);
	rm_put32(params, nv->abi->memory.type, ask->type);
	rm_put32(params, nv->abi->memory.flags, ask->flags);
	rm_put32(params, nv->abi->memory.attr, ask->attr);
	rm_put32(params, nv->abi->memory.attr2, ask->attr2);
	rm_put64(params, nv->abi->memory.size, ask->size);
	status = nv_alloc(nv, client, parent, handle, ask->class, params, nv->abi->memory.len);
	if (granted)
		*granted = status ? 0 : rm_get64(params, nv->abi->memory.size);
	return status;
}

static u32 vid_heap(const struct nv *nv, u8 *block, u32 client, u32 parent, u32 function)
{
	int error;

	rm_put32(block, nv->abi->nvos32.hRoot, client);
	rm_put32(block, nv->abi->nvos32.hObjectParent, parent);
	rm_put32(block, nv->abi->nvos32.function, function);
	rm_put32(block, nv->abi->nvos32.status, 0xffffffff);
	error = nv->xfer
			? nv_xfer(nv, nv->ctl, NV_ESC_RM_VID_HEAP_CONTROL, block,
				  nv->abi->nvos32.len)
			: nv_ioctl(nv->ctl, NV_ESC_RM_VID_HEAP_CONTROL, block, nv->abi->nvos32.len);
	return error ? NV_ERRNO(-error) : rm_get32(block, nv->abi->nvos32.status);
}

u32 nv_vid_heap(const struct nv *nv, u32 client, u32 parent, u32 *handle, u32 function, u64 *size,
		u64 *total, u64 *free)
{
	bool range = function == NVOS32_FUNCTION_ALLOC_SIZE_RANGE,
	     info = function == NVOS32_FUNCTION_INFO;
	u8 block[BLOCK] = { 0 };
	u32 status;

	if (!info) {
		/* the owner stands before the handle, in both */
		rm_put32(block + nv->abi->nvos32.data_AllocSize_hMemory.off - 4,
			 (struct rm_f32){ 0 }, client);
		rm_put32(block,
			 range ? nv->abi->nvos32.data_AllocSizeRange_hMemory
			       : nv->abi->nvos32.data_AllocSize_hMemory,
			 *handle);
		rm_put32(block,
			 range ? nv->abi->nvos32.data_AllocSizeRange_flags
			       : nv->abi->nvos32.data_AllocSize_flags,
			 *handle ? NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED : 0);
		rm_put64(block,
			 range ? nv->abi->nvos32.data_AllocSizeRange_size
			       : nv->abi->nvos32.data_AllocSize_size,
			 *size);
	}
	status = vid_heap(nv, block, client, parent, function);
	if (total)
		*total = rm_get64(block, nv->abi->nvos32.total);
	if (free)
		*free = rm_get64(block, nv->abi->nvos32.free);
	if (status || info)
		return status;
	*handle = rm_get32(block, range ? nv->abi->nvos32.data_AllocSizeRange_hMemory
					: nv->abi->nvos32.data_AllocSize_hMemory);
	*size = rm_get64(block, range ? nv->abi->nvos32.data_AllocSizeRange_size
				      : nv->abi->nvos32.data_AllocSize_size);
	return status;
}

u32 nv_vid_heap_free(const struct nv *nv, u32 client, u32 parent, u32 handle)
{
	u8 block[BLOCK] = { 0 };

	rm_put32(block, nv->abi->nvos32.data_Free_hMemory, handle);
	rm_put32(block, nv->abi->nvos32.data_Free_flags, NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED);
	return vid_heap(nv, block, client, parent, NVOS32_FUNCTION_FREE);
}

u32 nv_alloc_memory(const struct nv *nv, int gpu, u32 client, u32 parent, u32 *handle, u32 class,
		    u32 flags, u64 address, u64 limit)
{
	u8 block[BLOCK] = { 0 };
	int error;

	rm_put32(block, nv->abi->nvos02.hRoot, client);
	rm_put32(block, nv->abi->nvos02.hObjectParent, parent);
	rm_put32(block, nv->abi->nvos02.hObjectNew, *handle);
	rm_put32(block, nv->abi->nvos02.hClass, class);
	rm_put32(block, nv->abi->nvos02.flags, flags);
	rm_put64(block, nv->abi->nvos02.pMemory, address);
	rm_put64(block, nv->abi->nvos02.limit, limit);
	rm_put32(block, nv->abi->nvos02.fd, (u32)-1);
	rm_put32(block, nv->abi->nvos02.status, 0xffffffff);
	error = nv->xfer ? nv_xfer(nv, gpu, NV_ESC_RM_ALLOC_MEMORY, block, nv->abi->nvos02.len)
			 : nv_ioctl(gpu, NV_ESC_RM_ALLOC_MEMORY, block, nv->abi->nvos02.len);
	if (error)
		return NV_ERRNO(-error);
	if (!rm_get32(block, nv->abi->nvos02.status))
		*handle = rm_get32(block, nv->abi->nvos02.hObjectNew);
	return rm_get32(block, nv->abi->nvos02.status);
}

u32 nv_fb_info(const struct nv *nv, u32 client, u32 subdevice, u64 *total, u64 *free)
{
	const u32 wanted[] = { NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE,
			       NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE };
	u8 params[BLOCK] = { 0 };
	u32 i, status;
	u8 *list = params + nv->abi->fb_get_info_v2.fbInfoList.off;

	rm_put32(params, nv->abi->fb_get_info_v2.fbInfoListSize, 2);
	for (i = 0; i < 2; i++)
		rm_put32(list + i * nv->abi->fb_info.len, nv->abi->fb_info.index, wanted[i]);
	status = nv_control(nv, client, subdevice, NV2080_CTRL_CMD_FB_GET_INFO_V2, params,
			    nv->abi->fb_get_info_v2.len);
	*total = (u64)rm_get32(list, nv->abi->fb_info.data) << 10;
	*free = (u64)rm_get32(list + nv->abi->fb_info.len, nv->abi->fb_info.data) << 10;
	return status;
}
