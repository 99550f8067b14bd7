// SPDX-License-Identifier: Apache-2.0
/* /dev/nvidia-uvm. Its ioctls carry no size: the driver copies its own. */
#include <sys/ioctl.h>

#include "nvclient.h"

#define PARAMS 16384 /* above every parameter block of UVM */
#define GPU_ATTRIBUTES                                                                             \
	0x18 /* perGpuAttributes of MAP_EXTERNAL_ALLOCATION; a GPU's uuid comes first */

int nv_uvm(int fd, u32 nr, void *params)
{
	int done;

	do {
		done = ioctl(fd, nr, params);
	} while (done < 0 && errno == EINTR);
	return done < 0 ? -errno : 0;
}

static u32 external_range(struct nv_program *program, u64 va, u64 length)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[PARAMS] = { 0 };
	int error;

	rm_put64(params, abi->uvm_external_range.base, va);
	rm_put64(params, abi->uvm_external_range.length, length);
	error = nv_uvm(program->uvm, UVM_CREATE_EXTERNAL_RANGE, params);
	return error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_external_range.rmStatus);
}

u32 nv_uvm_map(struct nv_program *program, u32 memory, u64 va, u64 length)
{
	const struct rm_abi *abi = program->nv.abi;
	u32 status = external_range(program, va, length);
	u8 params[PARAMS] = { 0 };
	int error;

	if (status)
		return status;
	rm_put64(params, abi->uvm_map_external.base, va);
	rm_put64(params, abi->uvm_map_external.length, length);
	memcpy(params + GPU_ATTRIBUTES, program->uuid, sizeof(program->uuid));
	rm_put32(params + GPU_ATTRIBUTES, (struct rm_f32){ sizeof(program->uuid) },
		 1); /* read and write, atomics */
	rm_put64(params, abi->uvm_map_external.gpuAttributesCount, 1);
	rm_put32(params, abi->uvm_map_external.rmCtrlFd, program->nv.ctl);
	rm_put32(params, abi->uvm_map_external.hClient, program->client);
	rm_put32(params, abi->uvm_map_external.hMemory, memory);
	error = nv_uvm(program->uvm, UVM_MAP_EXTERNAL_ALLOCATION, params);
	return error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_map_external.rmStatus);
}
