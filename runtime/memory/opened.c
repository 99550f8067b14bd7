/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of another process: who opens a handle of share.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "alloc.h"
#include "context.h"
#include "share.h"
#include "ticket.h"

#define TRIES 3
#define TRY_NS 10000000ULL

bool ds_share_knows(const CUipcMemHandle *handle)
{
	return !memcmp(handle, ds_ticket_mark, sizeof(ds_ticket_mark));
}

/*
 * Whoever listens at the name is the handle's user, or root. The name of a program that ended is free for everybody, and what is said there is the
 * secret: so this is looked at first.
 */
static bool trusted(int socket, const struct ds_ticket *ticket)
{
	socklen_t size = sizeof(struct ucred);
	struct ucred who;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size))
		return false;
	/* root opens what any user shares, but from that user */
	return who.uid == geteuid() || who.uid == 0 || (geteuid() == 0 && who.uid == ticket->uid);
}

static int ask(const struct ds_ticket *ticket)
{
	struct timeval patience = { .tv_sec = DS_TICKET_PATIENCE_MS / 1000 };
	struct sockaddr_un address;
	socklen_t length = ds_ticket_address(&address, ticket);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) &&
	    !connect(fd, (struct sockaddr *)&address, length) && trusted(fd, ticket) &&
	    send(fd, ticket, sizeof(*ticket), MSG_NOSIGNAL) == sizeof(*ticket))
		return fd;
	close(fd);
	return -1;
}

/* The next descriptors; 0: there are none, or something is wrong. */
static unsigned int receive(int socket, int *fds)
{
	union {
		char bytes[CMSG_SPACE(DS_TICKET_BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	unsigned int count = 0;
	struct iovec vector = { .iov_base = &count, .iov_len = sizeof(count) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
	};
	uint64_t end = ds_now_ns() + DS_TICKET_PATIENCE_MS * 1000000ULL;
	struct cmsghdr *part;
	unsigned int came;
	ssize_t got;

	/* with a timeout, no signal handler of the program lets it go on by itself */
	do {
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR && ds_now_ns() < end);
	part = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
	if (!part || part->cmsg_type != SCM_RIGHTS)
		return 0;
	came = (unsigned int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(fds, CMSG_DATA(part), came * sizeof(int));
	if (got == sizeof(count) && came == count)
		return came;
	/* a limit of this process took some away, or it is none of ours who answers */
	while (came)
		close(fds[--came]);
	return 0;
}

/* The next piece of the range, from a descriptor; it is closed. */
static CUresult import(struct ds_range *range, int fd)
{
	size_t offset = range->count * DS_PIECE_BYTES, left = range->reserved - offset;
	struct ds_piece *piece;
	CUresult result;

	piece = ds_piece_import(range->device, left < DS_PIECE_BYTES ? left : DS_PIECE_BYTES, fd, &result);
	close(fd);
	if (!piece)
		return result;
	range->pieces[range->count++] = piece;
	piece->address = range->base + offset;
	piece->reached = 1ULL << range->device->ordinal;
	result = ds_piece_map(piece);
	if (result == CUDA_SUCCESS)
		piece->mappings = 1;
	return result;
}

static CUresult import_all(struct ds_range *range, int socket, unsigned int pieces)
{
	CUresult result = CUDA_SUCCESS;
	int fds[DS_TICKET_BATCH];

	while (range->count < pieces && result == CUDA_SUCCESS) {
		unsigned int came = receive(socket, fds), n;

		if (!came)
			result = CUDA_ERROR_INVALID_HANDLE;
		for (n = 0; n < came; n++) {
			if (result == CUDA_SUCCESS && range->count < pieces)
				result = import(range, fds[n]);
			else
				close(fds[n]);
		}
	}
	return result;
}

/* Once more, where the context has it already. */
static bool open_again(const struct ds_ticket *ticket, CUcontext context, CUdeviceptr *address)
{
	struct ds_range *range;
	bool opened;

	ds_range_hold();
	for (range = ds_range_next(0); range; range = ds_range_next(range->base + 1))
		if (range->opened && range->context == context && range->secret == ticket->secret && range->source == ticket->id)
			break;
	opened = range;
	if (opened) {
		range->opened++;
		*address = range->base;
	}
	ds_range_let_go();
	return opened;
}

CUresult ds_share_open(struct ds_device *device, CUcontext context, const CUipcMemHandle *handle, CUdeviceptr *address)
{
	struct ds_range *range;
	struct ds_ticket ticket;
	unsigned int pieces;
	CUresult result;
	size_t reserved;
	int socket;

	memcpy(&ticket, handle, sizeof(ticket));
	if (ticket.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (open_again(&ticket, context, address))
		return CUDA_SUCCESS;
	reserved = (ticket.size + DS_GRAIN_BYTES - 1) & ~(DS_GRAIN_BYTES - 1);
	pieces = (unsigned int)((reserved + DS_PIECE_BYTES - 1) / DS_PIECE_BYTES);
	range = reserved ? ds_range_new(pieces) : NULL;
	if (!range)
		return CUDA_ERROR_INVALID_HANDLE;
	range->size = ticket.size;
	range->reserved = reserved;
	range->device = device;
	range->context = context;
	range->opened = 1;
	range->secret = ticket.secret;
	range->source = ticket.id;
	result = real->cuMemAddressReserve(&range->base, reserved, 0, 0, 0);
	if (result != CUDA_SUCCESS) {
		free(range);
		return result;
	}
	result = CUDA_ERROR_INVALID_HANDLE;
	/* again, where that program closed what it listened on, and listens anew now */
	for (unsigned int n = 0; n < TRIES && result == CUDA_ERROR_INVALID_HANDLE && !range->count; n++) {
		if (n)
			ds_nap(TRY_NS);
		socket = ask(&ticket);
		if (socket < 0)
			continue;
		result = import_all(range, socket, pieces);
		close(socket);
	}
	ds_range_hold();
	if (result == CUDA_SUCCESS && open_again(&ticket, context, address)) {
		/* another thread was sooner */
		ds_alloc_unmake(range);
	} else if (result == CUDA_SUCCESS && ds_range_add(range)) {
		ds_share_note();
		*address = range->base;
	} else {
		result = result ? result : CUDA_ERROR_OUT_OF_MEMORY;
		ds_alloc_unmake(range);
	}
	ds_range_let_go();
	return result;
}

CUresult ds_share_close(struct ds_range *range)
{
	CUresult result = CUDA_SUCCESS;
	bool last;

	ds_range_hold();
	last = range->opened == 1;
	/* who opens it from now on opens it anew */
	if (last)
		ds_range_remove(range);
	else
		range->opened--;
	ds_range_let_go();
	if (last)
		result = ds_alloc_free(range);
	if (last && result != CUDA_SUCCESS)
		ds_range_add(range);
	return result;
}
