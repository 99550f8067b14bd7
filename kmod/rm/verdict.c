// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "verdict.h"

/* What the driver's headers give no name. */
#define SET_COMPUTE_POLICY_CONFIG 0x20800194
#define FIFO_ROTATE_KEYS 0x2080111c	/* of 595; the tables' headers do not have it */
#define GSS_LEGACY 0x8000u	/* RM_GSS_LEGACY_MASK: to the firmware, with any size, for any client */
#define GSS_LEGACY_ALL 0xc000u	/* with the bit that asks for an administrator */
#define CLASS_OF(cmd) ((cmd) >> 16)
#define BINAPI_FIRST 0x2081
#define BINAPI_LAST 0x2082

/* How parameters are looked at. */
enum look {
	NOTHING,
	KEEPING,	/* not at all: what they keep is charged to nobody, so they are not for who has a limit */
	FOREIGN,	/* not at all: who is named there nobody can tell, so only the trusted may */
	IDLE_TIME,	/* to shorten it, see rm_verdict_shorten() */
	DISABLE_LIST,
	GROUP_IDS,
	CHANNEL_IDS,
	CHANNEL_INFO,
	MODE,
	MODE_BIND,
	REG_OPS,	/* this and the following name one client, 0: nobody */
	ZCULL_MODE,
	TLB,
	CHANNEL_STATE,
	REGISTER_PID,
	ZCULL_BIND,
	PM_BIND,
	SETUP_BIND,
	MIGRATABLE_OPS,
	ACCESS_RIGHTS,
};

struct rule {
	u32 cmd;
	u8 managed;	/* enum rm_verdict for who is managed */
	u8 look;
	const char *trick;
};

/* In the order of their numbers. What looks at parameters gives its verdict on those. */
static const struct rule rules[] = {
	{ NV0000_CTRL_CMD_IDLE_CHANNELS, RM_REFUSE, FOREIGN, "waits for another's channels to be idle" },
	{ NV0000_CTRL_CMD_GPUACCT_GET_PROC_ACCOUNTING_INFO, RM_REFUSE, NOTHING, "asks what others have used" },
	{ NV0000_CTRL_CMD_GPUACCT_GET_ACCOUNTING_PIDS, RM_REFUSE, NOTHING, "asks who has used the GPU" },
	{ NV0000_CTRL_CMD_CLIENT_GET_ACCESS_RIGHTS, RM_PASS, ACCESS_RIGHTS, "asks for rights to another's objects" },
	{ NV0041_CTRL_CMD_SURFACE_FLUSH_GPU_CACHE, RM_REFUSE, NOTHING, "flushes the GPU's cache" },
	{ NV0080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE, RM_SWALLOW, NOTHING, "sets its TPC partition mode" },
	{ NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES, RM_REFUSE, NOTHING, "sets channel properties" },
	{ NV0080_CTRL_CMD_FIFO_STOP_RUNLIST, RM_REFUSE, NOTHING, "stops a runlist" },
	{ NV0080_CTRL_CMD_FIFO_START_RUNLIST, RM_REFUSE, NOTHING, "starts a runlist" },
	{ NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS, RM_PASS, IDLE_TIME, "waits for its channels to be idle" },
	{ NV0080_CTRL_CMD_DMA_FLUSH, RM_REFUSE, NOTHING, "flushes the GPU's cache" },
	{ NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE, RM_SWALLOW, NOTHING, "sets its TPC partition mode" },
	{ NV00E0_CTRL_CMD_EXPORT_MEM, RM_REFUSE, KEEPING, "gives memory to other nodes" },
	{ NV00E0_CTRL_CMD_IMPORT_MEM, RM_REFUSE, KEEPING, "takes memory of other nodes" },
	{ NV00FE_CTRL_CMD_SUBMIT_OPERATIONS, RM_REFUSE, NOTHING, "has the driver map memory for the GPU later" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_ALL_RM_LOCKS, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_NO_GPUS_LOCK, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_NO_GPUS_LOCK_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_ALL_RM_LOCKS, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_NO_GPUS_LOCK, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_NO_GPUS_LOCK_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV2080_CTRL_CMD_GPU_EXEC_REG_OPS, RM_REFUSE, REG_OPS, "reads or writes registers" },
	{ NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES, RM_REFUSE, NOTHING, "sets the GPU's compute mode" },
	{ SET_COMPUTE_POLICY_CONFIG, RM_REFUSE, NOTHING, "sets the GPU's compute policy" },
	{ NV2080_CTRL_CMD_GPU_MIGRATABLE_OPS, RM_REFUSE, MIGRATABLE_OPS, "reads or writes registers" },
	{ NV2080_CTRL_CMD_GPU_MARK_DEVICE_FOR_RESET, RM_REFUSE, NOTHING, "takes the GPU out of service" },
	{ NV2080_CTRL_CMD_GPU_UNMARK_DEVICE_FOR_RESET, RM_REFUSE, NOTHING, "puts the GPU back into service" },
	{ NV2080_CTRL_CMD_GPU_MARK_DEVICE_FOR_DRAIN_AND_RESET, RM_REFUSE, NOTHING, "takes the GPU out of service" },
	{ NV2080_CTRL_CMD_GPU_UNMARK_DEVICE_FOR_DRAIN_AND_RESET, RM_REFUSE, NOTHING, "puts the GPU back into service" },
	{ NV2080_CTRL_CMD_SET_GPFIFO, RM_REFUSE, NOTHING, "gives a channel another ring" },
	{ NV2080_CTRL_CMD_FIFO_BIND_ENGINES, RM_REFUSE, NOTHING, "binds channels to engines" },
	{ NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, RM_REFUSE, DISABLE_LIST, "switches channels on or off" },
	{ NV2080_CTRL_CMD_FIFO_CONFIG_CTXSW_TIMEOUT, RM_REFUSE, NOTHING, "sets the context switch timeout" },
	{ NV2080_CTRL_CMD_FIFO_RUNLIST_SET_SCHED_POLICY, RM_REFUSE, NOTHING, "sets the runlist's policy" },
	{ NV2080_CTRL_CMD_FIFO_UPDATE_CHANNEL_INFO, RM_PASS, CHANNEL_INFO, "gives a channel another ring" },
	{ NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION, RM_REFUSE, FOREIGN, "switches channels on or off" },
	{ FIFO_ROTATE_KEYS, RM_REFUSE, FOREIGN, "switches channels on or off" },
	{ NV2080_CTRL_CMD_FIFO_OBJSCHED_SET_STATE, RM_REFUSE, NOTHING, "sets the software scheduler" },
	{ NV2080_CTRL_CMD_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO, RM_PASS, GROUP_IDS, "asks for ids of a channel group" },
	{ NV2080_CTRL_CMD_FIFO_QUERY_CHANNEL_UNIQUE_ID, RM_PASS, CHANNEL_IDS, "asks for ids of channels" },
	{ NV2080_CTRL_CMD_GR_CTXSW_ZCULL_MODE, RM_REFUSE, ZCULL_MODE, "sets a channel's context" },
	{ NV2080_CTRL_CMD_GR_CTXSW_ZCULL_BIND, RM_REFUSE, ZCULL_BIND, "sets a channel's context" },
	{ NV2080_CTRL_CMD_GR_CTXSW_PM_BIND, RM_REFUSE, PM_BIND, "sets a channel's context" },
	{ NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, RM_REFUSE, MODE, "makes its kernels hard to preempt" },
	{ NV2080_CTRL_CMD_GR_CTXSW_PREEMPTION_BIND, RM_REFUSE, MODE_BIND, "makes its kernels hard to preempt" },
	{ NV2080_CTRL_CMD_GR_GET_CURRENT_RESIDENT_CHANNEL, RM_REFUSE, NOTHING, "asks whose channel is on" },
	{ NV2080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE, RM_SWALLOW, NOTHING, "sets its TPC partition mode" },
	{ NV2080_CTRL_CMD_GR_CTXSW_SETUP_BIND, RM_REFUSE, SETUP_BIND, "sets a channel's context" },
	{ NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE, RM_REFUSE, NOTHING, "flushes the GPU's cache" },
	{ NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS, RM_REFUSE, NOTHING, "has the driver serve interrupts" },
	{ NV2080_CTRL_CMD_RC_DISABLE_WATCHDOG, RM_REFUSE, NOTHING, "switches the GPU's watchdog off" },
	{ NV2080_CTRL_CMD_DMA_INVALIDATE_TLB, RM_PASS, TLB, "invalidates another's translations" },
	{ NV208F_CTRL_CMD_FIFO_GET_CHANNEL_STATE, RM_PASS, CHANNEL_STATE, "asks for the state of a channel" },
	{ NV208F_CTRL_CMD_FB_CTRL_GPU_CACHE, RM_REFUSE, NOTHING, "switches the GPU's cache" },
	{ NV503C_CTRL_CMD_REGISTER_PID, RM_PASS, REGISTER_PID, "lets another's program at its memory" },
	{ NV506F_CTRL_CMD_RESET_ISOLATED_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NV5080_CTRL_CMD_DEFERRED_API, RM_REFUSE, NOTHING, "has the driver do something later" },
	{ NV5080_CTRL_CMD_DEFERRED_API_V2, RM_REFUSE, NOTHING, "has the driver do something later" },
	{ NV83DE_CTRL_CMD_DEBUG_RESUME_CONTEXT, RM_WAIT, NOTHING, "resumes its context" },
	{ NV83DE_CTRL_CMD_DEBUG_EXEC_REG_OPS, RM_REFUSE, NOTHING, "reads or writes registers" },
	{ NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE, RM_REFUSE, NOTHING, "sets its TPC table" },
	{ NV9067_CTRL_CMD_SET_CWD_WATERMARK, RM_REFUSE, NOTHING, "sets its work distributor's watermark" },
	{ NV906F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NV90CC_CTRL_CMD_HWPM_GET_RESERVATION_INFO, RM_REFUSE, NOTHING, "asks who measures the GPU" },
	{ NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVA06C_CTRL_CMD_SET_TIMESLICE, RM_SWALLOW, NOTHING, "sets its own time slice" },
	{ NVA06C_CTRL_CMD_PREEMPT, RM_REFUSE, NOTHING, "preempts" },
	{ NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, RM_REFUSE, NOTHING, "sets its own level" },
	{ NVA06C_CTRL_CMD_MAKE_REALTIME, RM_REFUSE, NOTHING, "makes itself realtime" },
	{ NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVA06F_CTRL_CMD_SET_INTERLEAVE_LEVEL, RM_REFUSE, NOTHING, "sets its own level" },
	{ NVA06F_CTRL_CMD_RESTART_RUNLIST, RM_REFUSE, NOTHING, "restarts the runlist" },
	{ NVB06F_CTRL_CMD_MIGRATE_ENGINE_CTX_DATA, RM_REFUSE, NOTHING, "writes a context" },
	{ NVB06F_CTRL_CMD_SET_CHANNEL_HW_STATE, RM_REFUSE, NOTHING, "writes a channel's state" },
	{ NVB06F_CTRL_CMD_RESTORE_ENGINE_CTX_DATA, RM_REFUSE, NOTHING, "writes a context" },
	{ NVB0CC_CTRL_CMD_EXEC_REG_OPS, RM_REFUSE, NOTHING, "reads or writes registers" },
};

/* Raw commands that CUDA 13.0 made on an H100 (tests/data/traces). What others do nobody can tell. */
static const u32 known_raw[] = {
	0x20808159,
	0x20808162,
	0x20809038,
	0x20810108,
};

static const struct rule *find_rule(u32 cmd)
{
	u32 low = 0, high = sizeof(rules) / sizeof(rules[0]);

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (rules[middle].cmd < cmd)
			low = middle + 1;
		else
			high = middle;
	}
	return low < sizeof(rules) / sizeof(rules[0]) && rules[low].cmd == cmd ? &rules[low] : NULL;
}

static bool is_known_raw(u32 cmd)
{
	u32 i;

	for (i = 0; i < sizeof(known_raw) / sizeof(known_raw[0]); i++)
		if (known_raw[i] == cmd)
			return true;
	return false;
}

static bool is_legacy(u32 cmd)
{
	return cmd & GSS_LEGACY;
}

static bool is_raw(u32 cmd, bool raw)
{
	return raw || is_legacy(cmd) || (CLASS_OF(cmd) >= BINAPI_FIRST && CLASS_OF(cmd) <= BINAPI_LAST);
}

/* The plain control that firmware may take a raw one for. What goes through a raw interface is one of its subdevice, whatever class it says. */
static u32 plain_of(u32 cmd, bool raw)
{
	u32 class = CLASS_OF(cmd);

	if (raw || class == BINAPI_FIRST || class == BINAPI_LAST)
		class = NV20_SUBDEVICE_0;
	return class << 16 | (cmd & 0xffff & ~(u32)GSS_LEGACY_ALL);
}

bool rm_verdict_wanted(u32 cmd, u32 flags, bool raw)
{
	return is_raw(cmd, raw) || flags & NVOS54_FLAGS_FINN_SERIALIZED || find_rule(cmd);
}

static u32 size_of(const struct rm_abi *abi, u32 look)
{
	switch (look) {
	case DISABLE_LIST:
		return abi->disable_channels.len;
	case IDLE_TIME:
		return abi->idle_channels.len;
	case GROUP_IDS:
		return abi->group_ids.len;
	case CHANNEL_IDS:
		return abi->channel_ids.len;
	case CHANNEL_INFO:
		return abi->channel_info.len;
	case MODE:
		return abi->ctxsw_mode.len;
	case MODE_BIND:
		return abi->ctxsw_bind.len;
	case REG_OPS:
		return abi->reg_ops.len;
	case ZCULL_MODE:
		return abi->zcull_mode.len;
	case TLB:
		return abi->invalidate_tlb.len;
	case CHANNEL_STATE:
		return abi->channel_state.len;
	case REGISTER_PID:
		return abi->register_pid.len;
	case ZCULL_BIND:
		return abi->zcull_bind.len;
	case PM_BIND:
		return abi->pm_bind.len;
	case SETUP_BIND:
		return abi->setup_bind.len;
	case MIGRATABLE_OPS:
		return abi->migratable_ops.len;
	case ACCESS_RIGHTS:
		return abi->access_rights.len;
	default:
		return 0;
	}
}

static const struct rule *rule_of(u32 cmd, bool raw)
{
	return find_rule(is_raw(cmd, raw) ? plain_of(cmd, raw) : cmd);
}

bool rm_verdict_idles(u32 cmd, bool raw)
{
	const struct rule *rule = rule_of(cmd, raw);

	return rule && rule->look == IDLE_TIME;
}

bool rm_verdict_keeps(u32 cmd, bool raw)
{
	const struct rule *rule = rule_of(cmd, raw);

	return rule && rule->look == KEEPING;
}

u32 rm_verdict_params(const struct rm_abi *abi, u32 cmd, u32 flags, bool raw)
{
	const struct rule *rule = rule_of(cmd, raw);

	return rule && !(flags & NVOS54_FLAGS_FINN_SERIALIZED) ? size_of(abi, rule->look) : 0;
}

static void refuse(struct rm_ruling *ruling, enum rm_denial reason, const char *trick)
{
	*ruling = (struct rm_ruling){
		.verdict = RM_REFUSE,
		.reason = reason,
		.status = NV_ERR_INSUFFICIENT_PERMISSIONS,
		.trick = trick,
	};
}

static void pass(struct rm_ruling *ruling)
{
	*ruling = (struct rm_ruling){ .verdict = RM_PASS };
}

static u32 entry(const u8 *params, struct rm_fblk list, u32 i)
{
	return rm_get32(params, (struct rm_f32){ (u16)(list.off + 4 * i) });
}

/* Does the list name nobody but the caller? What is beyond its end the driver refuses. */
static bool owns_all(const u8 *params, struct rm_fblk list, u32 count, const struct rm_asker *asker)
{
	u32 i, last = 0;

	for (i = 0; i < count && i < list.size / 4; i++) {
		u32 client = entry(params, list, i);

		if ((!i || client != last) && !asker->owns(asker->data, client))
			return false;
		last = client;
	}
	return true;
}

/* 0: nobody. */
static u32 named_client(const struct rm_abi *abi, u32 look, const u8 *params)
{
	switch (look) {
	case REG_OPS:
		return rm_get32(params, abi->reg_ops.hClientTarget);
	case ZCULL_MODE:
		return rm_get32(params, abi->zcull_mode.hShareClient);
	case TLB:
		return rm_get32(params, abi->invalidate_tlb.hClient);
	case CHANNEL_STATE:
		return rm_get32(params, abi->channel_state.hClient);
	case ZCULL_BIND:
		return rm_get32(params, abi->zcull_bind.hClient);
	case PM_BIND:
		return rm_get32(params, abi->pm_bind.hClient);
	case SETUP_BIND:
		return rm_get32(params, abi->setup_bind.hClient);
	case MIGRATABLE_OPS:
		return rm_get32(params, abi->migratable_ops.hClientTarget);
	case ACCESS_RIGHTS:
		return rm_get32(params, abi->access_rights.hClient);
	default:
		return rm_get32(params, abi->register_pid.hClient);
	}
}

static bool switches_preemption_off(u32 flags, u32 mode)
{
	return flags & RM_CTXSW_CILP_SET && mode != RM_CTXSW_CILP;
}

/* Whether the parameters are those of somebody else; with them the rest of the rule's verdict. */
static void judge_params(const struct rm_abi *abi, const struct rule *rule, const u8 *params, const struct rm_asker *asker,
			 struct rm_ruling *ruling)
{
	bool harmless = false, own = true;
	enum rm_denial reason = RM_DENIAL_FOREIGN;
	u32 named;

	switch (rule->look) {
	case DISABLE_LIST:
		own = owns_all(params, abi->disable_channels.hClientList,
			       rm_get32(params, abi->disable_channels.numChannels), asker);
		break;
	case GROUP_IDS:
		reason = RM_DENIAL_QUERY;
		own = asker->owns(asker->data, rm_get32(params, abi->group_ids.hClient));
		break;
	case CHANNEL_IDS:
		reason = RM_DENIAL_QUERY;
		own = owns_all(params, abi->channel_ids.hClients, rm_get32(params, abi->channel_ids.numChannels), asker);
		break;
	case CHANNEL_INFO:
		own = asker->owns(asker->data, rm_get32(params, abi->channel_info.hClient));
		break;
	case MODE:
		harmless = !switches_preemption_off(rm_get32(params, abi->ctxsw_mode.flags),
						    rm_get32(params, abi->ctxsw_mode.cilpPreemptMode));
		break;
	case MODE_BIND:
		own = asker->owns(asker->data, rm_get32(params, abi->ctxsw_bind.hClient));
		harmless = !switches_preemption_off(rm_get32(params, abi->ctxsw_bind.flags),
						    rm_get32(params, abi->ctxsw_bind.cilpPreemptMode));
		break;
	case REG_OPS:
	case ZCULL_MODE:
	case TLB:
	case CHANNEL_STATE:
	case REGISTER_PID:
	case ZCULL_BIND:
	case PM_BIND:
	case SETUP_BIND:
	case MIGRATABLE_OPS:
	case ACCESS_RIGHTS:
		named = named_client(abi, rule->look, params);
		own = !named || asker->owns(asker->data, named);
		break;
	default:
		break;
	}
	if (!own)
		refuse(ruling, reason, rule->trick);
	else if (harmless || !asker->managed || rule->managed == RM_PASS)
		pass(ruling);
	else
		refuse(ruling, RM_DENIAL_ORDER, rule->trick);
}

/* Gives its verdict if the parameters are those of the rule. */
static bool has_params(const struct rm_abi *abi, const struct rule *rule, const struct rm_asked *asked)
{
	u32 size = size_of(abi, rule->look);

	return size && asked->params && asked->params_size == size;
}

static bool is_barred(const struct rule *rule, const struct rm_asker *asker)
{
	return rule->look == KEEPING && (asker->managed || asker->limited);
}

static void judge_raw(const struct rm_abi *abi, const struct rm_asked *asked, const struct rm_asker *asker,
		      struct rm_ruling *ruling)
{
	const struct rule *rule = rule_of(asked->cmd, asked->raw);

	/* of these alone the driver does not ask whose the client is */
	if (is_legacy(asked->cmd) && !asker->owns(asker->data, asked->client))
		refuse(ruling, RM_DENIAL_FOREIGN, "sends a raw command for another's client");
	else if (asker->managed && !is_known_raw(asked->cmd))
		refuse(ruling, RM_DENIAL_RAW, "sends a raw command to the firmware");
	else if (rule && rule->look == FOREIGN)
		refuse(ruling, RM_DENIAL_FOREIGN, rule->trick);
	else if (rule && is_barred(rule, asker))
		refuse(ruling, RM_DENIAL_ORDER, rule->trick);
	else if (rule && has_params(abi, rule, asked))
		judge_params(abi, rule, asked->params, asker, ruling);
	else
		pass(ruling);
}

static void judge_order(const struct rule *rule, const struct rm_asker *asker, struct rm_ruling *ruling)
{
	pass(ruling);
	if (rule->managed == RM_WAIT)
		ruling->verdict = RM_WAIT;
	if (!asker->managed || rule->managed == RM_WAIT)
		return;
	refuse(ruling, RM_DENIAL_ORDER, rule->trick);
	if (rule->managed == RM_SWALLOW) {
		ruling->verdict = RM_SWALLOW;
		ruling->status = NV_OK;
	}
}

void rm_verdict_control(const struct rm_abi *abi, const struct rm_asked *asked, const struct rm_asker *asker,
			struct rm_ruling *ruling)
{
	const struct rule *rule;

	pass(ruling);
	if (asker->trusted)
		return;
	if (asked->flags & NVOS54_FLAGS_FINN_SERIALIZED) {
		refuse(ruling, RM_DENIAL_RAW, "sends serialised parameters");
		return;
	}
	if (is_raw(asked->cmd, asked->raw)) {
		judge_raw(abi, asked, asker, ruling);
		return;
	}
	rule = find_rule(asked->cmd);
	if (!rule)
		return;
	if (rule->look == FOREIGN)
		refuse(ruling, RM_DENIAL_FOREIGN, rule->trick);
	else if (is_barred(rule, asker))
		refuse(ruling, RM_DENIAL_ORDER, rule->trick);
	else if (rule->look == NOTHING)
		judge_order(rule, asker, ruling);
	else if (has_params(abi, rule, asked))
		judge_params(abi, rule, asked->params, asker, ruling);
	else if (asker->managed && rule->managed == RM_REFUSE)
		refuse(ruling, RM_DENIAL_ORDER, rule->trick);
	/* else the driver refuses it: it has no such control, or not of this size */
}

u32 rm_verdict_idle_us(u32 us)
{
	return us && us < RM_IDLE_MOST_US ? us : RM_IDLE_MOST_US;
}

void rm_verdict_shorten(const struct rm_abi *abi, u32 cmd, bool raw, u8 *params)
{
	const struct rule *rule = rule_of(cmd, raw);
	struct rm_f32 at = abi->idle_channels.timeout;

	if (rule && rule->look == IDLE_TIME)
		rm_put32(params, at, rm_verdict_idle_us(rm_get32(params, at)));
}

void rm_verdict_idle(const u8 *clients, u32 count, const struct rm_asker *asker, struct rm_ruling *ruling)
{
	struct rm_fblk list = { 0, 0xffff };

	pass(ruling);
	if (!asker->trusted && !owns_all(clients, list, count, asker))
		refuse(ruling, RM_DENIAL_FOREIGN, "waits for another's channels to be idle");
}

void rm_verdict_gpu_map(enum rm_kind kind, const struct rm_asker *asker, struct rm_ruling *ruling)
{
	pass(ruling);
	if (!asker->trusted && (kind == RM_KIND_USERMODE || kind == RM_KIND_MEM_REGISTERS))
		refuse(ruling, RM_DENIAL_DOORBELL, "maps the doorbell for the GPU");
}

void rm_verdict_object(enum rm_kind kind, bool named, const struct rm_asker *asker, struct rm_ruling *ruling)
{
	pass(ruling);
	if (kind == RM_KIND_CHANNEL && asker->limited) {
		refuse(ruling, RM_DENIAL_ORDER, "makes a channel in no channel group");
		return;
	}
	if (asker->trusted || !asker->managed)
		return;
	if (kind == RM_KIND_MEM_REGISTERS)
		refuse(ruling, RM_DENIAL_DOORBELL, "asks for the GPU's registers");
	else if (kind == RM_KIND_BINAPI && !named)
		refuse(ruling, RM_DENIAL_RAW, "makes a raw interface with a handle that nobody knows");
	else if (kind == RM_KIND_CHANNEL)
		refuse(ruling, RM_DENIAL_ORDER, "makes a channel in no channel group");
}
