// SPDX-License-Identifier: Apache-2.0
/* A program that launches, forks, moves and remaps its doorbell, allocates, in random order: nothing may be lost. */
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },     { "us", required_argument, NULL, 'u' },
		{ "seconds", required_argument, NULL, 't' },  { "patience", required_argument, NULL, 'p' },
		{ "gpu", required_argument, NULL, 'g' },      { "version", required_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },	      { 0 }
	};
	struct stress stress = { .most_ns = 300000, .patience = 120 };
	const char *version = NULL;
	double seconds = 0, begin;
	u64 seed = 1;
	u32 gpu = 0;
	sigset_t asked;
	int c;

	nv_program_name(argv[0]);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			seed = nv_number(optarg, "--seed");
			break;
		case 'u':
			stress.most_ns = nv_number(optarg, "--us") * 1000;
			break;
		case 't':
			seconds = nv_decimal(optarg, "--seconds");
			break;
		case 'p':
			stress.patience = nv_decimal(optarg, "--patience");
			break;
		case 'g':
			gpu = (u32)nv_number(optarg, "--gpu");
			break;
		case 'v':
			version = optarg;
			break;
		default:
			nv_usage(usage, c == 'h' ? 0 : 2);
		}
	}
	if (optind != argc || !stress.most_ns)
		nv_usage(usage, 2);
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
