// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "helper.h"
#include "vhost.h"

#define PATIENCE_MS 10000

u64 shared_size = 1ull << 30;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	/* the table of places */
static struct { u64 at, length; s32 handle; bool used; } places[NVF_MAX_MAPS];
static u32 count;

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;	/* the channel */
static int channel = -1;

void shared_channel(int fd)
{
	channel = fd;
}

/* Under `asking`. QEMU says 0 or 1; why, it tells its own stderr. */
static int ask(u32 request, const void *payload, u32 size, int fd)
{
	struct vhost_header header = { request, VHOST_VERSION | VHOST_NEED_REPLY, size };
	struct { struct vhost_header header; u64 value; } __attribute__((packed)) answer;
	struct iovec parts[2] = { { &header, sizeof(header) }, { (void *)payload, size } };
	union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = size ? 2 : 1 };
	struct pollfd ready = { channel, POLLIN, 0 };

	if (channel < 0)
		return -ENOTCONN;
	if (fd >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	if (sendmsg(channel, &message, MSG_NOSIGNAL) != (ssize_t)(sizeof(header) + size))
		return -EPIPE;
	if (poll(&ready, 1, PATIENCE_MS) <= 0) {
		say("QEMU does not answer request %u", request);
		return -ETIMEDOUT;
	}
	if (recv(channel, &answer, sizeof(answer), MSG_WAITALL) != sizeof(answer))
		return -EPIPE;
	return answer.value ? -ENXIO : 0;
}

/*
 * QEMU answers before its new map of memory is in force, but serves requests one by one: the answer to any later one says that it is.
 * Unmappings need none: the guest's pages of it are gone before.
 */
static int change(u32 request, u64 fd_offset, u64 at, u64 length, int fd)
{
	struct vhost_shmem what = { .id = NVF_SHMID, .fd_offset = fd_offset, .at = at, .length = length,
				    .flags = request == VHOST_SHMEM_MAP ? VHOST_SHMEM_WRITE : 0 };
	int error;

	pthread_mutex_lock(&asking);
	error = ask(request, &what, sizeof(what), fd);
	if (!error)
		error = ask(VHOST_CONFIG_CHANGE, NULL, 0, -1);
	pthread_mutex_unlock(&asking);
	return error;
}

/* First fit; as aligned as it is long, up to 2 MiB, so that large pages can be used. Under the lock. */
static int take_place(s32 handle, u64 length)
{
	u64 align = 4096, at = 0;
	int place = -1;

	for (int i = 0; i < NVF_MAX_MAPS && place < 0; i++)
		if (!places[i].used)
			place = i;
	while (align < length && align < 2 << 20)
		align <<= 1;
	for (int i = 0; place >= 0 && i < NVF_MAX_MAPS; i++) {
		u64 end = places[i].at + places[i].length;

		if (!places[i].used || at >= end || places[i].at >= at + length)
			continue;
		/* from behind it, and all others anew */
		at = (end + align - 1) & ~(align - 1);
		i = -1;
	}
	if (place < 0)
		return -EMFILE;
	if (length > shared_size || at > shared_size - length)
		return -ENOSPC;
	places[place].at = at;
	places[place].length = length;
	places[place].handle = handle;
	places[place].used = true;
	count++;
	return place;
}

s64 shared_map(s32 handle, int fd, u64 offset, u64 length)
{
	int place, error;

	if (!length || length % 4096 || offset % 4096 || length > shared_size)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	place = take_place(handle, length);
	pthread_mutex_unlock(&lock);
	if (place < 0)
		return place;
	error = change(VHOST_SHMEM_MAP, offset, places[place].at, length, fd);
	if (!error)
		return (s64)places[place].at;
	pthread_mutex_lock(&lock);
	places[place].used = false;
	count--;
	pthread_mutex_unlock(&lock);
	return error;
}

void shared_unmap(s32 handle)
{
	for (int i = 0; i < NVF_MAX_MAPS; i++) {
		pthread_mutex_lock(&lock);
		bool mine = places[i].used && places[i].handle == handle;
		pthread_mutex_unlock(&lock);
		if (!mine)
			continue;
		if (change(VHOST_SHMEM_UNMAP, 0, places[i].at, places[i].length, -1))
			say("QEMU does not unmap %llx+%llx", (unsigned long long)places[i].at, (unsigned long long)places[i].length);
		pthread_mutex_lock(&lock);
		places[i].used = false;
		count--;
		pthread_mutex_unlock(&lock);
	}
}

u32 shared_maps(void)
{
	return __atomic_load_n(&count, __ATOMIC_ACQUIRE);
}

void shared_forget(void)
{
	pthread_mutex_lock(&lock);
	memset(places, 0, sizeof(places));
	count = 0;
	pthread_mutex_unlock(&lock);
}
