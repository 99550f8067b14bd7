// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "controls.h"
#include "verdict.h"

#define GSS_LEGACY 0x8000u	/* RM_GSS_LEGACY_MASK: to the firmware, with any size, for any client */
#define GSS_LEGACY_ALL 0xc000u	/* with the bit that asks for an administrator */
#define CLASS_OF(cmd) ((cmd) >> 16)
#define BINAPI_FIRST 0x2081
#define BINAPI_LAST 0x2082

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
	return is_raw(cmd, raw) || flags & NVOS54_FLAGS_FINN_SERIALIZED || rm_control_rule(cmd);
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

static const struct rm_rule *rule_of(u32 cmd, bool raw)
{
	return rm_control_rule(is_raw(cmd, raw) ? plain_of(cmd, raw) : cmd);
}

bool rm_verdict_idles(u32 cmd, bool raw)
{
	const struct rm_rule *rule = rule_of(cmd, raw);

	return rule && rule->look == IDLE_TIME;
}

bool rm_verdict_keeps(u32 cmd, bool raw)
{
	const struct rm_rule *rule = rule_of(cmd, raw);

	return rule && rule->look == KEEPING;
}

u32 rm_verdict_params(const struct rm_abi *abi, u32 cmd, u32 flags, bool raw)
{
	const struct rm_rule *rule = rule_of(cmd, raw);

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
static void judge_params(const struct rm_abi *abi, const struct rm_rule *rule, const u8 *params, const struct rm_asker *asker,
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
static bool has_params(const struct rm_abi *abi, const struct rm_rule *rule, const struct rm_asked *asked)
{
	u32 size = size_of(abi, rule->look);

	return size && asked->params && asked->params_size == size;
}

static bool is_barred(const struct rm_rule *rule, const struct rm_asker *asker)
{
	return rule->look == KEEPING && (asker->managed || asker->limited);
}

static void judge_raw(const struct rm_abi *abi, const struct rm_asked *asked, const struct rm_asker *asker,
		      struct rm_ruling *ruling)
{
	const struct rm_rule *rule = rule_of(asked->cmd, asked->raw);

	/* of these alone the driver does not ask whose the client is */
	if (is_legacy(asked->cmd) && !asker->owns(asker->data, asked->client))
		refuse(ruling, RM_DENIAL_FOREIGN, "sends a raw command for another's client");
	else if (asker->managed && !rm_control_known_raw(asked->cmd))
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

static void judge_order(const struct rm_rule *rule, const struct rm_asker *asker, struct rm_ruling *ruling)
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
	const struct rm_rule *rule;

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
	rule = rm_control_rule(asked->cmd);
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
	const struct rm_rule *rule = rule_of(cmd, raw);
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
