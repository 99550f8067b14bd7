// SPDX-License-Identifier: GPL-2.0-only
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "client.h"
#include "control.h"
#include "driver.h"
#include "rm/answer.h"

bool ds_control_begin(struct ds_control *control, const void *block, u32 size)
{
	const struct rm_abi *abi = ds_abi();
	u32 cmd;

	if (!abi || size != abi->nvos54.len)
		return false;
	cmd = rm_get32(block, abi->nvos54.cmd);
	if (likely(!rm_answer_wanted(cmd)))
		return false;
	control->client = rm_get32(block, abi->nvos54.hClient);
	control->object = rm_get32(block, abi->nvos54.hObject);
	control->cmd = cmd;
	control->params = rm_get64(block, abi->nvos54.params);
	control->params_size = rm_get32(block, abi->nvos54.paramsSize);
	control->list = 0;
	control->list_entries = 0;
	return true;
}

u32 ds_control_read(struct ds_control *control, unsigned long user, void *kernel, u32 n)
{
	u64 list;

	/* the list of the older form lies behind a pointer, read with the parameters */
	if (control->cmd == NV2080_CTRL_CMD_FB_GET_INFO && user == control->params && !control->list &&
	    !rm_answer_fb_list_at(ds_abi_outer(), kernel, n, &list, &control->list_entries))
		control->list = list;
	return 0;
}

/* What the object's client may see on the object's GPU. false: everything. */
static bool view_of(const struct ds_control *control, struct rm_view *view)
{
	struct ds_client *client;
	struct rm_object *object;
	struct ds_vctx *vctx = NULL;

	down_read(&ds_clients_lock);
	client = ds_client_find(control->client);
	if (client) {
		mutex_lock(&client->tree);
		object = rm_tree_find(&client->rm, control->object);
		if (object)
			vctx = ds_vctx_find(client, object->gpu);
		if (vctx)
			rm_payer_view(ds_vctx_payer(vctx), view);
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return vctx && view->limit != RM_NO_LIMIT;
}

void *ds_control_answer(struct ds_control *control, unsigned long user, const void *kernel, u32 n)
{
	const struct rm_abi *abi = ds_abi();
	bool is_list = control->list && user == control->list;
	struct rm_view view;
	void *copy;

	if (!abi || (!is_list && user != control->params) || !view_of(control, &view))
		return NULL;
	copy = kvmalloc(n, GFP_KERNEL);
	if (!copy)
		return NULL;
	memcpy(copy, kernel, n);
	if (is_list)
		rm_answer_fb_list(abi, &view, copy,
				  min_t(u32, control->list_entries, n / abi->fb_info.len));
	else
		rm_answer_control(abi, &view, control->cmd, copy, n);
	return copy;
}
