// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <unistd.h>

#include "helper.h"

#define CLIENTS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle handles[HANDLES];
static u32 open_count;
static struct { u32 client, device; s32 handle; bool used; } clients[CLIENTS];

s32 handle_new(enum nvf_dev dev, int fd, int event)
{
	s32 found = -EMFILE;

	pthread_mutex_lock(&lock);
	for (s32 i = 0; i < HANDLES && found < 0; i++)
		if (!handles[i].held)
			found = i;
	if (found >= 0) {
		handles[found] = (struct handle){ .dev = dev, .fd = fd, .control = -1, .held = 1, .taken = 1,
						  .memory = -1, .event = event };
		open_count++;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

struct handle *handle_get(s32 number)
{
	struct handle *found = NULL;

	pthread_mutex_lock(&lock);
	if (number >= 0 && number < HANDLES && handles[number].taken) {
		found = &handles[number];
		found->held++;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static void leave(s32 number)
{
	waits_cancel(number);
	pool_closed(number);
	shared_unmap(number);
}

void handle_put(s32 number)
{
	struct handle gone = { .held = 1 };

	pthread_mutex_lock(&lock);
	if (handles[number].held == 1) {
		gone = handles[number];
		gone.held = 0;
		open_count--;
	}
	if (gone.held) {
		handles[number].held--;
		pthread_mutex_unlock(&lock);
		return;
	}
	/* the place is free only once nothing of it is left; not before, for whoever is at work may map and wait while it is closed */
	pthread_mutex_unlock(&lock);
	leave(number);
	if (gone.fd >= 0)
		close(gone.fd);
	if (gone.event >= 0)
		close(gone.event);
	driver->closed(&gone, !handles_open());
	pthread_mutex_lock(&lock);
	handles[number].held = 0;
	pthread_mutex_unlock(&lock);
}

int handle_close(s32 number)
{
	bool mine = false;

	pthread_mutex_lock(&lock);
	if (number >= 0 && number < HANDLES && handles[number].taken) {
		handles[number].taken = 0;
		mine = true;
	}
	for (u32 i = 0; mine && i < CLIENTS; i++)
		if (clients[i].used && clients[i].handle == number)
			clients[i].used = false;
	pthread_mutex_unlock(&lock);
	if (!mine)
		return -EBADF;
	waits_cancel(number);
	handle_put(number);
	return 0;
}

u32 handles_open(void)
{
	return __atomic_load_n(&open_count, __ATOMIC_ACQUIRE);
}

void handles_forget(void)
{
	for (s32 i = 0; i < HANDLES; i++)
		if (__atomic_load_n(&handles[i].taken, __ATOMIC_ACQUIRE))
			handle_close(i);
}

static int find_client(u32 client)
{
	for (int i = 0; i < CLIENTS; i++)
		if (clients[i].used && clients[i].client == client)
			return i;
	return -1;
}

void client_made(u32 client, s32 handle)
{
	int i;

	pthread_mutex_lock(&lock);
	i = find_client(client);
	for (int k = 0; i < 0 && k < CLIENTS; k++)
		if (!clients[k].used)
			i = k;
	if (i >= 0) {
		clients[i].used = true;
		clients[i].client = client;
		clients[i].handle = handle;
		clients[i].device = 0;
	} else {
		say("more than %d clients: the guest's kernel cannot ask about %#x", CLIENTS, client);
	}
	pthread_mutex_unlock(&lock);
}

void client_freed(u32 client)
{
	int i;

	pthread_mutex_lock(&lock);
	i = find_client(client);
	if (i >= 0)
		clients[i].used = false;
	pthread_mutex_unlock(&lock);
}

s32 client_owner(u32 client)
{
	s32 handle = -ENOENT;
	int i;

	pthread_mutex_lock(&lock);
	i = find_client(client);
	if (i >= 0)
		handle = clients[i].handle;
	pthread_mutex_unlock(&lock);
	return handle;
}

void client_device(u32 client, u32 device)
{
	int i;

	pthread_mutex_lock(&lock);
	i = find_client(client);
	if (i >= 0)
		clients[i].device = device;
	pthread_mutex_unlock(&lock);
}

u32 client_has_device(u32 client)
{
	u32 device = 0;
	int i;

	pthread_mutex_lock(&lock);
	i = find_client(client);
	if (i >= 0)
		device = clients[i].device;
	pthread_mutex_unlock(&lock);
	return device;
}
