// SPDX-License-Identifier: Apache-2.0
/* Tricks of a program whose gate is shut: a ring that gets through. Each in a child, for it may have to wait. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../nvsim/methods.h"
#include "hostile.h"

#define TRY_MS 700
#define SETTLE_MS 150

void ring_at(volatile u32 *doorbell, u32 token)
{
	nv_kick(doorbell, token);
}

static volatile u32 *map_door(struct hostile *h, u32 client, u32 parent, u32 object, u32 *status)
{
	return nv_map(&h->program.nv, h->program.gpu_device, client, parent, object, 0, SIM_USERMODE_SIZE,
		      PROT_READ | PROT_WRITE, NULL, status);
}

static u32 ring(struct hostile *h)
{
	ring_at(h->program.doorbell, h->channel.token);
	return NOBODY;
}

static u32 ring_in_child(struct hostile *h)
{
	return in_child(h, ring, TRY_MS);
}

static u32 ring_second(struct hostile *h)
{
	u32 status;
	volatile u32 *door = map_door(h, h->program.client, h->program.subdevice, h->program.usermode, &status);

	if (door)
		ring_at(door, h->channel.token);
	return status;
}

/* In a child, which may have to wait; the mapping is the parent's, for a child may map nothing: RM asks who made the client. */
static void ring_and_unmap(struct hostile *h, volatile u32 *door)
{
	int child = fork_process();

	if (!child) {
		ring_at(door, h->channel.token);
		leave(0);
	}
	if (wait_for(child, TRY_MS) < 0)
		kill_process(child);
	/* a ring is taken a little later, and not from a page that is gone */
	rest(SETTLE_MS);
	munmap((void *)door, SIM_USERMODE_SIZE);
}

static u32 second_mapping(struct hostile *h)
{
	u32 status;
	volatile u32 *door = map_door(h, h->program.client, h->program.subdevice, h->program.usermode, &status);

	if (door)
		ring_and_unmap(h, door);
	return status;
}

/* A second client of the same program with a duplicate of the usermode object. */
static u32 duplicate(struct hostile *h)
{
	u32 client, device = 0x70000001, subdevice = 0x70000002, object = 0x70000003, status;
	struct nv *nv = &h->program.nv;
	volatile u32 *door = NULL;
	u8 *params = fresh_params();

	status = nv_root(nv, &client);
	rm_put32(params, nv->abi->device.deviceId, h->program.gpu_number);
	if (!status)
		status = nv_alloc(nv, client, client, &device, NV01_DEVICE_0, params, nv->abi->device.len);
	if (!status)
		status = nv_alloc(nv, client, device, &subdevice, NV20_SUBDEVICE_0, fresh_params(),
				  nv->abi->subdevice.len);
	if (!status)
		status = nv_dup(nv, client, subdevice, &object, h->program.client, h->program.usermode);
	if (!status)
		door = map_door(h, client, subdevice, object, &status);
	if (!door)
		return status;
	ring_and_unmap(h, door);
	nv_free(nv, client, client, client);
	return status;
}

/* A file that was armed, in the hands of another process, which maps it. */
static u32 passed_file(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	int file = nv_open_device(h->program.gpu_device), child;
	u8 block[256] = { 0 };
	u32 status;

	rm_put32(block, abi->register_fd.ctl_fd, (u32)h->program.nv.ctl);
	nv_ioctl(file, NV_ESC_REGISTER_FD, block, abi->register_fd.len);
	memset(block, 0, sizeof(block));
	rm_put32(block, abi->nvos33.hClient, h->program.client);
	rm_put32(block, abi->nvos33.hDevice, h->program.subdevice);
	rm_put32(block, abi->nvos33.hMemory, h->program.usermode);
	rm_put64(block, abi->nvos33.length, SIM_USERMODE_SIZE);
	rm_put32(block, abi->nvos33.fd, (u32)file);
	nv_ioctl(h->program.nv.ctl, NV_ESC_RM_MAP_MEMORY, block, abi->nvos33.len);
	status = rm_get32(block, abi->nvos33.status);
	child = fork_process();
	if (!child) {
		volatile u32 *door = mmap(NULL, SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

		if (door != MAP_FAILED)
			ring_at(door, h->channel.token);
		leave(0);
	}
	if (wait_for(child, TRY_MS) < 0)
		kill_process(child);
	/* a ring is taken a little later, and not from a page that is gone */
	rest(SETTLE_MS);
	close(file);
	return status;
}

static u32 moved(struct hostile *h)
{
	long at = sys(SYS_mremap, (long)h->program.doorbell, SIM_USERMODE_SIZE, SIM_USERMODE_SIZE, MREMAP_MAYMOVE, 0, 0);
	void *room = mmap(NULL, SIM_USERMODE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at < 0 && at > -4096)
		return NV_ERRNO(-at);
	at = sys(SYS_mremap, at, SIM_USERMODE_SIZE, SIM_USERMODE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, (long)room, 0);
	if (at < 0 && at > -4096)
		return NV_ERRNO(-at);
	ring_at((volatile u32 *)at, h->channel.token);
	return NOBODY;
}

static u32 move(struct hostile *h)
{
	return in_child(h, moved, TRY_MS);
}

static u32 split(struct hostile *h)
{
	/* two mappings of one: the first page, and the rest */
	sys(SYS_mprotect, (long)h->program.doorbell + 4096, SIM_USERMODE_SIZE - 4096, PROT_READ, 0, 0, 0);
	ring_at(h->program.doorbell, h->channel.token);
	return NOBODY;
}

static u32 split_in_child(struct hostile *h)
{
	return in_child(h, split, TRY_MS);
}

static u32 write_memory(struct hostile *h)
{
	long file = sys(SYS_open, (long)"/proc/self/mem", O_RDWR, 0, 0, 0, 0), wrote;

	if (file < 0)
		return NV_ERRNO(-file);
	wrote = sys(SYS_pwrite64, file, (long)&h->channel.token, 4,
		    (long)h->program.doorbell + SIM_USERMODE_DOORBELL, 0, 0);
	sys(SYS_close, file, 0, 0, 0, 0, 0);
	return wrote == 4 ? NOBODY : NV_ERRNO(wrote < 0 ? -wrote : EIO);
}

static u32 by_proc_mem(struct hostile *h)
{
	return in_child(h, write_memory, TRY_MS);
}

/* A child that lets itself be traced; the doorbell is in its memory too. */
static u32 poke(struct hostile *h)
{
	long done;
	int child = fork_process();

	if (!child) {
		sys(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0, 0, 0);
		sys(SYS_kill, sys(SYS_getpid, 0, 0, 0, 0, 0, 0), 19 /* SIGSTOP */, 0, 0, 0, 0);
		leave(0);
	}
	sys(SYS_wait4, child, 0, 2 /* WUNTRACED */, 0, 0, 0);
	/* words of eight bytes; what lies behind the doorbell's word is nothing */
	done = sys(SYS_ptrace, PTRACE_POKEDATA, child, (long)h->program.doorbell + SIM_USERMODE_DOORBELL,
		   h->channel.token, 0, 0);
	kill_process(child);
	return done ? NV_ERRNO(-done) : NOBODY;
}

static u32 by_ptrace(struct hostile *h)
{
	return in_child(h, poke, TRY_MS);
}

static u32 unmap_and_map(struct hostile *h)
{
	return in_child(h, ring_second, TRY_MS);
}

const struct trick ring_tricks[] = {
	{ "ring", "ring", "a plain store", ring_in_child },
	{ "second-mapping", "ring", "another mapping of the usermode object", second_mapping },
	{ "second-mapping-child", "ring", "the same by a child", unmap_and_map },
	{ "dup-usermode", "ring", "a duplicate of the usermode object in another client", duplicate },
	{ "pass-file", "ring", "an armed file that another process maps", passed_file },
	{ "mremap", "ring", "the mapping moved", move },
	{ "split", "ring", "the mapping split", split_in_child },
	{ "proc-mem", "ring", "a write to /proc/self/mem", by_proc_mem },
	{ "ptrace", "ring", "POKEDATA into a child", by_ptrace },
	{ NULL, NULL, NULL, NULL },
};
