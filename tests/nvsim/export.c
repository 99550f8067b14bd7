// SPDX-License-Identifier: GPL-2.0-only
/*
 * What leaves its client through a descriptor: objects exported onto a control file, memory as a DMA buffer. Either keeps what it is of, memory
 * its place in the heap, for as long as the descriptor lives.
 */
#include <linux/dma-buf.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "control.h"
#include "files.h"
#include "fops.h"

/* MODULE_IMPORT_NS() takes a word or a string, by kernel */
MODULE_INFO(import_ns, "DMA_BUF");

#define DMABUF_MAX	128

#define GET(s, f)	NV_GET(ask->params, s, f)

static void free_export(struct sim_export *export)
{
	export->object.ops->destroy(&export->object);
	kfree(export);
}

void sim_exports_drop(struct sim_file *file)
{
	struct sim_export *export, *next;

	down_write(&sim_api_lock);
	list_for_each_entry_safe(export, next, &file->exports, link)
		free_export(export);
	up_write(&sim_api_lock);
}

/*
 * The genuine driver duplicates whatever can be duplicated below a device or subdevice of its own (RmExportObject): channel groups and doorbells
 * as well as memory. Kinds that no test exports stay at home here.
 */
static bool can_leave(struct sim_object *object)
{
	switch (object->kind) {
	case KIND_VideoMemory:
	case KIND_SystemMemory:
	case KIND_MemoryFabric:
	case KIND_KernelChannelGroupApi:
	case KIND_UserModeApi:
		return true;
	default:
		return false;
	}
}

static struct sim_export *find_export(struct sim_file *file, u32 index)
{
	struct sim_export *export;

	list_for_each_entry(export, &file->exports, link)
		if (export->index == index)
			return export;
	return NULL;
}

static void drop_export(struct sim_export *export)
{
	if (!export)
		return;
	list_del(&export->link);
	free_export(export);
}

/* What is at that place is replaced. */
static NV_STATUS export_object(struct sim_ask *ask, struct sim_file *file, u32 handle, u32 index)
{
	struct sim_object *object = sim_object_find(ask->object->client, handle);
	struct sim_export *export;
	NV_STATUS status;

	if (!object)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!can_leave(object))
		return NV_ERR_INVALID_ARGUMENT;
	export = kzalloc(sizeof(*export), GFP_KERNEL);
	if (!export)
		return NV_ERR_NO_MEMORY;
	export->index = index;
	export->object = (struct sim_object) {
		.class = object->class, .kind = object->kind, .ops = object->ops, .gpu = object->gpu, .parent = object->parent,
	};
	status = object->ops->copy(&export->object, object);
	export->object.parent = NULL;
	if (status != NV_OK) {
		kfree(export);
		return status;
	}
	drop_export(find_export(file, index));
	list_add_tail(&export->link, &file->exports);
	return NV_OK;
}

static NV_STATUS export_one(struct sim_ask *ask, struct sim_file *file)
{
	u32 handle = GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS, object_data_rmObject_hObject);
	NV_STATUS status;

	if (file->export_room)
		return NV_ERR_STATE_IN_USE;
	status = export_object(ask, file, handle, 0);
	if (status == NV_OK)
		file->export_room = 1;
	return status;
}

#define MANY	512
#define GETO(i)	NV_GETI(ask->params, NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, objects, i)

/* The genuine driver makes all or none; here those before the first that fails are found out first. */
static NV_STATUS export_many(struct sim_ask *ask, struct sim_file *file)
{
	u32 count = GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, numObjects);
	u32 index = GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, index);
	u32 room = file->export_room ?: GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, maxObjects);
	struct sim_object *object;
	NV_STATUS status = NV_OK;

	if (!room || count > MANY)
		return NV_ERR_INVALID_PARAMETER;
	if (index + count > room)
		return NV_ERR_OUT_OF_RANGE;
	for (u32 i = 0; i < count; i++) {
		object = GETO(i) ? sim_object_find(ask->object->client, GETO(i)) : NULL;
		if (GETO(i) && !object)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (object && !can_leave(object))
			return NV_ERR_INVALID_ARGUMENT;
	}
	file->export_room = room;
	for (u32 i = 0; i < count && status == NV_OK; i++) {
		if (GETO(i))
			status = export_object(ask, file, GETO(i), index + i);
		else
			drop_export(find_export(file, index + i));
	}
	return status;
}

noinline void *nv_get_file_private(int fd, unsigned char ctl, void **os_private)
{
	struct sim_file *file;
	struct file *filp = sim_file_fget(fd, ctl, &file);

	if (!filp)
		return NULL;
	*os_private = filp;
	return file;
}

noinline void nv_put_file_private(void *os_private)
{
	fput(os_private);
}

static NV_STATUS with_file(struct sim_ask *ask, int fd, NV_STATUS (*run)(struct sim_ask *, struct sim_file *))
{
	void *priv = NULL;
	struct sim_file *file = nv_get_file_private(fd, true, &priv);
	NV_STATUS status;

	if (!file)
		return NV_ERR_INVALID_PARAMETER;
	status = run(ask, file);
	nv_put_file_private(priv);
	return status;
}

static NV_STATUS export_to_fd(struct sim_ask *ask)
{
	return with_file(ask, GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS, fd), export_one);
}

static NV_STATUS import_object(struct sim_ask *ask, struct sim_export *export, u32 hparent, u32 handle)
{
	struct sim_client *client = ask->object->client;
	struct sim_object *parent = sim_object_find(client, hparent), *object;
	NV_STATUS status;

	if (!parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!handle || handle == client->handle)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (sim_object_find(client, handle))
		return NV_ERR_INSERT_DUPLICATE_NAME;
	object = kzalloc(sizeof(*object), GFP_KERNEL);
	if (!object)
		return NV_ERR_NO_MEMORY;
	object->handle = handle;
	object->class = export->object.class;
	object->kind = export->object.kind;
	object->ops = &sim_plain_ops;
	status = sim_object_insert(client, parent, object);
	if (status != NV_OK) {
		kfree(object);
		return status;
	}
	status = export->object.ops->copy(object, &export->object);
	if (status == NV_OK)
		object->ops = export->object.ops;
	else
		sim_object_free(object);
	return status;
}

static NV_STATUS import_one(struct sim_ask *ask, struct sim_file *file)
{
	struct sim_export *export = find_export(file, 0);

	if (!export)
		return NV_ERR_INVALID_ARGUMENT;
	return import_object(ask, export, GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, object_data_rmObject_hParent),
			     GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, object_data_rmObject_hObject));
}

#define GETI(i)			NV_GETI(ask->params, NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, objects, i)
#define IMPORTED_NONE		0	/* NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_* */
#define IMPORTED_VIDMEM		1
#define IMPORTED_SYSMEM		2
#define IMPORTED_FABRIC		3

/* 0: nothing that the call for many gives away. */
static u32 type_of(const struct sim_export *export)
{
	switch (export->object.kind) {
	case KIND_MemoryFabric:
		return IMPORTED_FABRIC;
	case KIND_SystemMemory:
		return IMPORTED_SYSMEM;
	case KIND_VideoMemory:
		return IMPORTED_VIDMEM;
	default:
		return IMPORTED_NONE;
	}
}

static NV_STATUS import_many(struct sim_ask *ask, struct sim_file *file)
{
	u32 hparent = GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, hParent);
	u32 count = GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, numObjects);
	u32 index = GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, index);
	u8 *types = NV_AT(ask->params, NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, objectTypes);
	NV_STATUS status = NV_OK;
	u32 i;

	if (!file->export_room || count > MANY)
		return NV_ERR_INVALID_PARAMETER;
	if (index + count > file->export_room)
		return NV_ERR_OUT_OF_RANGE;
	for (i = 0; i < count && status == NV_OK; i++) {
		struct sim_export *export = find_export(file, index + i);

		types[i] = export ? type_of(export) : IMPORTED_NONE;
		if (export)
			status = types[i] == IMPORTED_NONE ? NV_ERR_INVALID_ARGUMENT : import_object(ask, export, hparent, GETI(i));
	}
	if (status == NV_OK)
		return status;
	for (i--; i--;)
		if (types[i] != IMPORTED_NONE)
			sim_object_free(sim_object_find(ask->object->client, GETI(i)));
	return status;
}

static NV_STATUS import_from_fd(struct sim_ask *ask)
{
	return with_file(ask, GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, fd), import_one);
}

static NV_STATUS export_many_to_fd(struct sim_ask *ask)
{
	return with_file(ask, GET(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, fd), export_many);
}

static NV_STATUS import_many_from_fd(struct sim_ask *ask)
{
	return with_file(ask, GET(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, fd), import_many);
}

const struct sim_handler sim_fd_handlers[] = {
	{ NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, true, export_to_fd },
	{ NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, true, import_from_fd },
	{ NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, true, export_many_to_fd },
	{ NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, true, import_many_from_fd },
	{ },
};

/* ---- NV_ESC_EXPORT_TO_DMABUF_FD: functions by the genuine names and signatures, `sp` is the caller's file ---- */

struct dmabuf {
	struct sim_gpu *gpu;
	unsigned int total;
	struct sim_memory *memory[DMABUF_MAX];
};

NV_STATUS nv_dma_buf_export(void *nv, void *params);

#define GET217(f)	NV_GET(params, nv_ioctl_export_to_dma_buf_fd_t, f)

static NV_STATUS add_to_buffer(struct sim_client *client, struct dmabuf *buffer, const void *params, u32 i)
{
	u64 offset = NV_GETI(params, nv_ioctl_export_to_dma_buf_fd_t, offsets, i);
	u64 size = NV_GETI(params, nv_ioctl_export_to_dma_buf_fd_t, sizes, i);
	u32 index = GET217(index) + i;
	struct sim_object *object;

	object = sim_object_find(client, NV_GETI(params, nv_ioctl_export_to_dma_buf_fd_t, handles, i));
	if (!object)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (object->kind != KIND_VideoMemory || object->gpu != buffer->gpu || !size ||
	    offset > object->memory->size || size > object->memory->size - offset)
		return NV_ERR_INVALID_ARGUMENT;
	if (buffer->memory[index])
		return NV_ERR_IN_USE;
	sim_memory_use(object->memory);
	buffer->memory[index] = object->memory;
	return NV_OK;
}

static __attribute__((noipa)) void nv_dma_buf_undup_mem_handles(void *sp, u32 index, u32 count, struct dmabuf *buffer)
{
	for (u32 i = index; i < index + count && i < DMABUF_MAX; i++) {
		if (buffer->memory[i])
			sim_memory_unuse(buffer->memory[i]);
		buffer->memory[i] = NULL;
	}
}

static __attribute__((noipa)) NV_STATUS nv_dma_buf_dup_mem_handles(void *sp, struct dmabuf *buffer, void *params)
{
	struct sim_file *file = sp;
	struct sim_caller by = { .level = SIM_CALLER_USER, .file = file->ctl ? file->ctl : file };
	struct sim_client *client;
	NV_STATUS status = NV_OK;
	u32 i;

	down_write(&sim_api_lock);
	client = sim_client_find(GET217(hClient), &by);
	if (!client)
		status = NV_ERR_INVALID_CLIENT;
	for (i = 0; i < GET217(numObjects) && status == NV_OK; i++)
		status = add_to_buffer(client, buffer, params, i);
	if (status != NV_OK && i)
		for (i--; i--;) {
			sim_memory_unuse(buffer->memory[GET217(index) + i]);
			buffer->memory[GET217(index) + i] = NULL;
		}
	up_write(&sim_api_lock);
	return status;
}

static __attribute__((noipa)) void nv_dma_buf_release(struct dma_buf *buf)
{
	struct dmabuf *buffer = buf->priv;

	nv_dma_buf_undup_mem_handles(NULL, 0, buffer->total, buffer);
	kfree(buffer);
}

/* Nobody may attach: there is no device that could. */
static struct sg_table *no_map(struct dma_buf_attachment *attachment, enum dma_data_direction direction)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void no_unmap(struct dma_buf_attachment *attachment, struct sg_table *table, enum dma_data_direction direction)
{
}

static const struct dma_buf_ops dmabuf_ops = {
	.map_dma_buf = no_map, .unmap_dma_buf = no_unmap, .release = nv_dma_buf_release,
};

static NV_STATUS make_buffer(struct sim_file *file, void *params)
{
	struct dmabuf *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *buf;
	NV_STATUS status;
	int fd;

	if (!buffer)
		return NV_ERR_NO_MEMORY;
	buffer->gpu = file->nv.gpu;
	buffer->total = GET217(totalObjects);
	status = nv_dma_buf_dup_mem_handles(file, buffer, params);
	if (status != NV_OK) {
		kfree(buffer);
		return status;
	}
	info.ops = &dmabuf_ops;
	info.size = GET217(totalSize) ?: PAGE_SIZE;
	info.flags = O_RDWR | O_CLOEXEC;
	info.priv = buffer;
	buf = dma_buf_export(&info);
	if (IS_ERR(buf)) {
		nv_dma_buf_undup_mem_handles(NULL, GET217(index), GET217(numObjects), buffer);
		kfree(buffer);
		return NV_ERR_OPERATING_SYSTEM;
	}
	fd = dma_buf_fd(buf, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		dma_buf_put(buf);
		return NV_ERR_OPERATING_SYSTEM;
	}
	NV_PUT(params, nv_ioctl_export_to_dma_buf_fd_t, fd, fd);
	return NV_OK;
}

static NV_STATUS add_to_file(struct sim_file *file, void *params)
{
	struct dma_buf *buf = dma_buf_get(GET217(fd));
	NV_STATUS status = NV_ERR_INVALID_ARGUMENT;
	struct dmabuf *buffer;

	if (IS_ERR(buf))
		return NV_ERR_OPERATING_SYSTEM;
	if (buf->ops == &dmabuf_ops) {
		buffer = buf->priv;
		if (GET217(numObjects) <= buffer->total && GET217(index) <= buffer->total - GET217(numObjects))
			status = nv_dma_buf_dup_mem_handles(file, buffer, params);
	}
	dma_buf_put(buf);
	return status;
}

noinline NV_STATUS nv_dma_buf_export(void *nv, void *params)
{
	u32 count = GET217(numObjects), total = GET217(totalObjects);
	int fd = GET217(fd);

	if (!count || count > DMABUF_MAX || count > total || total > DMABUF_MAX || GET217(index) > total - count)
		return NV_ERR_INVALID_ARGUMENT;
	return fd == -1 ? make_buffer(nv, params) : add_to_file(nv, params);
}

int sim_export_dmabuf(struct sim_file *file, void *block, size_t size)
{
	if (!file->nv.gpu || size != NV_SIZE(nv_ioctl_export_to_dma_buf_fd_t))
		return -EINVAL;
	NV_PUT(block, nv_ioctl_export_to_dma_buf_fd_t, status, nv_dma_buf_export(file, block));
	return 0;
}
