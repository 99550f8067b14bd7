/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While an allocation is refused to a thread, another one makes one, at each of the library's instructions once: what the daemon reads afterwards is what
 * there is. The first thread goes step by step, and waits in the handler until the second one is through or waits for a lock of the first one's.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "client.h"

#define STEP 0x100 /* of the flags: a trap after the next instruction */

static unsigned long from, to; /* the library's code */
static volatile unsigned int seen, at; /* its instructions in this call; the one to stop at */
static _Atomic(unsigned int) asked, done;
static _Atomic(int) second;
static volatile bool steps;

static void find_library(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "libdetshare.so") && strstr(line, "r-xp"))
			EXPECT(sscanf(line, "%lx-%lx", &from, &to) == 2);
	fclose(maps);
}

static bool sleeps(void)
{
	char path[64], line[256] = "";
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&second));
	stat = fopen(path, "r");
	if (!fgets(line, sizeof(line), stat))
		line[0] = 0;
	fclose(stat);
	return strstr(line, ") S") != NULL;
}

static void stepped(int number, siginfo_t *info, void *data)
{
	ucontext_t *context = data;
	unsigned long here = (unsigned long)context->uc_mcontext.gregs[REG_RIP];

	(void)number;
	(void)info;
	if (!steps)
		context->uc_mcontext.gregs[REG_EFL] &= ~STEP;
	if (here < from || here >= to || seen++ != at)
		return;
	atomic_fetch_add(&asked, 1);
	for (unsigned int quiet = 0; atomic_load(&done) != atomic_load(&asked) && quiet < 3;)
		quiet = sleeps() ? quiet + 1 : 0;
}

static void *allocates(void *unused)
{
	CUdeviceptr room;

	CHECK(cuCtxSetCurrent(context));
	atomic_store(&second, (int)syscall(SYS_gettid));
	while (1) {
		while (atomic_load(&asked) == atomic_load(&done))
			;
		CHECK(cuMemAlloc_v2(&room, 4096));
		atomic_fetch_add(&done, 1);
	}
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = stepped, .sa_flags = SA_SIGINFO};
	pthread_t thread;

	client_start(0);
	find_library();
	sigaction(SIGTRAP, &action, NULL);
	pthread_create(&thread, NULL, allocates, NULL);
	while (!atomic_load(&second))
		usleep(100);
	do {
		seen = 0;
		steps = true;
		__asm__ volatile("pushf; orq $0x100, (%%rsp); popf" ::: "memory", "cc");
		EXPECT(cuMemAlloc_v2(NULL, 4096) == CUDA_ERROR_INVALID_VALUE);
		steps = false;
		while (atomic_load(&done) != atomic_load(&asked))
			;
		EXPECT(daemon_counters()->memory_used == 4096 * atomic_load(&done));
		at++;
	} while (seen >= at);
	printf("%u\n", at);
	exit(0);
}
