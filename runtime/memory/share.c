/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "alloc.h"
#include "context.h"
#include "lifecycle.h"
#include "log.h"
#include "settle.h"
#include "share.h"

#define POSIX_DESCRIPTOR 1
#define PATIENCE_MS 5000
#define BATCH 64 /* most descriptors in one message */
#define SEND 4 /* so many are made at a time: either side may have few left */
#define TRIES 3
#define TRY_NS 10000000ULL

/* What a handle says. The name of the socket can be read by who shares the network (/proc/net/unix), so it is not the secret. */
struct ticket {
	char mark[8];
	uint64_t secret, id, size, name;
	int32_t pid, pad;
};
_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "a ticket fits into a handle");
static const char mark[8] = "detshIPC";

/* An allocation that may be opened. It keeps no descriptors: they are made for who asks, for large ones have more pieces than a process may have files. */
struct share {
	struct share *next;
	const struct ds_range *range; /* there until ds_share_forget() */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct share *shares;
static uint64_t secret, name;
/* The program may close all descriptors that it does not know, and have others by their numbers: it is one of ours while it is the same file. */
static int listener = -1;
static bool serves;
static struct stat listened;

static bool ours(int fd)
{
	struct stat now;

	return !fstat(fd, &now) && now.st_dev == listened.st_dev && now.st_ino == listened.st_ino;
}

static socklen_t address_of(struct sockaddr_un *address, const struct ticket *ticket)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	/* an abstract name: the first byte is 0 */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "detshare-ipc-%d-%016llx", ticket->pid,
				    (unsigned long long)ticket->name));
}

/* ---- who has it ---- */

static bool send_some(int socket, const int *fds, unsigned int count)
{
	union {
		char bytes[CMSG_SPACE(BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec vector = { .iov_base = &count, .iov_len = sizeof(count) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	uint64_t end = ds_now_ns() + PATIENCE_MS * 1000000ULL;
	ssize_t sent;

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(part), fds, count * sizeof(int));
	/* more than the program may have open are under way */
	while ((sent = sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == ETOOMANYREFS && ds_now_ns() < end)
		ds_nap(1000000);
	return sent == sizeof(count);
}

static CUresult export(const struct ds_piece *piece, int *fd)
{
	return real->cuMemExportToShareableHandle(fd, piece->handle, POSIX_DESCRIPTOR, 0);
}

/* A batch of the range's pieces, from the n-th on; 0: the driver or the other side does not take part. */
static unsigned int send_batch(int socket, const struct ds_range *range, unsigned int n)
{
	unsigned int most = range->count - n < SEND ? range->count - n : SEND, count = 0;
	int fds[SEND];
	bool sent;

	while (count < most && export(range->pieces[n + count], &fds[count]) == CUDA_SUCCESS)
		count++;
	sent = count && send_some(socket, fds, count);
	for (unsigned int i = 0; i < count; i++)
		close(fds[i]);
	return sent ? count : 0;
}

/* Under the lock. */
static void send_all(int socket, const struct ds_range *range)
{
	unsigned int sent = 1;
	struct ds_own own;

	ds_own_begin(&own, range->device);
	/* the driver ends with the program */
	for (unsigned int n = 0; sent && n < range->count && !atomic_load(&ds_process.exiting); n += sent)
		sent = send_batch(socket, range, n);
	ds_own_end(&own);
}

static void answer(int socket)
{
	struct pollfd pollfd = { .fd = socket, .events = POLLIN };
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	socklen_t size = sizeof(struct ucred);
	struct share *share;
	struct ticket asked;
	struct ucred who;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) || (who.uid != geteuid() && who.uid != 0) ||
	    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) || poll(&pollfd, 1, PATIENCE_MS) != 1 ||
	    recv(socket, &asked, sizeof(asked), 0) != sizeof(asked) || asked.secret != secret)
		return;
	pthread_mutex_lock(&lock);
	for (share = shares; share && share->range->id != asked.id; share = share->next)
		;
	if (share)
		send_all(socket, share->range);
	pthread_mutex_unlock(&lock);
}

/* Under the lock, with the secret. */
static bool listens_anew(void)
{
	struct ticket ticket = { .pid = getpid(), .name = name };
	struct sockaddr_un address;
	socklen_t length = address_of(&address, &ticket);

	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (listener >= 0 && !fstat(listener, &listened) && !bind(listener, (struct sockaddr *)&address, length) && !listen(listener, 16))
		return true;
	if (listener >= 0)
		close(listener);
	listener = -1;
	return false;
}

/* The next who asks. -1: none. */
static int comes(void)
{
	int from, socket;

	pthread_mutex_lock(&lock);
	if (listener < 0 || !ours(listener))
		listens_anew();
	from = listener;
	pthread_mutex_unlock(&lock);
	/* who is in it keeps the file and its name, whatever is closed */
	socket = from < 0 ? -1 : accept4(from, NULL, NULL, SOCK_CLOEXEC);
	if (socket < 0)
		ds_nap(1000000);
	return socket;
}

static void *serve(void *data)
{
	prctl(PR_SET_NAME, "ds-ipc");
	while (1) {
		int socket = comes();

		if (socket < 0)
			continue;
		answer(socket);
		close(socket);
	}
	return data;
}

/* Under the lock. */
static bool listens(void)
{
	if (listener >= 0)
		return true;
	/* it does so for good */
	if (serves)
		return listens_anew();
	if (getrandom(&secret, sizeof(secret), 0) != sizeof(secret) || getrandom(&name, sizeof(name), 0) != sizeof(name) || !listens_anew())
		return false;
	serves = !ds_thread_start(serve, NULL);
	if (serves)
		return true;
	close(listener);
	listener = -1;
	return false;
}

/* Its pieces can be exported, and stay. */
static struct share *share_new(struct ds_range *range, CUresult *result)
{
	struct share *share = malloc(sizeof(*share));
	int fd;

	*result = share ? export(range->pieces[0], &fd) : CUDA_ERROR_OUT_OF_MEMORY;
	if (*result != CUDA_SUCCESS) {
		free(share);
		return NULL;
	}
	close(fd);
	share->range = range;
	for (unsigned int n = 0; n < range->count; n++)
		ds_piece_stay(range->pieces[n]);
	return share;
}

static _Atomic(bool) noted;

static void show(struct ds_device *device)
{
	struct ds_counters *counters = ds_counters_of(device);

	if (atomic_load(&noted) && counters)
		__atomic_store_n(&counters->shares, 1, __ATOMIC_RELAXED);
}

void ds_share_note(void)
{
	struct ds_device *device;

	atomic_store(&noted, true);
	ds_each_managed(device) show(device);
}

CUresult ds_share_name(struct ds_range *range, CUipcMemHandle *handle)
{
	struct ticket ticket = { .id = range->id, .size = range->size, .pid = getpid() };
	CUresult result = CUDA_SUCCESS;
	struct share *share;

	pthread_mutex_lock(&lock);
	if (!listens())
		result = CUDA_ERROR_NOT_SUPPORTED;
	for (share = shares; share && share->range != range; share = share->next)
		;
	if (result == CUDA_SUCCESS && !share) {
		share = share_new(range, &result);
		if (share) {
			ds_share_note();
			share->next = shares;
			shares = share;
		}
	}
	ticket.secret = secret;
	ticket.name = name;
	pthread_mutex_unlock(&lock);
	memcpy(ticket.mark, mark, sizeof(mark));
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &ticket, sizeof(ticket));
	return result;
}

void ds_share_forget(const struct ds_range *range)
{
	struct share **link, *gone;

	pthread_mutex_lock(&lock);
	for (link = &shares; *link && (*link)->range != range; link = &(*link)->next)
		;
	gone = *link;
	if (gone)
		*link = gone->next;
	pthread_mutex_unlock(&lock);
	free(gone);
}

/* ---- who opens it ---- */

bool ds_share_knows(const CUipcMemHandle *handle)
{
	return !memcmp(handle, mark, sizeof(mark));
}

static int ask(const struct ticket *ticket)
{
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct sockaddr_un address;
	socklen_t length = address_of(&address, ticket);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) &&
	    !connect(fd, (struct sockaddr *)&address, length) &&
	    send(fd, ticket, sizeof(*ticket), MSG_NOSIGNAL) == sizeof(*ticket))
		return fd;
	close(fd);
	return -1;
}

/* The next descriptors; 0: there are none, or something is wrong. */
static unsigned int receive(int socket, int *fds)
{
	union {
		char bytes[CMSG_SPACE(BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	unsigned int count = 0;
	struct iovec vector = { .iov_base = &count, .iov_len = sizeof(count) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
	};
	uint64_t end = ds_now_ns() + PATIENCE_MS * 1000000ULL;
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
	int fds[BATCH];

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
static bool open_again(const struct ticket *ticket, CUcontext context, CUdeviceptr *address)
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
	struct ticket ticket;
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

static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	shares = NULL;
	atomic_store(&noted, false);
	if (listener >= 0 && ours(listener))
		close(listener);
	listener = -1;
	serves = false;
}

/* context_ready: what was shared before the GPU had a board is told too */
static const struct ds_lifecycle life = { .context_ready = show, .child = child };
DS_LIST_ADD(ds_lifecycles, life);
