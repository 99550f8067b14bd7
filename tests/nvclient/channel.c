// SPDX-License-Identifier: Apache-2.0
/*
 * A channel with its memory, and work for it. One block of system memory: USERD, GPFIFO,
 * semaphores, pushbuffer.
 */
#include <sys/mman.h>

#include "../nvsim/methods.h"
#include "nvclient.h"

#define PARAMS	      16384
#define ENTRIES	      1024
#define SLOT	      256 /* bytes of pushbuffer per entry */
#define AT_USERD      0x0
#define AT_UNTIL      0x800 /* word that an endless kernel waits for */
#define AT_COUNT      0x808
#define AT_GPFIFO     0x1000
#define AT_SEMAPHORES (AT_GPFIFO + ENTRIES * SIM_GP_ENTRY_SIZE)
#define SEMAPHORE     16
#define AT_PUSH	      (AT_SEMAPHORES + ENTRIES * SEMAPHORE)
#define BLOCK_SIZE    0x50000	    /* 64 KiB pages */
#define RESOURCES     0x10000000ull /* addresses that UVM may use for the channel's own buffers */

#define word(channel, at)   (*(volatile u32 *)((channel)->block + (at)))
#define word64(channel, at) (*(volatile u64 *)((channel)->block + (at)))

_Static_assert(AT_PUSH + ENTRIES * SLOT <= BLOCK_SIZE, "the block holds everything");

static u32 register_channel(struct nv_program *program, u32 handle)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[PARAMS] = { 0 };
	int error;

	memcpy(params + abi->uvm_register_channel.gpuUuid_uuid.off, program->uuid,
	       sizeof(program->uuid));
	rm_put32(params, abi->uvm_register_channel.rmCtrlFd, program->nv.ctl);
	rm_put32(params, abi->uvm_register_channel.hClient, program->client);
	rm_put32(params, abi->uvm_register_channel.hChannel, handle);
	rm_put64(params, abi->uvm_register_channel.base, program->next_va);
	rm_put64(params, abi->uvm_register_channel.length, RESOURCES);
	program->next_va += RESOURCES;
	error = nv_uvm(program->uvm, UVM_REGISTER_CHANNEL, params);
	return error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_register_channel.rmStatus);
}

static u32 make_block(struct nv_channel *channel, const char **step)
{
	struct nv_program *program = channel->program;
	/* as CUDA asks for it: system memory, cached */
	const struct nv_memory_request ask = {
		.class = NV01_MEMORY_SYSTEM, .size = BLOCK_SIZE, .flags = 0xc001, .attr = 0x3a000000
	};
	u32 status;

	*step = "channel memory";
	channel->memory = nv_next_handle(&program->nv);
	status = nv_memory(&program->nv, program->client, program->device, &channel->memory, &ask,
			   NULL);
	if (status)
		return status;
	*step = "CPU mapping of channel memory";
	channel->block = nv_map(&program->nv, "nvidiactl", program->client, program->device,
				channel->memory, 0, BLOCK_SIZE, PROT_READ | PROT_WRITE, NULL,
				&status);
	if (status)
		return status;
	*step = "GPU mapping of channel memory";
	channel->base = program->next_va;
	program->next_va += 0x200000;
	return nv_uvm_map(program, channel->memory, channel->base, BLOCK_SIZE);
}

u32 nv_channel_open(struct nv_channel *channel, struct nv_program *program, u32 tsg, u32 ctxshare,
		    u32 engine, const char **step)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[PARAMS] = { 0 };
	u32 status;

	memset(channel, 0, sizeof(*channel));
	channel->program = program;
	channel->entries = ENTRIES;
	status = make_block(channel, step);
	if (status)
		return status;
	*step = "channel";
	rm_put64(params, abi->channel.gpFifoOffset, channel->base + AT_GPFIFO);
	rm_put32(params, abi->channel.gpFifoEntries, ENTRIES);
	rm_put32(params, abi->channel.hContextShare, ctxshare);
	memcpy(params + abi->channel.hUserdMemory.off, &channel->memory, 4);
	memcpy(params + abi->channel.userdOffset.off, &(u64){ AT_USERD }, 8);
	channel->handle = nv_next_handle(&program->nv);
	status = nv_alloc(&program->nv, program->client, tsg, &channel->handle,
			  HOPPER_CHANNEL_GPFIFO_A, params, abi->channel.len);
	if (status)
		return status;
	*step = "compute or copy object";
	memset(params, 0, sizeof(params));
	channel->compute = nv_next_handle(&program->nv);
	status = nv_alloc(&program->nv, program->client, channel->handle, &channel->compute,
			  engine == NV2080_ENGINE_TYPE_GR0 ? HOPPER_COMPUTE_A : HOPPER_DMA_COPY_A,
			  params, 16);
	if (status)
		return status;
	*step = "GPFIFO_GET_WORK_SUBMIT_TOKEN";
	status = nv_control(&program->nv, program->client, channel->handle,
			    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, &channel->token,
			    sizeof(channel->token));
	if (status)
		return status;
	*step = "UVM_REGISTER_CHANNEL";
	return register_channel(program, channel->handle);
}

u32 nv_schedule(struct nv_program *program, u32 tsg, bool enable)
{
	/* these parameters grew from 2 to 3 bytes when NVOS46 grew, at 580 */
	u32 size = program->nv.abi->nvos46.len > 56 ? 3 : 2;
	u8 params[3] = { enable };

	return nv_control(&program->nv, program->client, tsg, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
			  params, size);
}

u32 nv_disable(const struct nv_channel *channel, bool disable)
{
	const struct nv_program *program = channel->program;
	const struct rm_abi *abi = program->nv.abi;
	u8 params[PARAMS] = { disable };

	rm_put32(params, abi->disable_channels.numChannels, 1);
	memcpy(params + abi->disable_channels.hClientList.off, &program->client, 4);
	memcpy(params + abi->disable_channels.hChannelList.off, &channel->handle, 4);
	return nv_control(&program->nv, program->client, program->subdevice,
			  NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, params, abi->disable_channels.len);
}

void nv_must_channel(struct nv_channel *channel, struct nv_program *program)
{
	const char *step;
	u32 status = nv_channel_open(channel, program, program->tsg, program->ctxshare,
				     NV2080_ENGINE_TYPE_GR0, &step);

	if (!status) {
		step = "GPFIFO_SCHEDULE";
		status = nv_schedule(program, program->tsg, true);
	}
	if (status)
		nv_die("%s: status 0x%x %s", step, status, nv_status_name(status));
}

static void push(struct nv_channel *channel, u32 *at, u32 value)
{
	word(channel, *at) = value;
	*at += 4;
}

/* count words from `method` on, which the caller pushes next */
static void push_header(struct nv_channel *channel, u32 *at, u32 count, u32 method)
{
	push(channel, at, SIM_PB_HEADER(SIM_PB_INC, count, SIM_SUBCHANNEL_COMPUTE, method));
}

static void push_address(struct nv_channel *channel, u32 *at, u64 va)
{
	push(channel, at, (u32)va);
	push(channel, at, (u32)(va >> 32));
}

static void count_kick(volatile u32 *doorbell)
{
	__atomic_fetch_add((volatile u64 *)(doorbell + SIM_USERMODE_KICKS / 4), 1,
			   __ATOMIC_RELAXED);
}

void nv_kick(volatile u32 *doorbell, u32 token)
{
	__atomic_store_n(doorbell + SIM_USERMODE_DOORBELL / 4, token, __ATOMIC_SEQ_CST);
	count_kick(doorbell);
}

void nv_ring(const struct nv_program *program, u32 token)
{
	volatile u32 *bell = program->doorbell + SIM_USERMODE_DOORBELL / 4;
	u32 free = 0;

	while (!__atomic_compare_exchange_n(bell, &free, token, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED)) {
		free = 0;
		nv_sleep(20e-6);
	}
	count_kick(program->doorbell);
}

u32 nv_room(const struct nv_channel *channel)
{
	u32 get = word(channel, AT_USERD + SIM_USERD_GP_GET);

	return (get - channel->put - 1) % channel->entries;
}

bool nv_queue(struct nv_channel *channel, const struct nv_kernel *kernel)
{
	u32 begin = AT_PUSH + channel->put * SLOT, at = begin;
	u64 va = channel->base + begin;
	u64 semaphore = channel->base + AT_SEMAPHORES +
			(channel->submitted + 1) % ENTRIES * SEMAPHORE;

	if (!nv_room(channel))
		return false;
	channel->submitted++;
	word(channel, AT_UNTIL) = 0;
	push_header(channel, &at, 8, SIM_KERNEL_NS);
	push_address(channel, &at, kernel->ns);
	push(channel, &at, kernel->sms);
	push_address(channel, &at, kernel->until ? channel->base + AT_UNTIL : 0);
	push(channel, &at, 0);
	push_address(channel, &at, kernel->count ? channel->base + AT_COUNT : 0);
	push_header(channel, &at, 1, SIM_KERNEL_LAUNCH);
	push(channel, &at, 0);
	push_header(channel, &at, 5, SIM_SEM_ADDR_LO);
	push_address(channel, &at, semaphore);
	push_address(channel, &at, channel->submitted);
	push(channel, &at, SIM_SEM_RELEASE | SIM_SEM_PAYLOAD_64BIT | SIM_SEM_TIMESTAMP);
	word(channel, AT_GPFIFO + channel->put * SIM_GP_ENTRY_SIZE) = SIM_GP_ENTRY0(va);
	word(channel, AT_GPFIFO + channel->put * SIM_GP_ENTRY_SIZE +
			      4) = SIM_GP_ENTRY1(va, (at - begin) / 4);
	channel->put = (channel->put + 1) % channel->entries;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	word(channel, AT_USERD + SIM_USERD_GP_PUT) = channel->put;
	return true;
}

bool nv_submit(struct nv_channel *channel, const struct nv_kernel *kernel)
{
	if (!nv_queue(channel, kernel))
		return false;
	nv_ring(channel->program, channel->token);
	return true;
}

u64 nv_finished(const struct nv_channel *channel)
{
	u64 number;

	/* a slot holds the number of the last kernel that used it; they end in order */
	for (number = channel->submitted; number; number--) {
		if (word64(channel, AT_SEMAPHORES + number % ENTRIES * SEMAPHORE) == number)
			return number;
		if (channel->submitted - number >= channel->entries)
			break;
	}
	return number;
}

u64 nv_finished_at(const struct nv_channel *channel, u64 number)
{
	return word64(channel, AT_SEMAPHORES + number % ENTRIES * SEMAPHORE + 8);
}

bool nv_wait(const struct nv_channel *channel, u64 number, double seconds)
{
	double until = nv_now() + seconds;

	while (word64(channel, AT_SEMAPHORES + number % ENTRIES * SEMAPHORE) != number) {
		if (nv_now() > until)
			return false;
		nv_sleep(30e-6);
	}
	return true;
}

void nv_release_kernel(struct nv_channel *channel)
{
	word(channel, AT_UNTIL) = 1;
}

u64 nv_kernel_time(const struct nv_channel *channel)
{
	return word64(channel, AT_COUNT);
}
