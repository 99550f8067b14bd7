// SPDX-License-Identifier: Apache-2.0
/* A program that launches, forks, moves and remaps its doorbell, allocates, in random order: nothing may be lost. */
#include <signal.h>
#include <unistd.h>

#include "options.h"
#include "stress.h"

static const char usage[] =
	"[--seed N] [--us N] [--seconds S] [--patience S] [--gpu N] [--version V]\n"
	"Launches kernels and does to its doorbell what programs may do (fork, mremap, munmap, mprotect, second mappings,\n"
	"threads, new channels), in an order that the seed decides, until SIGTERM. Prints JSON lines: ready, summary.\n"
	"Exit code 3 where work that was launched never ends.\n"
	"  --seed N      (1)\n"
	"  --us N        longest kernel (300)\n"
	"  --seconds S   end after so long (0: until SIGTERM)\n"
	"  --patience S  time without progress after which work counts as lost (120)\n"
	"  --gpu N       (0)\n"
	"example: nvstress --seed 7 --seconds 5";

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static u64 total(const struct stress *stress, bool submitted)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < stress->channel_count; i++)
		sum += submitted ? stress->channels[i].submitted : nv_finished(&stress->channels[i]);
	return sum;
}

static void tell(const struct stress *stress, const char *event)
{
	const struct stress_way *way;

	printf("{\"event\":\"%s\",\"pid\":%d,\"submitted\":%llu,\"finished\":%llu,\"longest_ms\":%.3f,\"refused\":%llu,\"ways\":{",
	       event, getpid(), (unsigned long long)total(stress, true), (unsigned long long)total(stress, false),
	       stress->longest * 1e3, (unsigned long long)stress->refused);
	for (way = stress_ways; way->name; way++)
		printf("%s\"%s\":%llu", way == stress_ways ? "" : ",", way->name, (unsigned long long)way->count);
	puts("}}");
	fflush(stdout);
}

void stress_settle(struct stress *stress)
{
	u64 submitted = total(stress, true), before = total(stress, false), now;
	double begin = nv_now(), last = begin;

	while ((now = total(stress, false)) != submitted) {
		if (now != before) {
			before = now;
			last = nv_now();
		}
		if (nv_now() - last > stress->patience) {
			tell(stress, "lost");
			exit(3);
		}
		nv_sleep(100e-6);
	}
	if (nv_now() - begin > stress->longest)
		stress->longest = nv_now() - begin;
}

static struct stress_way *choose(struct stress *stress)
{
	struct stress_way *way;
	u64 shares = 0, at;

	for (way = stress_ways; way->name; way++)
		shares += way->share;
	at = stress_random(stress, shares);
	for (way = stress_ways; at >= way->share; way++)
		at -= way->share;
	return way;
}

int nvstress_main(int argc, char **argv)
{
	struct stress stress = { .patience = 120 };
	const char *version = NULL;
	double seconds = 0, begin;
	u64 seed = 1, us = 300;
	u32 gpu = 0;
	sigset_t asked;
	const struct nv_option options[] = {
		NV_OPTION("seed", &seed),
		NV_OPTION("us", &us),
		NV_OPTION("seconds", &seconds),
		NV_OPTION("patience", &stress.patience),
		NV_OPTION("gpu", &gpu),
		NV_OPTION("version", &version),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc || !us)
		nv_usage(usage, 2);
	stress.most_ns = us * 1000;
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	/* who starts this may hold it back until here, so that an early one is not lost and does not kill */
	sigemptyset(&asked);
	sigaddset(&asked, SIGTERM);
	sigprocmask(SIG_UNBLOCK, &asked, NULL);
	stress.random = (seed + 1) * 0x9e3779b97f4a7c15ull;
	nv_must_program(&stress.program, gpu, version);
	nv_must_channel(&stress.channels[stress.channel_count++], &stress.program);
	tell(&stress, "ready");
	begin = nv_now();
	while (!stopped && !(seconds > 0 && nv_now() - begin >= seconds)) {
		struct stress_way *way = choose(&stress);

		way->count++;
		way->go(&stress);
	}
	stress_settle(&stress);
	tell(&stress, "summary");
	nv_close_program(&stress.program);
	return 0;
}
