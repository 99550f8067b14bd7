// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "options.h"
#include "replay.h"
#include "work.h"

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static void joined(struct work *work, const char *names, const char *usage)
{
	char client[24];

	if (sscanf(names, "%23[^:]:", client) != 1 || !strchr(names, ':'))
		nv_usage(usage, 2);
	work->join_client = (u32)nv_number(client, "--join");
	work->join_tsg = (u32)nv_number(strchr(names, ':') + 1, "--join");
}

void work_options(struct work *work, int argc, char **argv, const char *usage)
{
	const char *join = NULL;
	double period = work->period * 1e3;
	const struct nv_option options[] = {
		NV_OPTION("us", &work->us),
		NV_OPTION("period-ms", &period),
		NV_OPTION("sms", &work->sms),
		NV_OPTION("depth", &work->depth),
		NV_OPTION("tsgs", &work->tsgs),
		NV_OPTION("burst", &work->burst),
		NV_OPTION("endless", &work->endless),
		NV_OPTION("quiet", &work->quiet),
		NV_OPTION("each", &work->each),
		NV_OPTION("share", &work->share),
		NV_OPTION("join", &join),
		NV_OPTION("gpu", &work->gpu),
		NV_OPTION("window", &work->window),
		NV_OPTION("seconds", &work->seconds),
		NV_OPTION("version", &work->version),
		NV_OPTION("replay", &work->replay),
		{ 0 },
	};

	work->tsgs = 1;
	work->burst = 1;
	if (nv_options(argc, argv, usage, options) != argc || !work->tsgs || work->tsgs > WORK_TSGS || !work->burst ||
	    (work->latencies ? work->endless || work->tsgs > 1 : !work->depth || work->burst > 1 || work->each))
		nv_usage(usage, 2);
	work->period = period * 1e-3;
	if (join)
		joined(work, join, usage);
	if (work->replay)
		replay_fix_addresses(argv);
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
}

static void open_program(struct work *work)
{
	struct nv_program *program = &work->program;
	const char *step;
	u32 status;

	nv_must_open_program(program, work->gpu, work->version);
	program->join_client = work->join_client;
	program->join_tsg = work->join_tsg;
	status = nv_program_base(program, &step);
	if (!status)
		status = nv_program_context(program, &step);
	if (!status && work->share) {
		step = "sharing the TSG";
		status = nv_program_share(program);
	}
	if (status)
		nv_die("%s: status 0x%x %s", step, status, nv_status_name(status));
}

void work_open(struct work *work)
{
	const char *step;
	u32 status, tsg;

	if (work->latencies) {
		work->kept_us = calloc(WORK_LATENCIES, sizeof(*work->kept_us));
		work->all_us = calloc(WORK_ALL, sizeof(*work->all_us));
		work->gpu_us = calloc(WORK_ALL, sizeof(*work->gpu_us));
		work->at_ns = calloc(WORK_ALL, sizeof(*work->at_ns));
		if (!work->kept_us || !work->all_us || !work->gpu_us || !work->at_ns)
			nv_die("no memory for latencies");
	}
	if (work->replay)
		replay_must_become_program(work->replay, &work->program, work->gpu, work->version);
	else
		open_program(work);
	nv_must_channel(&work->channels[0], &work->program);
	for (u32 i = 1; i < work->tsgs; i++) {
		status = nv_group_open(&work->channels[i], &work->program, &tsg, &step);
		if (status)
			nv_die("TSG %u: %s: status 0x%x %s", i + 1, step, status,
			       nv_status_name(status));
	}
}

struct nv_kernel work_kernel(const struct work *work)
{
	return (struct nv_kernel){
		.ns = work->endless ? SIM_KERNEL_ENDLESS : (u64)(work->us * 1e3),
		.sms = work->sms,
	};
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

/* Sorts them. */
static void print_percentiles(float *values, u32 count, const char *prefix)
{
	if (!count)
		return;
	qsort(values, count, sizeof(*values), by_value);
	printf(",\"%sp50_us\":%.1f,\"%sp99_us\":%.1f", prefix, (double)values[count / 2], prefix,
	       (double)values[(u64)count * 99 / 100]);
}

static void window(struct work *work, double now)
{
	if (!work->quiet) {
		printf("{\"event\":\"window\",\"t0\":%.6f,\"t1\":%.6f,\"count\":%llu", work->t0,
		       now, (unsigned long long)work->count);
		if (work->latencies) {
			printf(",\"latency_us\":[");
			for (u32 i = 0; i < work->kept; i++)
				printf(i ? ",%.1f" : "%.1f", (double)work->kept_us[i]);
			putchar(']');
			print_percentiles(work->kept_us, work->kept, "");
		}
		puts("}");
		fflush(stdout);
	}
	work->kept = 0;
	work->total += work->count;
	work->count = 0;
	work->t0 = now;
}

void work_latency(struct work *work, u64 at_ns, double us, double gpu_us)
{
	if (work->kept < WORK_LATENCIES)
		work->kept_us[work->kept++] = (float)us;
	if (work->all < WORK_ALL) {
		work->at_ns[work->all] = at_ns;
		work->all_us[work->all] = (float)us;
		work->gpu_us[work->all++] = (float)gpu_us;
	}
}

void work_done(struct work *work, u64 count)
{
	double now = nv_now();

	work->count += count;
	if (now - work->t0 >= work->window)
		window(work, now);
}

static void print_each(const struct work *work)
{
	printf("{\"event\":\"each\",\"each\":[");
	for (u32 i = 0; i < work->all; i++)
		printf("%s[%.6f,%.1f,%.1f]", i ? "," : "", (double)work->at_ns[i] / 1e9,
		       (double)work->all_us[i], (double)work->gpu_us[i]);
	puts("]}");
}

void work_summary(struct work *work)
{
	u64 gpu_us;

	/* before they are sorted */
	if (work->each)
		print_each(work);
	work->total += work->count;
	printf("{\"event\":\"summary\",\"seconds\":%.6f,\"count\":%llu,\"items\":0",
	       nv_now() - work->begin, (unsigned long long)work->total);
	print_percentiles(work->all_us, work->all, "");
	if (work->all)
		printf(",\"max_us\":%.1f", (double)work->all_us[work->all - 1]);
	print_percentiles(work->gpu_us, work->all, "gpu_");
	if (work->all)
		printf(",\"gpu_max_us\":%.1f", (double)work->gpu_us[work->all - 1]);
	if (nv_gpu_time(&work->program, &gpu_us))
		printf(",\"gpu_time_us\":%llu", (unsigned long long)gpu_us);
	puts("}");
	fflush(stdout);
}
