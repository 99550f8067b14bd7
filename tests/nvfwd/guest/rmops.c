// SPDX-License-Identifier: GPL-2.0-only
/*
 * nvidia_get_rm_ops: the resource manager for other kernel modules. What they ask is issued by the helper, which is root's user space:
 * kernel-privileged controls do not cross, and the host's driver says so itself.
 */
#include <linux/module.h>
#include <linux/string.h>

#include "fwd.h"

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
	*sp = NULL;
	return 0;
}

static void free_stack(nvidia_stack_t *sp)
{
}

static u32 enumerate_gpus(void *gpu_info)
{
	return nvf_host->gpus;
}

static int open_gpu(u32 gpu_id, nvidia_stack_t *sp)
{
	return -EOPNOTSUPP;
}

static void close_gpu(u32 gpu_id, nvidia_stack_t *sp)
{
}

static int set_callbacks(const void *callbacks)
{
	return -EINVAL;
}

static const struct { u32 op, nr, size, status_at; } kernel_ops[] = {
	{ OP_FREE, NV_ESC_RM_FREE, NVOS00_PARAMETERS__SIZE, NVOS00_PARAMETERS__status },
	{ OP_ALLOC, NV_ESC_RM_ALLOC, NVOS64_PARAMETERS__SIZE, NVOS64_PARAMETERS__status },
	{ OP_CONTROL, NV_ESC_RM_CONTROL, NVOS54_PARAMETERS__SIZE, NVOS54_PARAMETERS__status },
	{ OP_DUP_OBJECT, NV_ESC_RM_DUP_OBJECT, NVOS55_PARAMETERS__SIZE, NVOS55_PARAMETERS__status },
	{ OP_SHARE, NV_ESC_RM_SHARE, NVOS57_PARAMETERS__SIZE, NVOS57_PARAMETERS__status },
};

/* ops_cmd: {u32 op; union params at 8}. An unknown op is ignored, as there. */
noinline void rm_kernel_rmapi_op(nvidia_stack_t *sp, void *ops_cmd)
{
	static const struct nvf_extra extra = { .kernel = true };
	void *params = ops_cmd + 8;

	might_sleep();
	for (size_t i = 0; i < ARRAY_SIZE(kernel_ops); i++) {
		NV_STATUS status;

		if (kernel_ops[i].op != *(u32 *)ops_cmd)
			continue;
		if (nvf_forward(NVF_CTL, -1, kernel_ops[i].nr, params, kernel_ops[i].size, &extra, &status))
			nvf_put32(params, kernel_ops[i].status_at, NVF_STATUS_OPERATING_SYSTEM);
	}
}

NV_STATUS nvidia_get_rm_ops(struct rm_ops *rm_ops)
{
	if (strcmp(rm_ops->version_string, nvf_host->version)) {
		rm_ops->version_string = nvf_host->version;
		return NVF_STATUS_GENERIC;
	}
	*rm_ops = (struct rm_ops) {
		.version_string = nvf_host->version,
		.alloc_stack = alloc_stack,
		.free_stack = free_stack,
		.enumerate_gpus = enumerate_gpus,
		.open_gpu = open_gpu,
		.close_gpu = close_gpu,
		.op = rm_kernel_rmapi_op,
		.set_callbacks = set_callbacks,
	};
	return NVF_STATUS_OK;
}
EXPORT_SYMBOL_GPL(nvidia_get_rm_ops);
