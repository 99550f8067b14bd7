// SPDX-License-Identifier: Apache-2.0
/* Every way in which a program comes to hold GPU memory. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc.h"

#define MANAGED_AT   0x30000000000ull
#define SKIPPED	     NV_ERRNO(EOPNOTSUPP)
#define RS_SHARE_ALL 1

static u32 by_class(struct nv_program *program, u32 class, u64 size, u64 *granted)
{
	const struct nv_memory_request ask = { .class = class, .size = size, .flags = 0x1c101 };
	u32 handle = nv_next_handle(&program->nv);
	u32 status = nv_memory(&program->nv, program->client, program->device, &handle, &ask,
			       granted);

	if (!status)
		nv_free(&program->nv, program->client, program->device, handle);
	return status;
}

static u32 local_user(struct nv_program *program, u64 size, u64 *granted)
{
	return by_class(program, NV01_MEMORY_LOCAL_USER, size, granted);
}

static u32 extended_user(struct nv_program *program, u64 size, u64 *granted)
{
	return by_class(program, NV_MEMORY_EXTENDED_USER, size, granted);
}

static u32 short_form(struct nv_program *program, u64 size, u64 *granted)
{
	u32 status;

	program->nv.os21 = true;
	status = by_class(program, NV01_MEMORY_LOCAL_USER, size, granted);
	program->nv.os21 = false;
	return status;
}

static u32 wrapped(struct nv_program *program, u64 size, u64 *granted)
{
	u32 status;

	program->nv.xfer = true;
	status = by_class(program, NV01_MEMORY_LOCAL_USER, size, granted);
	program->nv.xfer = false;
	return status;
}

static u32 fabric(struct nv_program *program, u64 size, u64 *granted)
{
	const struct rm_abi *abi = program->nv.abi;
	u32 handle = nv_next_handle(&program->nv), status;
	u8 params[256] = { 0 };

	rm_put64(params, abi->fabric.alignment, 2 << 20);
	rm_put64(params, abi->fabric.allocSize, size);
	rm_put64(params, abi->fabric.pageSize, 2 << 20);
	status = nv_alloc(&program->nv, program->client, program->subdevice, &handle,
			  NV_MEMORY_FABRIC, params, abi->fabric.len);
	if (!status) {
		*granted = rm_get64(params, abi->fabric.allocSize);
		nv_free(&program->nv, program->client, program->subdevice, handle);
	}
	return status;
}

static u32 heap(struct nv_program *program, u32 function, u64 size, u64 *granted)
{
	u32 handle = nv_next_handle(&program->nv);
	u32 status = nv_vid_heap(&program->nv, program->client, program->device, &handle, function,
				 &size, NULL, NULL);

	if (!status) {
		*granted = size;
		nv_vid_heap_free(&program->nv, program->client, program->device, handle);
	}
	return status;
}

static u32 heap_size(struct nv_program *program, u64 size, u64 *granted)
{
	return heap(program, NVOS32_FUNCTION_ALLOC_SIZE, size, granted);
}

static u32 heap_range(struct nv_program *program, u64 size, u64 *granted)
{
	return heap(program, NVOS32_FUNCTION_ALLOC_SIZE_RANGE, size, granted);
}

static u32 heap_wrapped(struct nv_program *program, u64 size, u64 *granted)
{
	u32 status;

	program->nv.xfer = true;
	status = heap(program, NVOS32_FUNCTION_ALLOC_SIZE, size, granted);
	program->nv.xfer = false;
	return status;
}

static u32 legacy(struct nv_program *program, u64 size, u64 *granted)
{
	u32 handle = nv_next_handle(&program->nv);
	u32 status = nv_alloc_memory(&program->nv, program->gpu, program->client, program->device,
				     &handle, NV01_MEMORY_LOCAL_USER, 0, 0, size - 1);

	if (!status) {
		*granted = size;
		nv_free(&program->nv, program->client, program->device, handle);
	}
	return status;
}

static sigjmp_buf no_32_bit;

static void fault(int signal)
{
	siglongjmp(no_32_bit, signal);
}

/* The compat entry of the driver: a 32-bit system call, which a 64-bit program can make too. A kernel without them faults. */
static int ioctl32(int fd, u32 request, void *block)
{
	long done = 54; /* ioctl */

	__asm__ volatile("int $0x80"
			 : "+a"(done)
			 : "b"((long)fd), "c"((long)request), "d"((long)(uintptr_t)block)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)done;
}

static u32 compat(struct nv_program *program, u64 size, u64 *granted)
{
	const struct rm_abi *abi = program->nv.abi;
	u32 handle = nv_next_handle(&program->nv), status;
	u8 *const low = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	u8 *const params = low + 4096;
	int done;

	if (low == MAP_FAILED)
		return NV_ERRNO(errno);
	if (sigsetjmp(no_32_bit, 1)) {
		signal(SIGSEGV, SIG_DFL);
		munmap(low, 8192);
		return SKIPPED;
	}
	rm_put32(low, abi->nvos64.hRoot, program->client);
	rm_put32(low, abi->nvos64.hObjectParent, program->device);
	rm_put32(low, abi->nvos64.hObjectNew, handle);
	rm_put32(low, abi->nvos64.hClass, NV01_MEMORY_LOCAL_USER);
	rm_put64(low, abi->nvos64.pAllocParms, (uintptr_t)params);
	rm_put32(params, abi->memory.owner, program->client);
	rm_put32(params, abi->memory.flags, 0x1c101);
	rm_put64(params, abi->memory.size, size);
	signal(SIGSEGV, fault);
	done = ioctl32(
		program->nv.ctl,
		_IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, NV_ESC_RM_ALLOC, abi->nvos64.len),
		low);
	signal(SIGSEGV, SIG_DFL);
	status = done < 0 ? done == -ENOSYS ? SKIPPED : NV_ERRNO(-done)
			  : rm_get32(low, abi->nvos64.status);
	if (!status) {
		*granted = rm_get64(params, abi->memory.size);
		nv_free(&program->nv, program->client, program->device, handle);
	}
	munmap(low, 8192);
	return status;
}

/* Another process: allocates, offers, waits until the pipe is closed. */
struct giver {
	u32 client, memory, status;
	u64 granted;
};

static void give(const struct nv_program *of, int say, int until, u64 size)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER,
					       .size = size,
					       .flags = 0x1c101 };
	struct giver offer = { 0 };
	struct nv_program mine;
	const char *step;
	char byte;

	nv_must_open_program(&mine, of->gpu_number, of->nv.version);
	offer.status = nv_program_base(&mine, &step);
	offer.client = mine.client;
	offer.memory = nv_next_handle(&mine.nv);
	if (!offer.status)
		offer.status = nv_memory(&mine.nv, mine.client, mine.device, &offer.memory, &ask,
					 &offer.granted);
	if (!offer.status)
		offer.status = nv_share(&mine.nv, mine.client, offer.memory, RS_SHARE_ALL, 0);
	if (write(say, &offer, sizeof(offer)) != sizeof(offer))
		_exit(1);
	while (read(until, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

static u32 from_another(struct nv_program *program, u64 size, u64 *granted)
{
	struct giver offer = { .status = NV_ERRNO(EPIPE) };
	u32 handle = nv_next_handle(&program->nv), status;
	int news[2], stay[2];
	pid_t child;

	if (pipe2(news, O_CLOEXEC) || pipe2(stay, O_CLOEXEC))
		return NV_ERRNO(errno);
	fflush(stdout);
	child = fork();
	if (!child) {
		close(stay[1]);
		give(program, news[1], stay[0], size);
	}
	close(news[1]);
	close(stay[0]);
	if (read(news[0], &offer, sizeof(offer)) != sizeof(offer))
		offer.status = NV_ERRNO(EPIPE);
	status = offer.status;
	if (!status)
		status = nv_dup(&program->nv, program->client, program->device, &handle,
				offer.client, offer.memory);
	if (!status)
		*granted = offer.granted;
	close(stay[1]);
	close(news[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
	/* the giver is gone: what was duplicated lives on until here */
	if (!status)
		nv_free(&program->nv, program->client, program->device, handle);
	return status;
}

static u32 managed(struct nv_program *program, u64 size, u64 *granted)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[4096] = { 0 };
	u32 status;
	void *at;
	int error;

	at = mmap((void *)MANAGED_AT, size, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_FIXED_NOREPLACE, program->uvm, (off_t)MANAGED_AT);
	if (at == MAP_FAILED)
		return NV_ERRNO(errno);
	*granted = size;
	rm_put64(params, abi->uvm_migrate.base, MANAGED_AT);
	rm_put64(params, abi->uvm_migrate.length, size);
	memcpy(params + abi->uvm_migrate.destinationUuid_uuid.off, program->uuid,
	       sizeof(program->uuid));
	error = nv_uvm(program->uvm, UVM_MIGRATE, params);
	status = error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_migrate.rmStatus);
	munmap(at, size);
	if (status)
		*granted = 0;
	return status;
}

const struct alloc_way alloc_ways[] = {
	{ "RM_ALLOC of NV01_MEMORY_LOCAL_USER", local_user },
	{ "RM_ALLOC of NV_MEMORY_EXTENDED_USER", extended_user },
	{ "RM_ALLOC of NV_MEMORY_FABRIC", fabric },
	{ "RM_ALLOC in its short form", short_form },
	{ "RM_ALLOC in IOCTL_XFER_CMD", wrapped },
	{ "RM_ALLOC by a 32-bit system call", compat },
	{ "VID_HEAP_CONTROL ALLOC_SIZE", heap_size },
	{ "VID_HEAP_CONTROL ALLOC_SIZE_RANGE", heap_range },
	{ "VID_HEAP_CONTROL in IOCTL_XFER_CMD", heap_wrapped },
	{ "ALLOC_MEMORY", legacy },
	{ "ALLOC_MEMORY by a child without the control file", alloc_device_child },
	{ "ALLOC_MEMORY through a device file that is not bound", alloc_device_stranger },
	{ "RM_ALLOC through a bound control file", alloc_bound },
	{ "RM_ALLOC by a child with a bound control file only", alloc_bound_child },
	{ "RM_DUP_OBJECT from another process", from_another },
	{ "managed memory, migrated to the GPU", managed },
	{ 0 },
};

void alloc_every_way(struct nv_program *program, u64 size)
{
	const struct alloc_way *way;
	u64 granted;
	u32 status;

	for (way = alloc_ways; way->name; way++) {
		granted = 0;
		status = way->ask(program, size, &granted);
		printf("{\"event\":\"way\",\"way\":\"%s\",\"asked\":%llu,\"granted\":%llu,\"status\":%u,\"name\":\"%s\"}\n",
		       way->name, (unsigned long long)size, (unsigned long long)granted, status,
		       nv_status_name(status));
	}
}
