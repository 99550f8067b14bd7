// SPDX-License-Identifier: Apache-2.0
/* Tricks that make a doorbell which no gate can shut: the GPU itself rings it, or nobody knows that it is one. */
#include <sys/mman.h>
#include <unistd.h>

#include "../../nvsim/methods.h"
#include "hostile.h"

#define DOOR_VA 0x300000000ull	/* where nothing else of the program is mapped */
#define DOORBELL_IN_BAR0 0xbb0000
#define OS_DESCRIPTOR_VIRTUAL 1	/* NVOS32_DESCRIPTOR_TYPE_VIRTUAL_ADDRESS */

/* A usermode object that the driver maps for the GPU too. */
static u32 bar1_usermode(struct hostile *h, u32 *object)
{
	u8 *params = fresh_params();

	params[h->program.nv.abi->usermode.bBar1Mapping.off] = 1;
	*object = nv_next_handle(&h->program.nv);
	return nv_alloc(&h->program.nv, h->program.client, h->program.subdevice, object, HOPPER_USERMODE_A, params,
			h->program.nv.abi->usermode.len);
}

static u32 map_by_uvm(struct hostile *h)
{
	u32 object, status = bar1_usermode(h, &object);

	if (!status)
		status = nv_uvm_map(&h->program, object, DOOR_VA, SIM_USERMODE_SIZE);
	return status;
}

static u32 map_dma(struct hostile *h, u32 object)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 block[128] = { 0 };
	int error;

	rm_put32(block, abi->nvos46.hClient, h->program.client);
	rm_put32(block, abi->nvos46.hDevice, h->program.device);
	rm_put32(block, abi->nvos46.hDma, h->program.vaspace);
	rm_put32(block, abi->nvos46.hMemory, object);
	rm_put64(block, abi->nvos46.length, SIM_USERMODE_SIZE);
	rm_put32(block, abi->nvos46.status, 0xffffffff);
	error = nv_ioctl(h->program.nv.ctl, NV_ESC_RM_MAP_MEMORY_DMA, block, abi->nvos46.len);
	return error ? NV_ERRNO(-error) : rm_get32(block, abi->nvos46.status);
}

static u32 map_by_rm(struct hostile *h)
{
	u32 object, status = bar1_usermode(h, &object);

	return status ? status : map_dma(h, object);
}

/* The driver finds the pages by the page tables: what was never touched may not be in them. */
static void touch(struct hostile *h)
{
	(void)h->program.doorbell[SIM_USERMODE_TIME_0 / 4];
}

/* The doorbell's mapping as memory of the process. */
static u32 descriptor(struct hostile *h, u32 *object)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	touch(h);
	rm_put64(params, abi->memory_os.descriptor, (uintptr_t)h->program.doorbell);
	rm_put64(params, abi->memory_os.limit, SIM_USERMODE_SIZE - 1);
	rm_put32(params, abi->memory_os.descriptorType, OS_DESCRIPTOR_VIRTUAL);
	*object = nv_next_handle(&h->program.nv);
	return nv_alloc(&h->program.nv, h->program.client, h->program.device, object, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
			params, abi->memory_os.len);
}

static u32 map_descriptor(struct hostile *h)
{
	u32 object, status = descriptor(h, &object);

	return status ? status : nv_uvm_map(&h->program, object, DOOR_VA + 0x1000000, SIM_USERMODE_SIZE);
}

static u32 map_old_descriptor(struct hostile *h)
{
	u32 object = nv_next_handle(&h->program.nv), status;

	touch(h);
	status = nv_alloc_memory(&h->program.nv, h->program.gpu, h->program.client, h->program.device, &object,
				 NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, 0, (uintptr_t)h->program.doorbell,
				 SIM_USERMODE_SIZE - 1);
	return status ? status : nv_uvm_map(&h->program, object, DOOR_VA + 0x2000000, SIM_USERMODE_SIZE);
}

static u32 registers(struct hostile *h)
{
	u32 object = nv_next_handle(&h->program.nv), status;
	volatile u32 *door;

	status = nv_alloc(&h->program.nv, h->program.client, h->program.device, &object, NV01_MEMORY_LOCAL_PRIVILEGED,
			  NULL, 0);
	if (status)
		return status;
	door = nv_map(&h->program.nv, h->program.gpu_device, h->program.client, h->program.device, object,
		      DOORBELL_IN_BAR0, SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE, NULL, &status);
	if (door)
		ring_at(door, h->channel.token);
	return status;
}

const struct trick door_tricks[] = {
	{ "gpu-door", "door", "the doorbell mapped for the GPU by RM_MAP_MEMORY_DMA", map_by_rm },
	{ "uvm-door", "door", "the same by UVM_MAP_EXTERNAL_ALLOCATION", map_by_uvm },
	{ "descriptor", "door", "an OS descriptor over the doorbell's mapping", map_descriptor },
	{ "descriptor-old", "door", "the same by RM_ALLOC_MEMORY", map_old_descriptor },
	{ "registers", "door", "NV01_MEMORY_LOCAL_PRIVILEGED at the doorbell's place", registers },
	{ NULL, NULL, NULL, NULL },
};
