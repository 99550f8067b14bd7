// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * Objects lie in chunks that never move; index 0 is nobody, index 1 the
 * client's own object. Children and dependants are doubly linked lists of
 * indices, so that each object is unlinked in constant time.
 */
#include "handles.h"
#include "memory.h"
#include "tree.h"

#define CHUNK_BITS 6
#define CHUNK_OBJECTS (1U << CHUNK_BITS)
#define ROOT 1
/* All are gone through, with locks held that others wait for. No program with memory in pieces of 2 MiB has so many. */
#define MAX_OBJECTS (1U << 18)
/* an insert may make a ghost of its parent */
#define OBJECTS_PER_INSERT 2

/* `dependant` dies with `base`. Linked in both; index 0 is nobody. */
struct rm_edge {
	u32 base, dependant;
	u32 next_dependant, prev_dependant;	/* of the same base; free list: next_dependant */
	u32 next_base;				/* of the same dependant */
};

_Static_assert(sizeof(struct rm_object) == 64, "an object is one cache line");

static struct rm_object *at(const struct rm_client *client, u32 index)
{
	return &client->chunks[index >> CHUNK_BITS][index & (CHUNK_OBJECTS - 1)];
}

static struct rm_object *at_or_null(const struct rm_client *client, u32 index)
{
	return index ? at(client, index) : NULL;
}

/* ---- pools -------------------------------------------------------------- */

static int grow_chunk_table(struct rm_client *client)
{
	u32 room = client->chunks_room ? client->chunks_room * 2 : 4;
	struct rm_object **chunks = rm_zalloc(sizeof(*chunks) * room);

	if (!chunks)
		return -ENOMEM;
	if (client->chunks_used)
		memcpy(chunks, client->chunks, sizeof(*chunks) * client->chunks_used);
	rm_mfree(client->chunks);
	client->chunks = chunks;
	client->chunks_room = room;
	return 0;
}

static int add_chunk(struct rm_client *client)
{
	struct rm_object *chunk;
	u32 first = client->chunks_used << CHUNK_BITS, i;

	if (client->chunks_used == client->chunks_room && grow_chunk_table(client))
		return -ENOMEM;
	chunk = rm_zalloc(sizeof(*chunk) * CHUNK_OBJECTS);
	if (!chunk)
		return -ENOMEM;
	client->chunks[client->chunks_used++] = chunk;
	/* the lowest index is to be taken first; nobody's place stays out */
	for (i = CHUNK_OBJECTS; i-- > 0;) {
		if (!(first + i))
			continue;
		chunk[i].index = first + i;
		chunk[i].next = client->free_object;
		client->free_object = first + i;
		client->free_objects++;
	}
	return 0;
}

static int grow_edges(struct rm_client *client)
{
	u32 room = client->edges_room ? client->edges_room * 2 : 32;
	struct rm_edge *edges = rm_zalloc(sizeof(*edges) * room);

	if (!edges)
		return -ENOMEM;
	if (client->edges_used)
		memcpy(edges, client->edges, sizeof(*edges) * client->edges_used);
	rm_mfree(client->edges);
	client->edges = edges;
	client->edges_room = room;
	if (!client->edges_used)
		client->edges_used = 1;
	return 0;
}

static u32 edges_left(const struct rm_client *client)
{
	return client->free_edges + (client->edges_room - client->edges_used);
}

/* Room for n more inserts at any time. */
static int provide(struct rm_client *client, u32 n)
{
	u32 objects = n * OBJECTS_PER_INSERT;

	while (client->free_objects < objects)
		if (add_chunk(client))
			return -ENOMEM;
	while (edges_left(client) < n * RM_DEPS_MAX)
		if (grow_edges(client))
			return -ENOMEM;
	return rm_handles_reserve(client, client->objects + objects);
}

int rm_tree_reserve(struct rm_client *client)
{
	if (client->objects + (client->reserved + 1) * OBJECTS_PER_INSERT > MAX_OBJECTS)
		return -ENOSPC;
	if (provide(client, client->reserved + 1))
		return -ENOMEM;
	client->reserved++;
	return 0;
}

void rm_tree_unreserve(struct rm_client *client)
{
	if (!RM_BUG(!client->reserved))
		client->reserved--;
}

/* ---- links -------------------------------------------------------------- */

static void link_child(struct rm_client *client, struct rm_object *parent,
		       struct rm_object *object)
{
	object->parent = parent->index;
	object->prev = 0;
	object->next = parent->child;
	if (parent->child)
		at(client, parent->child)->prev = object->index;
	parent->child = object->index;
}

static void unlink_child(struct rm_client *client, struct rm_object *object)
{
	if (!object->parent)
		return;
	if (object->prev)
		at(client, object->prev)->next = object->next;
	else
		at(client, object->parent)->child = object->next;
	if (object->next)
		at(client, object->next)->prev = object->prev;
	object->parent = 0;
	object->next = 0;
	object->prev = 0;
}

static void link_base(struct rm_client *client, struct rm_object *base,
		      struct rm_object *dependant)
{
	struct rm_edge *edge;
	u32 index = client->free_edge;

	if (index) {
		client->free_edge = client->edges[index].next_dependant;
		client->free_edges--;
	} else {
		index = client->edges_used++;
	}
	edge = &client->edges[index];
	edge->base = base->index;
	edge->dependant = dependant->index;
	edge->prev_dependant = 0;
	edge->next_dependant = base->dependants;
	if (base->dependants)
		client->edges[base->dependants].prev_dependant = index;
	base->dependants = index;
	edge->next_base = dependant->bases;
	dependant->bases = index;
}

/* Lets all bases of a dependant go. */
static void unlink_bases(struct rm_client *client, struct rm_object *dependant)
{
	u32 index = dependant->bases;

	while (index) {
		struct rm_edge *edge = &client->edges[index];
		u32 next = edge->next_base;

		if (edge->prev_dependant)
			client->edges[edge->prev_dependant].next_dependant = edge->next_dependant;
		else
			at(client, edge->base)->dependants = edge->next_dependant;
		if (edge->next_dependant)
			client->edges[edge->next_dependant].prev_dependant = edge->prev_dependant;
		edge->next_dependant = client->free_edge;
		client->free_edge = index;
		client->free_edges++;
		index = next;
	}
	dependant->bases = 0;
}

static bool depends_on(const struct rm_client *client, const struct rm_object *dependant,
		       const struct rm_object *base)
{
	u32 index;

	for (index = dependant->bases; index; index = client->edges[index].next_base)
		if (client->edges[index].base == base->index)
			return true;
	return false;
}

/* ---- birth -------------------------------------------------------------- */

static void count(struct rm_client *client, const struct rm_object *object, int by)
{
	struct rm_payer *payer = client->payer[object->gpu];

	client->objects += (u32)by;
	client->count[object->kind] += (u32)by;
	/* the client's own object was there before any payer could be */
	if (payer && object->index != ROOT) {
		payer->objects += (u32)by;
		payer->count[object->kind] += (u32)by;
	}
}

static u32 gpu_of(const struct rm_object *parent, u32 gpu)
{
	if (gpu == RM_GPU_INHERIT)
		return parent ? parent->gpu : RM_GPU_NONE;
	return gpu < RM_GPUS ? gpu : RM_GPU_NONE;
}

/* A new object without memory and without bases; room was provided. */
static struct rm_object *create(struct rm_client *client, u32 handle, u32 class,
				struct rm_object *parent, u32 gpu, u8 flags)
{
	const struct rm_class *entry = rm_abi_class(client->abi, class);
	struct rm_object *object = at(client, client->free_object);

	client->free_object = object->next;
	client->free_objects--;
	object->handle = handle;
	object->class = class;
	object->gpu = gpu_of(parent, gpu);
	object->engine = 0;
	object->kind = entry && !(flags & RM_OBJECT_GHOST) ? entry->kind : RM_KIND_OTHER;
	object->flags = flags;
	object->bytes = 0;
	object->memory = NULL;
	object->priv = NULL;
	object->next = 0;
	if (parent)
		link_child(client, parent, object);
	rm_handles_insert(client, handle, object->index);
	count(client, object, 1);
	return object;
}

int rm_client_init(struct rm_client *client, const struct rm_abi *abi, u32 handle,
		   rm_dying_fn dying)
{
	memset(client, 0, sizeof(*client));
	client->abi = abi;
	client->handle = handle;
	client->dying = dying;
	if (rm_handles_init(client) || provide(client, 1)) {
		rm_client_destroy(client);
		return -ENOMEM;
	}
	create(client, handle, NV01_ROOT_CLIENT, NULL, RM_GPU_NONE, 0);
	return 0;
}

/* Gives back what comes with an insert that cannot be. */
static void disown(struct rm_client *client, const struct rm_insert *insert)
{
	const struct rm_object *parent = rm_tree_find(client, insert->parent);
	struct rm_payer *payer = client->payer[gpu_of(parent, insert->gpu)];

	if (insert->memory)
		rm_memory_drop(insert->memory, payer);
	else if (payer)
		rm_payer_uncharge(payer, insert->bytes);
}

static void note_worked(struct rm_client *client, const struct rm_object *object)
{
	struct rm_object *above = at_or_null(client, object->parent);

	if (object->kind != RM_KIND_COMPUTE && object->kind != RM_KIND_GR)
		return;
	for (; above && above != at(client, ROOT) && above->kind != RM_KIND_DEVICE; above = at_or_null(client, above->parent))
		above->flags |= RM_OBJECT_WORKED;
}

/* The first branch in which a channel dies with the program's own pages (an OS descriptor) that its USERD lies in. */
#define USERD_TAKES_CHANNELS 570

/* Does it die with this base? A channel outlives other memory of its USERD, which the driver keeps for it. */
static bool dies_with(const struct rm_client *client, const struct rm_object *object, const struct rm_object *base)
{
	if (object->kind != RM_KIND_CHANNEL || base->kind == RM_KIND_VASPACE || base->kind == RM_KIND_CTXSHARE)
		return true;
	return base->kind == RM_KIND_MEM_OS && client->abi->branch >= USERD_TAKES_CHANNELS;
}

struct rm_object *rm_tree_insert(struct rm_client *client, const struct rm_insert *insert)
{
	struct rm_object *object, *parent, *base;
	unsigned int i;

	if (RM_BUG(!client->reserved))
		return NULL;
	client->reserved--;
	if (!insert->handle || insert->handle == client->handle) {
		disown(client, insert);
		return NULL;
	}
	rm_tree_free(client, insert->handle);
	parent = rm_tree_find(client, insert->parent);
	if (!parent && insert->parent && insert->parent != insert->handle)
		parent = create(client, insert->parent, 0, at(client, ROOT),
				insert->gpu == RM_GPU_INHERIT ? RM_GPU_NONE : insert->gpu,
				RM_OBJECT_GHOST);
	if (!parent)
		parent = at(client, ROOT);
	object = create(client, insert->handle, insert->class, parent, insert->gpu, insert->flags);
	object->engine = insert->engine < 0xffff ? (u16)insert->engine : 0xffff;
	object->bytes = insert->memory ? 0 : insert->bytes;
	object->memory = insert->memory;
	object->priv = insert->priv;
	note_worked(client, object);
	for (i = 0; i < insert->n_deps && i < RM_DEPS_MAX; i++) {
		base = rm_tree_find(client, insert->deps[i]);
		if (base && base != object && base != parent && dies_with(client, object, base) && !depends_on(client, object, base))
			link_base(client, base, object);
	}
	return object;
}

/* ---- death -------------------------------------------------------------- */

/* Takes an object out of the table and onto the stack of the dying. */
static void doom(struct rm_client *client, struct rm_object *object, u32 *stack)
{
	/* among many objects the neighbours are far away: fetch them meanwhile */
	if (object->prev)
		rm_prefetch(at(client, object->prev));
	if (object->next)
		rm_prefetch(at(client, object->next));
	rm_handles_remove(client, object->handle);
	unlink_child(client, object);
	object->flags |= RM_OBJECT_DYING;
	object->next = *stack;
	*stack = object->index;
}

/* Of an object on top of the stack: nothing hangs on it any more. */
static void destroy(struct rm_client *client, struct rm_object *object)
{
	struct rm_payer *payer = client->payer[object->gpu];

	unlink_bases(client, object);
	if (client->dying)
		client->dying(client, object);
	if (object->memory)
		rm_memory_drop(object->memory, payer);
	else if (object->bytes && payer)
		rm_payer_uncharge(payer, object->bytes);
	count(client, object, -1);
	object->handle = 0;
	object->flags = 0;
	object->memory = NULL;
	object->next = client->free_object;
	client->free_object = object->index;
	client->free_objects++;
}

/* The next that must die before this object does, NULL: none. */
static struct rm_object *next_victim(struct rm_client *client, struct rm_object *object)
{
	while (object->dependants) {
		struct rm_object *dependant = at(client, client->edges[object->dependants].dependant);
		bool dying = dependant->flags & RM_OBJECT_DYING;

		unlink_bases(client, dependant);
		/* one that is dying already stands further down the stack */
		if (!dying)
			return dependant;
	}
	return at_or_null(client, object->child);
}

static u32 free_object(struct rm_client *client, struct rm_object *object)
{
	u32 stack = 0, died = 0;

	doom(client, object, &stack);
	while (stack) {
		struct rm_object *victim;

		object = at(client, stack);
		victim = next_victim(client, object);
		if (victim) {
			doom(client, victim, &stack);
			continue;
		}
		stack = object->next;
		destroy(client, object);
		died++;
	}
	return died;
}

u32 rm_tree_free(struct rm_client *client, u32 handle)
{
	struct rm_object *object = rm_tree_find(client, handle);

	return object ? free_object(client, object) : 0;
}

void rm_client_destroy(struct rm_client *client)
{
	u32 i;

	if (client->slots)
		rm_tree_free(client, client->handle);
	RM_BUG(client->objects);
	rm_handles_destroy(client);
	for (i = 0; i < client->chunks_used; i++)
		rm_mfree(client->chunks[i]);
	rm_mfree(client->chunks);
	rm_mfree(client->edges);
	memset(client, 0, sizeof(*client));
}

/* ---- looking ------------------------------------------------------------ */

struct rm_object *rm_tree_find(const struct rm_client *client, u32 handle)
{
	return at_or_null(client, rm_handles_find(client, handle));
}

struct rm_object *rm_tree_next(const struct rm_client *client, const struct rm_object *object)
{
	u32 index = object ? object->index + 1 : ROOT;

	for (; index < client->chunks_used << CHUNK_BITS; index++)
		if (at(client, index)->handle)
			return at(client, index);
	return NULL;
}

struct rm_object *rm_tree_parent(const struct rm_client *client, const struct rm_object *object)
{
	return at_or_null(client, object->parent);
}

struct rm_object *rm_tree_child(const struct rm_client *client, const struct rm_object *object)
{
	return at_or_null(client, object->child);
}

struct rm_object *rm_tree_sibling(const struct rm_client *client, const struct rm_object *object)
{
	return at_or_null(client, object->next);
}

static bool has_compute_child(const struct rm_client *client, const struct rm_object *object)
{
	const struct rm_object *child;

	for (child = rm_tree_child(client, object); child; child = rm_tree_sibling(client, child))
		if (child->kind == RM_KIND_COMPUTE)
			return true;
	return false;
}

bool rm_tree_computes(const struct rm_client *client, const struct rm_object *object)
{
	const struct rm_object *child;

	if (has_compute_child(client, object))
		return true;
	for (child = rm_tree_child(client, object); child; child = rm_tree_sibling(client, child))
		if (child->kind == RM_KIND_CHANNEL && has_compute_child(client, child))
			return true;
	return false;
}

u64 rm_object_bytes(const struct rm_object *object)
{
	return object->memory ? rm_memory_bytes(object->memory) : object->bytes;
}
