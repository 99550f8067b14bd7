// SPDX-License-Identifier: Apache-2.0
/* Device memory of another process: its arena is a memory file, the handle says whose and where. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

#define PAGE 4096UL

struct ticket {
	char mark[8];
	int pid, fd, ordinal;
	uint64_t offset, size, id;
};

API(cuIpcGetMemHandle, CUipcMemHandle *, handle, CUdeviceptr, address)
{
	struct memory *memory = memory_find(address);
	struct ticket ticket;

	_Static_assert(sizeof(ticket) <= sizeof(*handle), "a ticket fits into a handle");
	if (!handle || !memory || memory->kind != MEMORY_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&ticket, 0, sizeof(ticket));
	memcpy(ticket.mark, "fakecuda", sizeof(ticket.mark));
	ticket.pid = getpid();
	ticket.fd = memory->device->arena_fd;
	ticket.ordinal = memory->device->ordinal;
	ticket.offset = memory->base - (CUdeviceptr)memory->device->arena;
	ticket.size = memory->size;
	ticket.id = memory->id;
	memory->shared = true;
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &ticket, sizeof(ticket));
	return CUDA_SUCCESS;
}

/* What a context opened; opened again it is the same. */
struct opened {
	struct context *group;
	CUdeviceptr address;
	struct ticket ticket;
	unsigned int times;
	struct opened *next;
};

static struct opened *all;

static struct opened **opened_of(const struct context *group, const struct ticket *ticket, CUdeviceptr address)
{
	struct opened **at = &all;

	while (*at && ((*at)->group != group || (ticket ? memcmp(&(*at)->ticket, ticket, sizeof(*ticket)) : (*at)->address != address)))
		at = &(*at)->next;
	return at;
}

static CUresult open_handle(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned int flags)
{
	struct context *context;
	struct ticket ticket;
	struct opened *opened;
	uint64_t inside;
	char path[64], *base;
	int fd;

	TRY(context_current(&context));
	memcpy(&ticket, handle, sizeof(ticket));
	if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || memcmp(ticket.mark, "fakecuda", sizeof(ticket.mark)))
		return CUDA_ERROR_INVALID_VALUE;
	if (ticket.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	opened = *opened_of(context->group, &ticket, 0);
	if (opened) {
		opened->times++;
		*address = opened->address;
		return CUDA_SUCCESS;
	}
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket.pid, ticket.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	inside = ticket.offset % PAGE;
	base = mmap(NULL, ticket.size + inside, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(ticket.offset - inside));
	close(fd);
	if (base == MAP_FAILED)
		return CUDA_ERROR_INVALID_HANDLE;
	*address = (CUdeviceptr)base + inside;
	memory_add(context, *address, ticket.size, MEMORY_IPC);
	opened = xalloc(sizeof(*opened));
	*opened = (struct opened){ .group = context->group, .address = *address, .ticket = ticket, .times = 1, .next = all };
	all = opened;
	return CUDA_SUCCESS;
}

API(cuIpcOpenMemHandle_v2, CUdeviceptr *, address, CUipcMemHandle, handle, unsigned int, flags)
{
	return open_handle(address, &handle, flags);
}

API(cuIpcOpenMemHandle, CUdeviceptr *, address, CUipcMemHandle, handle, unsigned int, flags)
{
	return open_handle(address, &handle, flags);
}

static void opened_remove(struct opened **at)
{
	struct opened *gone = *at;
	struct memory *memory = memory_find(gone->address);
	CUdeviceptr base = gone->address & ~(PAGE - 1);

	*at = gone->next;
	munmap((void *)base, memory->size + (gone->address - base));
	memory_remove(memory);
	free(gone);
}

void ipc_forget(const struct context *group)
{
	for (struct opened **at = &all; *at;) {
		if ((*at)->group == group)
			opened_remove(at);
		else
			at = &(*at)->next;
	}
}

API(cuIpcCloseMemHandle, CUdeviceptr, address)
{
	struct memory *memory = memory_find(address);
	struct context *context;
	struct opened **at;

	TRY(context_current(&context));
	if (!memory || memory->kind != MEMORY_IPC || memory->base != address)
		return CUDA_ERROR_INVALID_VALUE;
	at = opened_of(memory->group, NULL, address);
	if (--(*at)->times)
		return CUDA_SUCCESS;
	wait_all(NULL);
	opened_remove(opened_of(memory->group, NULL, address));
	return CUDA_SUCCESS;
}
