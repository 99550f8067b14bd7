/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nvlatency and nvbackground share: options, the stop signal, windows, the summary. The lines
 * are those of detshare.tools.bench.workloads.
 */
#ifndef NVCLIENT_WORK_H
#define NVCLIENT_WORK_H

#include "nvclient.h"

#define WORK_LATENCIES 65536 /* of one window; more are dropped and said so */
#define WORK_ALL       (1u << 20) /* of the whole run */
#define WORK_TSGS      16

struct work {
	/* options */
	double us, period, window, seconds;
	u32 sms, depth, gpu, tsgs, burst;
	const char *version, *replay;
	bool latencies, endless, quiet, share, each;
	u32 join_client, join_tsg;
	/* the rest is work.c's */
	struct nv_program program;
	struct nv_channel channels[WORK_TSGS];
	double begin, t0;
	u64 count, total;
	u32 kept, all;
	float *kept_us;
	float *all_us, *gpu_us; /* seen by the client, and by the GPU's clock from submission to end */
	u64 *at_ns; /* CLOCK_MONOTONIC of the submission */
};

void work_options(struct work *work, int argc, char **argv, const char *usage);
/* The channels, each in a TSG of its own, ready for kernels. */
void work_open(struct work *work);
/* The kernel that the options ask for. */
struct nv_kernel work_kernel(const struct work *work);
void work_ready(struct work *work);
bool work_running(const struct work *work);
/* prints the window if its time is over */
void work_done(struct work *work, u64 count);
/* One that was submitted then and took so long; work_done() counts it. */
void work_latency(struct work *work, u64 at_ns, double us, double gpu_us);
void work_summary(struct work *work);

#endif
