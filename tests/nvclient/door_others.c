// SPDX-License-Identifier: Apache-2.0
/* What nvdoor does to doorbells with other processes: children that inherit them, that get them passed, that write here. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "door.h"

static void await(struct door_ask *ask, pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) < 0) {
		ask->answer.result = -errno;
		return;
	}
	if (WIFSIGNALED(status))
		ask->answer.signal = WTERMSIG(status);
	else if (WEXITSTATUS(status) >= 100)
		ask->answer.signal = WEXITSTATUS(status) - 100;
	else
		ask->answer.result = WEXITSTATUS(status) ? -WEXITSTATUS(status) : 0;
}

/* A child that ends with the thread that made it. */
static pid_t fork_bound(void)
{
	pid_t child = fork();

	if (!child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

void door_child(struct door_ask *ask)
{
	pid_t child = fork_bound();

	if (!child)
		_exit(door_ring_many(ask, door_slot(ask)->at, ask->b, 0) ? 0 : 100 + ask->answer.signal);
	await(ask, child);
}

void door_kin(struct door_ask *ask)
{
	static struct nv_program own;
	pid_t child = fork_bound();
	double end;

	if (!child) {
		nv_must_program(&own, 0, NULL);
		end = nv_now() + (double)ask->b * 1e-3;
		while (nv_now() < end && door_ring_many(ask, door_slot(ask)->at, 1, 0))
			nv_sleep(1e-3);
		_exit(ask->answer.signal ? 100 + ask->answer.signal : 0);
	}
	await(ask, child);
}

void door_pass(struct door_ask *ask)
{
	pid_t child = fork_bound();

	if (!child) {
		munmap((void *)door_slot(ask)->at, door_slot(ask)->length);
		door_map_fd(ask, door_slot(ask)->fd);
		if (ask->answer.result < 0)
			_exit((int)-ask->answer.result);
		_exit(door_ring_many(ask, door_slot(ask)->at, ask->b, 0) ? 0 : 100 + ask->answer.signal);
	}
	await(ask, child);
}

void door_handle(struct door_ask *ask)
{
	pid_t child = fork_bound();
	s64 handled;

	door_handle_here(ask);
	handled = ask->answer.result;
	if (!child)
		_exit(ask->answer.signal ? 100 + ask->answer.signal : handled < 0 ? (int)-handled : 0);
	if (handled < 0)
		return;
	await(ask, child);
	if (!ask->answer.result)
		ask->answer.result = handled;
}

void door_vm(struct door_ask *ask)
{
	pid_t parent = getpid(), child = fork_bound();

	if (!child) {
		u32 word = 1;
		struct iovec from = { &word, 4 }, to = { (void *)(door_slot(ask)->at + SIM_USERMODE_DOORBELL), 4 };

		_exit(process_vm_writev(parent, &from, 1, &to, 1, 0) == 4 ? 0 : errno);
	}
	await(ask, child);
}

void door_poke(struct door_ask *ask)
{
	pid_t parent = getpid(), child = fork_bound();

	if (!child) {
		int error = 0;

		if (ptrace(PTRACE_ATTACH, parent, NULL, NULL))
			_exit(errno);
		waitpid(parent, NULL, __WALL);
		if (ptrace(PTRACE_POKEDATA, parent, door_slot(ask)->at + SIM_USERMODE_DOORBELL, ask->door->channel.token))
			error = errno;
		ptrace(PTRACE_DETACH, parent, NULL, NULL);
		_exit(error);
	}
	await(ask, child);
}
