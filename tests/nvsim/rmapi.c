// SPDX-License-Identifier: GPL-2.0-only
/* Allocation, free, duplication and sharing of objects, with the checks and their order of the real driver. */
#include <linux/slab.h>

#include "files.h"
#include "sim.h"

static bool is_root_class(u32 class)
{
	return class == NV01_ROOT || class == NV01_ROOT_NON_PRIV || class == NV01_ROOT_CLIENT;
}

static NV_STATUS check_privilege(const struct sim_class *class, const struct sim_caller *by)
{
	if (!(class->flags & (SIM_CLASS_USER | SIM_CLASS_ROOT | SIM_CLASS_KERNEL)))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if ((class->flags & SIM_CLASS_ROOT) && by->level < SIM_CALLER_ROOT)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if ((class->flags & SIM_CLASS_KERNEL) && by->level < SIM_CALLER_KERNEL)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	return NV_OK;
}

static NV_STATUS check_parent(const struct sim_class *class, struct sim_object *parent)
{
	struct sim_object *child;

	if (!(class->flags & SIM_CLASS_MULTI))
		list_for_each_entry(child, &parent->children, sibling)
			if (child->kind == class->kind)
				return NV_ERR_STATE_IN_USE;
	if (class->flags & SIM_CLASS_ANY_PARENT)
		return NV_OK;
	for (int i = 0; i < SIM_MAX_PARENTS && class->parents[i]; i++)
		if (class->parents[i] == parent->kind)
			return NV_OK;
	return NV_ERR_INVALID_OBJECT_PARENT;
}

/* Checks a handle that is wished for, or finds one. */
NV_STATUS sim_assign_handle(struct sim_client *client, u32 *handle)
{
	if (!*handle) {
		while (sim_object_find(client, client->next_handle))
			client->next_handle++;
		*handle = client->next_handle++;
		return NV_OK;
	}
	if (*handle == client->handle)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	return sim_object_find(client, *handle) ? NV_ERR_INSERT_DUPLICATE_NAME : NV_OK;
}

static NV_STATUS make_object(struct sim_client *client, struct sim_object *parent, u32 handle,
			     const struct sim_class *class, const struct sim_ops *ops, struct sim_alloc *alloc)
{
	struct sim_object *object = kzalloc(sizeof(*object), GFP_KERNEL);
	NV_STATUS status;

	if (!object)
		return NV_ERR_NO_MEMORY;
	object->handle = handle;
	object->class = class->nr;
	object->kind = class->kind;
	object->ops = &sim_plain_ops;
	status = sim_object_insert(client, parent, object);
	if (status != NV_OK) {
		kfree(object);
		return status;
	}
	if (ops->construct)
		status = ops->construct(object, alloc);
	/* destroy belongs to a constructed object only */
	if (status == NV_OK)
		object->ops = ops;
	else
		sim_object_free(object);
	return status;
}

static NV_STATUS alloc_locked(const struct sim_caller *by, u32 root, u32 parent_handle, u32 *handle,
			      const struct sim_class *class, struct sim_alloc *alloc)
{
	const struct sim_ops *ops = sim_ops_of(class->kind);
	struct sim_client *client = sim_client_find(root, by);
	struct sim_object *parent;
	NV_STATUS status;

	if (!client)
		return sim_client_refused(root);
	status = check_privilege(class, by);
	if (status != NV_OK)
		return status;
	parent = sim_object_find(client, parent_handle);
	if (!parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (class->flags & SIM_CLASS_INTERNAL)
		return NV_ERR_INVALID_CLASS;
	status = check_parent(class, parent);
	if (status == NV_OK)
		status = sim_assign_handle(client, handle);
	if (status != NV_OK)
		return status;
	if (!ops || class->size[sim_abi] == SIM_ANY_SIZE)
		return NV_ERR_NOT_SUPPORTED;
	return make_object(client, parent, *handle, class, ops, alloc);
}

/* An OS descriptor names pages of the caller; they are pinned here, where no lock is held. */
static NV_STATUS pin_descriptor(const struct sim_class *class, struct sim_alloc *alloc)
{
	u64 limit = NV_GET(alloc->params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, limit);
	u64 address = NV_GET(alloc->params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, descriptor);

	if (address & ~PAGE_MASK)
		return NV_ERR_NOT_SUPPORTED;
	if (limit + 1 == 0)
		return NV_ERR_INVALID_LIMIT;
	return sim_memory_pin(address, limit + 1, true, &alloc->pinned);
}

static NV_STATUS alloc_any(const struct sim_caller *by, u32 root, u32 parent, u32 *handle, const struct sim_class *class,
			   struct sim_alloc *alloc)
{
	NV_STATUS status;

	if (class->kind == KIND_OsDescMemory && by->user_params) {
		status = pin_descriptor(class, alloc);
		if (status != NV_OK)
			return status;
	}
	down_write(&sim_api_lock);
	if (is_root_class(class->nr))
		status = sim_client_create(by, handle);
	else
		status = alloc_locked(by, root, parent, handle, class, alloc);
	up_write(&sim_api_lock);
	if (alloc->pinned)
		sim_memory_put(alloc->pinned);
	return status;
}

NV_STATUS sim_rm_alloc(const struct sim_caller *by, u32 root, u32 parent, u32 *handle, u32 nr, u64 from, u64 rights,
		       bool serialised)
{
	const struct sim_class *class = sim_class_find(nr);
	struct sim_alloc alloc = { .by = by };
	struct sim_params params, mask;
	NV_STATUS status;
	u32 size;

	if (!class)
		return NV_ERR_INVALID_CLASS;
	size = class->size[sim_abi] == SIM_ANY_SIZE ? 0 : class->size[sim_abi];
	if ((class->flags & SIM_CLASS_PARAMS) && !from)
		return NV_ERR_INVALID_ARGUMENT;
	if (!size)
		from = 0;
	status = sim_params_in(&params, by, from, size);
	if (status != NV_OK)
		return status;
	if (rights) {
		status = sim_params_in(&mask, by, rights, sizeof(u32));
		if (status == NV_OK)
			sim_params_out(&mask, NV_ERR_GENERIC);	/* only read */
	}
	alloc.params = params.data;
	alloc.size = size;
	if (status == NV_OK && serialised)
		status = NV_ERR_LIB_RM_VERSION_MISMATCH;
	if (status == NV_OK)
		status = alloc_any(by, root, parent, handle, class, &alloc);
	return sim_params_out(&params, status);
}

/* For the legacy escapes, whose parameters RM builds itself. */
NV_STATUS sim_rm_alloc_kernel(const struct sim_caller *by, u32 root, u32 parent, u32 *handle, u32 nr, void *params)
{
	const struct sim_class *class = sim_class_find(nr);
	struct sim_alloc alloc = { .by = by, .params = params };

	if (!class)
		return NV_ERR_INVALID_CLASS;
	alloc.size = class->size[sim_abi];
	return alloc_any(by, root, parent, handle, class, &alloc);
}

NV_STATUS sim_rm_free(const struct sim_caller *by, u32 root, u32 handle)
{
	struct sim_client *client;
	struct sim_object *object;
	NV_STATUS status = NV_OK;

	down_write(&sim_api_lock);
	client = sim_client_find(root, by);
	if (!client) {
		status = sim_client_refused(root);
	} else {
		object = sim_object_find(client, handle);
		if (object == client->root)
			sim_client_destroy(client);
		else if (object)
			sim_object_free(object);
		/* an unknown handle is no error */
	}
	up_write(&sim_api_lock);
	return status;
}

static NV_STATUS dup_locked(const struct sim_caller *by, u32 to_handle, u32 parent_handle, u32 *handle, u32 from_handle,
			    u32 source, u32 flags)
{
	struct sim_client *to = sim_client_any(to_handle), *from = sim_client_any(from_handle);
	struct sim_object *parent, *origin, *object;
	NV_STATUS status;

	if (!to || !from)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (!sim_client_find(to_handle, by))
		return NV_ERR_INVALID_CLIENT;
	origin = sim_object_find(from, source);
	if (!origin)
		return NV_ERR_OBJECT_NOT_FOUND;
	parent = sim_object_find(to, parent_handle);
	if (!parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!origin->ops->copy)
		return NV_ERR_INVALID_ARGUMENT;
	status = sim_assign_handle(to, handle);
	if (status != NV_OK)
		return status;
	if ((by->level < SIM_CALLER_KERNEL || (flags & NV04_DUP_HANDLE_FLAGS_REJECT_KERNEL_DUP_PRIVILEGE)) &&
	    !sim_may_dup(origin, to, by))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	object = kzalloc(sizeof(*object), GFP_KERNEL);
	if (!object)
		return NV_ERR_NO_MEMORY;
	object->handle = *handle;
	object->class = origin->class;
	object->kind = origin->kind;
	object->ops = &sim_plain_ops;
	status = sim_object_insert(to, parent, object);
	if (status != NV_OK) {
		kfree(object);
		return status;
	}
	status = origin->ops->copy(object, origin);
	if (status == NV_OK)
		object->ops = origin->ops;
	else
		sim_object_free(object);
	return status;
}

NV_STATUS sim_rm_dup(const struct sim_caller *by, u32 client, u32 parent, u32 *handle, u32 from, u32 source, u32 flags)
{
	NV_STATUS status;

	down_write(&sim_api_lock);
	status = dup_locked(by, client, parent, handle, from, source, flags);
	up_write(&sim_api_lock);
	return status;
}

NV_STATUS sim_rm_share(const struct sim_caller *by, u32 handle, u32 object, u32 target, u32 mask, u16 type, u8 action)
{
	struct sim_client *client;
	struct sim_object *found;
	NV_STATUS status;

	down_write(&sim_api_lock);
	client = sim_client_find(handle, by);
	found = client ? sim_object_find(client, object) : NULL;
	if (!client)
		status = sim_client_refused(handle);
	else if (!found)
		status = NV_ERR_OBJECT_NOT_FOUND;
	else
		status = sim_share(found, target, mask, type, action);
	up_write(&sim_api_lock);
	return status;
}
