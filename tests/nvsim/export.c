// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that leaves its client through a descriptor: exported onto a control file, or as a DMA buffer. Either keeps the
 * memory, and its place in the heap, for as long as the descriptor lives.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/slab.h>

#include "control.h"
#include "files.h"
#include "fops.h"

#define DMABUF_MAX	128

#define GET(s, f)	NV_GET(ask->params, s, f)

void sim_exports_drop(struct sim_file *file)
{
	struct sim_export *export, *next;

	list_for_each_entry_safe(export, next, &file->exports, link) {
		sim_memory_unuse(export->memory);
		kfree(export);
	}
}

static bool can_leave(struct sim_object *object)
{
	return object->kind == KIND_VideoMemory || object->kind == KIND_SystemMemory || object->kind == KIND_MemoryFabric;
}

static NV_STATUS export_one(struct sim_ask *ask, struct sim_file *file)
{
	u32 handle = GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS, object_data_rmObject_hObject);
	struct sim_object *object = sim_object_find(ask->object->client, handle);
	struct sim_export *export;

	if (!object)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!can_leave(object))
		return NV_ERR_INVALID_ARGUMENT;
	if (!list_empty(&file->exports))
		return NV_ERR_STATE_IN_USE;
	export = kzalloc(sizeof(*export), GFP_KERNEL);
	if (!export)
		return NV_ERR_NO_MEMORY;
	sim_memory_use(object->memory);
	*export = (struct sim_export) { .memory = object->memory, .class = object->class, .kind = object->kind };
	list_add_tail(&export->link, &file->exports);
	return NV_OK;
}

static NV_STATUS with_file(struct sim_ask *ask, int fd, NV_STATUS (*run)(struct sim_ask *, struct sim_file *))
{
	struct sim_file *file;
	struct file *filp = sim_file_fget(fd, true, &file);
	NV_STATUS status;

	if (!filp)
		return NV_ERR_INVALID_PARAMETER;
	status = run(ask, file);
	fput(filp);
	return status;
}

static NV_STATUS export_to_fd(struct sim_ask *ask)
{
	return with_file(ask, GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS, fd), export_one);
}

static NV_STATUS import_one(struct sim_ask *ask, struct sim_file *file)
{
	u32 hparent = GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, object_data_rmObject_hParent);
	u32 handle = GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, object_data_rmObject_hObject);
	struct sim_client *client = ask->object->client;
	struct sim_object *parent = sim_object_find(client, hparent), *object;
	struct sim_export *export;
	NV_STATUS status;

	if (list_empty(&file->exports))
		return NV_ERR_INVALID_ARGUMENT;
	if (!parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	export = list_first_entry(&file->exports, struct sim_export, link);
	if (parent->gpu != export->memory->gpu)
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (!handle || handle == client->handle)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (sim_object_find(client, handle))
		return NV_ERR_INSERT_DUPLICATE_NAME;
	object = kzalloc(sizeof(*object), GFP_KERNEL);
	if (!object)
		return NV_ERR_NO_MEMORY;
	object->handle = handle;
	object->class = export->class;
	object->kind = export->kind;
	object->ops = sim_ops_of(export->kind);
	status = sim_object_insert(client, parent, object);
	if (status != NV_OK) {
		kfree(object);
		return status;
	}
	object->memory = export->memory;
	sim_memory_use(object->memory);
	return NV_OK;
}

static NV_STATUS import_from_fd(struct sim_ask *ask)
{
	return with_file(ask, GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, fd), import_one);
}

const struct sim_handler sim_fd_handlers[] = {
	{ NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, true, export_to_fd },
	{ NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, true, import_from_fd },
	{ },
};

/* ---- NV_ESC_EXPORT_TO_DMABUF_FD ---- */

struct dmabuf {
	unsigned int count;
	struct sim_memory *memory[DMABUF_MAX];
};

static int dmabuf_release(struct inode *inode, struct file *filp)
{
	struct dmabuf *buffer = filp->private_data;

	for (unsigned int i = 0; i < buffer->count; i++)
		sim_memory_unuse(buffer->memory[i]);
	kfree(buffer);
	return 0;
}

static const struct file_operations dmabuf_fops = { .owner = THIS_MODULE, .release = dmabuf_release };

#define GET217(f)	NV_GET(block, nv_ioctl_export_to_dma_buf_fd_t, f)

static NV_STATUS collect(struct sim_file *file, void *block, struct dmabuf *buffer)
{
	struct sim_caller by = { .level = SIM_CALLER_USER, .file = file->ctl ? file->ctl : file };
	struct sim_client *client = sim_client_find(GET217(hClient), &by);
	u32 count = GET217(numObjects);

	if (!client)
		return NV_ERR_INVALID_CLIENT;
	for (u32 i = 0; i < count; i++) {
		u64 offset = NV_GETI(block, nv_ioctl_export_to_dma_buf_fd_t, offsets, i);
		u64 size = NV_GETI(block, nv_ioctl_export_to_dma_buf_fd_t, sizes, i);
		struct sim_object *object;

		object = sim_object_find(client, NV_GETI(block, nv_ioctl_export_to_dma_buf_fd_t, handles, i));
		if (!object)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (object->kind != KIND_VideoMemory || object->gpu != file->nv.gpu || !size ||
		    offset > object->memory->size || size > object->memory->size - offset)
			return NV_ERR_INVALID_ARGUMENT;
		sim_memory_use(object->memory);
		buffer->memory[buffer->count++] = object->memory;
	}
	return NV_OK;
}

/* All objects in one call; the driver also takes them in several. */
static NV_STATUS export_dmabuf(struct sim_file *file, void *block)
{
	u32 count = GET217(numObjects);
	struct dmabuf *buffer;
	NV_STATUS status;
	int fd;

	if (!count || count > DMABUF_MAX || GET217(totalObjects) != count || GET217(index))
		return NV_ERR_INVALID_ARGUMENT;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return NV_ERR_NO_MEMORY;
	down_write(&sim_api_lock);
	status = collect(file, block, buffer);
	up_write(&sim_api_lock);
	if (status == NV_OK) {
		fd = anon_inode_getfd("[nvidia-dmabuf]", &dmabuf_fops, buffer, O_RDWR | O_CLOEXEC);
		if (fd >= 0) {
			NV_PUT(block, nv_ioctl_export_to_dma_buf_fd_t, fd, fd);
			return NV_OK;
		}
		status = NV_ERR_NO_MEMORY;
	}
	for (unsigned int i = 0; i < buffer->count; i++)
		sim_memory_unuse(buffer->memory[i]);
	kfree(buffer);
	return status;
}

int sim_export_dmabuf(struct sim_file *file, void *block, size_t size)
{
	if (!file->nv.gpu || size != NV_SIZE(nv_ioctl_export_to_dma_buf_fd_t))
		return -EINVAL;
	NV_PUT(block, nv_ioctl_export_to_dma_buf_fd_t, status, export_dmabuf(file, block));
	return 0;
}
