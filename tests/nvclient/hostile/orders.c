// SPDX-License-Identifier: Apache-2.0
/* Tricks of a program against what was ordered for it: slice, level, modes, policy. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hostile.h"

#define LEGACY 0x8000u
#define ODD_MAGIC 'Z'
#define RACE_MS 2000
#define PROPERTY_SLICE 0 /* NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_ENGINETIMESLICEINMICROSECONDS */
#define PROPERTY_NO_SLICE 2
#define CILP_SET 1
#define WFI 0
#define TPC_STATIC 1

u8 *slice_params(void)
{
	u8 *params = fresh_params();

	*(u64 *)params = SLICE_US;
	return params;
}

static u32 set_slice(struct hostile *h)
{
	return control(h, h->program.tsg, NVA06C_CTRL_CMD_SET_TIMESLICE, slice_params(), h->program.nv.abi->timeslice.len);
}

static u32 slice_wrapped(struct hostile *h)
{
	u32 status;

	h->program.nv.xfer = true;
	status = set_slice(h);
	h->program.nv.xfer = false;
	return status;
}

/* The block of an RM_CONTROL below 4 GiB, as a program without position has its data. */
static u8 *control_block(struct hostile *h, u32 object, u32 cmd, void *params, u32 size)
{
	const struct rm_abi *abi = h->program.nv.abi;
	static u8 block[256];

	memset(block, 0, sizeof(block));
	rm_put32(block, abi->nvos54.hClient, h->program.client);
	rm_put32(block, abi->nvos54.hObject, object);
	rm_put32(block, abi->nvos54.cmd, cmd);
	rm_put64(block, abi->nvos54.params, (uintptr_t)params);
	rm_put32(block, abi->nvos54.paramsSize, size);
	rm_put32(block, abi->nvos54.status, 0xffffffff);
	return block;
}

static u8 *slice_block(struct hostile *h)
{
	return control_block(h, h->program.tsg, NVA06C_CTRL_CMD_SET_TIMESLICE, slice_params(),
			     h->program.nv.abi->timeslice.len);
}

static u32 status_of(struct hostile *h, int error, const u8 *block)
{
	return error ? NV_ERRNO(-error) : rm_get32(block, h->program.nv.abi->nvos54.status);
}

/* The driver looks at number and size of a request, at nothing else. */
static u32 slice_by_odd_magic(struct hostile *h)
{
	u8 *block = slice_block(h);
	u32 request = _IOC(_IOC_NONE, ODD_MAGIC, NV_ESC_RM_CONTROL, h->program.nv.abi->nvos54.len);

	return status_of(h, (int)sys(SYS_ioctl, h->program.nv.ctl, request, (long)block, 0, 0, 0), block);
}

static u32 slice_by_32_bits(struct hostile *h)
{
	u8 *block = slice_block(h);
	u32 request = _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, NV_ESC_RM_CONTROL, h->program.nv.abi->nvos54.len);

	return status_of(h, ioctl_of_32_bits(h->program.nv.ctl, request, block), block);
}

static u32 slice_by_child(struct hostile *h)
{
	return in_child(h, set_slice, 2000);
}

/* Through a control file of its own that is bound to the one that has the client. */
static u32 slice_by_bound_file(struct hostile *h)
{
	int file = nv_open_device("nvidiactl"), before = h->program.nv.ctl;
	u8 block[16] = { 0 };
	u32 status;

	if (file < 0)
		return NV_ERRNO(-file);
	rm_put32(block, h->program.nv.abi->register_fd.ctl_fd, (u32)before);
	nv_ioctl(file, NV_ESC_REGISTER_FD, block, h->program.nv.abi->register_fd.len);
	h->program.nv.ctl = file;
	status = set_slice(h);
	h->program.nv.ctl = before;
	close(file);
	return status;
}

/* A new client on a file of its own gets a duplicate of a channel group. */
static u32 duplicate_group(struct hostile *h, u32 *client, u32 *group)
{
	struct nv *nv = &h->program.nv;
	u32 from = *client, source = *group, device = 0x70000001, status;
	u8 *params = fresh_params();

	nv->ctl = nv_open_device("nvidiactl");
	if (nv->ctl < 0)
		return NV_ERRNO(-nv->ctl);
	*group = 0x70000002;
	status = nv_root(nv, client);
	rm_put32(params, nv->abi->device.deviceId, h->program.gpu_number);
	if (!status)
		status = nv_alloc(nv, *client, *client, &device, NV01_DEVICE_0, params, nv->abi->device.len);
	return status ? status : nv_dup(nv, *client, device, group, from, source);
}

static u32 set_slice_of(struct hostile *h, u32 clients)
{
	struct nv *nv = &h->program.nv;
	u32 client = h->program.client, group = h->program.tsg, status = 0;

	while (!status && clients--)
		status = duplicate_group(h, &client, &group);
	return status ? status : nv_control(nv, client, group, NVA06C_CTRL_CMD_SET_TIMESLICE, slice_params(),
					    nv->abi->timeslice.len);
}

static u32 set_slice_of_duplicate(struct hostile *h)
{
	return set_slice_of(h, 1);
}

static u32 set_slice_of_second_duplicate(struct hostile *h)
{
	return set_slice_of(h, 2);
}

static u32 slice_by_duplicate(struct hostile *h)
{
	u32 status = nv_share(&h->program.nv, h->program.client, h->program.tsg, RS_SHARE_TYPE_ALL, 0);

	return status ? status : in_child(h, set_slice_of_duplicate, 500);
}

static u32 slice_by_second_duplicate(struct hostile *h)
{
	u32 status = nv_share(&h->program.nv, h->program.client, h->program.tsg, RS_SHARE_TYPE_ALL, 0);

	return status ? status : in_child(h, set_slice_of_second_duplicate, 500);
}

static u32 slice_by_raw_command(struct hostile *h)
{
	return control(h, h->program.tsg, NVA06C_CTRL_CMD_SET_TIMESLICE | LEGACY, slice_params(),
		       h->program.nv.abi->timeslice.len);
}

/* Another process turns a question into an order and back while the call is made. */
static u32 slice_by_race(struct hostile *h)
{
	u8 *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile u32 *cmd = (u32 *)(shared + h->program.nv.abi->nvos54.cmd.off);
	u64 end = nv_now_ns() + RACE_MS * 1000000ull;
	u32 status = 0;
	int child;

	memcpy(shared, slice_block(h), 256);
	child = fork_process();
	while (!child)
		*cmd = *cmd == NVA06C_CTRL_CMD_SET_TIMESLICE ? NVA06C_CTRL_CMD_GET_TIMESLICE :
							       NVA06C_CTRL_CMD_SET_TIMESLICE;
	while (nv_now_ns() < end) {
		int error;

		slice_params();
		error = nv_ioctl(h->program.nv.ctl, NV_ESC_RM_CONTROL, shared, h->program.nv.abi->nvos54.len);
		status = status_of(h, error, shared);
	}
	kill_process(child);
	munmap(shared, 4096);
	return status;
}

static u32 set_property(struct hostile *h, u32 property, u64 value)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	rm_put32(params, abi->channel_properties.hChannel, h->channel.handle);
	rm_put32(params, abi->channel_properties.property, property);
	rm_put64(params, abi->channel_properties.value, value);
	return control(h, h->program.device, NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES, params,
		       abi->channel_properties.len);
}

static u32 slice_by_property(struct hostile *h)
{
	return set_property(h, PROPERTY_SLICE, SLICE_US);
}

static u32 no_slice_at_all(struct hostile *h)
{
	return set_property(h, PROPERTY_NO_SLICE, 1);
}

static u32 set_level(struct hostile *h)
{
	u8 *params = fresh_params();

	put_word(params, 0, NVA06C_CTRL_INTERLEAVE_LEVEL_HIGH);
	return control(h, h->program.tsg, NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, params, 4);
}

static u32 set_channel_level(struct hostile *h)
{
	u8 *params = fresh_params();

	put_word(params, 0, NVA06C_CTRL_INTERLEAVE_LEVEL_HIGH);
	return control(h, h->channel.handle, NVA06F_CTRL_CMD_SET_INTERLEAVE_LEVEL, params, 4);
}

static u32 make_realtime(struct hostile *h)
{
	u8 *params = fresh_params();

	params[0] = 1;
	return control(h, h->program.tsg, NVA06C_CTRL_CMD_MAKE_REALTIME, params, 1);
}

static u32 set_policy(struct hostile *h)
{
	return control(h, h->program.subdevice, NV2080_CTRL_CMD_FIFO_RUNLIST_SET_SCHED_POLICY, fresh_params(),
		       h->program.nv.abi->sched_policy.len);
}

static u32 restart_runlist(struct hostile *h)
{
	u8 *params = fresh_params();

	params[0] = 1;
	return control(h, h->channel.handle, NVA06F_CTRL_CMD_RESTART_RUNLIST, params,
		       h->program.nv.abi->restart_runlist.len);
}

static u32 preempt(struct hostile *h)
{
	return control(h, h->program.tsg, NVA06C_CTRL_CMD_PREEMPT, fresh_params(), h->program.nv.abi->tsg_preempt.len);
}

static u32 set_wfi(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	rm_put32(params, abi->ctxsw_mode.flags, CILP_SET);
	rm_put32(params, abi->ctxsw_mode.hChannel, h->program.tsg);
	rm_put32(params, abi->ctxsw_mode.cilpPreemptMode, WFI);
	return control(h, h->program.subdevice, NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, params,
		       abi->ctxsw_mode.len);
}

static u32 bind_wfi(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	rm_put32(params, abi->ctxsw_bind.flags, CILP_SET);
	rm_put32(params, abi->ctxsw_bind.hClient, h->program.client);
	rm_put32(params, abi->ctxsw_bind.hChannel, h->program.tsg);
	rm_put32(params, abi->ctxsw_bind.cilpPreemptMode, WFI);
	return control(h, h->program.subdevice, NV2080_CTRL_CMD_GR_CTXSW_PREEMPTION_BIND, params, abi->ctxsw_bind.len);
}

static u32 wfi_by_raw_command(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();

	rm_put32(params, abi->ctxsw_mode.flags, CILP_SET);
	rm_put32(params, abi->ctxsw_mode.hChannel, h->program.tsg);
	return control(h, h->raw, (NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE & 0xffff) | NV2081_BINAPI << 16, params,
		       abi->ctxsw_mode.len);
}

/* The driver's yes may be somebody else's: whether the mode is what was asked for. */
static u32 check_tpc_mode(struct hostile *h)
{
	u8 *params = fresh_params();
	u32 status = control(h, h->program.tsg, NV0090_CTRL_CMD_GET_TPC_PARTITION_MODE, params,
			     h->program.nv.abi->tpc_mode.len);

	if (!status && rm_get32(params, h->program.nv.abi->tpc_mode.mode) != TPC_STATIC)
		status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	return status;
}

static u32 tpc_mode(struct hostile *h)
{
	u8 *params = fresh_params();
	u32 status;

	rm_put32(params, h->program.nv.abi->tpc_mode.mode, TPC_STATIC);
	status = control(h, h->program.tsg, NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE, params,
			 h->program.nv.abi->tpc_mode.len);
	return status ? status : check_tpc_mode(h);
}

static u32 tpc_mode_of_device(struct hostile *h)
{
	const struct rm_abi *abi = h->program.nv.abi;
	u8 *params = fresh_params();
	u32 status;

	rm_put32(params, abi->gr_tpc_mode.hChannelGroup, h->program.tsg);
	rm_put32(params, abi->gr_tpc_mode.mode, TPC_STATIC);
	status = control(h, h->program.device, NV0080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE, params, abi->gr_tpc_mode.len);
	return status ? status : check_tpc_mode(h);
}

static u32 tpc_table(struct hostile *h)
{
	u8 *params = fresh_params();

	params[0] = 66;
	return control(h, h->program.ctxshare, NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE, params,
		       h->program.nv.abi->tpc_table.len);
}

const struct trick order_tricks[] = {
	{ "own-slice", "order", "SET_TIMESLICE on its channel group", set_slice },
	{ "own-slice-xfer", "order", "the same, wrapped in IOCTL_XFER_CMD", slice_wrapped },
	{ "own-slice-magic", "order", "the same, with another magic and no direction", slice_by_odd_magic },
	{ "own-slice-32bit", "order", "the same, as a 32-bit program", slice_by_32_bits },
	{ "own-slice-child", "order", "the same, by a child that inherited the file", slice_by_child },
	{ "own-slice-dup", "order", "the same, by a child with a duplicate of the channel group", slice_by_duplicate },
	{ "own-slice-dup-twice", "order", "the same, with a duplicate of that in a second client of the child",
	  slice_by_second_duplicate },
	{ "own-slice-bound", "order", "the same, through a file bound by REGISTER_FD", slice_by_bound_file },
	{ "own-slice-race", "order", "a harmless control that another process turns into it", slice_by_race },
	{ "own-slice-raw", "order", "the same, as a command that goes to the firmware unread", slice_by_raw_command },
	{ "own-slice-property", "order", "SET_CHANNEL_PROPERTIES, time slice", slice_by_property },
	{ "no-slice", "order", "SET_CHANNEL_PROPERTIES, no time slice at all", no_slice_at_all },
	{ "own-level", "order", "SET_INTERLEAVE_LEVEL on its channel group", set_level },
	{ "own-level-channel", "order", "SET_INTERLEAVE_LEVEL on a channel", set_channel_level },
	{ "realtime", "order", "MAKE_REALTIME", make_realtime },
	{ "policy", "order", "RUNLIST_SET_SCHED_POLICY: levels count for nothing", set_policy },
	{ "restart-runlist", "order", "RESTART_RUNLIST: its turn comes first", restart_runlist },
	{ "preempt", "order", "PREEMPT of itself", preempt },
	{ "wfi", "order", "SET_CTXSW_PREEMPTION_MODE: kernels that cannot be taken off", set_wfi },
	{ "wfi-bind", "order", "CTXSW_PREEMPTION_BIND to the same end", bind_wfi },
	{ "wfi-raw", "order", "the same through NV2081_BINAPI", wfi_by_raw_command },
	{ "tpc-mode", "order", "SET_TPC_PARTITION_MODE on its channel group", tpc_mode },
	{ "tpc-mode-device", "order", "the device's GR_SET_TPC_PARTITION_MODE", tpc_mode_of_device },
	{ "tpc-table", "order", "SET_TPC_PARTITION_TABLE", tpc_table },
	{ NULL, NULL, NULL, NULL },
};
