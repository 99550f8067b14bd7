// SPDX-License-Identifier: GPL-2.0-only
/* What rm_ioctl() does: forwards, and remembers what outlives the call: clients, and memory of programs that objects are made of. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "fwd.h"

#define P(field) nv_ioctl_nvos02_parameters_with_fd__params_##field

struct client {
	struct list_head link;
	u32 handle;
};

static void client_made(struct nvf_file *file, u32 handle)
{
	struct client *client = kzalloc(sizeof(*client), GFP_KERNEL | __GFP_NOFAIL);

	client->handle = handle;
	mutex_lock(&file->lock);
	list_add(&client->link, &file->clients);
	mutex_unlock(&file->lock);
}

static void client_freed(struct nvf_file *file, u32 handle)
{
	struct client *client, *next;

	mutex_lock(&file->lock);
	list_for_each_entry_safe(client, next, &file->clients, link)
		if (client->handle == handle) {
			list_del(&client->link);
			kfree(client);
		}
	mutex_unlock(&file->lock);
}

/* The file is closed on the host: what its clients had of pages is nobody's. */
void nvf_file_ends(struct nvf_file *file)
{
	struct client *client, *next;

	list_for_each_entry_safe(client, next, &file->clients, link) {
		nvf_pins_freed(client->handle, client->handle);
		kfree(client);
	}
}

static NV_STATUS answer(long ret, NV_STATUS status)
{
	return ret && ret != -ERESTARTSYS ? NVF_STATUS_INVALID_ARGUMENT : ret ? NVF_STATUS_OPERATING_SYSTEM : NVF_STATUS_OK;
}

/* RM_ALLOC_MEMORY of a range of the program's. */
static NV_STATUS os_descriptor(struct nvf_file *file, void *block, u32 size)
{
	u64 address = nvf_get64(block, P(pMemory)), length = nvf_get64(block, P(limit)) + 1;
	struct nvf_pin *pin;
	NV_STATUS status;
	long ret;

	pin = nvf_pin_user(address, length, &status);
	if (!pin) {
		nvf_put32(block, P(status), status);
		return NVF_STATUS_OK;
	}
	nvf_put64(block, P(pMemory), (u64)nvf_pin_id(pin) << 32 | offset_in_page(address));
	ret = nvf_forward(file->dev, file->handle, NV_ESC_RM_ALLOC_MEMORY, block, size, NULL, &status);
	nvf_put64(block, P(pMemory), address);
	if (!ret && !nvf_get32(block, P(status)))
		nvf_pin_of(pin, nvf_get32(block, P(hRoot)), nvf_get32(block, P(hObjectNew)));
	else if (ret == -ERESTARTSYS)
		/* it may yet be made: then it goes with its client */
		nvf_pin_of(pin, nvf_get32(block, P(hRoot)), nvf_get32(block, P(hObjectNew)));
	else
		nvf_unpin(pin);
	return answer(ret, status);
}

static bool is_root(u32 class)
{
	return class == 0x0 || class == 0x1 || class == 0x41;
}

NV_STATUS nvf_escape(struct nvf_file *file, u32 nr, void *block, u32 size)
{
	NV_STATUS status;
	long ret;

	if (nr == NV_ESC_RM_ALLOC_MEMORY && size == nv_ioctl_nvos02_parameters_with_fd__SIZE &&
	    nvf_get32(block, P(hClass)) == NVF_CLASS_OS_DESCRIPTOR)
		return os_descriptor(file, block, size);
	ret = nvf_forward(file->dev, file->handle, nr, block, size, NULL, &status);
	if (ret || status)
		return answer(ret, status);
	if (nr == NV_ESC_RM_ALLOC && is_root(nvf_get32(block, NVOS64_PARAMETERS__hClass)) &&
	    !nvf_get32(block, size == NVOS64_PARAMETERS__SIZE ? NVOS64_PARAMETERS__status : NVOS21_PARAMETERS__status))
		client_made(file, nvf_get32(block, NVOS64_PARAMETERS__hObjectNew));
	if (nr == NV_ESC_RM_FREE && !nvf_get32(block, NVOS00_PARAMETERS__status)) {
		u32 client = nvf_get32(block, NVOS00_PARAMETERS__hRoot), object = nvf_get32(block, NVOS00_PARAMETERS__hObjectOld);

		nvf_pins_freed(client, object);
		if (client == object)
			client_freed(file, client);
	}
	return NVF_STATUS_OK;
}
