// SPDX-License-Identifier: GPL-2.0-only
#include <linux/slab.h>
#include <linux/string.h>

#include "driver.h"
#include "hook.h"
#include "rm/act.h"
#include "rmcall.h"

/* nvidia_modeset_rm_ops_t, the part that never changed. */
struct ds_rm_ops {
	const char *version;
	struct {
		u8 allow_write_combining;
	} system_info;
	int (*alloc_stack)(void **sp);
	void (*free_stack)(void *sp);
	u32 (*enumerate_gpus)(void *gpu_info);
	void *open_gpu;
	void *close_gpu;
	void (*op)(void *sp, void *ops_cmd);
	void *set_callbacks;
	void *room[8];	/* for what newer versions may append */
};

#define OP_FREE 0x00
#define OP_ALLOC 0x15
#define OP_CONTROL 0x36

/* nvidia_kernel_rmapi_ops_t: the operation's number, then its parameters as the ioctl has them. */
struct rm_op {
	u32 op;
	u8 params[256] __aligned(8);
};

#define PARAMS_MAX 2048	/* largest parameters of a question, lists behind them included */

/* A question to the driver, zeroed; on the heap, for the driver may hand it to hardware. The driver is pinned while it lives. */
struct question {
	struct module *driver;
	const struct rm_abi *abi;
	struct rm_op op;
	union {
		u8 params[PARAMS_MAX] __aligned(8);
		struct rm_step step;
	};
};

#define SPACE_VIDMEM 2	/* NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_VIDMEM */
#define PHYS_SIZE_UNIT 4096

struct workqueue_struct *ds_rm_queue, *ds_rm_ordered;

static u32 call_get_rm_ops(unsigned long get_rm_ops, struct ds_rm_ops *ops)
{
	return ds_call_past((unsigned long)ops, 0, 0, 0, 0, get_rm_ops);
}

int ds_rm_version(unsigned long get_rm_ops, char *version, size_t size)
{
	struct ds_rm_ops ops = { .version = "" };

	/* a wrong version is answered by the right one */
	call_get_rm_ops(get_rm_ops, &ops);
	if (!ops.version || !ops.version[0] || strscpy(version, ops.version, size) < 0) {
		version[0] = '\0';
		return -EINVAL;
	}
	return 0;
}

int ds_rm_get_ops(unsigned long get_rm_ops, const char *version, struct ds_rm_ops *ops)
{
	memset(ops, 0, sizeof(*ops));
	ops->version = version;
	if (call_get_rm_ops(get_rm_ops, ops) || !ops->op || !ops->alloc_stack || !ops->free_stack)
		return -ENODEV;
	return 0;
}

/* The driver is pinned. */
static u32 perform(struct rm_op *op)
{
	struct ds_rm_ops ops;
	void *sp = NULL;

	if (ds_driver_rm_ops(&ops))
		return DS_RM_GONE;
	if (ops.alloc_stack(&sp))
		return NV_ERR_NO_MEMORY;
	ops.op(sp, op);
	ops.free_stack(sp);
	return 0;
}

/* NULL: no driver that is known, or no memory; for whoever asks that is the same: nobody answers. */
static struct question *begin(void)
{
	struct module *driver = ds_driver_pin();
	struct question *question;

	if (!driver)
		return NULL;
	question = ds_abi() ? kzalloc(sizeof(*question), GFP_KERNEL) : NULL;
	if (!question) {
		ds_driver_unpin(driver);
		return NULL;
	}
	question->driver = driver;
	question->abi = ds_abi();
	return question;
}

static u32 end(struct question *question, u32 status)
{
	ds_driver_unpin(question->driver);
	kfree(question);
	return status;
}

static u32 control(struct question *question, u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	const struct rm_abi *abi = question->abi;
	struct rm_op *op = &question->op;

	op->op = OP_CONTROL;
	rm_put32(op->params, abi->nvos54.hClient, client);
	rm_put32(op->params, abi->nvos54.hObject, object);
	rm_put32(op->params, abi->nvos54.cmd, cmd);
	rm_put64(op->params, abi->nvos54.params, (u64)(uintptr_t)params);
	rm_put32(op->params, abi->nvos54.paramsSize, size);
	return perform(op) ?: rm_get32(op->params, abi->nvos54.status);
}

/* Asks with question->params, of `size` bytes. */
static u32 ask(struct question *question, u32 client, u32 object, u32 cmd, u32 size)
{
	if (WARN_ON_ONCE(size > PARAMS_MAX))
		return NV_ERR_INVALID_ARGUMENT;
	return control(question, client, object, cmd, question->params, size);
}

u32 ds_rm_alloc(u32 client, u32 parent, u32 class, u32 *object)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	struct rm_op *op;
	u32 status;

	*object = 0;
	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	op = &question->op;
	op->op = OP_ALLOC;
	rm_put32(op->params, abi->nvos21.hRoot, client);
	rm_put32(op->params, abi->nvos21.hObjectParent, parent);
	rm_put32(op->params, abi->nvos21.hClass, class);
	status = perform(op);
	/* NVOS21 before 575, NVOS64 from there on: they begin alike, and where one has its status the other has nothing here */
	if (!status)
		status = rm_get32(op->params, abi->nvos21.status) ?: rm_get32(op->params, abi->nvos64.status);
	if (!status)
		*object = rm_get32(op->params, abi->nvos21.hObjectNew);
	return end(question, status);
}

u32 ds_rm_free(u32 client, u32 object)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	struct rm_op *op;

	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	op = &question->op;
	op->op = OP_FREE;
	rm_put32(op->params, abi->nvos00.hRoot, client);
	rm_put32(op->params, abi->nvos00.hObjectParent, client);
	rm_put32(op->params, abi->nvos00.hObjectOld, object);
	return end(question, perform(op) ?: rm_get32(op->params, abi->nvos00.status));
}

/* ---- acts ------------------------------------------------------------------ */

static u32 act(struct question *question)
{
	struct rm_step *step = &question->step;

	return control(question, step->client, step->object, step->cmd, step->params, step->size);
}

u32 ds_rm_get_slice(u32 client, u32 tsg, u64 *us)
{
	struct question *question = begin();
	u32 status;

	*us = 0;
	if (!question)
		return DS_RM_GONE;
	rm_act_get_slice(question->abi, client, tsg, &question->step);
	status = act(question);
	if (!status)
		*us = rm_act_slice(question->abi, &question->step);
	return end(question, status);
}

u32 ds_rm_set_slice(u32 client, u32 tsg, u64 us)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	rm_act_set_slice(question->abi, client, tsg, us, &question->step);
	return end(question, act(question));
}

u32 ds_rm_set_level(u32 client, u32 tsg, u32 level)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	rm_act_set_level(question->abi, client, tsg, level, &question->step);
	return end(question, act(question));
}

u32 ds_rm_preempt(u32 client, u32 tsg)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	rm_act_preempt(question->abi, client, tsg, &question->step);
	return end(question, act(question));
}

u32 ds_rm_no_realtime(u32 client, u32 tsg)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	rm_act_no_realtime(question->abi, client, tsg, &question->step);
	return end(question, act(question));
}

u32 ds_rm_preemptible(u32 client, u32 subdevice, u32 tsg)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	rm_act_preemptible(question->abi, client, subdevice, tsg, &question->step);
	return end(question, act(question));
}

u32 ds_rm_disable(u32 client, u32 subdevice, const struct rm_channel *channels, unsigned int count, bool off)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	if (rm_act_disable(question->abi, client, subdevice, channels, count, off, &question->step))
		return end(question, NV_ERR_INVALID_ARGUMENT);
	return end(question, act(question));
}

u32 ds_rm_tpc_mode(u32 client, u32 tsg, enum rm_tpc_mode mode, bool all)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	rm_act_tpc_mode(question->abi, client, tsg, mode, all, &question->step);
	return end(question, act(question));
}

u32 ds_rm_tpc_table(u32 client, u32 ctxshare, unsigned int used)
{
	struct question *question = begin();

	if (!question)
		return DS_RM_GONE;
	if (rm_act_tpc_table(question->abi, client, ctxshare, used, &question->step))
		return end(question, NV_ERR_INVALID_ARGUMENT);
	return end(question, act(question));
}

/* ---- questions ------------------------------------------------------------ */

u32 ds_rm_memory_bytes(u32 client, u32 memory, u64 *bytes)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	u8 *params, *size, *space;
	u32 status;

	*bytes = 0;
	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	params = question->params;
	size = params + round_up(abi->get_surface.len, 8);
	space = size + abi->surface.len;
	rm_put32(size, abi->surface.index, NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE);
	rm_put32(space, abi->surface.index, NV0041_CTRL_SURFACE_INFO_INDEX_ADDR_SPACE_TYPE);
	rm_put32(params, abi->get_surface.surfaceInfoListSize, 2);
	rm_put64(params, abi->get_surface.surfaceInfoList, (u64)(uintptr_t)size);
	status = ask(question, client, memory, NV0041_CTRL_CMD_GET_SURFACE_INFO, abi->get_surface.len);
	if (!status && rm_get32(space, abi->surface.data) == SPACE_VIDMEM)
		*bytes = (u64)rm_get32(size, abi->surface.data) * PHYS_SIZE_UNIT;
	return end(question, status);
}

/* *result is 0 if the status is not. */
static u32 handle_info(u32 client, u32 object, u32 index, u32 *result)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	u32 status;

	*result = 0;
	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	rm_put32(question->params, abi->handle_info.hObject, object);
	rm_put32(question->params, abi->handle_info.index, index);
	status = ask(question, client, client, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO,
		     abi->handle_info.len);
	if (status)
		return end(question, status);
	if (index == NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT)
		*result = rm_get32(question->params, abi->handle_info.data_hResult);
	else
		*result = rm_get64(question->params, abi->handle_info.data_iResult);
	return end(question, status);
}

u32 ds_rm_class(u32 client, u32 object, u32 *class)
{
	return handle_info(client, object, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID, class);
}

u32 ds_rm_parent(u32 client, u32 object, u32 *parent)
{
	return handle_info(client, object, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT, parent);
}

u32 ds_rm_child(u32 client, u32 parent, u32 internal_class, u32 *child)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	u32 status;

	*child = 0;
	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	rm_put32(question->params, abi->child_handle.hParent, parent);
	rm_put32(question->params, abi->child_handle.classId, internal_class);
	status = ask(question, client, client, NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE,
		     abi->child_handle.len);
	if (!status)
		*child = rm_get32(question->params, abi->child_handle.hObject);
	return end(question, status);
}

u32 ds_rm_gpu_uuid(u32 client, u32 subdevice, char *uuid, size_t size)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	u32 status;

	uuid[0] = '\0';
	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	rm_put32(question->params, abi->gid_info.flags, NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_ASCII);
	status = ask(question, client, subdevice, NV2080_CTRL_CMD_GPU_GET_GID_INFO, abi->gid_info.len);
	if (!status)
		strscpy(uuid, question->params + abi->gid_info.data.off,
			min_t(size_t, size, abi->gid_info.data.size));
	return end(question, status);
}

u32 ds_rm_gpu_total(u32 client, u32 subdevice, u64 *bytes)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	u32 status;
	u8 *list;

	*bytes = 0;
	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	list = question->params + abi->fb_get_info_v2.fbInfoList.off;
	rm_put32(question->params, abi->fb_get_info_v2.fbInfoListSize, 1);
	rm_put32(list, abi->fb_info.index, NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE);
	status = ask(question, client, subdevice, NV2080_CTRL_CMD_FB_GET_INFO_V2, abi->fb_get_info_v2.len);
	if (!status)
		*bytes = (u64)rm_get32(list, abi->fb_info.data) << 10;
	return end(question, status);
}

u32 ds_rm_ask_idle(u32 client, u32 device, const u32 *channels, unsigned int count)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	u32 status;
	u8 *params;

	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	/* too long for the question itself */
	params = kzalloc(abi->idle_channels.len, GFP_KERNEL);
	if (!params)
		return end(question, NV_ERR_NO_MEMORY);
	if (rm_act_ask_idle(abi, channels, count, params))
		status = NV_ERR_INVALID_ARGUMENT;
	else
		status = control(question, client, device, NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS, params, abi->idle_channels.len);
	kfree(params);
	return end(question, status);
}

u32 ds_rm_gpu_tpcs(u32 client, u32 subdevice, unsigned int *tpcs)
{
	struct question *question = begin();
	const struct rm_abi *abi;
	u32 status, gpcs, gpc;

	*tpcs = 0;
	if (!question)
		return DS_RM_GONE;
	abi = question->abi;
	status = ask(question, client, subdevice, NV2080_CTRL_CMD_GR_GET_GPC_MASK, abi->gpc_mask.len);
	gpcs = status ? 0 : rm_get32(question->params, abi->gpc_mask.gpcMask);
	for (gpc = 0; !status && gpc < 32; gpc++) {
		if (!(gpcs & BIT(gpc)))
			continue;
		memset(question->params, 0, abi->tpc_mask.len);
		rm_put32(question->params, abi->tpc_mask.gpcId, gpc);
		status = ask(question, client, subdevice, NV2080_CTRL_CMD_GR_GET_TPC_MASK, abi->tpc_mask.len);
		if (!status)
			*tpcs += hweight32(rm_get32(question->params, abi->tpc_mask.tpcMask));
	}
	if (!status && (!*tpcs || *tpcs > RM_TPCS_MAX))
		status = NV_ERR_INVALID_STATE;
	return end(question, status);
}

int ds_rmcall_init(void)
{
	/* as urgent as the runqs, which wait for what is answered here */
	ds_rm_queue = alloc_workqueue("detshare", WQ_UNBOUND | WQ_FREEZABLE | WQ_HIGHPRI, 0);
	ds_rm_ordered = alloc_ordered_workqueue("detshare_orders", WQ_FREEZABLE);
	if (ds_rm_queue && ds_rm_ordered)
		return 0;
	ds_rmcall_exit();
	return -ENOMEM;
}

void ds_rmcall_exit(void)
{
	if (ds_rm_ordered)
		destroy_workqueue(ds_rm_ordered);
	if (ds_rm_queue)
		destroy_workqueue(ds_rm_queue);
}
