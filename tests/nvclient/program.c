// SPDX-License-Identifier: Apache-2.0
/* A program's objects, in the order in which CUDA makes them. */
#include <sys/mman.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "nvclient.h"

#define PARAMS		 16384
#define FIRST_VA	 0x200000000ull
#define SUBCONTEXT_ASYNC 1

static u32 uuid_of(struct nv_program *program)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[PARAMS] = { 0 };
	u32 status;

	rm_put32(params, abi->gid_info.flags, NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY);
	status = nv_control(&program->nv, program->client, program->subdevice,
			    NV2080_CTRL_CMD_GPU_GET_GID_INFO, params, abi->gid_info.len);
	memcpy(program->uuid, params + abi->gid_info.data.off, sizeof(program->uuid));
	return status;
}

static u32 uvm_session(struct nv_program *program, const char **step)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[PARAMS] = { 0 };
	u32 status;
	int error;

	*step = "open nvidia-uvm";
	program->uvm = nv_open_device("nvidia-uvm");
	program->uvm_mm = nv_open_device("nvidia-uvm");
	if (program->uvm < 0 || program->uvm_mm < 0)
		return NV_ERRNO(program->uvm < 0 ? -program->uvm : -program->uvm_mm);
	*step = "UVM_INITIALIZE";
	error = nv_uvm(program->uvm, UVM_INITIALIZE, params);
	status = error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_initialize.rmStatus);
	if (status)
		return status;
	*step = "UVM_MM_INITIALIZE";
	memset(params, 0, sizeof(params));
	rm_put32(params, abi->uvm_mm_initialize.uvmFd, program->uvm);
	error = nv_uvm(program->uvm_mm, UVM_MM_INITIALIZE, params);
	status = error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_mm_initialize.rmStatus);
	if (status)
		return status;
	*step = "UVM_REGISTER_GPU";
	memset(params, 0, sizeof(params));
	memcpy(params + abi->uvm_register_gpu.gpu_uuid_uuid.off, program->uuid,
	       sizeof(program->uuid));
	rm_put32(params, abi->uvm_register_gpu.rmCtrlFd, (u32)-1);
	error = nv_uvm(program->uvm, UVM_REGISTER_GPU, params);
	return error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_register_gpu.rmStatus);
}

u32 nv_program_base(struct nv_program *program, const char **step)
{
	struct nv *nv = &program->nv;
	u8 params[PARAMS] = { 0 };
	u32 status;

	program->next_va = FIRST_VA;
	snprintf(program->gpu_device, sizeof(program->gpu_device), "nvidia%u", program->gpu_number);
	*step = "open the GPU's device file";
	program->gpu = nv_open_device(program->gpu_device);
	if (program->gpu < 0)
		return NV_ERRNO(-program->gpu);
	*step = "REGISTER_FD";
	rm_put32(params, nv->abi->register_fd.ctl_fd, nv->ctl);
	if (nv_ioctl(program->gpu, NV_ESC_REGISTER_FD, params, nv->abi->register_fd.len))
		return NV_ERRNO(EINVAL);
	*step = "client";
	status = nv_root(nv, &program->client);
	if (status)
		return status;
	*step = "device";
	memset(params, 0, sizeof(params));
	rm_put32(params, nv->abi->device.deviceId, program->gpu_number);
	program->device = nv_next_handle(nv);
	status = nv_alloc(nv, program->client, program->client, &program->device, NV01_DEVICE_0,
			  params, nv->abi->device.len);
	if (status)
		return status;
	*step = "subdevice";
	memset(params, 0, sizeof(params));
	program->subdevice = nv_next_handle(nv);
	status = nv_alloc(nv, program->client, program->device, &program->subdevice,
			  NV20_SUBDEVICE_0, params, nv->abi->subdevice.len);
	if (status)
		return status;
	*step = "GPU_GET_GID_INFO";
	status = uuid_of(program);
	return status ? status : uvm_session(program, step);
}

static u32 address_space(struct nv_program *program, const char **step)
{
	struct nv *nv = &program->nv;
	u8 params[PARAMS] = { 0 };
	u32 status;
	int error;

	*step = "VA space";
	rm_put32(params, nv->abi->vaspace.flags,
		 0x48); /* as CUDA: externally owned, faults may be replayed */
	program->vaspace = nv_next_handle(nv);
	status = nv_alloc(nv, program->client, program->device, &program->vaspace, FERMI_VASPACE_A,
			  params, nv->abi->vaspace.len);
	if (status)
		return status;
	*step = "UVM_REGISTER_GPU_VASPACE";
	memset(params, 0, sizeof(params));
	memcpy(params + nv->abi->uvm_register_vaspace.gpuUuid_uuid.off, program->uuid,
	       sizeof(program->uuid));
	rm_put32(params, nv->abi->uvm_register_vaspace.rmCtrlFd, nv->ctl);
	rm_put32(params, nv->abi->uvm_register_vaspace.hClient, program->client);
	rm_put32(params, nv->abi->uvm_register_vaspace.hVaSpace, program->vaspace);
	error = nv_uvm(program->uvm, UVM_REGISTER_GPU_VASPACE, params);
	return error ? NV_ERRNO(-error) : rm_get32(params, nv->abi->uvm_register_vaspace.rmStatus);
}

u32 nv_mark_mps(struct nv_program *program)
{
	u32 handle = nv_next_handle(&program->nv);

	return nv_alloc(&program->nv, program->client, program->client, &handle, MPS_COMPUTE, NULL, 0);
}

static u32 program_tsg(struct nv_program *program, const char **step)
{
	struct nv *nv = &program->nv;
	u8 params[PARAMS] = { 0 };
	u32 status;

	program->tsg = nv_next_handle(nv);
	if (program->join_tsg) {
		*step = "mark of an MPS client";
		status = nv_mark_mps(program);
		if (status)
			return status;
		*step = "duplicate of the server's TSG";
		return nv_dup(nv, program->client, program->device, &program->tsg,
			      program->join_client, program->join_tsg);
	}
	*step = "TSG";
	rm_put32(params, nv->abi->tsg.engineType, NV2080_ENGINE_TYPE_GR0);
	program->tsg_asked = nv_now_ns();
	return nv_alloc(nv, program->client, program->device, &program->tsg, KEPLER_CHANNEL_GROUP_A,
			params, nv->abi->tsg.len);
}

u32 nv_program_context(struct nv_program *program, const char **step)
{
	struct nv *nv = &program->nv;
	u8 params[PARAMS] = { 0 };
	u32 status = address_space(program, step);

	if (status)
		return status;
	status = program_tsg(program, step);
	if (status)
		return status;
	*step = "context share";
	memset(params, 0, sizeof(params));
	rm_put32(params, nv->abi->ctxshare.hVASpace, program->vaspace);
	rm_put32(params, nv->abi->ctxshare.flags, SUBCONTEXT_ASYNC);
	program->ctxshare = nv_next_handle(nv);
	status = nv_alloc(nv, program->client, program->tsg, &program->ctxshare,
			  FERMI_CONTEXT_SHARE_A, params, nv->abi->ctxshare.len);
	if (status)
		return status;
	*step = "usermode object";
	program->usermode = nv_next_handle(nv);
	status = nv_alloc(nv, program->client, program->subdevice, &program->usermode,
			  HOPPER_USERMODE_A, NULL, 0);
	if (status)
		return status;
	*step = "doorbell mapping";
	program->doorbell = nv_map(nv, program->gpu_device, program->client, program->subdevice,
				   program->usermode, 0, SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE,
				   NULL, &status);
	return status;
}

void nv_must_open_program(struct nv_program *program, u32 gpu, const char *version)
{
	memset(program, 0, sizeof(*program));
	program->gpu = -1;
	program->uvm = -1;
	program->uvm_mm = -1;
	program->gpu_number = gpu;
	nv_must_open(&program->nv, version);
}

void nv_must_program(struct nv_program *program, u32 gpu, const char *version)
{
	const char *step;
	u32 status;

	nv_must_open_program(program, gpu, version);
	status = nv_program_base(program, &step);
	if (!status)
		status = nv_program_context(program, &step);
	if (status)
		nv_die("%s: status 0x%x %s", step, status, nv_status_name(status));
}

void nv_close_program(struct nv_program *program)
{
	if (program->doorbell)
		munmap((void *)program->doorbell, SIM_USERMODE_SIZE);
	if (program->uvm_mm >= 0)
		close(program->uvm_mm);
	if (program->uvm >= 0)
		close(program->uvm);
	if (program->gpu >= 0)
		close(program->gpu);
	nv_close(&program->nv);
}
