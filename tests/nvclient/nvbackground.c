// SPDX-License-Identifier: Apache-2.0
/* A background client: kernels back to back, as many queued as --depth says, or endless ones. */

#include "nvclient.h"
#include "work.h"

static const char usage[] =
	"[--us N | --endless] [--depth N] [--tsgs N] [--sms N] [--gpu N] [--window S] [--seconds S] [--quiet]\n"
	"                    [--share | --join CLIENT:TSG | --replay FILE] [--version V]\n"
	"Keeps the GPU busy until SIGTERM and prints JSON lines: ready, window, summary (with the GPU's time that it got,\n"
	"where the simulated driver tells: gpu_time_us).\n"
	"  --us N         duration of a kernel (1000)\n"
	"  --endless      one kernel in each TSG that does not end before this program does\n"
	"  --depth N      kernels in each queue (256)\n"
	"  --tsgs N       TSGs, each with a queue of its own (1)\n"
	"  --sms N        SMs that each kernel needs (132)\n"
	"  --gpu N        (0)\n"
	"  --window S     seconds between two window lines (1)\n"
	"  --seconds S    end after so long (0: until SIGTERM)\n"
	"  --quiet        no window lines\n"
	"  --share        be an MPS server: others may --join its TSG\n"
	"  --join C:T     be an MPS client: live in TSG T of client C, as its ready line says them\n"
	"  --replay FILE  first replay a converted trace, then work in a channel of its compute TSG\n"
	"example: nvbackground --us 2000 --seconds 5; nvbackground --endless --tsgs 4";

static void fill(struct work *work, struct nv_channel *channel, const struct nv_kernel *kernel,
		 u64 finished)
{
	u32 depth = work->endless ? 1 : work->depth;

	while (channel->submitted - finished < depth && nv_submit(channel, kernel))
		;
}

int nvbackground_main(int argc, char **argv)
{
	struct work work = { .us = 1000, .sms = 132, .window = 1, .depth = 256 };
	u64 finished[WORK_TSGS] = { 0 }, now, ended;
	struct nv_kernel kernel;
	double nap;

	work_options(&work, argc, argv, usage);
	work_open(&work);
	kernel = work_kernel(&work);
	/*
	 * half the queue may run dry before it is filled up again: few wakes, and never an idle
	 * GPU
	 */
	nap = work.us * 1e-6 * work.depth / 4;
	if (work.endless || nap > 0.05)
		nap = 0.05;
	work_ready(&work);
	while (work_running(&work)) {
		for (u32 i = 0; i < work.tsgs; i++)
			fill(&work, &work.channels[i], &kernel, finished[i]);
		nv_sleep(nap);
		ended = 0;
		for (u32 i = 0; i < work.tsgs; i++) {
			now = nv_finished(&work.channels[i]);
			ended += now - finished[i];
			finished[i] = now;
		}
		work_done(&work, ended);
	}
	work_summary(&work);
	nv_close_program(&work.program);
	return 0;
}
