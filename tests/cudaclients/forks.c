// SPDX-License-Identifier: Apache-2.0
/* A child made before CUDA starts works like its parent; one made later finds it not initialised; exec starts anew. */
#include <sys/wait.h>

#include "client.h"

static uint32_t compute(uint32_t seed)
{
	CUdeviceptr words = client_words(WORDS);
	uint32_t first;

	for (uint32_t i = 0; i < 20; i++)
		client_mix(i % 2 ? NULL : CU_STREAM_PER_THREAD, words, seed + i, i);
	OK(cuCtxSynchronize());
	client_read(words, 1, &first);
	OK(cuMemFree_v2(words));
	return first;
}

static int reap(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

int main(int count, char **words)
{
	int pipes[2], devices, status;
	uint32_t value = 0;
	pid_t child;

	if (count > 1 && !strcmp(words[1], "--again")) {
		client_start();
		client_say("exec", compute(11));
		return client_end();
	}
	CHECK(!pipe(pipes));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		client_start();
		value = compute(5);
		_exit(write(pipes[1], &value, sizeof(value)) != sizeof(value));
	}
	client_start();
	client_say("parent", compute(7));
	CHECK(read(pipes[0], &value, sizeof(value)) == sizeof(value));
	client_say("child", value);
	client_say("child-status", (uint64_t)reap(child));

	child = fork();
	if (!child)
		_exit(cuDeviceGetCount(&devices) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	client_say("late-child-status", (uint64_t)reap(child));

	fflush(stdout);
	child = fork();
	if (!child) {
		execl("/proc/self/exe", words[0], "--again", (char *)NULL);
		_exit(127);
	}
	status = reap(child);
	client_say("exec-status", (uint64_t)status);
	client_say("parent-again", compute(9));
	return client_end();
}
