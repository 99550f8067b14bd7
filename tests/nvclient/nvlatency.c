// SPDX-License-Identifier: Apache-2.0
/* A latency-critical client: one kernel every period, timed from its submission to its end. */
#include <getopt.h>

#include "nvclient.h"
#include "work.h"

static const char usage[] =
	"[--us N] [--period-ms N] [--sms N] [--gpu N] [--window S] [--seconds S] [--replay FILE] [--version V]\n"
	"Runs a kernel every period until SIGTERM and prints JSON lines: ready, window, summary.\n"
	"  --us N         duration of a kernel (500)\n"
	"  --period-ms N  from one kernel to the next (10); 0: back to back\n"
	"  --sms N        SMs that it needs (132)\n"
	"  --gpu N        (0)\n"
	"  --window S     seconds between two window lines (1)\n"
	"  --seconds S    end after so long (0: until SIGTERM)\n"
	"  --replay FILE  first replay a converted trace, then work in a channel of its compute TSG\n"
	"example: nvlatency --us 500 --period-ms 10 --seconds 5";

int main(int argc, char **argv)
{
	struct work work = {
		.us = 500, .period = 10e-3, .sms = 132, .window = 1, .latencies = true
	};
	struct nv_kernel kernel = { 0 };
	struct nv_channel *channel;
	double begin, due;

	nv_program_name(argv[0]);
	work_options(&work, argc, argv, usage);
	channel = work_open(&work);
	kernel.ns = (u64)(work.us * 1e3);
	kernel.sms = work.sms;
	work_ready(&work);
	due = nv_now();
	while (work_running(&work)) {
		begin = nv_now();
		if (!nv_submit(channel, &kernel))
			nv_die("the ring of one kernel is full");
		while (!nv_wait(channel, channel->submitted, 0.2) && work_running(&work))
			;
		if (nv_finished(channel) != channel->submitted)
			break;
		work_done(&work, 1, (nv_now() - begin) * 1e6);
		due = due + work.period > nv_now() ? due + work.period : nv_now();
		while (nv_now() < due && work_running(&work))
			nv_sleep(due - nv_now() > 0.2 ? 0.2 : due - nv_now());
	}
	work_summary(&work);
	nv_close_program(&work.program);
	return 0;
}
