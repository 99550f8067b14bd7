// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#include "replay.h"
#include "work.h"

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

void work_options(struct work *work, int argc, char **argv, const char *usage)
{
	static const struct option options[] = {
		{ "us", required_argument, NULL, 'u' },
		{ "period-ms", required_argument, NULL, 'p' },
		{ "sms", required_argument, NULL, 's' },
		{ "depth", required_argument, NULL, 'd' },
		{ "gpu", required_argument, NULL, 'g' },
		{ "window", required_argument, NULL, 'w' },
		{ "seconds", required_argument, NULL, 't' },
		{ "version", required_argument, NULL, 'v' },
		{ "replay", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'u':
			work->us = nv_decimal(optarg, "--us");
			break;
		case 'p':
			work->period = nv_decimal(optarg, "--period-ms") * 1e-3;
			break;
		case 's':
			work->sms = (u32)nv_number(optarg, "--sms");
			break;
		case 'd':
			work->depth = (u32)nv_number(optarg, "--depth");
			break;
		case 'g':
			work->gpu = (u32)nv_number(optarg, "--gpu");
			break;
		case 'w':
			work->window = nv_decimal(optarg, "--window");
			break;
		case 't':
			work->seconds = nv_decimal(optarg, "--seconds");
			break;
		case 'v':
			work->version = optarg;
			break;
		case 'r':
			work->replay = optarg;
			break;
		default:
			nv_usage(usage, c == 'h' ? 0 : 2);
		}
	}
	if (optind != argc || (!work->latencies && !work->depth))
		nv_usage(usage, 2);
	if (work->replay)
		replay_fix_addresses(argv);
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
}

struct nv_channel *work_open(struct work *work)
{
	if (work->latencies) {
		work->kept_us = calloc(WORK_LATENCIES, sizeof(*work->kept_us));
		if (!work->kept_us)
			nv_die("no memory for latencies");
	}
	if (work->replay) {
		replay_must_become_program(work->replay, &work->program, work->gpu, work->version);
	} else {
		nv_must_program(&work->program, work->gpu, work->version);
	}
	nv_must_channel(&work->channel, &work->program);
	return &work->channel;
}

void work_ready(struct work *work)
{
	work->begin = work->t0 = nv_now();
	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f,\"client\":%u,\"tsg\":%u}\n", getpid(),
	       work->begin, work->program.client, work->program.tsg);
	fflush(stdout);
}

bool work_running(const struct work *work)
{
	return !stopped && !(work->seconds > 0 && nv_now() - work->begin >= work->seconds);
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void print_latencies(struct work *work)
{
	u32 i;

	printf(",\"latency_us\":[");
	for (i = 0; i < work->kept; i++)
		printf(i ? ",%.1f" : "%.1f", (double)work->kept_us[i]);
	putchar(']');
	if (!work->kept)
		return;
	qsort(work->kept_us, work->kept, sizeof(*work->kept_us), by_value);
	printf(",\"p50_us\":%.1f,\"p99_us\":%.1f", (double)work->kept_us[work->kept / 2],
	       (double)work->kept_us[(u64)work->kept * 99 / 100]);
}

static void window(struct work *work, double now)
{
	printf("{\"event\":\"window\",\"t0\":%.6f,\"t1\":%.6f,\"count\":%llu", work->t0, now,
	       (unsigned long long)work->count);
	if (work->latencies)
		print_latencies(work);
	puts("}");
	fflush(stdout);
	work->kept = 0;
	work->total += work->count;
	work->count = 0;
	work->t0 = now;
}

void work_done(struct work *work, u64 count, double latency_us)
{
	double now = nv_now();

	work->count += count;
	if (work->latencies && count && work->kept < WORK_LATENCIES)
		work->kept_us[work->kept++] = (float)latency_us;
	if (now - work->t0 >= work->window)
		window(work, now);
}

void work_summary(struct work *work)
{
	work->total += work->count;
	printf("{\"event\":\"summary\",\"seconds\":%.6f,\"count\":%llu,\"items\":0}\n",
	       nv_now() - work->begin, (unsigned long long)work->total);
	fflush(stdout);
}
