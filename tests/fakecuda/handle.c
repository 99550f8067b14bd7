// SPDX-License-Identifier: Apache-2.0
/* Handles: every one ever given out is remembered, so a wrong or destroyed one is told from a live one. */
#include <stdio.h>

#include "fake.h"

#define BUCKETS 8192

static struct object *buckets[BUCKETS];
static unsigned int next_id[OBJECT_ARRAY + 1];

void *xalloc(size_t size)
{
	void *p = calloc(1, size ? size : 1);

	if (!p) {
		fprintf(stderr, "fakecuda: out of host memory\n");
		abort();
	}
	return p;
}

void *xrealloc(void *old, size_t size)
{
	void *p = realloc(old, size);

	if (!p) {
		fprintf(stderr, "fakecuda: out of host memory\n");
		abort();
	}
	return p;
}

char *xdup(const char *text)
{
	char *copy = xalloc(strlen(text) + 1);

	return strcpy(copy, text);
}

static size_t bucket_of(const void *handle)
{
	return ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ULL >> 51 & (BUCKETS - 1);
}

void handle_add(void *memory, enum object_type type)
{
	struct object *object = memory;
	size_t bucket = bucket_of(memory);

	object->type = type;
	object->id = ++next_id[type];
	object->next_hash = buckets[bucket];
	buckets[bucket] = object;
}

void handle_kill(void *object)
{
	((struct object *)object)->dead = true;
}

static struct object *look_up(const void *handle)
{
	struct object *object = buckets[bucket_of(handle)];

	while (object && object != handle)
		object = object->next_hash;
	return object;
}

static const char *const type_names[] = {
	[OBJECT_CONTEXT] = "context", [OBJECT_GREEN] = "green context", [OBJECT_STREAM] = "stream",
	[OBJECT_EVENT] = "event", [OBJECT_MODULE] = "module", [OBJECT_LIBRARY] = "library",
	[OBJECT_FUNCTION] = "function", [OBJECT_KERNEL] = "kernel", [OBJECT_GRAPH] = "graph",
	[OBJECT_NODE] = "graph node", [OBJECT_EXEC] = "executable graph", [OBJECT_POOL] = "memory pool",
	[OBJECT_DESCRIPTION] = "resource description", [OBJECT_VMM] = "memory handle", [OBJECT_USER] = "user object",
	[OBJECT_LINK] = "linker", [OBJECT_ARRAY] = "array",
};

void *handle_get(const void *handle, enum object_type type)
{
	struct object *object = look_up(handle);

	if (!object || object->type != type) {
		if (handle)
			violation("handle %p is no %s%s%s", handle, type_names[type], object ? " but a " : "",
				  object ? type_names[object->type] : "");
		return NULL;
	}
	if (object->dead) {
		violation("use of destroyed %s %u (%p)", type_names[type], object->id, handle);
		return NULL;
	}
	return object;
}

enum object_type handle_type(const void *handle)
{
	struct object *object = look_up(handle);

	return object ? object->type : 0;
}
