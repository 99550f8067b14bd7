// SPDX-License-Identifier: Apache-2.0
/* Processes that allocate and free a GPU's memory in random sizes, by various calls, until somebody kills them. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"

#define PIECE	(64ull << 10)
#define KEPT	32	/* allocations that a client holds at most */
#define COPIES	8

static const char usage[] =
	"[--processes N] [--most SIZE] [--gpu N] [--seed N] [--seconds S] [--idle-us N] [--version V]\n"
	"Starts clients that allocate and free until they are killed, prints a JSON line with their pids once each of them has\n"
	"been granted something, and one at the end, when none is left. What it started ends with it.\n"
	"  --processes N  clients (8)\n"
	"  --most SIZE    of one allocation (4m)\n"
	"  --seconds S    kill the clients that are left after so long (0: wait for others to do it)\n"
	"  --idle-us N    pause of a client between two calls, in us (0)\n"
	"example: nvstorm --processes 100 --seconds 5";

struct storm {
	struct nv nv;
	u32 client, device, second, second_device;
	u32 held[KEPT], copies[COPIES], idle_us;
	u64 random, most;
};

static _Atomic u32 *ready; /* clients that were granted something; shared with all of them */

static u64 next(struct storm *storm)
{
	storm->random ^= storm->random << 13;
	storm->random ^= storm->random >> 7;
	storm->random ^= storm->random << 17;
	return storm->random;
}

static u32 device_of(struct storm *storm, u32 client, u32 gpu, u32 *device)
{
	u8 params[256] = { 0 };

	*device = nv_next_handle(&storm->nv);
	rm_put32(params, storm->nv.abi->device.deviceId, gpu);
	return nv_alloc(&storm->nv, client, client, device, NV01_DEVICE_0, params, storm->nv.abi->device.len);
}

static void open_client(struct storm *storm, u32 gpu, const char *version)
{
	char name[24];
	u32 status;

	nv_must_open(&storm->nv, version);
	snprintf(name, sizeof(name), "nvidia%u", gpu);
	nv_must_open_device(name);
	status = nv_root(&storm->nv, &storm->client);
	if (!status)
		status = device_of(storm, storm->client, gpu, &storm->device);
	if (!status)
		status = nv_root(&storm->nv, &storm->second);
	if (!status)
		status = device_of(storm, storm->second, gpu, &storm->second_device);
	if (status)
		nv_die("open GPU %u: status 0x%x %s", gpu, status, nv_status_name(status));
}

static u32 allocate(struct storm *storm, u32 *handle)
{
	struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER, .size = PIECE + next(storm) % storm->most };
	u64 size = ask.size;

	*handle = nv_next_handle(&storm->nv);
	storm->nv.xfer = next(storm) % 4 == 0;
	storm->nv.os21 = next(storm) % 4 == 0;
	if (next(storm) % 3 == 0)
		return nv_vid_heap(&storm->nv, storm->client, storm->device, handle, NVOS32_FUNCTION_ALLOC_SIZE, &size, NULL, NULL);
	if (next(storm) % 8 == 0) {
		ask.class = NV01_MEMORY_SYSTEM;
		ask.attr = NVOS32_ATTR_LOCATION_PCI << NVOS32_ATTR_LOCATION_LO;
	}
	return nv_memory(&storm->nv, storm->client, storm->device, handle, &ask, NULL);
}

static void __attribute__((noreturn)) rage(struct storm *storm)
{
	u32 slot, status;
	bool told = false;

	for (;;) {
		slot = (u32)(next(storm) % KEPT);
		if (storm->held[slot]) {
			if (next(storm) & 1)
				nv_free(&storm->nv, storm->client, storm->device, storm->held[slot]);
			else
				nv_vid_heap_free(&storm->nv, storm->client, storm->device, storm->held[slot]);
			storm->held[slot] = 0;
		} else {
			status = allocate(storm, &storm->held[slot]);
			if (status)
				storm->held[slot] = 0;
			if (status && status != NV_ERR_NO_MEMORY && status != NV_ERR_INSUFFICIENT_RESOURCES)
				nv_die("allocate: status 0x%x %s", status, nv_status_name(status));
			if (!told && !status) {
				told = true;
				atomic_fetch_add_explicit(ready, 1, memory_order_release);
			}
			if (!status && next(storm) % 8 == 0) {
				u32 *copy = &storm->copies[next(storm) % COPIES];

				if (*copy)
					nv_free(&storm->nv, storm->second, storm->second_device, *copy);
				*copy = nv_next_handle(&storm->nv);
				nv_dup(&storm->nv, storm->second, storm->second_device, copy, storm->client, storm->held[slot]);
			}
		}
		if (storm->idle_us)
			usleep(storm->idle_us);
	}
}

static void wait_ready(pid_t *pids, u32 processes)
{
	double begin = nv_now();
	u32 i;

	while (atomic_load_explicit(ready, memory_order_acquire) < processes) {
		pid_t gone = waitpid(-1, NULL, WNOHANG);

		if (gone > 0 || nv_now() - begin > 300) {
			for (i = 0; i < processes; i++)
				if (pids[i] != gone)
					kill(pids[i], SIGKILL);
			if (gone > 0)
				nv_die("client %d ended before all were ready; see what it said", (int)gone);
			nv_die("%u of %u clients were granted something in 300 s; are their limits too low?", *ready, processes);
		}
		nv_sleep(0.005);
	}
}

static void run(const struct storm *like, u32 processes, u32 gpu, const char *version, u64 seed, double seconds)
{
	pid_t *pids = calloc(processes, sizeof(*pids)), parent = getpid();
	double end;
	u32 i, left = processes;

	if (!pids)
		nv_die("no memory for %u pids", processes);
	for (i = 0; i < processes; i++) {
		struct storm storm = *like;

		pids[i] = fork();
		if (pids[i] < 0)
			nv_die("start client %u: %s", i, strerror(errno));
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		storm.random = (seed * 1000003 + i + 1) * 0x2545f4914f6cdd1dull;
		open_client(&storm, gpu, version);
		rage(&storm);
	}
	wait_ready(pids, processes);
	printf("{\"event\": \"ready\", \"pids\": [");
	for (i = 0; i < processes; i++)
		printf("%s%d", i ? ", " : "", (int)pids[i]);
	printf("]}\n");
	fflush(stdout);
	if (seconds > 0) {
		for (end = nv_now() + seconds; nv_now() < end;)
			nv_sleep(end - nv_now());
		for (i = 0; i < processes; i++)
			kill(pids[i], SIGKILL);
	}
	while (left)
		if (wait(NULL) > 0)
			left--;
	printf("{\"event\": \"gone\", \"processes\": %u}\n", processes);
	free(pids);
}

int nvstorm_main(int argc, char **argv)
{
	struct storm storm = { .most = 4ull << 20 };
	const char *version = NULL;
	u32 processes = 8, gpu = 0;
	double seconds = 0;
	u64 seed = 1;
	const struct nv_option options[] = {
		NV_OPTION("processes", &processes),
		NV_OPTION("most", &storm.most),
		NV_OPTION("seconds", &seconds),
		NV_OPTION("gpu", &gpu),
		NV_OPTION("seed", &seed),
		NV_OPTION("idle-us", &storm.idle_us),
		NV_OPTION("version", &version),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc || !processes || processes > 30000 || !storm.most)
		nv_usage(usage, 2);
	ready = mmap(NULL, sizeof(*ready), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ready == MAP_FAILED)
		nv_die("map a shared page: %s", strerror(errno));
	run(&storm, processes, gpu, version, seed, seconds);
	return 0;
}
