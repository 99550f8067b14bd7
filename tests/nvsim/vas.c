// SPDX-License-Identifier: GPL-2.0-only
/* GPU address spaces: which memory a GPU virtual address reaches. */
#include <linux/rbtree.h>
#include <linux/slab.h>

#include "sim.h"

#define VA_FIRST	0x700000000000ull	/* of mappings whose address RM chooses */

struct vas_map {
	struct rb_node node;
	u64 va, length, offset;
	struct sim_memory *memory;
	bool writable;
};

static atomic_t uniques;

struct sim_vas *sim_vas_create(struct sim_gpu *gpu, bool external)
{
	struct sim_vas *vas = kzalloc(sizeof(*vas), GFP_KERNEL);

	if (!vas)
		return NULL;
	kref_init(&vas->ref);
	mutex_init(&vas->lock);
	vas->maps = RB_ROOT;
	vas->next = VA_FIRST;
	vas->gpu = gpu;
	vas->external = external;
	vas->unique = atomic_inc_return(&uniques);
	return vas;
}

struct sim_vas *sim_vas_get(struct sim_vas *vas)
{
	if (vas)
		kref_get(&vas->ref);
	return vas;
}

static void drop_map(struct sim_vas *vas, struct vas_map *map)
{
	rb_erase(&map->node, &vas->maps);
	sim_memory_put(map->memory);
	kfree(map);
}

static void vas_release(struct kref *ref)
{
	struct sim_vas *vas = container_of(ref, struct sim_vas, ref);
	struct rb_node *node;

	while ((node = rb_first(&vas->maps)))
		drop_map(vas, rb_entry(node, struct vas_map, node));
	kfree(vas);
}

void sim_vas_put(struct sim_vas *vas)
{
	if (vas)
		kref_put(&vas->ref, vas_release);
}
EXPORT_SYMBOL_GPL(sim_vas_put);

/* The first mapping that ends behind va. */
static struct vas_map *first_map(struct sim_vas *vas, u64 va)
{
	struct rb_node *node = vas->maps.rb_node;
	struct vas_map *best = NULL;

	while (node) {
		struct vas_map *map = rb_entry(node, struct vas_map, node);

		if (map->va + map->length > va) {
			best = map;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return best;
}

static void insert_map(struct sim_vas *vas, struct vas_map *map)
{
	struct rb_node **link = &vas->maps.rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		link = map->va < rb_entry(parent, struct vas_map, node)->va ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&map->node, parent, link);
	rb_insert_color(&map->node, &vas->maps);
}

/*
 * Takes [va, va + length) out of whatever is mapped there. `spare` serves where one mapping falls into two; NULL: that
 * mapping loses its end as well.
 */
static void unmap_locked(struct sim_vas *vas, u64 va, u64 length, struct vas_map *spare)
{
	u64 end = va + length;
	struct vas_map *map;

	while ((map = first_map(vas, va)) && map->va < end) {
		u64 map_end = map->va + map->length;

		if (map->va < va) {
			if (map_end > end && spare) {
				*spare = *map;
				spare->va = end;
				spare->length = map_end - end;
				spare->offset += end - map->va;
				sim_memory_get(spare->memory);
				map->length = va - map->va;
				insert_map(vas, spare);
				return;
			}
			map->length = va - map->va;
		} else if (map_end > end) {
			rb_erase(&map->node, &vas->maps);
			map->offset += end - map->va;
			map->length = map_end - end;
			map->va = end;
			insert_map(vas, map);
		} else {
			drop_map(vas, map);
		}
	}
}

/* Maps memory at va in place of what was there. 0, -EINVAL or -ENOMEM. */
int sim_vas_map(struct sim_vas *vas, u64 va, u64 length, struct sim_memory *memory, u64 offset, bool writable)
{
	struct vas_map *map, *spare;

	if (!length || va + length < va)
		return -EINVAL;
	map = kmalloc(sizeof(*map), GFP_KERNEL);
	spare = kmalloc(sizeof(*spare), GFP_KERNEL);
	if (!map || !spare) {
		kfree(map);
		kfree(spare);
		return -ENOMEM;
	}
	*map = (struct vas_map) { .va = va, .length = length, .offset = offset, .writable = writable,
				  .memory = sim_memory_get(memory) };
	spare->memory = NULL;
	mutex_lock(&vas->lock);
	unmap_locked(vas, va, length, spare);
	insert_map(vas, map);
	mutex_unlock(&vas->lock);
	if (!spare->memory)
		kfree(spare);
	return 0;
}
EXPORT_SYMBOL_GPL(sim_vas_map);

void sim_vas_unmap(struct sim_vas *vas, u64 va, u64 length)
{
	struct vas_map *spare = kzalloc(sizeof(*spare), GFP_KERNEL);

	mutex_lock(&vas->lock);
	unmap_locked(vas, va, length, spare);
	mutex_unlock(&vas->lock);
	if (spare && !spare->memory)
		kfree(spare);
}
EXPORT_SYMBOL_GPL(sim_vas_unmap);

u64 sim_vas_reserve(struct sim_vas *vas, u64 length, u64 align)
{
	u64 va;

	mutex_lock(&vas->lock);
	va = ALIGN(vas->next, align);
	vas->next = va + ALIGN(length, align);
	mutex_unlock(&vas->lock);
	return va;
}

static int access_vas(struct sim_vas *vas, u64 va, void *buffer, size_t n, bool write)
{
	int error = 0;

	if (!vas)
		return -EFAULT;
	mutex_lock(&vas->lock);
	while (n && !error) {
		struct vas_map *map = first_map(vas, va);
		size_t part;

		if (!map || map->va > va || (write && !map->writable)) {
			error = -EFAULT;
			break;
		}
		part = min_t(u64, n, map->va + map->length - va);
		if (map->memory->touched)
			map->memory->touched(map->memory->toucher, vas->gpu, va);
		error = sim_memory_copy(map->memory, map->offset + va - map->va, buffer, part, write);
		buffer = (u8 *)buffer + part;
		va += part;
		n -= part;
	}
	mutex_unlock(&vas->lock);
	return error ? -EFAULT : 0;
}

static int vas_read(void *vas, u64 va, void *buffer, size_t n)
{
	return access_vas(vas, va, buffer, n, false);
}

static int vas_write(void *vas, u64 va, const void *buffer, size_t n)
{
	return access_vas(vas, va, (void *)buffer, n, true);
}

const struct sim_mem_ops sim_vas_ops = { .read = vas_read, .write = vas_write };
