// SPDX-License-Identifier: GPL-2.0-only
/*
 * The escapes of RmIoctl: exact sizes, the device they belong to, and who the caller is. NV_OK says that the call was
 * made; how it ended is in the block's status.
 */
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/uaccess.h>

#include "escapes.h"
#include "osevent.h"
#include "sim.h"

enum where { ON_CTL, ON_GPU, ON_BOTH };

struct escape {
	u32 nr;
	u8 where;
	u32 (*size)(void);
	NV_STATUS (*run)(struct sim_file *file, const struct sim_caller *by, void *block, u32 size);
};

static void set_os54_status(void *block, NV_STATUS status)
{
	NV_PUT(block, NVOS54_PARAMETERS, status, status);
}

static NV_STATUS do_control(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	set_os54_status(block, sim_rm_control(by, NV_GET(block, NVOS54_PARAMETERS, hClient),
					      NV_GET(block, NVOS54_PARAMETERS, hObject),
					      NV_GET(block, NVOS54_PARAMETERS, cmd),
					      NV_GET(block, NVOS54_PARAMETERS, flags),
					      NV_GET(block, NVOS54_PARAMETERS, params),
					      NV_GET(block, NVOS54_PARAMETERS, paramsSize)));
	return NV_OK;
}

/* NVOS21 or NVOS64: the same beginning, the latter with rights and flags */
static NV_STATUS do_alloc(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	bool wide = size == NV_SIZE(NVOS64_PARAMETERS);
	bool serialised = wide && NV_GET(block, NVOS64_PARAMETERS, flags) & NVOS64_FLAGS_FINN_SERIALIZED;
	NV_STATUS status;
	u32 class, handle;

	if (!wide && size != NV_SIZE(NVOS21_PARAMETERS))
		return NV_ERR_INVALID_ARGUMENT;
	class = NV_GET(block, NVOS21_PARAMETERS, hClass);
	handle = NV_GET(block, NVOS21_PARAMETERS, hObjectNew);
	switch (class) {
	case NV01_EVENT:
	case NV01_EVENT_OS_EVENT:
	case NV01_EVENT_KERNEL_CALLBACK:
	case NV01_EVENT_KERNEL_CALLBACK_EX:
		break;
	case NV01_ROOT:
	case NV01_ROOT_NON_PRIV:
	case NV01_ROOT_CLIENT:
		if (file->nv.gpu)
			return NV_ERR_INVALID_ARGUMENT;
		class = NV01_ROOT_CLIENT;
		NV_PUT(block, NVOS21_PARAMETERS, hClass, class);
		break;
	default:
		if (file->nv.gpu)
			return NV_ERR_INVALID_ARGUMENT;
	}
	status = sim_rm_alloc(by, NV_GET(block, NVOS21_PARAMETERS, hRoot), NV_GET(block, NVOS21_PARAMETERS, hObjectParent),
			      &handle, class, NV_GET(block, NVOS21_PARAMETERS, pAllocParms),
			      wide ? NV_GET(block, NVOS64_PARAMETERS, pRightsRequested) : 0, serialised);
	NV_PUT(block, NVOS21_PARAMETERS, hObjectNew, handle);
	if (wide)
		NV_PUT(block, NVOS64_PARAMETERS, status, status);
	else
		NV_PUT(block, NVOS21_PARAMETERS, status, status);
	return NV_OK;
}

static NV_STATUS do_alloc_object(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	u32 handle = NV_GET(block, NVOS05_PARAMETERS, hObjectNew);

	NV_PUT(block, NVOS05_PARAMETERS, status,
	       sim_rm_alloc(by, NV_GET(block, NVOS05_PARAMETERS, hRoot), NV_GET(block, NVOS05_PARAMETERS, hObjectParent),
			    &handle, NV_GET(block, NVOS05_PARAMETERS, hClass), 0, 0, false));
	NV_PUT(block, NVOS05_PARAMETERS, hObjectNew, handle);
	return NV_OK;
}

static NV_STATUS do_free(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	NV_PUT(block, NVOS00_PARAMETERS, status,
	       sim_rm_free(by, NV_GET(block, NVOS00_PARAMETERS, hRoot), NV_GET(block, NVOS00_PARAMETERS, hObjectOld)));
	return NV_OK;
}

static NV_STATUS do_dup(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	u32 handle = NV_GET(block, NVOS55_PARAMETERS, hObject);

	NV_PUT(block, NVOS55_PARAMETERS, status,
	       sim_rm_dup(by, NV_GET(block, NVOS55_PARAMETERS, hClient), NV_GET(block, NVOS55_PARAMETERS, hParent), &handle,
			  NV_GET(block, NVOS55_PARAMETERS, hClientSrc), NV_GET(block, NVOS55_PARAMETERS, hObjectSrc),
			  NV_GET(block, NVOS55_PARAMETERS, flags)));
	NV_PUT(block, NVOS55_PARAMETERS, hObject, handle);
	return NV_OK;
}

static NV_STATUS do_share(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	NV_PUT(block, NVOS57_PARAMETERS, status,
	       sim_rm_share(by, NV_GET(block, NVOS57_PARAMETERS, hClient), NV_GET(block, NVOS57_PARAMETERS, hObject),
			    NV_GET(block, NVOS57_PARAMETERS, sharePolicy_target),
			    NV_GET(block, NVOS57_PARAMETERS, sharePolicy_accessMask_limbs),
			    NV_GET(block, NVOS57_PARAMETERS, sharePolicy_type),
			    NV_GET(block, NVOS57_PARAMETERS, sharePolicy_action)));
	return NV_OK;
}

#define VOID_ESCAPE(name, call) \
	static NV_STATUS name(struct sim_file *file, const struct sim_caller *by, void *block, u32 size) \
	{ \
		call(by, block); \
		return NV_OK; \
	}

VOID_ESCAPE(do_vid_heap, sim_vid_heap)
VOID_ESCAPE(do_alloc_memory, sim_alloc_memory)
VOID_ESCAPE(do_map_memory, sim_map_memory)
VOID_ESCAPE(do_unmap_memory, sim_unmap_memory)
VOID_ESCAPE(do_update_mapping, sim_update_mapping)
VOID_ESCAPE(do_map_dma, sim_map_dma)
VOID_ESCAPE(do_unmap_dma, sim_unmap_dma)
VOID_ESCAPE(do_context_dma, sim_context_dma)
VOID_ESCAPE(do_idle_channels, sim_idle_channels)

static NV_STATUS do_bind_dma(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	NV_PUT(block, NVOS49_PARAMETERS, status, NV_ERR_NOT_SUPPORTED);
	return NV_OK;
}

/* NVOS38_ACCESS_TYPE_READ_DWORD, _READ_BINARY; NVOS38_MAX_REGISTRY_STRING_LENGTH (nvos.h) */
#define REGISTRY_READS(type)	((type) == 1 || (type) == 6)
#define REGISTRY_STRING_MAX	256

/* Of a string whose length does not count its end. */
static NV_STATUS registry_string(u64 address, u64 length)
{
	char text[REGISTRY_STRING_MAX];

	if (!length)
		return NV_OK;
	if (length >= sizeof(text))
		return NV_ERR_INVALID_STRING_LENGTH;
	return copy_from_user(text, u64_to_user_ptr(address), length + 1) ? NV_ERR_OPERATING_SYSTEM : NV_OK;
}

/* Reads find no key; writes want an administrator and are not kept. The driver copies under its API lock (RmAccessRegistry, osapi.c). */
static NV_STATUS do_registry(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	bool reads = REGISTRY_READS(NV_GET(block, NVOS38_PARAMETERS, AccessType));
	NV_STATUS status;

	reads ? down_read(&sim_api_lock) : down_write(&sim_api_lock);
	status = registry_string(NV_GET(block, NVOS38_PARAMETERS, pDevNode), NV_GET(block, NVOS38_PARAMETERS, DevNodeLength));
	if (status == NV_OK)
		status = registry_string(NV_GET(block, NVOS38_PARAMETERS, pParmStr), NV_GET(block, NVOS38_PARAMETERS, ParmStrLength));
	reads ? up_read(&sim_api_lock) : up_write(&sim_api_lock);
	if (status == NV_OK)
		status = by->level < SIM_CALLER_ROOT ? NV_ERR_INSUFFICIENT_PERMISSIONS : NV_ERR_OBJECT_NOT_FOUND;
	NV_PUT(block, NVOS38_PARAMETERS, status, status);
	return NV_OK;
}

static NV_STATUS do_event_data(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	NV_PUT(block, NVOS41_PARAMETERS, MoreEvents, 0);
	NV_PUT(block, NVOS41_PARAMETERS, status, NV_ERR_GENERIC);	/* no event ever waits */
	return NV_OK;
}

static NV_STATUS do_alloc_event(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	NV_PUT(block, nv_ioctl_alloc_os_event_t, Status,
	       sim_os_event_alloc(file, NV_GET(block, nv_ioctl_alloc_os_event_t, hClient),
				  NV_GET(block, nv_ioctl_alloc_os_event_t, fd)));
	return NV_OK;
}

static NV_STATUS do_free_event(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	NV_PUT(block, nv_ioctl_free_os_event_t, Status,
	       sim_os_event_free(NV_GET(block, nv_ioctl_free_os_event_t, hClient),
				 NV_GET(block, nv_ioctl_free_os_event_t, fd)));
	return NV_OK;
}

static NV_STATUS do_status_code(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	for (unsigned int i = 0; i < sim_gpu_count; i++) {
		if (sim_gpus[i].bus == NV_GET(block, nv_ioctl_status_code_t, bus)) {
			NV_PUT(block, nv_ioctl_status_code_t, status, NV_OK);
			return NV_OK;
		}
	}
	return NV_ERR_INVALID_ARGUMENT;
}

/* Ties a file to a control file, once and without chains; the control file then lives as long as this one. */
static NV_STATUS do_register_fd(struct sim_file *file, const struct sim_caller *by, void *block, u32 size)
{
	NV_STATUS status = NV_ERR_INVALID_STATE;
	struct sim_file *ctl;
	void *priv = NULL;

	down_write(&sim_api_lock);
	if (file->ctl)
		goto unlock;
	status = NV_ERR_INVALID_ARGUMENT;
	ctl = nv_get_file_private(NV_GET(block, nv_ioctl_register_fd_t, ctl_fd), true, &priv);
	if (!ctl)
		goto unlock;
	if (ctl == file || ctl->ctl) {
		nv_put_file_private(priv);
		goto unlock;
	}
	file->ctl_file = priv;
	smp_store_release(&file->ctl, ctl);
	status = NV_OK;
unlock:
	up_write(&sim_api_lock);
	return status;
}

#define SIZE_OF(s) static u32 size_of_##s(void) { return NV_SIZE(s); }
SIZE_OF(NVOS54_PARAMETERS)
SIZE_OF(NVOS05_PARAMETERS)
SIZE_OF(NVOS00_PARAMETERS)
SIZE_OF(NVOS55_PARAMETERS)
SIZE_OF(NVOS57_PARAMETERS)
SIZE_OF(NVOS32_PARAMETERS)
SIZE_OF(NVOS34_PARAMETERS)
SIZE_OF(NVOS56_PARAMETERS)
SIZE_OF(NVOS46_PARAMETERS)
SIZE_OF(NVOS47_PARAMETERS)
SIZE_OF(NVOS39_PARAMETERS)
SIZE_OF(NVOS30_PARAMETERS)
SIZE_OF(NVOS49_PARAMETERS)
SIZE_OF(NVOS38_PARAMETERS)
SIZE_OF(NVOS41_PARAMETERS)
SIZE_OF(nv_ioctl_nvos02_parameters_with_fd)
SIZE_OF(nv_ioctl_nvos33_parameters_with_fd)
SIZE_OF(nv_ioctl_alloc_os_event_t)
SIZE_OF(nv_ioctl_free_os_event_t)
SIZE_OF(nv_ioctl_status_code_t)
SIZE_OF(nv_ioctl_register_fd_t)

static const struct escape escapes[] = {
	{ NV_ESC_RM_CONTROL, ON_CTL, size_of_NVOS54_PARAMETERS, do_control },
	{ NV_ESC_RM_ALLOC, ON_BOTH, NULL, do_alloc },
	{ NV_ESC_RM_ALLOC_OBJECT, ON_CTL, size_of_NVOS05_PARAMETERS, do_alloc_object },
	{ NV_ESC_RM_FREE, ON_CTL, size_of_NVOS00_PARAMETERS, do_free },
	{ NV_ESC_RM_DUP_OBJECT, ON_CTL, size_of_NVOS55_PARAMETERS, do_dup },
	{ NV_ESC_RM_SHARE, ON_CTL, size_of_NVOS57_PARAMETERS, do_share },
	{ NV_ESC_RM_VID_HEAP_CONTROL, ON_CTL, size_of_NVOS32_PARAMETERS, do_vid_heap },
	{ NV_ESC_RM_ALLOC_MEMORY, ON_GPU, size_of_nv_ioctl_nvos02_parameters_with_fd, do_alloc_memory },
	{ NV_ESC_RM_MAP_MEMORY, ON_CTL, size_of_nv_ioctl_nvos33_parameters_with_fd, do_map_memory },
	{ NV_ESC_RM_UNMAP_MEMORY, ON_CTL, size_of_NVOS34_PARAMETERS, do_unmap_memory },
	{ NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO, ON_CTL, size_of_NVOS56_PARAMETERS, do_update_mapping },
	{ NV_ESC_RM_MAP_MEMORY_DMA, ON_CTL, size_of_NVOS46_PARAMETERS, do_map_dma },
	{ NV_ESC_RM_UNMAP_MEMORY_DMA, ON_CTL, size_of_NVOS47_PARAMETERS, do_unmap_dma },
	{ NV_ESC_RM_ALLOC_CONTEXT_DMA2, ON_CTL, size_of_NVOS39_PARAMETERS, do_context_dma },
	{ NV_ESC_RM_BIND_CONTEXT_DMA, ON_CTL, size_of_NVOS49_PARAMETERS, do_bind_dma },
	{ NV_ESC_RM_IDLE_CHANNELS, ON_CTL, size_of_NVOS30_PARAMETERS, do_idle_channels },
	{ NV_ESC_RM_ACCESS_REGISTRY, ON_CTL, size_of_NVOS38_PARAMETERS, do_registry },
	{ NV_ESC_RM_GET_EVENT_DATA, ON_BOTH, size_of_NVOS41_PARAMETERS, do_event_data },
	{ NV_ESC_ALLOC_OS_EVENT, ON_BOTH, size_of_nv_ioctl_alloc_os_event_t, do_alloc_event },
	{ NV_ESC_FREE_OS_EVENT, ON_BOTH, size_of_nv_ioctl_free_os_event_t, do_free_event },
	{ NV_ESC_STATUS_CODE, ON_CTL, size_of_nv_ioctl_status_code_t, do_status_code },
	{ NV_ESC_REGISTER_FD, ON_BOTH, size_of_nv_ioctl_register_fd_t, do_register_fd },
};

NV_STATUS sim_escape(struct sim_file *file, u32 nr, void *block, u32 size)
{
	struct sim_file *ctl = smp_load_acquire(&file->ctl);
	struct sim_caller by = {
		.level = capable(CAP_SYS_ADMIN) ? SIM_CALLER_ROOT : SIM_CALLER_USER,
		.user_params = true,
		.file = ctl ? ctl : file,
	};

	for (size_t i = 0; i < ARRAY_SIZE(escapes); i++) {
		const struct escape *escape = &escapes[i];

		if (escape->nr != nr)
			continue;
		if (escape->size && size != escape->size())
			return NV_ERR_INVALID_ARGUMENT;
		if (size < sizeof(u32) || (escape->where == ON_CTL && file->nv.gpu) ||
		    (escape->where == ON_GPU && !file->nv.gpu))
			return NV_ERR_INVALID_ARGUMENT;
		return escape->run(file, &by, block, size);
	}
	return NV_ERR_INVALID_ARGUMENT;
}

void sim_escape_close(struct sim_file *file)
{
	struct sim_client *client, *next;

	down_write(&sim_api_lock);
	list_for_each_entry_safe(client, next, &file->clients, of_file)
		sim_client_destroy(client);
	up_write(&sim_api_lock);
}
