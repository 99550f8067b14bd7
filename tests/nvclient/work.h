/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nvlatency and nvbackground share: options, the stop signal, windows. The lines are those of
 * tools/bench/workloads.
 */
#ifndef NVCLIENT_WORK_H
#define NVCLIENT_WORK_H

#include "nvclient.h"

#define WORK_LATENCIES 65536 /* of one window; more are dropped and said so */

struct work {
	/* options */
	double us, period, window, seconds;
	u32 sms, depth, gpu;
	const char *version, *replay;
	bool latencies;
	/* the rest is work.c's */
	struct nv_program program;
	struct nv_channel channel;
	double begin, t0;
	u64 count, total;
	u32 kept;
	float *kept_us;
};

void work_options(struct work *work, int argc, char **argv, const char *usage);
struct nv_channel *work_open(struct work *work);
void work_ready(struct work *work);
bool work_running(const struct work *work);
/* prints the window if its time is over */
void work_done(struct work *work, u64 count, double latency_us);
void work_summary(struct work *work);

#endif
