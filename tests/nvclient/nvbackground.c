// SPDX-License-Identifier: Apache-2.0
/* A background client: kernels back to back, as many queued as --depth says. */
#include <getopt.h>

#include "nvclient.h"
#include "work.h"

static const char usage[] =
	"[--us N] [--depth N] [--sms N] [--gpu N] [--window S] [--seconds S] [--replay FILE] [--version V]\n"
	"Keeps the GPU busy until SIGTERM and prints JSON lines: ready, window, summary.\n"
	"  --us N         duration of a kernel (1000)\n"
	"  --depth N      kernels in the queue (256)\n"
	"  --sms N        SMs that each needs (132)\n"
	"  --gpu N        (0)\n"
	"  --window S     seconds between two window lines (1)\n"
	"  --seconds S    end after so long (0: until SIGTERM)\n"
	"  --replay FILE  first replay a converted trace, then work in a channel of its compute TSG\n"
	"example: nvbackground --us 2000 --seconds 5";

int main(int argc, char **argv)
{
	struct work work = { .us = 1000, .sms = 132, .window = 1, .depth = 256 };
	struct nv_kernel kernel = { 0 };
	struct nv_channel *channel;
	u64 finished = 0, now;

	nv_program_name(argv[0]);
	work_options(&work, argc, argv, usage);
	channel = work_open(&work);
	kernel.ns = (u64)(work.us * 1e3);
	kernel.sms = work.sms;
	work_ready(&work);
	while (work_running(&work)) {
		while (channel->submitted - finished < work.depth && nv_submit(channel, &kernel))
			;
		/*
		 * half the queue may run dry before it is filled up again: few wakes, and never an
		 * idle GPU
		 */
		nv_sleep(work.us * 1e-6 * work.depth / 4 < 0.05 ? work.us * 1e-6 * work.depth / 4
								: 0.05);
		now = nv_finished(channel);
		work_done(&work, now - finished, 0);
		finished = now;
	}
	work_summary(&work);
	nv_close_program(&work.program);
	return 0;
}
