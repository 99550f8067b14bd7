// SPDX-License-Identifier: Apache-2.0
/* Threads that ring while their own gate is shut and opened: what slips through, what is lost, and how long either takes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "genl.h"
#include "options.h"

static const char usage[] =
	"[--rounds N] [--threads N] [--shut-us N] [--open-us N] [--kicks FILE]\n"
	"Shuts and opens its own gate by detshare's netlink interface while threads ring, and prints one JSON line:\n"
	"slipped (rings counted while it was shut), lost (rings that were done and are not counted), and in us, of each round,\n"
	"close: from the request to the last ring that was done; shut: to the answer; open: from the request to the next ring.\n"
	"  --rounds N     (200)\n"
	"  --threads N    (4)\n"
	"  --shut-us N    how long it stays shut (500)\n"
	"  --open-us N    how long it stays open (500)\n"
	"  --kicks FILE   the simulated GPU's count (/sys/kernel/debug/nvsim/gpu0/kicks)\n"
	"example: nvflap --rounds 1000 --threads 6 --shut-us 0 --open-us 0";

#define THREADS 16

struct ringer {
	pthread_t thread;
	u64 rung;
	u64 last_ns;  /* when the last one was done */
	u64 first_ns; /* when the first after `since` was done, 0: none yet */
	u64 since;
} __attribute__((aligned(64)));

struct figures {
	double *values;
	u64 count;
};

static struct ringer ringers[THREADS];
static volatile bool halt;
static volatile u8 *door;

static void *ring(void *arg)
{
	struct ringer *ringer = arg;
	u64 now;

	while (!halt) {
		__atomic_fetch_add((volatile u64 *)(door + SIM_USERMODE_KICKS), 1, __ATOMIC_SEQ_CST);
		now = nv_now_ns();
		__atomic_store_n(&ringer->last_ns, now, __ATOMIC_RELAXED);
		if (!__atomic_load_n(&ringer->first_ns, __ATOMIC_RELAXED) && now > __atomic_load_n(&ringer->since, __ATOMIC_ACQUIRE))
			__atomic_store_n(&ringer->first_ns, now, __ATOMIC_RELEASE);
		ringer->rung++;
	}
	return NULL;
}

/* Rings that the GPU has counted for this program; read by the kernel, without the doorbell's page. */
static u64 counted(const char *path)
{
	unsigned long long kicks;
	char line[256], way[16];
	u64 sum = 0;
	u32 client, object;
	FILE *file = fopen(path, "re");
	int pid;

	if (!file)
		nv_die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%15s %x %x %d %llu", way, &client, &object, &pid, &kicks) == 5 && pid == getpid())
			sum += kicks;
	fclose(file);
	return sum;
}

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void show(const char *name, struct figures *figures)
{
	u64 n = figures->count;

	if (!n)
		return;
	qsort(figures->values, n, sizeof(double), order);
	printf(",\"%s\":{\"n\":%llu,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, (unsigned long long)n,
	       figures->values[n / 2], figures->values[n * 9 / 10], figures->values[n * 99 / 100], figures->values[n - 1]);
}

static void note(struct figures *figures, u64 from, u64 to)
{
	figures->values[figures->count++] = to > from ? (double)(to - from) * 1e-3 : 0;
}

static void await(u64 threads, u64 since)
{
	u64 end = nv_now_ns() + 10000000000ull, i = 0;

	/* each of them waits at the gate by now, so each goes on */
	while (i < threads && nv_now_ns() < end)
		i += __atomic_load_n(&ringers[i].last_ns, __ATOMIC_RELAXED) > since;
	if (i < threads)
		nv_die("a thread does not go on when the gate has opened");
}

int nvflap_main(int argc, char **argv)
{
	const char *kicks = "/sys/kernel/debug/nvsim/gpu0/kicks";
	u64 rounds = 200, threads = 4, shut_us = 500, open_us = 500, slipped = 0, rung = 0;
	struct figures close = { 0 }, shut = { 0 }, opened = { 0 };
	struct nv_program program;
	struct genl genl;
	const struct nv_option options[] = {
		NV_OPTION("rounds", &rounds),
		NV_OPTION("threads", &threads),
		NV_OPTION("shut-us", &shut_us),
		NV_OPTION("open-us", &open_us),
		NV_OPTION("kicks", &kicks),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc || !rounds || !threads || threads > THREADS)
		nv_usage(usage, 2);
	close.values = calloc(rounds, sizeof(double));
	shut.values = calloc(rounds, sizeof(double));
	opened.values = calloc(rounds, sizeof(double));
	if (!close.values || !shut.values || !opened.values)
		nv_die("no memory");
	nv_must_program(&program, 0, NULL);
	door = (volatile u8 *)program.doorbell;
	genl_must_open(&genl, "detshare", NULL);
	/* who shuts gets its turns before who rings */
	setpriority(PRIO_PROCESS, 0, -10);
	for (u64 i = 0; i < threads; i++)
		if (pthread_create(&ringers[i].thread, NULL, ring, &ringers[i]))
			nv_die("no thread");
	await(threads, 0);
	for (u64 round = 0; round < rounds; round++) {
		u64 asked, answered, before, last = 0, first = 0;

		nv_sleep((double)open_us * 1e-6);
		asked = nv_now_ns();
		genl_must_shut(&genl, getpid());
		answered = nv_now_ns();
		before = counted(kicks);
		nv_sleep((double)shut_us * 1e-6);
		for (u64 i = 0; i < threads; i++)
			if (__atomic_load_n(&ringers[i].last_ns, __ATOMIC_RELAXED) > last)
				last = ringers[i].last_ns;
		slipped += counted(kicks) - before;
		for (u64 i = 0; i < threads; i++) {
			__atomic_store_n(&ringers[i].since, nv_now_ns(), __ATOMIC_RELEASE);
			__atomic_store_n(&ringers[i].first_ns, 0, __ATOMIC_RELEASE);
		}
		note(&shut, asked, answered);
		note(&close, asked, last);
		asked = nv_now_ns();
		genl_must_release(&genl, getpid());
		await(threads, asked);
		for (u64 i = 0; i < threads; i++) {
			u64 at = __atomic_load_n(&ringers[i].first_ns, __ATOMIC_ACQUIRE);

			if (at && (!first || at < first))
				first = at;
		}
		note(&opened, asked, first);
	}
	halt = true;
	for (u64 i = 0; i < threads; i++) {
		pthread_join(ringers[i].thread, NULL);
		rung += ringers[i].rung;
	}
	printf("{\"rounds\":%llu,\"threads\":%llu,\"kicks\":%llu,\"slipped\":%llu,\"lost\":%lld", (unsigned long long)rounds,
	       (unsigned long long)threads, (unsigned long long)rung, (unsigned long long)slipped,
	       (long long)(rung - counted(kicks)));
	show("close_us", &close);
	show("shut_us", &shut);
	show("open_us", &opened);
	puts("}");
	return slipped || rung != counted(kicks);
}
