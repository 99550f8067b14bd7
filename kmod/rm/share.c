// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Memory that leaves a client by a file descriptor, or comes in by one. */
#include "decode.h"

static int one_object(struct rm_export *export, bool import, u32 fd, u32 device, u32 parent,
		      struct rm_f32 handle, struct rm_f32 off_fd)
{
	export->import = import;
	export->fd = (s32)fd;
	export->device = device;
	export->parent = parent;
	export->count = 1;
	export->off_handles = handle.off;
	export->off_fd = off_fd.off;
	return 0;
}

static int many_objects(struct rm_export *export, bool import, u32 fd, u32 index, u32 count,
			struct rm_fblk handles, struct rm_f32 off_fd)
{
	if (count > handles.size / 4u || count > RM_EXPORT_MAX)
		return -EINVAL;
	export->import = import;
	export->fd = (s32)fd;
	export->index = index;
	export->count = count;
	export->off_handles = handles.off;
	export->off_fd = off_fd.off;
	return 0;
}

int rm_decode_export(const struct rm_abi *abi, u32 cmd, const void *params,
		     u32 size, struct rm_export *export)
{
	const void *p = params;

	memset(export, 0, sizeof(*export));
	export->fd = -1;
	switch (cmd) {
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
		if (size != abi->export_to_fd.len)
			return -EINVAL;
		return one_object(export, false, rm_get32(p, abi->export_to_fd.fd),
				  rm_get32(p, abi->export_to_fd.object_data_rmObject_hDevice),
				  rm_get32(p, abi->export_to_fd.object_data_rmObject_hParent),
				  abi->export_to_fd.object_data_rmObject_hObject,
				  abi->export_to_fd.fd);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
		if (size != abi->import_from_fd.len)
			return -EINVAL;
		return one_object(export, true, rm_get32(p, abi->import_from_fd.fd),
				  rm_get32(p, abi->import_from_fd.object_data_rmObject_hDevice),
				  rm_get32(p, abi->import_from_fd.object_data_rmObject_hParent),
				  abi->import_from_fd.object_data_rmObject_hObject,
				  abi->import_from_fd.fd);
	case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD:
		if (size != abi->exports_to_fd.len)
			return -EINVAL;
		export->device = rm_get32(p, abi->exports_to_fd.hDevice);
		return many_objects(export, false, rm_get32(p, abi->exports_to_fd.fd),
				    rm_get16(p, abi->exports_to_fd.index),
				    rm_get16(p, abi->exports_to_fd.numObjects),
				    abi->exports_to_fd.objects, abi->exports_to_fd.fd);
	case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
		if (size != abi->imports_from_fd.len)
			return -EINVAL;
		export->parent = rm_get32(p, abi->imports_from_fd.hParent);
		return many_objects(export, true, rm_get32(p, abi->imports_from_fd.fd),
				    rm_get16(p, abi->imports_from_fd.index),
				    rm_get16(p, abi->imports_from_fd.numObjects),
				    abi->imports_from_fd.objects, abi->imports_from_fd.fd);
	default:
		return -ENOENT;
	}
}

int rm_decode_dmabuf(const struct rm_abi *abi, const void *block, u32 size,
		     struct rm_export *export)
{
	memset(export, 0, sizeof(*export));
	export->fd = -1;
	if (size != abi->dmabuf.len)
		return -EINVAL;
	return many_objects(export, false, rm_get32(block, abi->dmabuf.fd),
			    rm_get32(block, abi->dmabuf.index),
			    rm_get32(block, abi->dmabuf.numObjects),
			    abi->dmabuf.handles, abi->dmabuf.fd);
}
