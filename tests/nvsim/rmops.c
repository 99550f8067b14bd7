// SPDX-License-Identifier: GPL-2.0-only
/*
 * nvidia_get_rm_ops: the resource manager for other kernel modules, at kernel privilege. Parameters are kernel memory.
 * Clients made here belong to no file and live until they are freed.
 */
#include <linux/module.h>

#include "debugfs.h"
#include "files.h"
#include "sim.h"

enum { OP_FREE = 0x00, OP_ALLOC = 0x15, OP_CONTROL = 0x36, OP_DUP_OBJECT = 0x37, OP_SHARE = 0x3e };

struct rm_ops {			/* nvidia_modeset_rm_ops_t */
	const char *version_string;
	struct {
		u8 allow_write_combining;
	} system_info;
	int (*alloc_stack)(nvidia_stack_t **sp);
	void (*free_stack)(nvidia_stack_t *sp);
	u32 (*enumerate_gpus)(void *gpu_info);
	int (*open_gpu)(u32 gpu_id, nvidia_stack_t *sp);
	void (*close_gpu)(u32 gpu_id, nvidia_stack_t *sp);
	void (*op)(nvidia_stack_t *sp, void *ops_cmd);
	int (*set_callbacks)(const void *callbacks);
};

NV_STATUS nvidia_get_rm_ops(struct rm_ops *rm_ops);
void rm_kernel_rmapi_op(nvidia_stack_t *sp, void *ops_cmd);

static int alloc_stack(nvidia_stack_t **sp)
{
	bool late;

	*sp = NULL;
	return sim_failing(SIM_FAILING_STACK, &late) ? -ENOMEM : 0;
}

static void free_stack(nvidia_stack_t *sp)
{
}

static u32 enumerate_gpus(void *gpu_info)
{
	return sim_gpu_count;
}

static int open_gpu(u32 gpu_id, nvidia_stack_t *sp)
{
	struct sim_gpu *gpu = sim_gpu_by_id(gpu_id);

	if (!gpu)
		return -ENXIO;
	atomic_inc(&gpu->opens);
	return 0;
}

static void close_gpu(u32 gpu_id, nvidia_stack_t *sp)
{
	struct sim_gpu *gpu = sim_gpu_by_id(gpu_id);

	if (gpu)
		atomic_dec(&gpu->opens);
}

static int set_callbacks(const void *callbacks)
{
	return -EINVAL;		/* nvidia-modeset's alone */
}

/* A client's kernel handle: root classes are made with the class they ask for. NVOS21 before 575, NVOS64 from there on. */
static void op_alloc(const struct sim_caller *by, void *p)
{
	u32 handle = NV_GET(p, NVOS21_PARAMETERS, hObjectNew), class = NV_GET(p, NVOS21_PARAMETERS, hClass);
	bool wide = sim_abi > 0, late;
	NV_STATUS status;

	status = sim_failing(SIM_FAILING_ALLOC, &late);
	if (!status)
		status = sim_rm_alloc(by, NV_GET(p, NVOS21_PARAMETERS, hRoot), NV_GET(p, NVOS21_PARAMETERS, hObjectParent), &handle,
				      class, NV_GET(p, NVOS21_PARAMETERS, pAllocParms), 0,
				      wide && (NV_GET(p, NVOS64_PARAMETERS, flags) & NVOS64_FLAGS_FINN_SERIALIZED));
	NV_PUT(p, NVOS21_PARAMETERS, hObjectNew, handle);
	if (wide)
		NV_PUT(p, NVOS64_PARAMETERS, status, status);
	else
		NV_PUT(p, NVOS21_PARAMETERS, status, status);
}

static void op_control(const struct sim_caller *by, void *p)
{
	u32 cmd = NV_GET(p, NVOS54_PARAMETERS, cmd);
	NV_STATUS failing, status = NV_OK;
	bool late;

	sim_waiting(cmd, SIM_BEGUN);
	failing = sim_failing(cmd, &late);
	if (!failing || late)
		status = sim_rm_control(by, NV_GET(p, NVOS54_PARAMETERS, hClient), NV_GET(p, NVOS54_PARAMETERS, hObject), cmd,
					NV_GET(p, NVOS54_PARAMETERS, flags), NV_GET(p, NVOS54_PARAMETERS, params),
					NV_GET(p, NVOS54_PARAMETERS, paramsSize));
	sim_waiting(cmd, SIM_DONE);
	NV_PUT(p, NVOS54_PARAMETERS, status, failing ?: status);
	sim_waiting(cmd, SIM_ANSWERED);
}

static void op_free(const struct sim_caller *by, void *p)
{
	NV_STATUS status;
	bool late;

	status = sim_failing(SIM_FAILING_FREE, &late);
	if (!status)
		status = sim_rm_free(by, NV_GET(p, NVOS00_PARAMETERS, hRoot), NV_GET(p, NVOS00_PARAMETERS, hObjectOld));
	NV_PUT(p, NVOS00_PARAMETERS, status, status);
}

static void op_dup(const struct sim_caller *by, void *p)
{
	u32 handle = NV_GET(p, NVOS55_PARAMETERS, hObject);

	NV_PUT(p, NVOS55_PARAMETERS, status,
	       sim_rm_dup(by, NV_GET(p, NVOS55_PARAMETERS, hClient), NV_GET(p, NVOS55_PARAMETERS, hParent), &handle,
			  NV_GET(p, NVOS55_PARAMETERS, hClientSrc), NV_GET(p, NVOS55_PARAMETERS, hObjectSrc),
			  NV_GET(p, NVOS55_PARAMETERS, flags)));
	NV_PUT(p, NVOS55_PARAMETERS, hObject, handle);
}

static void op_share(const struct sim_caller *by, void *p)
{
	NV_PUT(p, NVOS57_PARAMETERS, status,
	       sim_rm_share(by, NV_GET(p, NVOS57_PARAMETERS, hClient), NV_GET(p, NVOS57_PARAMETERS, hObject),
			    NV_GET(p, NVOS57_PARAMETERS, sharePolicy_target),
			    NV_GET(p, NVOS57_PARAMETERS, sharePolicy_accessMask_limbs),
			    NV_GET(p, NVOS57_PARAMETERS, sharePolicy_type),
			    NV_GET(p, NVOS57_PARAMETERS, sharePolicy_action)));
}

/* ops_cmd: {u32 op; union params at 8}. An unknown op is ignored, as there. */
noinline void rm_kernel_rmapi_op(nvidia_stack_t *sp, void *ops_cmd)
{
	static const struct sim_caller by = { .level = SIM_CALLER_KERNEL };
	void *params = ops_cmd + 8;

	might_sleep();
	switch (*(u32 *)ops_cmd) {
	case OP_FREE:
		op_free(&by, params);
		break;
	case OP_ALLOC:
		op_alloc(&by, params);
		break;
	case OP_CONTROL:
		op_control(&by, params);
		break;
	case OP_DUP_OBJECT:
		op_dup(&by, params);
		break;
	case OP_SHARE:
		op_share(&by, params);
		break;
	}
}

NV_STATUS nvidia_get_rm_ops(struct rm_ops *rm_ops)
{
	bool same = !strcmp(rm_ops->version_string, sim_version);

	if (!same) {
		rm_ops->version_string = sim_version;
		return NV_ERR_GENERIC;
	}
	*rm_ops = (struct rm_ops) {
		.version_string = sim_version,
		.alloc_stack = alloc_stack,
		.free_stack = free_stack,
		.enumerate_gpus = enumerate_gpus,
		.open_gpu = open_gpu,
		.close_gpu = close_gpu,
		.op = rm_kernel_rmapi_op,
		.set_callbacks = set_callbacks,
	};
	return NV_OK;
}
EXPORT_SYMBOL_GPL(nvidia_get_rm_ops);

/* Kernel clients that nobody freed go with the module. */
void sim_rmops_exit(void)
{
	struct sim_client *client;
	unsigned long handle;

	down_write(&sim_api_lock);
	xa_for_each(&sim_clients, handle, client) {
		WARN_ON(client->file);
		sim_client_destroy(client);
	}
	up_write(&sim_api_lock);
}
