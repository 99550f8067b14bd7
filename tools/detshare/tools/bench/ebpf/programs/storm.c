// SPDX-License-Identifier: Apache-2.0
/*
 * storm KIND OBJECTS THREADS: so many RM objects, made and freed as fast as it goes, by threads that have a client each;
 * then a line of JSON with the calls that RM was asked for in all and how long the storm took.
 *   client     clients (a root each)
 *   child      an object below the thread's client that needs no GPU (NV_CONFIDENTIAL_COMPUTE)
 *   refused    frees of what is not there: two for each object of the others, none is made
 * Parameter blocks are those of driver 580; see docs/how/coverage.md for others.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define RM_FREE		0x29
#define RM_ALLOC	0x2b
#define ROOT_CLIENT	0x41
#define CHILD_CLASS	0xcb33
#define CHILD		0x5c000010u
#define NOT_THERE	0x5cffff00u
#define MOST		64

struct alloc {	/* NVOS64_PARAMETERS */
	uint32_t root, parent, object, class;
	uint64_t params, rights;
	uint32_t size, flags, status, pad;
};

struct release {	/* NVOS00_PARAMETERS */
	uint32_t root, parent, object, status;
};

enum kind { CLIENT, CHILD_OBJECT, REFUSED };

static const char *const names[] = { "client", "child", "refused" };

struct worker {
	pthread_t thread;
	enum kind kind;
	uint64_t objects, calls;
	pthread_barrier_t *gate;
	const char *failed;
	uint32_t status;
};

static int ask(struct worker *worker, int fd, unsigned int escape, void *block, unsigned long size)
{
	worker->calls++;
	return ioctl(fd, 3ul << 30 | size << 16 | 'F' << 8 | escape, block);
}

static uint32_t make(struct worker *worker, int fd, uint32_t root, uint32_t class, uint32_t *object)
{
	uint32_t params[2] = { root, 0 };
	struct alloc alloc = { .root = root, .parent = root, .object = *object, .class = class };

	if (class == CHILD_CLASS)	/* their size 0, as libcuda asks for it: that of the class */
		alloc.params = (uintptr_t)params;
	if (ask(worker, fd, RM_ALLOC, &alloc, sizeof(alloc)) < 0)
		return 0x10000u | (uint32_t)errno;
	*object = alloc.object;
	return alloc.status;
}

static uint32_t release(struct worker *worker, int fd, uint32_t root, uint32_t object)
{
	struct release release = { .root = root, .parent = root, .object = object };

	if (ask(worker, fd, RM_FREE, &release, sizeof(release)) < 0)
		return 0x10000u | (uint32_t)errno;
	return release.status;
}

static void *run(void *of)
{
	struct worker *worker = of;
	int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	uint32_t root = 0, object, status = fd < 0 ? 0x10000u | (uint32_t)errno : 0;

	worker->failed = "open or client";
	if (!status)
		status = make(worker, fd, 0, ROOT_CLIENT, &root);
	pthread_barrier_wait(worker->gate);
	for (uint64_t i = 0; i < worker->objects && !status; i++) {
		worker->failed = "alloc";
		if (worker->kind == REFUSED) {
			(void)release(worker, fd, root, NOT_THERE);
			(void)release(worker, fd, root, NOT_THERE + 1);
			continue;
		}
		object = worker->kind == CLIENT ? 0 : CHILD;
		status = make(worker, fd, worker->kind == CLIENT ? 0 : root, worker->kind == CLIENT ? ROOT_CLIENT : CHILD_CLASS,
			      &object);
		if (status)
			break;
		worker->failed = "free";
		status = release(worker, fd, worker->kind == CLIENT ? object : root, object);
	}
	pthread_barrier_wait(worker->gate);
	worker->status = status;
	if (fd >= 0)
		close(fd);
	return NULL;
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(int argc, char **argv)
{
	unsigned int threads = argc == 4 ? (unsigned int)strtoul(argv[3], NULL, 10) : 0, i;
	uint64_t objects = argc == 4 ? strtoull(argv[2], NULL, 10) : 0, calls = 0, begun, took;
	static struct worker workers[MOST];
	pthread_barrier_t gate;
	int kind = 0;

	while (argc == 4 && kind < 3 && strcmp(argv[1], names[kind]))
		kind++;
	if (!objects || !threads || threads > MOST || kind == 3) {
		fprintf(stderr, "usage: storm client|child|refused OBJECTS THREADS\nexample: storm child 100003 4\n");
		return 2;
	}
	pthread_barrier_init(&gate, NULL, threads + 1);
	for (i = 0; i < threads; i++) {
		workers[i].kind = (enum kind)kind;
		workers[i].gate = &gate;
		workers[i].objects = objects / threads + (i < objects % threads);
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) {
			fprintf(stderr, "storm: no thread\n");
			return 1;
		}
	}
	pthread_barrier_wait(&gate);
	begun = now();
	pthread_barrier_wait(&gate);
	took = now() - begun;
	for (i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		calls += workers[i].calls;
		if (workers[i].status) {
			fprintf(stderr, "storm: %s: status 0x%x\n", workers[i].failed, workers[i].status);
			return 1;
		}
	}
	printf("{\"event\":\"storm\",\"kind\":\"%s\",\"objects\":%llu,\"threads\":%u,\"calls\":%llu,\"ns\":%llu}\n", names[kind],
	       (unsigned long long)objects, threads, (unsigned long long)calls, (unsigned long long)took);
	return 0;
}
