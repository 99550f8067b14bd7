// SPDX-License-Identifier: GPL-2.0-only
#include <linux/slab.h>
#include <linux/string.h>

#include "driver.h"
#include "hook.h"
#include "rm/abi.h"
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
#define OP_CONTROL 0x36

/* nvidia_kernel_rmapi_ops_t: the operation's number, then its parameters as the ioctl has them. */
struct rm_op {
	u32 op;
	u8 params[256] __aligned(8);
};

#define SPACE_VIDMEM 2	/* NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_VIDMEM */
#define PHYS_SIZE_UNIT 4096

struct workqueue_struct *ds_rm_queue;

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

u32 ds_rm_control(u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	const struct rm_abi *abi = ds_abi();
	struct rm_op *op;
	u32 status;

	if (!abi || !ds_driver_pin())
		return DS_RM_GONE;
	op = kzalloc(sizeof(*op), GFP_KERNEL);
	if (!op) {
		status = NV_ERR_NO_MEMORY;
		goto unpin;
	}
	op->op = OP_CONTROL;
	rm_put32(op->params, abi->nvos54.hClient, client);
	rm_put32(op->params, abi->nvos54.hObject, object);
	rm_put32(op->params, abi->nvos54.cmd, cmd);
	rm_put64(op->params, abi->nvos54.params, (u64)(uintptr_t)params);
	rm_put32(op->params, abi->nvos54.paramsSize, size);
	status = perform(op) ?: rm_get32(op->params, abi->nvos54.status);
	kfree(op);
unpin:
	ds_driver_unpin();
	return status;
}

u32 ds_rm_free(u32 client, u32 object)
{
	const struct rm_abi *abi = ds_abi();
	struct rm_op *op;
	u32 status;

	if (!abi || !ds_driver_pin())
		return DS_RM_GONE;
	op = kzalloc(sizeof(*op), GFP_KERNEL);
	if (!op) {
		status = NV_ERR_NO_MEMORY;
		goto unpin;
	}
	op->op = OP_FREE;
	rm_put32(op->params, abi->nvos00.hRoot, client);
	rm_put32(op->params, abi->nvos00.hObjectParent, client);
	rm_put32(op->params, abi->nvos00.hObjectOld, object);
	status = perform(op) ?: rm_get32(op->params, abi->nvos00.status);
	kfree(op);
unpin:
	ds_driver_unpin();
	return status;
}

/* ---- questions ------------------------------------------------------------ */

/* Zeroed parameters on the heap: the driver may hand them to hardware. The caller frees. */
static void *params_for(const struct rm_abi *abi, u32 size)
{
	return abi ? kzalloc(size, GFP_KERNEL) : NULL;
}

u32 ds_rm_get_slice(u32 client, u32 tsg, u64 *us)
{
	const struct rm_abi *abi = ds_abi();
	void *params = abi ? params_for(abi, abi->timeslice.len) : NULL;
	u32 status;

	if (!params)
		return DS_RM_GONE;
	status = ds_rm_control(client, tsg, NVA06C_CTRL_CMD_GET_TIMESLICE, params,
			       abi->timeslice.len);
	*us = rm_get64(params, abi->timeslice.timesliceUs);
	kfree(params);
	return status;
}

u32 ds_rm_set_slice(u32 client, u32 tsg, u64 us)
{
	const struct rm_abi *abi = ds_abi();
	void *params = abi ? params_for(abi, abi->timeslice.len) : NULL;
	u32 status;

	if (!params)
		return DS_RM_GONE;
	rm_put64(params, abi->timeslice.timesliceUs, us);
	status = ds_rm_control(client, tsg, NVA06C_CTRL_CMD_SET_TIMESLICE, params,
			       abi->timeslice.len);
	kfree(params);
	return status;
}

u32 ds_rm_set_level(u32 client, u32 tsg, u32 level)
{
	const struct rm_abi *abi = ds_abi();
	void *params = abi ? params_for(abi, abi->interleave.len) : NULL;
	u32 status;

	if (!params)
		return DS_RM_GONE;
	rm_put32(params, abi->interleave.tsgInterleaveLevel, level);
	status = ds_rm_control(client, tsg, NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, params,
			       abi->interleave.len);
	kfree(params);
	return status;
}

u32 ds_rm_memory_bytes(u32 client, u32 memory, u64 *bytes)
{
	const struct rm_abi *abi = ds_abi();
	u32 status = DS_RM_GONE;
	u8 *params, *list;
	struct rm_f32 data;

	*bytes = 0;
	if (!abi)
		return status;
	params = params_for(abi, abi->get_surface.len + 2 * abi->surface.len);
	if (!params)
		return status;
	list = params + abi->get_surface.len;
	rm_put32(list, abi->surface.index, NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE);
	rm_put32(list + abi->surface.len, abi->surface.index,
		 NV0041_CTRL_SURFACE_INFO_INDEX_ADDR_SPACE_TYPE);
	rm_put32(params, abi->get_surface.surfaceInfoListSize, 2);
	rm_put64(params, abi->get_surface.surfaceInfoList, (u64)(uintptr_t)list);
	status = ds_rm_control(client, memory, NV0041_CTRL_CMD_GET_SURFACE_INFO, params,
			       abi->get_surface.len);
	data = abi->surface.data;
	if (!status && rm_get32(list + abi->surface.len, data) == SPACE_VIDMEM)
		*bytes = (u64)rm_get32(list, data) * PHYS_SIZE_UNIT;
	kfree(params);
	return status;
}

static u32 handle_info(u32 client, u32 object, u32 index, u64 *result)
{
	const struct rm_abi *abi = ds_abi();
	void *params = abi ? params_for(abi, abi->handle_info.len) : NULL;
	u32 status;

	if (!params)
		return DS_RM_GONE;
	rm_put32(params, abi->handle_info.hObject, object);
	rm_put32(params, abi->handle_info.index, index);
	status = ds_rm_control(client, client, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, params,
			       abi->handle_info.len);
	*result = index == NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT ?
			  rm_get32(params, abi->handle_info.data_hResult) :
			  rm_get64(params, abi->handle_info.data_iResult);
	kfree(params);
	return status;
}

u32 ds_rm_class(u32 client, u32 object, u32 *class)
{
	u64 result = 0;
	u32 status = handle_info(client, object,
				 NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID, &result);

	*class = result;
	return status;
}

u32 ds_rm_parent(u32 client, u32 object, u32 *parent)
{
	u64 result = 0;
	u32 status = handle_info(client, object,
				 NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT, &result);

	*parent = result;
	return status;
}

u32 ds_rm_child(u32 client, u32 parent, u32 internal_class, u32 *child)
{
	const struct rm_abi *abi = ds_abi();
	void *params = abi ? params_for(abi, abi->child_handle.len) : NULL;
	u32 status;

	*child = 0;
	if (!params)
		return DS_RM_GONE;
	rm_put32(params, abi->child_handle.hParent, parent);
	rm_put32(params, abi->child_handle.classId, internal_class);
	status = ds_rm_control(client, client, NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE, params,
			       abi->child_handle.len);
	if (!status)
		*child = rm_get32(params, abi->child_handle.hObject);
	kfree(params);
	return status;
}

u32 ds_rm_gpu_uuid(u32 client, u32 subdevice, char *uuid, size_t size)
{
	const struct rm_abi *abi = ds_abi();
	u8 *params = abi ? params_for(abi, abi->gid_info.len) : NULL;
	u32 status;

	uuid[0] = '\0';
	if (!params)
		return DS_RM_GONE;
	rm_put32(params, abi->gid_info.flags, NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_ASCII);
	status = ds_rm_control(client, subdevice, NV2080_CTRL_CMD_GPU_GET_GID_INFO, params,
			       abi->gid_info.len);
	if (!status)
		strscpy(uuid, params + abi->gid_info.data.off,
			min_t(size_t, size, abi->gid_info.data.size));
	kfree(params);
	return status;
}

u32 ds_rm_gpu_total(u32 client, u32 subdevice, u64 *bytes)
{
	const struct rm_abi *abi = ds_abi();
	u8 *params = abi ? params_for(abi, abi->fb_get_info_v2.len) : NULL;
	u8 *list;
	u32 status;

	*bytes = 0;
	if (!params)
		return DS_RM_GONE;
	list = params + abi->fb_get_info_v2.fbInfoList.off;
	rm_put32(params, abi->fb_get_info_v2.fbInfoListSize, 1);
	rm_put32(list, abi->fb_info.index, NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE);
	status = ds_rm_control(client, subdevice, NV2080_CTRL_CMD_FB_GET_INFO_V2, params,
			       abi->fb_get_info_v2.len);
	if (!status)
		*bytes = (u64)rm_get32(list, abi->fb_info.data) << 10;
	kfree(params);
	return status;
}

int ds_rmcall_init(void)
{
	ds_rm_queue = alloc_workqueue("detshare", WQ_UNBOUND | WQ_FREEZABLE, 0);
	return ds_rm_queue ? 0 : -ENOMEM;
}

void ds_rmcall_exit(void)
{
	destroy_workqueue(ds_rm_queue);
}
