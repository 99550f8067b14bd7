// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* UVM's ioctls, as far as they name RM objects or take memory. */
#include "decode.h"

#define RANGE(layout) \
	do { \
		call->base = rm_get64(block, abi->layout.base); \
		call->length = rm_get64(block, abi->layout.length); \
	} while (0)

#define STATUS(layout) \
	do { \
		call->status = rm_get32(block, abi->layout.rmStatus); \
		call->off_status = abi->layout.rmStatus.off; \
	} while (0)

#define CLIENT(layout, handle) \
	do { \
		call->fd = (s32)rm_get32(block, abi->layout.rmCtrlFd); \
		call->client = rm_get32(block, abi->layout.hClient); \
		call->object = rm_get32(block, abi->layout.handle); \
	} while (0)

static void decode(const struct rm_abi *abi, u32 cmd, const void *block,
		   struct rm_uvm_call *call)
{
	switch (cmd) {
	case UVM_INITIALIZE:
		call->op = RM_UVM_INITIALIZE;
		STATUS(uvm_initialize);
		break;
	case UVM_MM_INITIALIZE:
		call->op = RM_UVM_MM_INITIALIZE;
		call->fd = (s32)rm_get32(block, abi->uvm_mm_initialize.uvmFd);
		STATUS(uvm_mm_initialize);
		break;
	case UVM_REGISTER_GPU:
		call->op = RM_UVM_REGISTER_GPU;
		CLIENT(uvm_register_gpu, hSmcPartRef);
		call->off_uuid = abi->uvm_register_gpu.gpu_uuid_uuid.off;
		STATUS(uvm_register_gpu);
		break;
	case UVM_REGISTER_GPU_VASPACE:
		call->op = RM_UVM_REGISTER_VASPACE;
		CLIENT(uvm_register_vaspace, hVaSpace);
		call->off_uuid = abi->uvm_register_vaspace.gpuUuid_uuid.off;
		STATUS(uvm_register_vaspace);
		break;
	case UVM_REGISTER_CHANNEL:
		call->op = RM_UVM_REGISTER_CHANNEL;
		CLIENT(uvm_register_channel, hChannel);
		RANGE(uvm_register_channel);
		call->off_uuid = abi->uvm_register_channel.gpuUuid_uuid.off;
		STATUS(uvm_register_channel);
		break;
	case UVM_UNREGISTER_CHANNEL:
		call->op = RM_UVM_UNREGISTER_CHANNEL;
		call->client = rm_get32(block, abi->uvm_unregister_channel.hClient);
		call->object = rm_get32(block, abi->uvm_unregister_channel.hChannel);
		STATUS(uvm_unregister_channel);
		break;
	case UVM_CREATE_EXTERNAL_RANGE:
		call->op = RM_UVM_EXTERNAL_RANGE;
		RANGE(uvm_external_range);
		STATUS(uvm_external_range);
		break;
	case UVM_MAP_EXTERNAL_ALLOCATION:
		call->op = RM_UVM_MAP_EXTERNAL;
		CLIENT(uvm_map_external, hMemory);
		RANGE(uvm_map_external);
		call->offset = rm_get64(block, abi->uvm_map_external.offset);
		STATUS(uvm_map_external);
		break;
	case UVM_UNMAP_EXTERNAL:
		call->op = RM_UVM_UNMAP_EXTERNAL;
		RANGE(uvm_unmap_external);
		call->off_uuid = abi->uvm_unmap_external.gpuUuid_uuid.off;
		STATUS(uvm_unmap_external);
		break;
	case UVM_FREE:
		call->op = RM_UVM_FREE;
		call->base = rm_get64(block, abi->uvm_free.base);
		if (abi->uvm_free.length.off != RM_ABSENT)
			call->length = rm_get64(block, abi->uvm_free.length);
		STATUS(uvm_free);
		break;
	case UVM_ALLOC_SEMAPHORE_POOL:
		call->op = RM_UVM_SEMAPHORE_POOL;
		RANGE(uvm_semaphore_pool);
		STATUS(uvm_semaphore_pool);
		break;
	case UVM_ALLOC_DEVICE_P2P:
		call->op = RM_UVM_DEVICE_P2P;
		CLIENT(uvm_device_p2p, hMemory);
		RANGE(uvm_device_p2p);
		call->offset = rm_get64(block, abi->uvm_device_p2p.offset);
		call->off_uuid = abi->uvm_device_p2p.gpuUuid_uuid.off;
		STATUS(uvm_device_p2p);
		break;
	case UVM_MIGRATE:
		call->op = RM_UVM_MIGRATE;
		RANGE(uvm_migrate);
		call->off_uuid = abi->uvm_migrate.destinationUuid_uuid.off;
		STATUS(uvm_migrate);
		break;
	default:
		break;
	}
}

int rm_decode_uvm(const struct rm_abi *abi, u32 cmd, const void *block, u32 size,
		  struct rm_uvm_call *call)
{
	u32 wanted = rm_abi_uvm_size(abi, cmd);

	memset(call, 0, sizeof(*call));
	call->fd = -1;
	call->off_uuid = RM_ABSENT;
	call->off_status = RM_ABSENT;
	if (!wanted)
		return -ENOENT;
	if (size < wanted)
		return -EINVAL;
	decode(abi, cmd, block, call);
	return 0;
}
