// SPDX-License-Identifier: Apache-2.0
/* Threads whose clients come and go, with all that makes the module take its locks. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "options.h"

static const char usage[] =
	"[--threads N] [--gpu N] [--names CLIENT] [--version V]\n"
	"Each thread makes two clients with devices, memory of one that the other duplicates, a channel group, a control that names a\n"
	"client, and lets all go by closing its file, until SIGTERM. Prints a JSON line when each thread has done so once, and for each\n"
	"line that it reads the rounds of all threads.\n"
	"  --threads N     (1)\n"
	"  --names CLIENT  the client that the control names (its own)\n"
	"example: nvchurn --threads 64";

static const char *version;
static u32 gpu, names;
static _Atomic u64 rounds;
static _Atomic u32 ready;

static u32 device_of(struct nv *nv, u32 client, u32 *device)
{
	u8 params[256] = { 0 };

	*device = nv_next_handle(nv);
	rm_put32(params, nv->abi->device.deviceId, gpu);
	return nv_alloc(nv, client, client, device, NV01_DEVICE_0, params, nv->abi->device.len);
}

/* Of what is refused nothing follows: whoever is limited, or out of memory, goes on all the same. */
static void turn(const struct nv *like)
{
	struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER, .size = 65536 };
	u32 one, other, device = 0, second = 0, memory, copy, group, subdevice;
	u8 params[256] = { 0 };
	struct nv nv = *like;

	nv.ctl = nv_open_device("nvidiactl");
	if (nv.ctl < 0)
		return;
	if (nv_root(&nv, &one) || nv_root(&nv, &other) || device_of(&nv, one, &device) || device_of(&nv, other, &second))
		goto close;
	subdevice = nv_next_handle(&nv);
	nv_alloc(&nv, one, device, &subdevice, NV20_SUBDEVICE_0, params, nv.abi->subdevice.len);
	memory = nv_next_handle(&nv);
	if (!nv_memory(&nv, one, device, &memory, &ask, NULL)) {
		copy = nv_next_handle(&nv);
		nv_dup(&nv, other, second, &copy, one, memory);
	}
	group = nv_next_handle(&nv);
	rm_put32(params, nv.abi->tsg.engineType, NV2080_ENGINE_TYPE_GR0);
	nv_alloc(&nv, one, device, &group, KEPLER_CHANNEL_GROUP_A, params, nv.abi->tsg.len);
	memset(params, 0, sizeof(params));
	rm_put32(params, nv.abi->access_rights.hClient, names ?: one);
	nv_control(&nv, one, one, NV0000_CTRL_CMD_CLIENT_GET_ACCESS_RIGHTS, params, nv.abi->access_rights.len);
close:
	nv_close(&nv);
}

static void *churn(void *like)
{
	bool first = true;

	for (;;) {
		turn(like);
		atomic_fetch_add(&rounds, 1);
		if (first)
			atomic_fetch_add(&ready, 1);
		first = false;
	}
	return NULL;
}

int nvchurn_main(int argc, char **argv)
{
	u32 threads = 1, i;
	char line[16];
	int gpu_file;
	const struct nv_option options[] = {
		NV_OPTION("threads", &threads),
		NV_OPTION("gpu", &gpu),
		NV_OPTION("names", &names),
		NV_OPTION("version", &version),
		{ 0 },
	};
	struct nv like;

	if (nv_options(argc, argv, usage, options) != argc || !threads || threads > 4096)
		nv_usage(usage, 2);
	snprintf(line, sizeof(line), "nvidia%u", gpu);
	nv_must_open(&like, version);
	gpu_file = nv_must_open_device(line);
	for (i = 0; i < threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, churn, &like))
			nv_die("start thread %u", i);
	}
	while (atomic_load(&ready) < threads)
		nv_sleep(0.01);
	printf("{\"event\": \"ready\", \"threads\": %u}\n", threads);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		printf("{\"rounds\": %llu}\n", (unsigned long long)atomic_load(&rounds));
		fflush(stdout);
	}
	close(gpu_file);
	_exit(0);
	return 0;
}
