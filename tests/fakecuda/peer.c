// SPDX-License-Identifier: Apache-2.0
/* Which contexts reach the memory of others on other devices. Copies need no such access. */
#include <stdlib.h>

#include "api.h"

struct peer {
	struct context *from, *to; /* groups */
	struct peer *next;
};

static struct peer *peers;

static struct peer **peer_of(const struct context *from, const struct context *to)
{
	struct peer **at = &peers;

	while (*at && ((*at)->from != from || (*at)->to != to))
		at = &(*at)->next;
	return at;
}

bool peer_reaches(const struct context *from, const struct context *to)
{
	return *peer_of(from, to);
}

static void peer_remove(struct peer **at)
{
	struct peer *gone = *at;

	*at = gone->next;
	free(gone);
}

void peer_forget(const struct context *context)
{
	for (struct peer **at = &peers; *at;) {
		if ((*at)->from == context || (*at)->to == context)
			peer_remove(at);
		else
			at = &(*at)->next;
	}
}

API(cuCtxEnablePeerAccess, CUcontext, handle, unsigned int, flags)
{
	struct context *current, *context;
	struct peer *peer;

	TRY(context_current(&current));
	context = handle_get(handle, OBJECT_CONTEXT);
	if (!context || context->group == current->group)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (context->device == current->device)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (peer_reaches(current->group, context->group))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	peer = xalloc(sizeof(*peer));
	*peer = (struct peer){ .from = current->group, .to = context->group, .next = peers };
	peers = peer;
	return CUDA_SUCCESS;
}

API(cuCtxDisablePeerAccess, CUcontext, handle)
{
	struct context *current, *context;

	TRY(context_current(&current));
	context = handle_get(handle, OBJECT_CONTEXT);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!peer_reaches(current->group, context->group))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	peer_remove(peer_of(current->group, context->group));
	return CUDA_SUCCESS;
}
