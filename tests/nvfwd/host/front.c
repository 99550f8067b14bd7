// SPDX-License-Identifier: Apache-2.0
/* What QEMU says: where the guest's memory and the ring lie, and that the device begins or ends. */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "helper.h"
#include "vhost.h"

#define FDS 8
#define PAYLOAD 4096

struct message {
	struct vhost_header header;
	_Alignas(8) u8 payload[PAYLOAD];
	int fds[FDS];
	u32 fd_count;
};

static bool receive(int connection, struct message *m)
{
	union { struct cmsghdr head; char room[CMSG_SPACE(FDS * sizeof(int))]; } control;
	struct iovec part = { &m->header, sizeof(m->header) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
				  .msg_controllen = sizeof(control.room) };

	m->fd_count = 0;
	memset(m->payload, 0, sizeof(m->payload));
	if (recvmsg(connection, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof(m->header))
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		m->fd_count = (u32)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(m->fds, CMSG_DATA(c), m->fd_count * sizeof(int));
	}
	if (m->header.size > PAYLOAD)
		return false;
	return !m->header.size || recv(connection, m->payload, m->header.size, MSG_WAITALL) == (ssize_t)m->header.size;
}

static void reply(int connection, u32 request, const void *payload, u32 size)
{
	struct vhost_header header = { request, VHOST_VERSION | VHOST_REPLY, size };
	struct iovec parts[2] = { { &header, sizeof(header) }, { (void *)payload, size } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (sendmsg(connection, &message, MSG_NOSIGNAL) != (ssize_t)(sizeof(header) + size))
		say("QEMU takes no answer to %u: %m", request);
}

/* A descriptor of the message, which becomes the caller's. */
static int take_fd(struct message *m, u32 index)
{
	int fd = index < m->fd_count ? m->fds[index] : -1;

	if (fd >= 0)
		m->fds[index] = -1;
	return fd;
}

static void add_region(struct message *m, u32 at, u32 index)
{
	struct vhost_region region;
	int fd = take_fd(m, index);

	if (fd < 0)
		return;
	memcpy(&region, m->payload + at, sizeof(region));
	memory_add(region.gpa, region.size, region.user, region.offset, fd);
}

static void table(struct message *m)
{
	u32 count = nvf_get32(m->payload, 0);

	for (u32 i = 0; i < count && i < FDS && 8 + (i + 1) * sizeof(struct vhost_region) <= m->header.size; i++)
		add_region(m, 8 + i * (u32)sizeof(struct vhost_region), i);
}

/* The device was reset: nothing of the guest's is left, and QEMU has dropped what was mapped by itself. */
static u32 ended(void)
{
	u32 next = ring_stop();

	serve_forget();
	return next;
}

/* Those that are always answered. */
static bool answered(int connection, struct message *m)
{
	struct { u32 count, pad; u64 size[256]; } regions = { .count = 1, .size = { shared_size } };
	struct { u32 index, num; } state = { nvf_get32(m->payload, 0), 0 };
	u64 number;

	switch (m->header.request) {
	case VHOST_GET_FEATURES:
		number = VHOST_FEATURES;
		break;
	case VHOST_GET_PROTOCOL_FEATURES:
		number = VHOST_PROTOCOL;
		break;
	case VHOST_GET_QUEUE_NUM:
		number = 1;
		break;
	case VHOST_GET_MAX_MEM_SLOTS:
		number = VHOST_SLOTS;
		break;
	case VHOST_GET_CONFIG:
		reply(connection, m->header.request, m->payload, m->header.size);
		return true;
	case VHOST_GET_SHMEM_CONFIG:
		reply(connection, m->header.request, &regions, sizeof(regions));
		return true;
	case VHOST_GET_VRING_BASE:
		state.num = ended();
		reply(connection, m->header.request, &state, sizeof(state));
		return true;
	default:
		return false;
	}
	reply(connection, m->header.request, &number, sizeof(number));
	return true;
}

static u64 act(struct message *m)
{
	switch (m->header.request) {
	case VHOST_SET_MEM_TABLE:
		table(m);
		return 0;
	case VHOST_ADD_MEM_REG:
		add_region(m, 8, 0);
		return 0;
	case VHOST_SET_BACKEND_FD:
		shared_channel(take_fd(m, 0));
		return 0;
	case VHOST_SET_VRING_NUM:
		ring_size(nvf_get32(m->payload, 4));
		return 0;
	case VHOST_SET_VRING_BASE:
		ring_base(nvf_get32(m->payload, 4));
		return 0;
	case VHOST_SET_VRING_ADDR:
		/* index, flags; then where descriptors, used and available ones lie */
		return ring_at(nvf_get64(m->payload, 8), nvf_get64(m->payload, 16), nvf_get64(m->payload, 24)) ? 1 : 0;
	case VHOST_SET_VRING_KICK:
		memory_settled();
		ring_kick(take_fd(m, 0));
		return 0;
	case VHOST_SET_VRING_CALL:
		ring_call(take_fd(m, 0));
		return 0;
	}
	return 0;
}

int front_talk(int connection)
{
	struct message *m = &(struct message){ 0 };

	while (receive(connection, m)) {
		if (!answered(connection, m)) {
			u64 result = act(m);

			if (m->header.flags & VHOST_NEED_REPLY)
				reply(connection, m->header.request, &result, sizeof(result));
		}
		for (u32 i = 0; i < m->fd_count; i++)
			if (m->fds[i] >= 0)
				close(m->fds[i]);
	}
	ended();
	memory_forget();
	return 0;
}
