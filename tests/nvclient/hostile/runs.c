// SPDX-License-Identifier: Apache-2.0
/* Tricks of a program that is paused, and those by which it would run by more ways than were counted. */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../nvsim/methods.h"
#include "hostile.h"

#define LEGACY 0x8000u
#define NESTED 3 /* channels that were switched off more than once */
#define TRY_MS 1500

u8 *channels_off(struct hostile *h, u32 client, u32 channel, bool off)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	params[0] = off;
	rm_put32(params, abi->disable_channels.numChannels, 1);
	put_word(params, abi->disable_channels.hClientList.off, client);
	put_word(params, abi->disable_channels.hChannelList.off, channel);
	return params;
}

static u32 switch_on(struct hostile *h, u32 object, u32 cmd)
{
	u32 i, status = 0;

	for (i = 0; i < NESTED; i++)
		status = control(h, object, cmd, channels_off(h, h->program.client, h->channel.handle, false),
				 h->program.nv.abi->disable_channels.len);
	return status;
}

static u32 resume(struct hostile *h)
{
	return switch_on(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS);
}

static u32 resume_wrapped(struct hostile *h)
{
	u32 status;

	h->program.nv.xfer = true;
	status = resume(h);
	h->program.nv.xfer = false;
	return status;
}

static u32 resume_by_raw_interface(struct hostile *h)
{
	return switch_on(h, h->raw, (NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS & 0xffff) | NV2081_BINAPI << 16);
}

static u32 resume_by_raw_command(struct hostile *h)
{
	return switch_on(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS | LEGACY);
}

static u32 schedule_group(struct hostile *h)
{
	return nv_schedule(&h->program, h->program.tsg, true);
}

static u32 reschedule(struct hostile *h)
{
	return in_child(h, schedule_group, TRY_MS);
}

static u32 reset_channel(struct hostile *h)
{
	/* 12 bytes before 550, 16 since */
	u32 size = h->program.nv.abi->branch < 550 ? 12 : 16;

	return control(h, h->channel.handle, NV906F_CTRL_CMD_RESET_CHANNEL, fresh_params(), size);
}

void submit_endless(struct nv_channel *channel)
{
	const struct nv_kernel kernel = { .ns = SIM_KERNEL_ENDLESS, .sms = 132 };

	if (nv_queue(channel, &kernel))
		nv_kick(channel->program->doorbell, channel->token);
}

/* What a child has to do for its parent, whose client may be used by nobody else to make and map things. */
static struct work {
	struct nv_channel channel;
	u32 tsg;
} work;

static u32 schedule_and_run(struct hostile *h)
{
	u32 status = nv_schedule(&h->program, work.tsg, true);

	if (!status)
		submit_endless(&work.channel);
	return status;
}

static u32 make_group(struct hostile *h)
{
	struct nv_program *program = &h->program;
	const char *step = "";
	u8 *params = fresh_params();
	u32 share, status;

	work.tsg = nv_next_handle(&program->nv);
	rm_put32(params, program->nv.abi->tsg.engineType, NV2080_ENGINE_TYPE_GR0);
	status = nv_alloc(&program->nv, program->client, program->device, &work.tsg, KEPLER_CHANNEL_GROUP_A, params,
			  program->nv.abi->tsg.len);
	if (status)
		return status;
	params = fresh_params();
	rm_put32(params, program->nv.abi->ctxshare.hVASpace, program->vaspace);
	rm_put32(params, program->nv.abi->ctxshare.flags, 1);
	share = nv_next_handle(&program->nv);
	status = nv_alloc(&program->nv, program->client, work.tsg, &share, FERMI_CONTEXT_SHARE_A, params,
			  program->nv.abi->ctxshare.len);
	if (!status)
		status = nv_channel_open(&work.channel, program, work.tsg, share, NV2080_ENGINE_TYPE_GR0, &step);
	return status;
}

u32 run_new_group(struct hostile *h)
{
	u32 status = make_group(h);

	return status ? status : schedule_and_run(h);
}

static u32 new_group(struct hostile *h)
{
	u32 status = make_group(h);

	return status ? status : in_child(h, schedule_and_run, TRY_MS);
}

static u32 new_channel(struct hostile *h)
{
	const char *step = "";
	u32 status;

	work.tsg = h->program.tsg;
	status = nv_channel_open(&work.channel, &h->program, h->program.tsg, h->program.ctxshare, NV2080_ENGINE_TYPE_GR0,
				 &step);
	return status ? status : in_child(h, schedule_and_run, TRY_MS);
}

u32 run_new_program(struct hostile *h)
{
	static struct hostile other;
	const char *step = "";
	u32 status;

	other.program.nv = h->program.nv;
	other.program.nv.next = NV_OBJECTS;
	other.program.gpu_number = h->program.gpu_number;
	other.program.nv.ctl = nv_open_device("nvidiactl");
	if (other.program.nv.ctl < 0)
		return NV_ERRNO(-other.program.nv.ctl);
	status = nv_program_base(&other.program, &step);
	if (!status)
		status = nv_program_context(&other.program, &step);
	if (!status)
		status = nv_channel_open(&other.channel, &other.program, other.program.tsg, other.program.ctxshare,
					 NV2080_ENGINE_TYPE_GR0, &step);
	if (!status)
		status = nv_schedule(&other.program, other.program.tsg, true);
	if (!status)
		submit_endless(&other.channel);
	return status;
}

static u32 new_program(struct hostile *h)
{
	return in_child(h, run_new_program, TRY_MS);
}

static u32 execute(struct hostile *h)
{
	static const char *const words[] = { "nvhostile", "--run", NULL, NULL };
	const char *argv[4] = { words[0], words[1], h->program.nv.version, NULL };

	sys(SYS_execve, (long)"/proc/self/exe", (long)argv, (long)(words + 2), 0, 0, 0);
	return NV_ERRNO(ENOEXEC);
}

static u32 new_image(struct hostile *h)
{
	return in_child(h, execute, TRY_MS);
}

const struct trick run_tricks[] = {
	{ "resume", "run", "FIFO_DISABLE_CHANNELS: its own channels on", resume },
	{ "resume-xfer", "run", "the same, wrapped in IOCTL_XFER_CMD", resume_wrapped },
	{ "resume-binapi", "run", "the same through NV2081_BINAPI", resume_by_raw_interface },
	{ "resume-raw", "run", "the same as a command that goes to the firmware unread", resume_by_raw_command },
	{ "reschedule", "run", "GPFIFO_SCHEDULE of its channel group", reschedule },
	{ "reset-channel", "run", "RESET_CHANNEL", reset_channel },
	{ "new-channel", "run", "another channel in its group", new_channel },
	{ "new-group", "run", "another channel group", new_group },
	{ "new-client", "run", "a child with a client of its own", new_program },
	{ "exec", "run", "the same after exec", new_image },
	{ NULL, NULL, NULL, NULL },
};
