// SPDX-License-Identifier: GPL-2.0-only
/* Rows of classes. */
#include "class.h"
#include "compat.h"
#include "driver.h"
#include "netlink.h"
#include "rm/rota.h"
#include "entity.h"

#define TURN_MIN_US (RM_ROTA_LEAST_NS / NSEC_PER_USEC)
#define TURN_MAX_US USEC_PER_SEC
#define SLICE_MAX_US (60ULL * USEC_PER_SEC)

static int put_u64(struct sk_buff *skb, int attribute, u64 value)
{
	return value ? nla_put_u64_64bit(skb, attribute, value, DETSHARE_A_CLASS_PAD) : 0;
}

static int put_class(struct sk_buff *skb, const struct ds_class *row)
{
	int err = nla_put_string(skb, DETSHARE_A_CLASS_NAME, row->name) ?:
		  put_u64(skb, DETSHARE_A_CLASS_SLICE_US, row->slice_us) ?:
		  nla_put_u32(skb, DETSHARE_A_CLASS_FLOOR_PERMILLE, row->floor) ?:
		  put_u64(skb, DETSHARE_A_CLASS_TURN_US, row->turn_us) ?:
		  nla_put_u32(skb, DETSHARE_A_CLASS_TURN_RANK, row->turn_rank) ?:
		  nla_put_u32(skb, DETSHARE_A_CLASS_ENTITIES, row->entities);

	if (!err && row->gpu != DS_ALL_GPUS)
		err = nla_put_u32(skb, DETSHARE_A_CLASS_GPU, row->gpu);
	if (!err && row->weight)
		err = nla_put_u32(skb, DETSHARE_A_CLASS_WEIGHT, row->weight);
	if (!err && row->level >= 0)
		err = nla_put_u32(skb, DETSHARE_A_CLASS_LEVEL, row->level);
	return err;
}

/* Does the dump's request mean this row? */
static bool asked_for(struct nlattr **attrs, const struct ds_class *row)
{
	const struct nlattr *gpu = attrs[DETSHARE_A_CLASS_GPU], *name = attrs[DETSHARE_A_CLASS_NAME];

	return (!gpu || nla_get_u32(gpu) == row->gpu) && (!name || !strcmp(nla_data(name), row->name));
}

int ds_nl_class_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct nlattr **attrs = ds_dump_attrs(cb);
	struct ds_class row;
	void *header;

	for (; ds_class_at(cb->args[0], &row); cb->args[0]++) {
		if (!asked_for(attrs, &row))
			continue;
		row.entities = ds_entity_count_class(row.name, row.gpu);
		header = ds_nl_entry(skb, cb, DETSHARE_CMD_CLASS_GET);
		if (!header || ds_nl_entry_end(skb, header, put_class(skb, &row)))
			break;
	}
	return skb->len;
}

static int name_of(struct genl_info *info, struct ds_class *row)
{
	struct nlattr *name = info->attrs[DETSHARE_A_CLASS_NAME], *gpu = info->attrs[DETSHARE_A_CLASS_GPU];

	*row = (struct ds_class){ .gpu = DS_ALL_GPUS, .level = -1 };
	if (!name) {
		NL_SET_ERR_MSG(info->extack, "no class is named: add the attribute name");
		return -EINVAL;
	}
	if (!ds_nl_name_is_good(nla_data(name))) {
		NL_SET_ERR_MSG_ATTR(info->extack, name,
				    "the name of a class has 1 to 63 bytes, without spaces and control characters");
		return -EINVAL;
	}
	strscpy(row->name, nla_data(name), sizeof(row->name));
	if (!gpu)
		return 0;
	row->gpu = nla_get_u32(gpu);
	if (row->gpu < RM_GPUS)
		return 0;
	NL_SET_ERR_MSG_ATTR(info->extack, gpu, "no such GPU: gpu-get lists those in use");
	return -ERANGE;
}

static int check_row(struct genl_info *info, const struct ds_class *row)
{
	struct nlattr **attrs = info->attrs;

	if (attrs[DETSHARE_A_CLASS_WEIGHT] && (!row->weight || row->weight > DETSHARE_WEIGHT_MAX)) {
		NL_SET_ERR_MSG_ATTR(info->extack, attrs[DETSHARE_A_CLASS_WEIGHT], "weight is 1 to 1000; leave it out for none");
		return -ERANGE;
	}
	if (row->weight && row->slice_us) {
		NL_SET_ERR_MSG_ATTR(info->extack, attrs[DETSHARE_A_CLASS_SLICE_US],
				    "weight and slice-us rule the same thing: give one of them");
		return -EINVAL;
	}
	if (row->slice_us > SLICE_MAX_US) {
		NL_SET_ERR_MSG_ATTR(info->extack, attrs[DETSHARE_A_CLASS_SLICE_US],
				    "slice-us is above 60 s; 0 leaves slices as they are");
		return -ERANGE;
	}
	if (row->turn_us && (row->turn_us < TURN_MIN_US || row->turn_us > TURN_MAX_US)) {
		NL_SET_ERR_MSG_ATTR(info->extack, attrs[DETSHARE_A_CLASS_TURN_US],
				    "turn-us is 5 ms to 1 s; 0 means that all of the class run at once");
		return -ERANGE;
	}
	if (row->turn_rank > DETSHARE_RANK_MAX) {
		NL_SET_ERR_MSG_ATTR(info->extack, attrs[DETSHARE_A_CLASS_TURN_RANK], "turn-rank is above 1000");
		return -ERANGE;
	}
	if (row->floor > DETSHARE_PERMILLE_MAX) {
		NL_SET_ERR_MSG_ATTR(info->extack, attrs[DETSHARE_A_CLASS_FLOOR_PERMILLE], "floor-permille is above 1000");
		return -ERANGE;
	}
	return 0;
}

static int row_of(struct genl_info *info, struct ds_class *row)
{
	struct nlattr **attrs = info->attrs;
	int err = name_of(info, row);

	if (err)
		return err;
	if (attrs[DETSHARE_A_CLASS_WEIGHT])
		row->weight = nla_get_u32(attrs[DETSHARE_A_CLASS_WEIGHT]);
	if (attrs[DETSHARE_A_CLASS_SLICE_US])
		row->slice_us = nla_get_u64(attrs[DETSHARE_A_CLASS_SLICE_US]);
	if (attrs[DETSHARE_A_CLASS_LEVEL])
		row->level = nla_get_u32(attrs[DETSHARE_A_CLASS_LEVEL]);
	if (attrs[DETSHARE_A_CLASS_FLOOR_PERMILLE])
		row->floor = nla_get_u32(attrs[DETSHARE_A_CLASS_FLOOR_PERMILLE]);
	if (attrs[DETSHARE_A_CLASS_TURN_US])
		row->turn_us = nla_get_u64(attrs[DETSHARE_A_CLASS_TURN_US]);
	if (attrs[DETSHARE_A_CLASS_TURN_RANK])
		row->turn_rank = nla_get_u32(attrs[DETSHARE_A_CLASS_TURN_RANK]);
	return check_row(info, row);
}

int ds_nl_class_set(struct sk_buff *request, struct genl_info *info)
{
	struct ds_class row;
	struct sk_buff *skb;
	void *header;
	int err;

	err = row_of(info, &row) ?: ds_class_set(&row);
	if (err)
		return err;
	skb = ds_nl_answer(info, &header);
	return skb ? ds_nl_answer_end(skb, header, info, put_class(skb, &row)) : -ENOMEM;
}

int ds_nl_class_del(struct sk_buff *request, struct genl_info *info)
{
	struct ds_class row;
	int err = name_of(info, &row);

	if (err)
		return err;
	err = ds_class_del(row.gpu, row.name);
	if (err == -ENOENT)
		NL_SET_ERR_MSG(info->extack, "there is no such row: class-get lists those in force");
	return err;
}
