// SPDX-License-Identifier: Apache-2.0
/* Rings a doorbell and nothing else: how many rings got through, when one had to wait, and for how long. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "options.h"

static const char usage[] =
	"[--kicks N] [--seconds S] [--period-us N] [--burst N --idle-ms N] [--gap-us N] [--mappings N] [--work-us N]\n"
	"               [--own-slice US] [--read] [--gpu N] [--version V]\n"
	"Stores the token of a channel of its own to the doorbell again and again, and prints JSON lines: ready, gap (a ring\n"
	"that took longer than --gap-us), summary. Times are ns of CLOCK_MONOTONIC.\n"
	"  --kicks N      end after so many (0: until --seconds or SIGTERM)\n"
	"  --seconds S    end after so long (0: never)\n"
	"  --period-us N  from one ring to the next (0: as fast as it goes)\n"
	"  --burst N      rest for --idle-ms after every N rings (0: never rest)\n"
	"  --idle-ms N    (10)\n"
	"  --gap-us N     what counts as a gap (1000)\n"
	"  --mappings N   doorbell mappings of one usermode object, rung in turn (1)\n"
	"  --work-us N    submit a kernel of this duration with each ring that finds room (0: ring only)\n"
	"  --own-slice US sets this time slice itself, half a second after its context was made, and is ready then\n"
	"  --read         read the GPU's clock on the doorbell's page instead of storing\n"
	"example: nvkick --kicks 1000000; nvkick --burst 100 --idle-ms 20 --seconds 5";

#define MAPPINGS  8
#define HISTOGRAM 40 /* by powers of two, ns */

struct kick {
	u64 kicks, burst, mappings, own_slice;
	double seconds, period, idle, gap, work;
	bool read;
	/* what came of it */
	u64 done, waited, first, last, longest, longest_at;
	u64 histogram[HISTOGRAM];
};

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static void options(struct kick *kick, u32 *gpu, const char **version, int argc, char **argv)
{
	const struct nv_option options[] = {
		NV_OPTION("kicks", &kick->kicks),
		NV_OPTION("seconds", &kick->seconds),
		NV_OPTION("period-us", &kick->period),
		NV_OPTION("burst", &kick->burst),
		NV_OPTION("idle-ms", &kick->idle),
		NV_OPTION("gap-us", &kick->gap),
		NV_OPTION("mappings", &kick->mappings),
		NV_OPTION("work-us", &kick->work),
		NV_OPTION("own-slice", &kick->own_slice),
		NV_OPTION("read", &kick->read),
		NV_OPTION("gpu", gpu),
		NV_OPTION("version", version),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc || !kick->mappings || kick->mappings > MAPPINGS)
		nv_usage(usage, 2);
	kick->period *= 1e-6;
	kick->idle *= 1e-3;
	kick->gap *= 1e3;
}

static void one(struct kick *kick, volatile u32 *doorbell, u32 token)
{
	u64 before = nv_now_ns(), after, took;
	u32 slot = 0;

	if (kick->read)
		(void)doorbell[SIM_USERMODE_TIME_0 / 4];
	else
		nv_kick(doorbell, token);
	after = nv_now_ns();
	took = after - before;
	while (slot < HISTOGRAM - 1 && took >> (slot + 1))
		slot++;
	kick->histogram[slot]++;
	kick->done++;
	if (!kick->first)
		kick->first = after;
	kick->last = after;
	if (took > kick->longest) {
		kick->longest = took;
		kick->longest_at = before;
	}
	if ((double)took > kick->gap) {
		kick->waited++;
		printf("{\"event\":\"gap\",\"from_ns\":%llu,\"to_ns\":%llu}\n",
		       (unsigned long long)before, (unsigned long long)after);
		fflush(stdout);
	}
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static void summary(const struct kick *kick, double seconds, long faulted, u64 finished)
{
	printf("{\"event\":\"summary\",\"seconds\":%.6f,\"kicks\":%llu,\"gaps\":%llu,\"faults\":%ld,"
	       "\"first_ns\":%llu,\"last_ns\":%llu,\"longest_ns\":%llu,\"longest_at_ns\":%llu,"
	       "\"kernels\":%llu,\"histogram\":{",
	       seconds, (unsigned long long)kick->done, (unsigned long long)kick->waited, faulted,
	       (unsigned long long)kick->first, (unsigned long long)kick->last,
	       (unsigned long long)kick->longest, (unsigned long long)kick->longest_at,
	       (unsigned long long)finished);
	for (u32 i = 0, some = 0; i < HISTOGRAM; i++)
		if (kick->histogram[i])
			printf("%s\"%llu\":%llu", some++ ? "," : "", 1ull << i,
			       (unsigned long long)kick->histogram[i]);
	puts("}}");
	fflush(stdout);
}

int nvkick_main(int argc, char **argv)
{
	struct kick kick = { .idle = 10, .gap = 1000, .mappings = 1 };
	struct nv_kernel kernel = { .sms = 1 };
	volatile u32 *doorbells[MAPPINGS];
	struct nv_program program;
	struct nv_channel channel;
	const char *version = NULL;
	double begin, due;
	u32 status, gpu = 0;
	long before;

	options(&kick, &gpu, &version, argc, argv);
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	nv_must_program(&program, gpu, version);
	nv_must_channel(&channel, &program);
	doorbells[0] = program.doorbell;
	for (u64 i = 1; i < kick.mappings; i++) {
		doorbells[i] = nv_map(&program.nv, program.gpu_device, program.client, program.subdevice,
				      program.usermode, 0, SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE, NULL,
				      &status);
		if (!doorbells[i])
			nv_die("doorbell mapping %llu: status 0x%x %s", (unsigned long long)i + 1, status,
			       nv_status_name(status));
	}
	kernel.ns = (u64)(kick.work * 1e3);
	if (kick.own_slice) {
		nv_sleep(0.5);
		status = nv_control(&program.nv, program.client, program.tsg, NVA06C_CTRL_CMD_SET_TIMESLICE,
				    &kick.own_slice, 8);
		if (status)
			nv_die("its own slice: status 0x%x %s", status, nv_status_name(status));
	}
	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f,\"client\":%u,\"tsg\":%u,\"tsg_asked_ns\":%llu}\n", getpid(),
	       nv_now(), program.client, program.tsg, (unsigned long long)program.tsg_asked);
	fflush(stdout);
	begin = due = nv_now();
	before = faults();
	while (!stopped && (!kick.kicks || kick.done < kick.kicks) &&
	       (kick.seconds <= 0 || nv_now() - begin < kick.seconds)) {
		if (kernel.ns)
			nv_queue(&channel, &kernel);
		one(&kick, doorbells[kick.done % kick.mappings], channel.token);
		if (kick.burst && kick.done % kick.burst == 0)
			nv_sleep(kick.idle);
		if (kick.period > 0) {
			due = due + kick.period > nv_now() ? due + kick.period : nv_now();
			nv_sleep(due - nv_now());
		}
	}
	before = faults() - before;
	summary(&kick, nv_now() - begin, before, nv_finished(&channel));
	nv_close_program(&program);
	return 0;
}
