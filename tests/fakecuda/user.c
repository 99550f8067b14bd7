// SPDX-License-Identifier: Apache-2.0
/* User objects: counted, and kept by graphs and their clones. */
#include "api.h"

struct user {
	struct object object;
	void *data;
	CUhostFn destroy;
	unsigned int refs;
};

static void release(struct user *user, unsigned int count)
{
	user->refs -= count;
	if (user->refs)
		return;
	handle_kill(user);
	pthread_mutex_unlock(&fake_lock);
	user->destroy(user->data);
	pthread_mutex_lock(&fake_lock);
}

static CUresult user_of(CUuserObject handle, unsigned int count, struct user **user)
{
	*user = handle_get(handle, OBJECT_USER);
	return *user && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuUserObjectCreate, CUuserObject *, handle, void *, data, CUhostFn, destroy, unsigned int, refs,
    unsigned int, flags)
{
	struct user *user;

	if (!handle || !destroy || !refs || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	user = xalloc(sizeof(*user));
	handle_add(user, OBJECT_USER);
	user->data = data;
	user->destroy = destroy;
	user->refs = refs;
	*handle = (CUuserObject)user;
	return CUDA_SUCCESS;
}

API(cuUserObjectRetain, CUuserObject, handle, unsigned int, count)
{
	struct user *user;

	TRY(user_of(handle, count, &user));
	user->refs += count;
	return CUDA_SUCCESS;
}

API(cuUserObjectRelease, CUuserObject, handle, unsigned int, count)
{
	struct user *user;

	TRY(user_of(handle, count, &user));
	if (count > user->refs)
		return CUDA_ERROR_INVALID_VALUE;
	release(user, count);
	return CUDA_SUCCESS;
}

static void keep(struct graph *graph, struct user *user, unsigned int count)
{
	for (struct user_ref *ref = graph->users; ref; ref = ref->next) {
		if (ref->user == user) {
			ref->count += count;
			return;
		}
	}
	graph->users = memcpy(xalloc(sizeof(*graph->users)),
			      &(struct user_ref){ user, count, graph->users }, sizeof(*graph->users));
}

API(cuGraphRetainUserObject, CUgraph, in, CUuserObject, handle, unsigned int, count, unsigned int, flags)
{
	struct graph *graph;
	struct user *user;

	TRY(graph_of(in, &graph));
	TRY(user_of(handle, count, &user));
	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		user->refs += count;
	keep(graph, user, count);
	return CUDA_SUCCESS;
}

API(cuGraphReleaseUserObject, CUgraph, in, CUuserObject, handle, unsigned int, count)
{
	struct graph *graph;
	struct user *user;

	TRY(graph_of(in, &graph));
	TRY(user_of(handle, count, &user));
	for (struct user_ref *ref = graph->users; ref; ref = ref->next) {
		if (ref->user != user || ref->count < count)
			continue;
		ref->count -= count;
		release(user, count);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

void users_copy(struct graph *to, const struct graph *from)
{
	for (struct user_ref *ref = from->users; ref; ref = ref->next) {
		if (!ref->count)
			continue;
		ref->user->refs += ref->count;
		keep(to, ref->user, ref->count);
	}
}

void users_drop(struct graph *graph)
{
	while (graph->users) {
		struct user_ref *ref = graph->users;

		graph->users = ref->next;
		if (ref->count)
			release(ref->user, ref->count);
		free(ref);
	}
}
