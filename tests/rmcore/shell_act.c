// SPDX-License-Identifier: Apache-2.0
/* What the module has the driver do: each step as the driver would get it, byte by byte. */
#include "shell.h"

/* Bytes that a step must not leave as they were. */
#define DIRT 0xa5

/* act NAME CLIENT OBJECT ...: the same order as the function's own. */
static int build(const char *name, struct rm_step *step)
{
	u32 client = (u32)num(), object = (u32)num();
	struct rm_channel channels[RM_CHANNELS_MAX + 1];
	unsigned int count = 0;
	char *next;

	if (!strcmp(name, "get_slice")) {
		rm_act_get_slice(abi, client, object, step);
	} else if (!strcmp(name, "set_slice")) {
		rm_act_set_slice(abi, client, object, num(), step);
	} else if (!strcmp(name, "set_level")) {
		rm_act_set_level(abi, client, object, (u32)num(), step);
	} else if (!strcmp(name, "preempt")) {
		rm_act_preempt(abi, client, object, step);
	} else if (!strcmp(name, "no_realtime")) {
		rm_act_no_realtime(abi, client, object, step);
	} else if (!strcmp(name, "preemptible")) {
		rm_act_preemptible(abi, client, object, (u32)num(), step);
	} else if (!strcmp(name, "restart_runlist")) {
		rm_act_restart_runlist(abi, client, object, num(), step);
	} else if (!strcmp(name, "tpc_mode")) {
		enum rm_tpc_mode mode = (enum rm_tpc_mode)num();

		rm_act_tpc_mode(abi, client, object, mode, num(), step);
	} else if (!strcmp(name, "tpc_table")) {
		return rm_act_tpc_table(abi, client, object, (unsigned int)num(), step);
	} else if (!strcmp(name, "disable")) {
		bool off = num();

		while (more(&next)) {
			if (count > RM_CHANNELS_MAX)
				die("too many channels, even for a test of that");
			channels[count].client = (u32)value(next);
			channels[count++].channel = (u32)num();
		}
		return rm_act_disable(abi, client, object, channels, count, off, step);
	} else {
		die("%s is no act", name);
	}
	return 0;
}

static void do_act(void)
{
	struct rm_step *step = malloc(sizeof(*step));
	int error;
	u32 i;

	if (!step)
		die("no memory");
	memset(step, DIRT, sizeof(*step));
	error = build(word(), step);
	if (error) {
		done(error);
	} else {
		printf("ok client=%u object=%u cmd=%u", step->client, step->object, step->cmd);
		put_hex("params", step->params, step->size);
		for (i = step->size; i < RM_STEP_PARAMS_MAX; i++)
			if (step->params[i] != DIRT)
				die("byte %u behind the parameters was written", i);
		printf("\n");
	}
	free(step);
}

/* act_ask_idle CHANNEL...: its parameters, which are more than a step has */
static void do_ask_idle(void)
{
	u8 *params = calloc(1, abi->idle_channels.len);
	u32 channels[RM_CHANNELS_MAX + 1];
	unsigned int count = 0;
	char *next;
	int error;

	if (!params)
		die("no memory");
	while (more(&next)) {
		if (count > RM_CHANNELS_MAX)
			die("too many channels, even for a test of that");
		channels[count++] = (u32)value(next);
	}
	error = rm_act_ask_idle(abi, channels, count, params);
	if (error) {
		done(error);
	} else {
		printf("ok");
		put_hex("params", params, abi->idle_channels.len);
		printf("\n");
	}
	free(params);
}

/* act_slice PARAMS: what GET_TIMESLICE answered */
static void do_slice(void)
{
	struct rm_step step = { 0 };
	u32 size;
	u8 *params = bytes(&size);

	if (size > sizeof(step.params))
		die("%u bytes are no answer", size);
	memcpy(step.params, params, size);
	printf("ok us=%lu\n", rm_act_slice(abi, &step));
	free(params);
}

bool act_command(const char *name)
{
	if (!strcmp(name, "act"))
		do_act();
	else if (!strcmp(name, "act_slice"))
		do_slice();
	else if (!strcmp(name, "act_ask_idle"))
		do_ask_idle();
	else if (!strcmp(name, "act_tpcs")) {
		unsigned int all = (unsigned int)num();

		printf("ok tpcs=%u\n", rm_tpcs_of(all, (u32)num()));
	} else
		return false;
	return true;
}
