// SPDX-License-Identifier: Apache-2.0
/*
 * Does the GPU do what the controls say? Each check is a line of JSON with what was seen. For the
 * simulated GPU: its kernels can count their own time.
 */

#include "../nvsim/methods.h"
#include "options.h"

static const char usage[] =
	"[--gpu N] [--version V]\n"
	"Steers kernels of its own by doorbell, FIFO_DISABLE_CHANNELS, GPFIFO_SCHEDULE, PREEMPT and slices, frees channels and\n"
	"TSGs in mid-work, and prints a line of JSON for each check. Exit code 1 if one fails.\n"
	"example: nvsteer --gpu 0";

#define MS	 1000000ull
#define LONG	 30e-3 /* s: far above what a guest's clock wobbles */
#define PATIENCE 5.0

static bool failed;

static void check(const char *what, bool ok, double seen, const char *unit)
{
	printf("{\"event\":\"check\",\"what\":\"%s\",\"ok\":%s,\"seen\":%.3f,\"unit\":\"%s\"}\n",
	       what, ok ? "true" : "false", seen, unit);
	failed |= !ok;
}

/* How far an endless kernel comes in a while, ms of its own time. */
static double progress(const struct nv_channel *channel)
{
	u64 before = nv_kernel_time(channel);

	nv_sleep(LONG);
	return (double)(nv_kernel_time(channel) - before) / 1e6;
}

static double settled_progress(const struct nv_channel *channel)
{
	nv_sleep(2e-3);
	return progress(channel);
}

static void doorbell(struct nv_channel *channel)
{
	const struct nv_kernel kernel = { .ns = MS, .sms = 1 };

	nv_queue(channel, &kernel);
	nv_ring(channel->program, channel->token + 0x800);
	check("nothing runs before its own doorbell", !nv_wait(channel, channel->submitted, LONG),
	      0, "");
	nv_ring(channel->program, channel->token);
	check("it runs after the doorbell", nv_wait(channel, channel->submitted, PATIENCE), 0, "");
	nv_sleep(2e-3);
	check("the whole ring is free again", nv_room(channel) == channel->entries - 1,
	      nv_room(channel), "entries");
}

static void side_by_side(struct nv_channel *a, struct nv_channel *b)
{
	struct nv_kernel kernel = { .ns = 20 * MS, .sms = 66 };
	double apart;

	nv_submit(a, &kernel);
	nv_submit(b, &kernel);
	check("two kernels of one TSG end",
	      nv_wait(a, a->submitted, PATIENCE) && nv_wait(b, b->submitted, PATIENCE), 0, "");
	apart = (double)(s64)(nv_finished_at(b, b->submitted) - nv_finished_at(a, a->submitted)) /
		1e6;
	check("whose SMs fit: side by side", apart < 15, apart, "ms apart");
	kernel.sms = 100;
	nv_submit(a, &kernel);
	nv_submit(b, &kernel);
	check("two kernels end",
	      nv_wait(a, a->submitted, PATIENCE) && nv_wait(b, b->submitted, PATIENCE), 0, "");
	apart = (double)(s64)(nv_finished_at(b, b->submitted) - nv_finished_at(a, a->submitted)) /
		1e6;
	check("whose SMs do not fit: one after the other", apart > 19.9, apart, "ms apart");
}

static void endless(struct nv_channel *channel)
{
	const struct nv_kernel kernel = {
		.ns = SIM_KERNEL_ENDLESS, .sms = 132, .until = true, .count = true
	};
	struct nv_program *program = channel->program;
	u64 slice = 500;
	double begin;
	u32 status;

	nv_submit(channel, &kernel);
	nv_sleep(2e-3);
	check("an endless kernel runs", progress(channel) > 1, progress(channel), "ms");
	begin = nv_now();
	status = nv_disable(channel, true);
	check("FIFO_DISABLE_CHANNELS is accepted", !status, (nv_now() - begin) * 1e3, "ms");
	check("the running kernel stands still", settled_progress(channel) == 0, progress(channel),
	      "ms");
	nv_disable(channel, true);
	nv_disable(channel, false);
	check("disabled twice, enabled once: still", settled_progress(channel) == 0,
	      progress(channel), "ms");
	nv_disable(channel, false);
	check("enabled twice: it goes on", settled_progress(channel) > 1, progress(channel), "ms");
	begin = nv_now();
	status = nv_schedule(program, program->tsg, false);
	check("GPFIFO_SCHEDULE off is accepted", !status, (nv_now() - begin) * 1e3, "ms");
	check("and does not stop a running kernel", settled_progress(channel) > 1,
	      progress(channel), "ms");
	nv_schedule(program, program->tsg, true);
	begin = nv_now();
	status = nv_control(&program->nv, program->client, program->tsg, NVA06C_CTRL_CMD_PREEMPT,
			    (u8[8]){ 1 }, 8);
	check("PREEMPT is accepted", !status, (nv_now() - begin) * 1e3, "ms");
	check("and the kernel comes back", settled_progress(channel) > 1, progress(channel), "ms");
	status = nv_control(&program->nv, program->client, program->tsg,
			    NVA06C_CTRL_CMD_SET_TIMESLICE, &slice, 8);
	slice = 0;
	status |= nv_control(&program->nv, program->client, program->tsg,
			     NVA06C_CTRL_CMD_GET_TIMESLICE, &slice, 8);
	check("SET_TIMESLICE is kept", !status && slice == 500, (double)slice, "us");
	check("the kernel has not ended", nv_finished(channel) != channel->submitted, 0, "");
	nv_release_kernel(channel);
	check("the word ends it", nv_wait(channel, channel->submitted, PATIENCE), 0, "");
}

static u32 another(struct nv_program *program, struct nv_channel *channel, u32 *tsg)
{
	const char *step;

	return nv_group_open(channel, program, tsg, &step);
}

static void freed_in_mid_work(struct nv_program *program)
{
	const struct nv_kernel forever = { .ns = SIM_KERNEL_ENDLESS, .sms = 132, .count = true };
	const struct nv_kernel kernel = { .ns = MS, .sms = 132 };
	struct nv_channel a, b, c;
	u32 first, second, third, status = another(program, &a, &first);

	check("a second TSG with a channel", !status, status, "status");
	nv_submit(&a, &forever);
	nv_sleep(LONG);
	check("RM_FREE of a channel with a running kernel",
	      !nv_free(&program->nv, program->client, first, a.handle), 0, "");
	status = another(program, &b, &second);
	nv_submit(&b, &forever);
	nv_submit(&b, &kernel);
	nv_sleep(LONG);
	check("RM_FREE of a TSG with a running and a waiting kernel",
	      !status && !nv_free(&program->nv, program->client, program->device, second), 0, "");
	status = another(program, &c, &third);
	nv_disable(&c, true);
	nv_submit(&c, &kernel);
	check("RM_FREE of a TSG whose channel is disabled",
	      !status && !nv_free(&program->nv, program->client, program->device, third), 0, "");
	nv_ring(program, c.token);
	status = another(program, &c, &third);
	nv_submit(&c, &kernel);
	check("the next TSG runs", !status && nv_wait(&c, c.submitted, PATIENCE), 0, "");
}

/* Two TSGs that both want the GPU all the time share it by their slices. */
static void shares(struct nv_program *program)
{
	const struct nv_kernel forever = {
		.ns = SIM_KERNEL_ENDLESS, .sms = 132, .until = true, .count = true
	};
	struct nv_channel a, b;
	u64 long_slice = 6000, short_slice = 2000, a0, b0;
	double share;
	u32 first, second, status = another(program, &a, &first) | another(program, &b, &second);

	status |= nv_control(&program->nv, program->client, first, NVA06C_CTRL_CMD_SET_TIMESLICE,
			     &long_slice, 8);
	status |= nv_control(&program->nv, program->client, second, NVA06C_CTRL_CMD_SET_TIMESLICE,
			     &short_slice, 8);
	nv_submit(&a, &forever);
	nv_submit(&b, &forever);
	nv_sleep(20e-3);
	a0 = nv_kernel_time(&a);
	b0 = nv_kernel_time(&b);
	nv_sleep(0.5);
	share = (double)(nv_kernel_time(&a) - a0) /
		(double)(nv_kernel_time(&a) - a0 + nv_kernel_time(&b) - b0);
	check("slices of 6 and 2 ms share 3 : 1", !status && share > 0.70 && share < 0.80, share,
	      "of the GPU");
	nv_release_kernel(&a);
	nv_release_kernel(&b);
	check("both end", nv_wait(&a, a.submitted, PATIENCE) && nv_wait(&b, b.submitted, PATIENCE),
	      0, "");
}

int nvsteer_main(int argc, char **argv)
{
	struct nv_channel first, second;
	struct nv_program program;
	const char *version = NULL;
	u32 gpu = 0;
	const struct nv_option options[] = {
		NV_OPTION("gpu", &gpu),
		NV_OPTION("version", &version),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc)
		nv_usage(usage, 2);
	nv_must_program(&program, gpu, version);
	nv_must_channel(&first, &program);
	nv_must_channel(&second, &program);
	doorbell(&first);
	side_by_side(&first, &second);
	endless(&first);
	freed_in_mid_work(&program);
	shares(&program);
	nv_close_program(&program);
	return failed;
}
