// SPDX-License-Identifier: GPL-2.0-only
/* A call, gathered by its shape, said to the helper, and its answer given back. */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "fwd.h"

EXPORT_SYMBOL_GPL(nvf_uvms);
EXPORT_SYMBOL_GPL(nvf_uvms_count);

/* By these the driver reaches the parameters of its callers; other modules hook them. */
noinline NV_STATUS os_memcpy_from_user(void *to, const void *from, NvU32 n)
{
	return copy_from_user(to, (const void __user __force *)from, n) ? NVF_STATUS_INVALID_ADDRESS : NVF_STATUS_OK;
}

noinline NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n)
{
	return copy_to_user((void __user __force *)to, from, n) ? NVF_STATUS_INVALID_ADDRESS : NVF_STATUS_OK;
}

struct gathered {
	struct nvf_shape shape;
	bool kernel;
	u64 was[NVF_PARTS];	/* the caller's pointers, by the part that they point to */
	u64 fd_was[2];
	struct file *files[2];
};

static NV_STATUS fetch(const struct gathered *g, void *to, u64 from, u32 size)
{
	if (!g->kernel)
		return os_memcpy_from_user(to, (const void *)(unsigned long)from, size);
	memcpy(to, (const void *)(unsigned long)from, size);
	return NVF_STATUS_OK;
}

static NV_STATUS give(const struct gathered *g, u64 to, const void *from, u32 size)
{
	if (!g->kernel)
		return os_memcpy_to_user((void *)(unsigned long)to, from, size);
	memcpy((void *)(unsigned long)to, from, size);
	return NVF_STATUS_OK;
}

static void refused(const struct nvf_shape *shape, u32 cmd, const char *why)
{
	pr_warn_ratelimited("nvidia: %s (%#x) is not forwarded: %s\n", shape->name, shape->cmd ?: shape->class ?: cmd, why);
}

static NV_STATUS shaped(struct gathered *g, enum nvf_verdict verdict, u32 cmd)
{
	static const char *const why[] = {
		[NVF_UNKNOWN] = "it is not known",
		[NVF_BAD_SIZE] = "its block has another size",
		[NVF_BAD_PARAMS] = "what its parameters hold cannot cross",
	};

	if (verdict == NVF_OK)
		return NVF_STATUS_OK;
	refused(&g->shape, cmd, why[verdict]);
	return verdict == NVF_BAD_SIZE ? NVF_STATUS_INVALID_ARGUMENT : NVF_STATUS_NOT_SUPPORTED;
}

static u8 *part(const struct gathered *g, u8 *data, u32 index)
{
	return data + nvf_part_at(&g->shape, index);
}

/* Descriptors of the caller become handles of the helper. */
static NV_STATUS translate(struct gathered *g, u8 *data)
{
	for (u32 i = 0; i < g->shape.fds; i++) {
		u8 *at = part(g, data, g->shape.fd[i].in) + g->shape.fd[i].at;
		struct nvf_file *file;
		void *held = NULL;

		g->fd_was[i] = g->shape.fd[i].width == 8 ? nvf_get64(at, 0) : nvf_get32(at, 0);
		if ((s32)g->fd_was[i] < 0)
			continue;
		/* no descriptor of the kernel's means anything to another one */
		if (g->kernel)
			return NVF_STATUS_INVALID_ARGUMENT;
		file = nvf_file_get((int)g->fd_was[i], &held);
		if (!file)
			return NVF_STATUS_INVALID_ARGUMENT;
		g->files[i] = held;
		if (g->shape.fd[i].width == 8)
			nvf_put64(at, 0, file->handle);
		else
			nvf_put32(at, 0, file->handle);
	}
	return NVF_STATUS_OK;
}

static NV_STATUS gather(struct gathered *g, const void *block, u32 cmd, struct nvf_call **made, u32 op, s32 handle)
{
	struct nvf_shape *shape = &g->shape;
	u8 *nested = NULL;
	NV_STATUS status = NVF_STATUS_OK;
	struct nvf_call *call = NULL;
	u32 total;

	if (shape->nested) {
		nested = kmalloc(shape->parts[1].size, GFP_KERNEL);
		if (!nested)
			return NVF_STATUS_NO_MEMORY;
		status = fetch(g, nested, nvf_get64(block, shape->parts[1].at), shape->parts[1].size);
		status = status ?: shaped(g, nvf_shape_inner(shape, nested), cmd);
		if (status)
			goto out;
	}
	total = nvf_part_at(shape, shape->count);
	call = nvf_call_new(op, handle, total, total);
	status = NVF_STATUS_NO_MEMORY;
	if (!call)
		goto out;
	memcpy(call->in, block, shape->parts[0].size);
	for (u32 i = 1; i < shape->count && (i == 1 || status == NVF_STATUS_OK); i++) {
		const struct nvf_part *p = &shape->parts[i];

		g->was[i] = nvf_get64(p->in ? nested : block, p->at);
		status = NVF_STATUS_OK;
		if (i == 1 && nested)
			memcpy(part(g, call->in, 1), nested, p->size);
		else
			status = fetch(g, part(g, call->in, i), g->was[i], p->size);
	}
	if (shape->count == 1)
		status = NVF_STATUS_OK;
	status = status ?: translate(g, call->in);
out:
	kfree(nested);
	if (status && call) {
		nvf_call_free(call);
		call = NULL;
	}
	*made = call;
	return status;
}

/* The caller sees its own pointers and descriptors again. */
static NV_STATUS scatter(struct gathered *g, void *block, u8 *data)
{
	const struct nvf_shape *shape = &g->shape;
	NV_STATUS status = NVF_STATUS_OK;
	bool told;

	for (u32 i = 1; i < shape->count; i++)
		nvf_put64(part(g, data, shape->parts[i].in), shape->parts[i].at, g->was[i]);
	for (u32 i = 0; i < shape->fds; i++) {
		u8 *at = part(g, data, shape->fd[i].in) + shape->fd[i].at;

		if (shape->fd[i].width == 8)
			nvf_put64(at, 0, g->fd_was[i]);
		else
			nvf_put32(at, 0, (u32)g->fd_was[i]);
	}
	memcpy(block, data, shape->parts[0].size);
	told = shape->status_at == NVF_NOWHERE || !nvf_get32(block, shape->status_at);
	for (u32 i = 1; told && i < shape->count && !status; i++)
		status = give(g, g->was[i], part(g, data, i), shape->parts[i].size);
	return status;
}

/*
 * 0 or -errno as ioctl() would; *status: what the driver here found, 0 if the helper was asked and answered. A status of ours is put into
 * the block too, where it has a place for one.
 */
long nvf_forward(enum nvf_dev dev, s32 handle, u32 cmd, void *block, u32 size, const struct nvf_extra *extra, NV_STATUS *status)
{
	struct gathered *g = kzalloc(sizeof(*g), GFP_KERNEL);
	struct nvf_call *call = NULL;
	long ret = 0;

	*status = NVF_STATUS_NO_MEMORY;
	if (!g)
		return -ENOMEM;
	g->kernel = extra && extra->kernel;
	*status = shaped(g, nvf_shape_outer(&g->shape, dev, cmd, block, size), cmd);
	if (!*status)
		*status = gather(g, block, cmd, &call, g->kernel ? NVF_KERNEL : NVF_IOCTL, handle);
	if (*status) {
		if (g->shape.status_at != NVF_NOWHERE)
			nvf_put32(block, g->shape.status_at, *status);
		else
			ret = -EINVAL;
		goto out;
	}
	call->req.cmd = cmd;
	call->req.a = size;
	call->req.b = dev;
	call->req.c = extra ? extra->c : 0;
	ret = nvf_call_wait(call);
	if (ret)
		goto out;
	ret = call->rep.err ?: (long)call->rep.val;
	if (call->rep.len == call->req.len)
		*status = scatter(g, block, call->out);
	else if (!ret)
		ret = -EIO;
	if (*status && g->shape.status_at != NVF_NOWHERE)
		nvf_put32(block, g->shape.status_at, *status);
	nvf_call_free(call);
out:
	for (u32 i = 0; i < ARRAY_SIZE(g->files); i++)
		if (g->files[i])
			fput(g->files[i]);
	kfree(g);
	return ret;
}
EXPORT_SYMBOL_GPL(nvf_forward);
