// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "keep.h"

#define EXPORT_OBJECT_RM 1 /* NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM */

u32 nv_export(const struct nv *nv, u32 client, u32 device, u32 memory, int *fd)
{
	const struct rm_abi *abi = nv->abi;
	u8 params[256] = { 0 };
	u32 status;

	*fd = nv_open_device("nvidiactl");
	if (*fd < 0)
		return NV_ERRNO(-*fd);
	rm_put32(params, abi->export_to_fd.object_type, EXPORT_OBJECT_RM);
	rm_put32(params, abi->export_to_fd.object_data_rmObject_hDevice, device);
	rm_put32(params, abi->export_to_fd.object_data_rmObject_hParent, device);
	rm_put32(params, abi->export_to_fd.object_data_rmObject_hObject, memory);
	rm_put32(params, abi->export_to_fd.fd, (u32)*fd);
	status = nv_control(nv, client, client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, params,
			    abi->export_to_fd.len);
	if (status)
		close(*fd);
	return status;
}

u32 nv_import(const struct nv *nv, u32 client, u32 parent, u32 *handle, int fd)
{
	const struct rm_abi *abi = nv->abi;
	u8 params[256] = { 0 };
	u32 status;

	rm_put32(params, abi->import_from_fd.object_type, EXPORT_OBJECT_RM);
	rm_put32(params, abi->import_from_fd.object_data_rmObject_hParent, parent);
	rm_put32(params, abi->import_from_fd.object_data_rmObject_hObject, *handle);
	rm_put32(params, abi->import_from_fd.fd, (u32)fd);
	status = nv_control(nv, client, client, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, params,
			    abi->import_from_fd.len);
	*handle = rm_get32(params, abi->import_from_fd.object_data_rmObject_hObject);
	return status;
}

static void put16(u8 *params, struct rm_f16 at, u16 value)
{
	memcpy(params + at.off, &value, sizeof(value));
}

u32 nv_export_place(const struct nv *nv, u32 client, u32 device, u32 memory, int *fd, u32 index, u32 places)
{
	const struct rm_abi *abi = nv->abi;
	u8 params[4096] = { 0 };

	if (*fd < 0)
		*fd = nv_open_device("nvidiactl");
	if (*fd < 0)
		return NV_ERRNO(-*fd);
	rm_put32(params, abi->exports_to_fd.fd, (u32)*fd);
	rm_put32(params, abi->exports_to_fd.hDevice, device);
	put16(params, abi->exports_to_fd.maxObjects, (u16)places);
	put16(params, abi->exports_to_fd.numObjects, 1);
	put16(params, abi->exports_to_fd.index, (u16)index);
	rm_put32(params + abi->exports_to_fd.objects.off, (struct rm_f32){ 0 }, memory);
	return nv_control(nv, client, client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, params,
			  abi->exports_to_fd.len);
}

u32 nv_import_places(const struct nv *nv, u32 client, u32 parent, u32 first, int fd, u32 index, u32 count)
{
	const struct rm_abi *abi = nv->abi;
	u8 params[4096] = { 0 };
	u32 i;

	rm_put32(params, abi->imports_from_fd.fd, (u32)fd);
	rm_put32(params, abi->imports_from_fd.hParent, parent);
	put16(params, abi->imports_from_fd.numObjects, (u16)count);
	put16(params, abi->imports_from_fd.index, (u16)index);
	for (i = 0; i < count; i++)
		rm_put32(params + abi->imports_from_fd.objects.off + 4 * i, (struct rm_f32){ 0 }, first + i);
	return nv_control(nv, client, client, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, params,
			  abi->imports_from_fd.len);
}

u32 nv_dmabuf(const struct nv *nv, int gpu, u32 client, u32 memory, u64 size, int *fd)
{
	const struct rm_abi *abi = nv->abi;
	u8 block[4096] = { 0 };
	int error;

	rm_put32(block, abi->dmabuf.fd, (u32)-1);
	rm_put32(block, abi->dmabuf.hClient, client);
	rm_put32(block, abi->dmabuf.totalObjects, 1);
	rm_put32(block, abi->dmabuf.numObjects, 1);
	rm_put64(block, abi->dmabuf.totalSize, size);
	rm_put32(block + abi->dmabuf.handles.off, (struct rm_f32){ 0 }, memory);
	rm_put64(block + abi->dmabuf.sizes.off, (struct rm_f64){ 0 }, size);
	error = nv_ioctl(gpu, NV_ESC_EXPORT_TO_DMABUF_FD, block, abi->dmabuf.len);
	*fd = (int)rm_get32(block, abi->dmabuf.fd);
	return error ? NV_ERRNO(-error) : rm_get32(block, abi->dmabuf.status);
}

u32 nv_fabric(const struct nv *nv, u32 client, u32 subdevice, u32 *handle, u32 memory, u64 size)
{
	const struct rm_abi *abi = nv->abi;
	u8 params[256] = { 0 };

	rm_put64(params, abi->fabric.alignment, 2 << 20);
	rm_put64(params, abi->fabric.allocSize, size);
	rm_put64(params, abi->fabric.pageSize, 2 << 20);
	rm_put32(params, abi->fabric.map_hVidMem, memory);
	return nv_alloc(nv, client, subdevice, handle, NV_MEMORY_FABRIC, params, abi->fabric.len);
}

u32 nv_uvm_free(struct nv_program *program, u64 va, u64 length)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[4096] = { 0 };
	int error;

	rm_put64(params, abi->uvm_free.base, va);
	rm_put64(params, abi->uvm_free.length, length);
	error = nv_uvm(program->uvm, UVM_FREE, params);
	return error ? NV_ERRNO(-error) : rm_get32(params, abi->uvm_free.rmStatus);
}
