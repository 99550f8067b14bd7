// SPDX-License-Identifier: Apache-2.0
/* A latency-critical client: one kernel, or a burst, every period, timed from its submission to its end. */

#include "nvclient.h"
#include "work.h"

static const char usage[] =
	"[--us N] [--period-ms N] [--burst N] [--sms N] [--gpu N] [--window S] [--seconds S] [--quiet] [--each]\n"
	"                 [--share | --join CLIENT:TSG | --replay FILE] [--version V]\n"
	"Runs kernels every period until SIGTERM and prints JSON lines: ready, window, summary. The summary has the\n"
	"percentiles of the whole run: as this program saw them (p50_us ...) and from submission to the end by the GPU's\n"
	"clock (gpu_p50_us ...); and the GPU's time that it got, where the simulated driver tells (gpu_time_us).\n"
	"  --us N         duration of a kernel (500)\n"
	"  --period-ms N  from one to the next (10); 0: back to back\n"
	"  --burst N      kernels at once, timed to the end of the last (1)\n"
	"  --sms N        SMs that each needs (132)\n"
	"  --gpu N        (0)\n"
	"  --window S     seconds between two window lines (1)\n"
	"  --seconds S    end after so long (0: until SIGTERM)\n"
	"  --quiet        no window lines\n"
	"  --each         before the summary a line with all of the run, written at its end: [submission by CLOCK_MONOTONIC in\n"
	"                 seconds, latency as this program saw it, and by the GPU's clock, in microseconds]\n"
	"  --share        be an MPS server: others may --join its TSG\n"
	"  --join C:T     be an MPS client: live in TSG T of client C, as its ready line says them\n"
	"  --replay FILE  first replay a converted trace, then work in a channel of its compute TSG\n"
	"example: nvlatency --us 500 --period-ms 10 --seconds 5";

int nvlatency_main(int argc, char **argv)
{
	struct work work = {
		.us = 500, .period = 10e-3, .sms = 132, .window = 1, .latencies = true
	};
	struct nv_channel *channel = work.channels;
	struct nv_kernel kernel;
	double due;
	u64 begin;

	work_options(&work, argc, argv, usage);
	work_open(&work);
	kernel = work_kernel(&work);
	work_ready(&work);
	due = nv_now();
	while (work_running(&work)) {
		begin = nv_now_ns();
		for (u32 i = 0; i < work.burst; i++)
			if (!nv_submit(channel, &kernel))
				nv_die("the ring is full: a burst has at most %u kernels",
				       channel->entries - 1);
		while (!nv_wait(channel, channel->submitted, 0.2) && work_running(&work))
			;
		if (nv_finished(channel) != channel->submitted)
			break;
		work_latency(&work, begin, (double)(nv_now_ns() - begin) / 1e3,
			     (double)(s64)(nv_finished_at(channel, channel->submitted) - begin) /
				     1e3);
		work_done(&work, work.burst);
		due = due + work.period > nv_now() ? due + work.period : nv_now();
		while (nv_now() < due && work_running(&work))
			nv_sleep(due - nv_now() > 0.2 ? 0.2 : due - nv_now());
	}
	work_summary(&work);
	nv_close_program(&work.program);
	return 0;
}
