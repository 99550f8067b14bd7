// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Argument blocks of the escapes. */
#include "decode.h"

static void decode_alloc21(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_ALLOC;
	call->client = rm_get32(block, abi->nvos21.hRoot);
	call->parent = rm_get32(block, abi->nvos21.hObjectParent);
	call->object = rm_get32(block, abi->nvos21.hObjectNew);
	call->class = rm_get32(block, abi->nvos21.hClass);
	call->params = rm_get64(block, abi->nvos21.pAllocParms);
	call->params_size = rm_get32(block, abi->nvos21.paramsSize);
	call->status = rm_get32(block, abi->nvos21.status);
	call->off_status = abi->nvos21.status.off;
	call->off_object = abi->nvos21.hObjectNew.off;
	call->off_params = abi->nvos21.pAllocParms.off;
	call->off_params_size = abi->nvos21.paramsSize.off;
}

static void decode_alloc64(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_ALLOC;
	call->client = rm_get32(block, abi->nvos64.hRoot);
	call->parent = rm_get32(block, abi->nvos64.hObjectParent);
	call->object = rm_get32(block, abi->nvos64.hObjectNew);
	call->class = rm_get32(block, abi->nvos64.hClass);
	call->flags = rm_get32(block, abi->nvos64.flags);
	call->params = rm_get64(block, abi->nvos64.pAllocParms);
	call->params_size = rm_get32(block, abi->nvos64.paramsSize);
	call->status = rm_get32(block, abi->nvos64.status);
	call->off_status = abi->nvos64.status.off;
	call->off_object = abi->nvos64.hObjectNew.off;
	call->off_params = abi->nvos64.pAllocParms.off;
	call->off_params_size = abi->nvos64.paramsSize.off;
}

static void decode_alloc_memory(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_ALLOC_MEMORY;
	call->client = rm_get32(block, abi->nvos02.hRoot);
	call->parent = rm_get32(block, abi->nvos02.hObjectParent);
	call->object = rm_get32(block, abi->nvos02.hObjectNew);
	call->class = rm_get32(block, abi->nvos02.hClass);
	call->flags = rm_get32(block, abi->nvos02.flags);
	call->params = rm_get64(block, abi->nvos02.pMemory);
	call->limit = rm_get64(block, abi->nvos02.limit);
	call->fd = (s32)rm_get32(block, abi->nvos02.fd);
	call->status = rm_get32(block, abi->nvos02.status);
	call->off_status = abi->nvos02.status.off;
	call->off_object = abi->nvos02.hObjectNew.off;
	call->off_params = abi->nvos02.pMemory.off;
}

static void decode_alloc_object(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_ALLOC_OBJECT;
	call->client = rm_get32(block, abi->nvos05.hRoot);
	call->parent = rm_get32(block, abi->nvos05.hObjectParent);
	call->object = rm_get32(block, abi->nvos05.hObjectNew);
	call->class = rm_get32(block, abi->nvos05.hClass);
	call->status = rm_get32(block, abi->nvos05.status);
	call->off_status = abi->nvos05.status.off;
	call->off_object = abi->nvos05.hObjectNew.off;
}

static void decode_vid_heap(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_VID_HEAP;
	call->client = rm_get32(block, abi->nvos32.hRoot);
	call->parent = rm_get32(block, abi->nvos32.hObjectParent);
	call->function = rm_get32(block, abi->nvos32.function);
	call->status = rm_get32(block, abi->nvos32.status);
	call->off_status = abi->nvos32.status.off;
	switch (call->function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		call->object = rm_get32(block, abi->nvos32.data_AllocSize_hMemory);
		call->flags = rm_get32(block, abi->nvos32.data_AllocSize_flags);
		call->off_object = abi->nvos32.data_AllocSize_hMemory.off;
		break;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		call->object = rm_get32(block, abi->nvos32.data_AllocSizeRange_hMemory);
		call->flags = rm_get32(block, abi->nvos32.data_AllocSizeRange_flags);
		call->off_object = abi->nvos32.data_AllocSizeRange_hMemory.off;
		break;
	case NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT:
		call->object = rm_get32(block, abi->nvos32.data_AllocTiledPitchHeight_hMemory);
		call->flags = rm_get32(block, abi->nvos32.data_AllocTiledPitchHeight_flags);
		call->off_object = abi->nvos32.data_AllocTiledPitchHeight_hMemory.off;
		break;
	case NVOS32_FUNCTION_HW_ALLOC:
		call->object = rm_get32(block, abi->nvos32.data_HwAlloc_allochMemory);
		call->flags = rm_get32(block, abi->nvos32.data_HwAlloc_flags);
		call->off_object = abi->nvos32.data_HwAlloc_allochMemory.off;
		break;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		call->object = rm_get32(block, abi->nvos32.data_AllocOsDesc_hMemory);
		call->flags = rm_get32(block, abi->nvos32.data_AllocOsDesc_flags);
		call->off_object = abi->nvos32.data_AllocOsDesc_hMemory.off;
		break;
	case NVOS32_FUNCTION_FREE:
		call->object = rm_get32(block, abi->nvos32.data_Free_hMemory);
		call->flags = rm_get32(block, abi->nvos32.data_Free_flags);
		break;
	case NVOS32_FUNCTION_HW_FREE:
		call->object = rm_get32(block, abi->nvos32.data_HwFree_hResourceHandle);
		break;
	default:
		break;
	}
}

static void decode_ctxdma(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_CTXDMA;
	/* named hObjectParent, used as the client; the parent is hMemory's */
	call->client = rm_get32(block, abi->nvos39.hObjectParent);
	call->object = rm_get32(block, abi->nvos39.hObjectNew);
	call->class = rm_get32(block, abi->nvos39.hClass);
	call->src_object = rm_get32(block, abi->nvos39.hMemory);
	call->offset = rm_get64(block, abi->nvos39.offset);
	call->limit = rm_get64(block, abi->nvos39.limit);
	call->status = rm_get32(block, abi->nvos39.status);
	call->off_status = abi->nvos39.status.off;
	call->off_object = abi->nvos39.hObjectNew.off;
}

static void decode_free(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_FREE;
	call->client = rm_get32(block, abi->nvos00.hRoot);
	call->parent = rm_get32(block, abi->nvos00.hObjectParent);
	call->object = rm_get32(block, abi->nvos00.hObjectOld);
	call->status = rm_get32(block, abi->nvos00.status);
	call->off_status = abi->nvos00.status.off;
}

static void decode_dup(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_DUP;
	call->client = rm_get32(block, abi->nvos55.hClient);
	call->parent = rm_get32(block, abi->nvos55.hParent);
	call->object = rm_get32(block, abi->nvos55.hObject);
	call->src_client = rm_get32(block, abi->nvos55.hClientSrc);
	call->src_object = rm_get32(block, abi->nvos55.hObjectSrc);
	call->flags = rm_get32(block, abi->nvos55.flags);
	call->status = rm_get32(block, abi->nvos55.status);
	call->off_status = abi->nvos55.status.off;
	call->off_object = abi->nvos55.hObject.off;
}

static void decode_share(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_SHARE;
	call->client = rm_get32(block, abi->nvos57.hClient);
	call->object = rm_get32(block, abi->nvos57.hObject);
	call->src_client = rm_get32(block, abi->nvos57.sharePolicy_target);
	call->flags = rm_get16(block, abi->nvos57.sharePolicy_type);
	call->status = rm_get32(block, abi->nvos57.status);
	call->off_status = abi->nvos57.status.off;
}

static void decode_control(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_CONTROL;
	call->client = rm_get32(block, abi->nvos54.hClient);
	call->object = rm_get32(block, abi->nvos54.hObject);
	call->cmd = rm_get32(block, abi->nvos54.cmd);
	call->flags = rm_get32(block, abi->nvos54.flags);
	call->params = rm_get64(block, abi->nvos54.params);
	call->params_size = rm_get32(block, abi->nvos54.paramsSize);
	call->status = rm_get32(block, abi->nvos54.status);
	call->off_status = abi->nvos54.status.off;
	call->off_params = abi->nvos54.params.off;
	call->off_params_size = abi->nvos54.paramsSize.off;
}

static void decode_map(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_MAP;
	call->client = rm_get32(block, abi->nvos33.hClient);
	call->parent = rm_get32(block, abi->nvos33.hDevice);
	call->object = rm_get32(block, abi->nvos33.hMemory);
	call->offset = rm_get64(block, abi->nvos33.offset);
	call->length = rm_get64(block, abi->nvos33.length);
	call->address = rm_get64(block, abi->nvos33.pLinearAddress);
	call->flags = rm_get32(block, abi->nvos33.flags);
	call->fd = (s32)rm_get32(block, abi->nvos33.fd);
	call->status = rm_get32(block, abi->nvos33.status);
	call->off_status = abi->nvos33.status.off;
}

static void decode_unmap(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_UNMAP;
	call->client = rm_get32(block, abi->nvos34.hClient);
	call->parent = rm_get32(block, abi->nvos34.hDevice);
	call->object = rm_get32(block, abi->nvos34.hMemory);
	call->address = rm_get64(block, abi->nvos34.pLinearAddress);
	call->flags = rm_get32(block, abi->nvos34.flags);
	call->status = rm_get32(block, abi->nvos34.status);
	call->off_status = abi->nvos34.status.off;
}

static void decode_map_update(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_MAP_UPDATE;
	call->client = rm_get32(block, abi->nvos56.hClient);
	call->parent = rm_get32(block, abi->nvos56.hDevice);
	call->object = rm_get32(block, abi->nvos56.hMemory);
	call->address = rm_get64(block, abi->nvos56.pNewCpuAddress);
	call->status = rm_get32(block, abi->nvos56.status);
	call->off_status = abi->nvos56.status.off;
}

static void decode_map_dma(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_MAP_DMA;
	call->client = rm_get32(block, abi->nvos46.hClient);
	call->parent = rm_get32(block, abi->nvos46.hDevice);
	call->object = rm_get32(block, abi->nvos46.hDma);
	call->src_object = rm_get32(block, abi->nvos46.hMemory);
	call->offset = rm_get64(block, abi->nvos46.offset);
	call->length = rm_get64(block, abi->nvos46.length);
	call->address = rm_get64(block, abi->nvos46.dmaOffset);
	call->flags = rm_get32(block, abi->nvos46.flags);
	call->status = rm_get32(block, abi->nvos46.status);
	call->off_status = abi->nvos46.status.off;
}

static void decode_unmap_dma(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_UNMAP_DMA;
	call->client = rm_get32(block, abi->nvos47.hClient);
	call->parent = rm_get32(block, abi->nvos47.hDevice);
	call->object = rm_get32(block, abi->nvos47.hDma);
	call->src_object = rm_get32(block, abi->nvos47.hMemory);
	call->address = rm_get64(block, abi->nvos47.dmaOffset);
	call->flags = rm_get32(block, abi->nvos47.flags);
	call->status = rm_get32(block, abi->nvos47.status);
	call->off_status = abi->nvos47.status.off;
}

static void decode_bind_ctxdma(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_BIND_CTXDMA;
	call->client = rm_get32(block, abi->nvos49.hClient);
	call->parent = rm_get32(block, abi->nvos49.hChannel);
	call->object = rm_get32(block, abi->nvos49.hCtxDma);
	call->status = rm_get32(block, abi->nvos49.status);
	call->off_status = abi->nvos49.status.off;
}

static void decode_idle(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_IDLE;
	call->client = rm_get32(block, abi->nvos30.hClient);
	call->parent = rm_get32(block, abi->nvos30.hDevice);
	call->object = rm_get32(block, abi->nvos30.hChannel);
	call->length = rm_get32(block, abi->nvos30.numChannels);
	call->params = rm_get64(block, abi->nvos30.phClients);
	call->status = rm_get32(block, abi->nvos30.status);
	call->off_status = abi->nvos30.status.off;
}

static void decode_register_fd(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_REGISTER_FD;
	call->fd = (s32)rm_get32(block, abi->register_fd.ctl_fd);
}

static void decode_os_event(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_OS_EVENT;
	call->client = rm_get32(block, abi->os_event.hClient);
	call->parent = rm_get32(block, abi->os_event.hDevice);
	call->fd = (s32)rm_get32(block, abi->os_event.fd);
	call->status = rm_get32(block, abi->os_event.Status);
	call->off_status = abi->os_event.Status.off;
}

static void decode_dmabuf(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_EXPORT_DMABUF;
	call->client = rm_get32(block, abi->dmabuf.hClient);
	call->fd = (s32)rm_get32(block, abi->dmabuf.fd);
	call->length = rm_get64(block, abi->dmabuf.totalSize);
	call->status = rm_get32(block, abi->dmabuf.status);
	call->off_status = abi->dmabuf.status.off;
}

static void decode_version(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_VERSION;
	call->cmd = rm_get32(block, abi->version_str.cmd);
}

static void decode_xfer(const struct rm_abi *abi, const void *block, struct rm_call *call)
{
	call->op = RM_OP_XFER;
	call->cmd = rm_get32(block, abi->xfer.cmd);
	call->params_size = rm_get32(block, abi->xfer.size);
	call->params = rm_get64(block, abi->xfer.ptr);
	call->off_params = abi->xfer.ptr.off;
	call->off_params_size = abi->xfer.size.off;
}

#define DECODE(function, layout) \
	do { \
		if (size != abi->layout.len) \
			return -EINVAL; \
		function(abi, block, call); \
		return 0; \
	} while (0)

int rm_decode(const struct rm_abi *abi, u32 nr, const void *block, u32 size,
	      struct rm_call *call)
{
	memset(call, 0, sizeof(*call));
	call->nr = nr;
	call->fd = -1;
	call->off_status = RM_ABSENT;
	call->off_object = RM_ABSENT;
	call->off_params = RM_ABSENT;
	call->off_params_size = RM_ABSENT;

	switch (nr) {
	case NV_ESC_RM_ALLOC:
		if (size == abi->nvos21.len) {
			decode_alloc21(abi, block, call);
			return 0;
		}
		DECODE(decode_alloc64, nvos64);
	case NV_ESC_RM_CONTROL:
		DECODE(decode_control, nvos54);
	case NV_ESC_RM_FREE:
		DECODE(decode_free, nvos00);
	case NV_ESC_RM_VID_HEAP_CONTROL:
		DECODE(decode_vid_heap, nvos32);
	case NV_ESC_RM_ALLOC_MEMORY:
		DECODE(decode_alloc_memory, nvos02);
	case NV_ESC_RM_ALLOC_OBJECT:
		DECODE(decode_alloc_object, nvos05);
	case NV_ESC_RM_ALLOC_CONTEXT_DMA2:
		DECODE(decode_ctxdma, nvos39);
	case NV_ESC_RM_DUP_OBJECT:
		DECODE(decode_dup, nvos55);
	case NV_ESC_RM_SHARE:
		DECODE(decode_share, nvos57);
	case NV_ESC_RM_MAP_MEMORY:
		DECODE(decode_map, nvos33);
	case NV_ESC_RM_UNMAP_MEMORY:
		DECODE(decode_unmap, nvos34);
	case NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO:
		DECODE(decode_map_update, nvos56);
	case NV_ESC_RM_MAP_MEMORY_DMA:
		DECODE(decode_map_dma, nvos46);
	case NV_ESC_RM_UNMAP_MEMORY_DMA:
		DECODE(decode_unmap_dma, nvos47);
	case NV_ESC_RM_BIND_CONTEXT_DMA:
		DECODE(decode_bind_ctxdma, nvos49);
	case NV_ESC_RM_IDLE_CHANNELS:
		DECODE(decode_idle, nvos30);
	case NV_ESC_REGISTER_FD:
		DECODE(decode_register_fd, register_fd);
	case NV_ESC_ALLOC_OS_EVENT:
	case NV_ESC_FREE_OS_EVENT:
		DECODE(decode_os_event, os_event);
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		DECODE(decode_dmabuf, dmabuf);
	case NV_ESC_CHECK_VERSION_STR:
		DECODE(decode_version, version_str);
	case NV_ESC_IOCTL_XFER_CMD:
		DECODE(decode_xfer, xfer);
	default:
		return -ENOENT;
	}
}

int rm_decode_xfer(const struct rm_abi *abi, const void *block, u32 block_size,
		   u32 *nr, u32 *size, u64 *ptr)
{
	*nr = 0;
	*size = 0;
	*ptr = 0;
	if (block_size != abi->xfer.len)
		return -EINVAL;
	*nr = rm_get32(block, abi->xfer.cmd);
	*size = rm_get32(block, abi->xfer.size);
	*ptr = rm_get64(block, abi->xfer.ptr);
	return *size > RM_BLOCK_MAX || *nr == NV_ESC_IOCTL_XFER_CMD ? -EINVAL : 0;
}
