/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks without exec while another thread makes the process's first call of the driver, or asks for its first function: the child, for which no driver
 * was begun yet, has both. Each round is a process of its own, for a process has one first call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "client.h"

#define ROUNDS 300U
#define LATEST_NS 300000U /* the fork comes in so many steps of a round up to this */

static sem_t begins;

static void use(void)
{
	CUcontext none;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	EXPECT(library && dlsym(library, "cuLaunchKernel"));
	EXPECT(cuCtxGetCurrent(&none) == CUDA_ERROR_NOT_INITIALIZED);
	/* the wrapped one: nothing is current */
	EXPECT(cuCtxSynchronize() != CUDA_SUCCESS);
}

/* asleep: on one processor the other thread goes on meanwhile, and the fork interrupts it */
static void nap(unsigned int ns)
{
	const struct timespec time = {.tv_nsec = ns};

	nanosleep(&time, NULL);
}

static void *first(void *unused)
{
	EXPECT(!prctl(PR_SET_TIMERSLACK, 1UL) && !sem_post(&begins));
	nap(LATEST_NS / 3);
	use();
	return unused;
}

/* 0: both ended well */
static int round_of(unsigned int n)
{
	pthread_t thread;
	int status;
	pid_t pid;

	EXPECT(!sem_init(&begins, 0, 0) && !prctl(PR_SET_TIMERSLACK, 1UL));
	EXPECT(!pthread_create(&thread, NULL, first, NULL) && !sem_wait(&begins));
	nap(n * LATEST_NS / ROUNDS);
	pid = fork();
	if (!pid) {
		use();
		_exit(0);
	}
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(!pthread_join(thread, NULL));
	return status;
}

int main(void)
{
	for (unsigned int n = 0; n < ROUNDS; n++) {
		int status;
		pid_t pid = fork();

		if (!pid)
			_exit(round_of(n) != 0);
		EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return 0;
}
