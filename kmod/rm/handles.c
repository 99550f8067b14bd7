// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "handles.h"

#define MIN_BITS 4

static u32 home(const struct rm_client *client, u32 handle)
{
	u64 x = (u64)(handle ^ (u32)(client->hash_key >> 32)) * 0x9e3779b97f4a7c15ULL;

	/* a single product would put handles that count up into few long runs */
	x ^= x >> 29;
	return (u32)((x * client->hash_key) >> (64 - client->hash_bits));
}

static u32 mask(const struct rm_client *client)
{
	return (1U << client->hash_bits) - 1;
}

static void put(struct rm_client *client, u32 handle, u32 index)
{
	u32 at = home(client, handle);

	while (client->slots[at].index)
		at = (at + 1) & mask(client);
	client->slots[at].handle = handle;
	client->slots[at].index = index;
}

static int resize(struct rm_client *client, u32 bits)
{
	struct rm_slot *old = client->slots;
	u32 n = old ? 1U << client->hash_bits : 0, i;
	struct rm_slot *slots = rm_zalloc(sizeof(*slots) << bits);

	if (!slots)
		return -ENOMEM;
	client->slots = slots;
	client->hash_bits = bits;
	for (i = 0; i < n; i++)
		if (old[i].index)
			put(client, old[i].handle, old[i].index);
	rm_mfree(old);
	return 0;
}

int rm_handles_init(struct rm_client *client)
{
	client->slots = NULL;
	client->hash_key = rm_random64() | 1;
	return resize(client, MIN_BITS);
}

void rm_handles_destroy(struct rm_client *client)
{
	rm_mfree(client->slots);
	client->slots = NULL;
}

int rm_handles_reserve(struct rm_client *client, u32 n)
{
	u32 bits = client->hash_bits;

	while (n > (3U << bits) / 4)
		bits++;
	return bits == client->hash_bits ? 0 : resize(client, bits);
}

u32 rm_handles_find(const struct rm_client *client, u32 handle)
{
	u32 at = home(client, handle);
	const struct rm_slot *slot = &client->slots[at];

	while (slot->index) {
		if (slot->handle == handle)
			return slot->index;
		at = (at + 1) & mask(client);
		slot = &client->slots[at];
	}
	return 0;
}

void rm_handles_insert(struct rm_client *client, u32 handle, u32 index)
{
	put(client, handle, index);
}

void rm_handles_remove(struct rm_client *client, u32 handle)
{
	u32 at = home(client, handle), next, m = mask(client);

	while (client->slots[at].index && client->slots[at].handle != handle)
		at = (at + 1) & m;
	if (RM_BUG(!client->slots[at].index))
		return;
	/* close the gap: pull back each follower whose home is not behind it */
	for (next = (at + 1) & m; client->slots[next].index; next = (next + 1) & m) {
		u32 from_home = (next - home(client, client->slots[next].handle)) & m;

		if (from_home < ((next - at) & m))
			continue;
		client->slots[at] = client->slots[next];
		at = next;
	}
	client->slots[at].index = 0;
}
