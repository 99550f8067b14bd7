// SPDX-License-Identifier: Apache-2.0
/* A file that shows something else, as it may look while a doorbell is asked for by it, in vain. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "door.h"

#define CLAIM_REST_S 50e-6
#define HALF	     (SIM_USERMODE_SIZE / 2)

void door_claim(struct door_ask *ask)
{
	const struct nv_program *program = &ask->door->program;
	int fd = ask->door->slots[ask->a % DOOR_SLOTS].fd;
	u64 end = nv_now_ns() + ask->b * 1000000;

	while (nv_now_ns() < end) {
		s64 status = door_arm(&program->nv, program->client, program->subdevice, program->usermode, SIM_USERMODE_SIZE, fd);

		if (status != NV_ERR_STATE_IN_USE)
			nv_die("a file was armed twice: %lld", (long long)status);
		ask->answer.result++;
		/* who faults meanwhile waits for a moment without such a call */
		nv_sleep(CLAIM_REST_S);
	}
}

/* One mapping, from its making to its end. */
static bool handle(struct door_ask *ask, int fd, int mem)
{
	u8 *at = mmap(NULL, SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *aside = mmap(NULL, HALF, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 word = 0;
	bool well;

	if (at == MAP_FAILED || aside == MAP_FAILED)
		return false;
	/* that may be refused: for the moment the page may be a doorbell's */
	well = pwrite(mem, &word, sizeof(word), (off_t)(uintptr_t)at) == sizeof(word) || errno == EIO;
	well = well && !mprotect(at + HALF, HALF, PROT_READ) && door_ring(at, &ask->answer.signal);
	well = well && mremap(at + HALF, HALF, HALF, MREMAP_MAYMOVE | MREMAP_FIXED, aside) == aside;
	return !munmap(at, SIM_USERMODE_SIZE) && !munmap(aside, HALF) && well;
}

void door_handle_here(struct door_ask *ask)
{
	u64 end = nv_now_ns() + ask->b * 1000000;
	int fd = ask->door->slots[ask->a % DOOR_SLOTS].fd, mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	errno = 0;
	while (nv_now_ns() < end && ask->answer.result >= 0) {
		if (handle(ask, fd, mem))
			ask->answer.result++;
		else
			ask->answer.result = -(errno ?: EIO);
	}
	close(mem);
}
