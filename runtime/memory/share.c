/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "context.h"
#include "lifecycle.h"
#include "settle.h"
#include "share.h"
#include "ticket.h"

#define POSIX_DESCRIPTOR 1
#define SEND 4 /* so many are made at a time: either side may have few left */

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

static bool send_some(int socket, const int *fds, unsigned int count)
{
	union {
		char bytes[CMSG_SPACE(DS_TICKET_BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec vector = { .iov_base = &count, .iov_len = sizeof(count) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	uint64_t end = ds_now_ns() + DS_TICKET_PATIENCE_MS * 1000000ULL;
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
	struct timeval patience = { .tv_sec = DS_TICKET_PATIENCE_MS / 1000 };
	socklen_t size = sizeof(struct ucred);
	struct share *share;
	struct ds_ticket asked;
	struct ucred who;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) || (who.uid != geteuid() && who.uid != 0) ||
	    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) || poll(&pollfd, 1, DS_TICKET_PATIENCE_MS) != 1 ||
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
	struct ds_ticket ticket = { .pid = getpid(), .name = name };
	struct sockaddr_un address;
	socklen_t length = ds_ticket_address(&address, &ticket);

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
	struct ds_ticket ticket = { .id = range->id, .size = range->size, .pid = getpid(), .uid = geteuid() };
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
	memcpy(ticket.mark, ds_ticket_mark, sizeof(ticket.mark));
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
