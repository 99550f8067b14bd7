// SPDX-License-Identifier: Apache-2.0
/*
 * Asking the daemon for the boards of a device, once per context and off the launch path. Whatever goes wrong: one line, and the program runs
 * without us. Nobody waits longer than a second.
 *
 * The daemon takes a millisecond or two to answer, and the driver some ninety to make a context. So the request goes ahead of the context, and
 * the answer is read when that is there. Then the daemon is told that it was taken; a connection that ends without that gives all back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "attach.h"
#include "entry.h"
#include "thread.h"

enum { POLICY, COUNTERS, ACTIVITY, PAGES };

#define PATIENCE_NS 1000000000ULL
/* the kernel gives the daemon the pages meanwhile, some 3 GB a second */
#define ARENA_PATIENCE_NS 60000000000ULL
#define LOOK_NS 20000000ULL /* whether somebody cannot wait for that */

struct page {
	const char *name;
	uint32_t magic;
	int protection;
};

static const struct page kinds[PAGES] = {
	{ "policy", DS_MAGIC_POLICY, PROT_READ },
	{ "counters", DS_MAGIC_COUNTERS, PROT_READ | PROT_WRITE },
	{ "activity", DS_MAGIC_ACTIVITY, PROT_READ | PROT_WRITE },
};

/* magic and version begin each of the three */
struct head {
	uint32_t magic, version;
};

/* Milliseconds until `end`, for poll(); 0 when it is over. */
static int left(uint64_t end)
{
	uint64_t now = ds_now_ns();

	return now < end ? (int)((end - now) / 1000000 + 1) : 0;
}

static bool wait_for(int fd, short what, uint64_t end)
{
	struct pollfd pollfd = { .fd = fd, .events = what };
	int ready;

	do {
		ready = poll(&pollfd, 1, left(end));
	} while (ready < 0 && errno == EINTR && left(end));
	if (ready == 0)
		errno = ETIMEDOUT;
	return ready > 0;
}

static int call(const char *path, uint64_t end)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	while (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		/* EAGAIN: as many as it takes wait already; there is nothing to poll for */
		if ((errno != EAGAIN && errno != EINTR) || !left(end)) {
			int error = errno == EAGAIN ? ETIMEDOUT : errno;

			close(fd);
			errno = error;
			return -1;
		}
		ds_nap(5000000);
	}
	return fd;
}

static void close_all(const int *fds, unsigned int count)
{
	while (count)
		close(fds[--count]);
}

/* The answer and the descriptors that come with it. -1 and errno: none. */
static int answer_of(int socket, struct ds_attached *answer, int *fds, unsigned int *count)
{
	union {
		char bytes[CMSG_SPACE(16 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec vector = { .iov_base = answer, .iov_len = sizeof(*answer) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *part;
	ssize_t size;

	do {
		size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	} while (size < 0 && errno == EINTR);
	*count = 0;
	if (size < 0)
		return -1;
	for (part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
		unsigned int n, some;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		some = (unsigned int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (n = 0; n < some; n++) {
			int fd;

			memcpy(&fd, CMSG_DATA(part) + n * sizeof(int), sizeof(fd));
			if (*count < PAGES)
				fds[(*count)++] = fd;
			else
				close(fd);
		}
	}
	if (size != (ssize_t)sizeof(*answer) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		close_all(fds, *count);
		*count = 0;
		errno = EPROTO;
		return -1;
	}
	return 0;
}

static void unmap_pages(void **maps, unsigned int count)
{
	while (count)
		if (maps[--count] != MAP_FAILED)
			munmap(maps[count], DS_PAGE_BYTES);
}

/* Maps the three; on failure nothing stays mapped, and the reason is in `why`. */
static bool map_pages(const int *fds, const CUuuid *uuid, void **maps, char *why, size_t room)
{
	unsigned int n;

	for (n = 0; n < PAGES; n++) {
		const struct head *head;
		struct stat stat;

		maps[n] = MAP_FAILED;
		/* a shorter file would be a SIGBUS at the first touch */
		if (fstat(fds[n], &stat) || stat.st_size < DS_PAGE_BYTES) {
			snprintf(why, room, "the %s board is shorter than a page", kinds[n].name);
			break;
		}
		maps[n] = mmap(NULL, DS_PAGE_BYTES, kinds[n].protection, MAP_SHARED, fds[n], 0);
		if (maps[n] == MAP_FAILED) {
			snprintf(why, room, "the %s board cannot be mapped: %s", kinds[n].name, strerror(errno));
			break;
		}
		head = maps[n];
		if (head->magic != kinds[n].magic || head->version != DS_VERSION) {
			snprintf(why, room,
				 "the %s board has magic %#x and version %u, expected %#x and %u; use one version of DetShare for daemon and programs",
				 kinds[n].name, head->magic, head->version, kinds[n].magic, DS_VERSION);
			n++;
			break;
		}
		if (n == ACTIVITY && memcmp(((struct ds_activity *)maps[n])->gpu_uuid, uuid->bytes, sizeof(uuid->bytes))) {
			snprintf(why, room, "the daemon gave the activity board of another GPU");
			n++;
			break;
		}
	}
	if (n == PAGES && !*why)
		return true;
	unmap_pages(maps, n);
	return false;
}

/* ---- the request ---- */

/* What went ahead of a context; socket -1: nothing. Under the lock of the device. */
struct ahead {
	int socket;
	bool vain; /* it did so in vain once: a program that tries over and over does not come and go with each time */
	struct ds_attach request;
	struct ds_pages kept; /* mapped before there was a context; policy NULL: none. Of the process of `kept_by` */
	uint32_t kept_by;
};

static struct ahead aheads[DS_MAX_DEVICES] = {
	[0 ... DS_MAX_DEVICES - 1] = { .socket = -1 },
};

static const char *socket_path(void)
{
	const char *path = secure_getenv("DETSHARE_SOCKET");

	return path && *path ? path : NULL;
}

static struct ds_attach request_of(const struct ds_gpu *gpu, uint32_t ahead)
{
	const char *tenant = getenv("DETSHARE_TENANT");
	struct ds_attach request = {
		.magic = DS_MAGIC_ATTACH,
		.version = DS_VERSION,
		.pid = (uint32_t)getpid(),
		.sms = gpu->sms,
		.sm_step = gpu->sm_step,
		.ahead = ahead,
	};
	size_t memory = 0;

	memcpy(request.gpu_uuid, gpu->uuid.bytes, sizeof(request.gpu_uuid));
	if (!real->cuDeviceTotalMem_v2(&memory, gpu->ordinal))
		request.memory_total = memory;
	strncpy(request.tenant, tenant ? tenant : "", sizeof(request.tenant) - 1);
	return request;
}

static bool say(int socket, const void *message, size_t size)
{
	return send(socket, message, size, MSG_NOSIGNAL) == (ssize_t)size;
}

void ds_pages_ask_ahead(const struct ds_gpu *gpu)
{
	struct ahead *ahead = &aheads[gpu->ordinal];
	const char *path = socket_path();

	if (!path || ahead->socket >= 0 || ahead->vain)
		return;
	ahead->socket = call(path, 0);
	if (ahead->socket < 0)
		return;
	ahead->request = request_of(gpu, 1);
	if (!say(ahead->socket, &ahead->request, sizeof(ahead->request)))
		ds_pages_ask_no_more(gpu->ordinal);
}

/* shutdown: the child of a fork may have the connection, too */
static void hang_up(int socket)
{
	shutdown(socket, SHUT_RDWR);
	close(socket);
}

void ds_pages_ask_no_more(CUdevice ordinal)
{
	struct ahead *ahead = &aheads[ordinal];

	if (ahead->socket < 0)
		return;
	/* what a child of a fork inherited is its parent's */
	if (ahead->request.pid == (uint32_t)getpid())
		hang_up(ahead->socket);
	else
		close(ahead->socket);
	ahead->socket = -1;
	ahead->vain = true;
}

/* The connection on which the daemon answered what went ahead, if it was asked for just this; else -1, and nothing is ahead any more. */
static int answered_ahead(const struct ds_gpu *gpu, uint64_t end, struct ds_attached *answer, int *fds, unsigned int *count)
{
	struct ahead *ahead = &aheads[gpu->ordinal];
	struct ds_attach request = request_of(gpu, 1);
	int socket = ahead->socket;

	if (socket < 0 || memcmp(&request, &ahead->request, sizeof(request)) || !wait_for(socket, POLLIN, end) ||
	    answer_of(socket, answer, fds, count)) {
		ds_pages_ask_no_more(gpu->ordinal);
		return -1;
	}
	ahead->socket = -1;
	return socket;
}

_Atomic(uint32_t) ds_arena_hurry;

/* Where the request yields, it is given up for who cannot wait. */
static bool awaits(int socket, uint64_t end, bool yields)
{
	while (yields && !atomic_load(&ds_arena_hurry) && ds_now_ns() + LOOK_NS < end)
		if (wait_for(socket, POLLIN, ds_now_ns() + LOOK_NS))
			return true;
	return !(yields && atomic_load(&ds_arena_hurry)) && wait_for(socket, POLLIN, end);
}

/* Sends a request now, and waits for the answer to it. -1: none, and `why` says why. */
static int answered(const void *request, size_t size, uint64_t end, bool yields, struct ds_attached *answer, int *fds, unsigned int *count,
		    char *why, size_t room)
{
	const char *path = socket_path();
	int socket;

	if (!path) {
		snprintf(why, room, "DETSHARE_SOCKET is not set; start programs by detshare run");
		return -1;
	}
	socket = call(path, end);
	if (socket < 0) {
		snprintf(why, room, "no daemon at %s: %s; is detshared running?", path, strerror(errno));
		return -1;
	}
	if (wait_for(socket, POLLOUT, end) && say(socket, request, size) && awaits(socket, end, yields) &&
	    !answer_of(socket, answer, fds, count))
		return socket;
	snprintf(why, room, "the daemon at %s did not answer as expected: %s", path, strerror(errno));
	close(socket);
	return -1;
}

/* Whether it is a daemon's of our version, and no refusal. */
static bool agrees(struct ds_attached *answer, char *why, size_t room)
{
	if (answer->magic != DS_MAGIC_ATTACHED) {
		snprintf(why, room, "what answers at %s is no DetShare daemon", socket_path());
	} else if (answer->version != DS_VERSION) {
		snprintf(why, room, "the daemon speaks version %u of the boards, this library %u; use one version of DetShare",
			 answer->version, DS_VERSION);
	} else if (answer->status) {
		answer->message[sizeof(answer->message) - 1] = '\0';
		snprintf(why, room, "the daemon refused: %s (%s)", answer->message, strerror(answer->status));
	} else {
		return true;
	}
	return false;
}

/* Maps what came with an answer, and closes the descriptors. */
static bool use(const struct ds_gpu *gpu, struct ds_attached *answer, const int *fds, unsigned int count, void **maps, char *why, size_t room)
{
	bool good = agrees(answer, why, room);

	if (good && (count != PAGES || answer->slot >= DS_SLOTS)) {
		snprintf(why, room, "the daemon sent %u descriptors and slot %u", count, answer->slot);
		good = false;
	}
	good = good && map_pages(fds, &gpu->uuid, maps, why, room);
	close_all(fds, count);
	return good;
}

static void pages_of(struct ds_pages *pages, void **maps, unsigned int slot)
{
	pages->policy = maps[POLICY];
	pages->counters = maps[COUNTERS];
	pages->activity = maps[ACTIVITY];
	pages->slot = &pages->activity->slots[slot];
	pages->index = slot;
}

bool ds_pages_early(const struct ds_gpu *gpu, struct ds_pages *pages)
{
	struct ahead *ahead = &aheads[gpu->ordinal];
	struct ds_attached answer = { 0 };
	const uint32_t taken = DS_MAGIC_TAKEN;
	unsigned int count = 0;
	int socket, fds[PAGES];
	void *maps[PAGES];
	char why[400] = "";
	bool good;

	if (ahead->kept.policy && ahead->kept_by == (uint32_t)getpid()) {
		*pages = ahead->kept;
		return true;
	}
	socket = answered_ahead(gpu, ds_now_ns() + PATIENCE_NS, &answer, fds, &count);
	if (socket < 0)
		return false;
	good = use(gpu, &answer, fds, count, maps, why, sizeof(why));
	/* who waits for nothing keeps no place: the daemon takes it back with the connection */
	if (good && (!((struct ds_policy *)maps[POLICY])->room_ms || !say(socket, &taken, sizeof(taken)))) {
		unmap_pages(maps, PAGES);
		good = false;
	}
	hang_up(socket);
	if (!good) {
		ahead->vain = true;
		return false;
	}
	pages_of(&ahead->kept, maps, answer.slot);
	ahead->kept_by = (uint32_t)getpid();
	*pages = ahead->kept;
	return true;
}

bool ds_pages_ask(const struct ds_gpu *gpu, struct ds_pages *pages, char *why, size_t room)
{
	struct ahead *ahead = &aheads[gpu->ordinal];
	uint64_t end = ds_now_ns() + PATIENCE_NS;
	const uint32_t taken = DS_MAGIC_TAKEN;
	struct ds_attached answer = { 0 };
	struct ds_attach request;
	int socket, fds[PAGES];
	unsigned int count = 0;
	void *maps[PAGES];
	bool good, gone;

	if (ahead->kept.policy && ahead->kept_by == (uint32_t)getpid()) {
		*pages = ahead->kept;
		ahead->kept.policy = NULL;
		return true;
	}
	socket = answered_ahead(gpu, end, &answer, fds, &count);
	if (socket >= 0) {
		good = use(gpu, &answer, fds, count, maps, why, room);
		/* The pages are mapped: a daemon that hears it and ends finds them here. One that does not has given them to nobody. */
		gone = good && !say(socket, &taken, sizeof(taken));
		hang_up(socket);
		if (!gone)
			goto out;
		unmap_pages(maps, PAGES);
	}
	request = request_of(gpu, 0);
	socket = answered(&request, sizeof(request), end, false, &answer, fds, &count, why, room);
	if (socket < 0)
		return false;
	good = use(gpu, &answer, fds, count, maps, why, room);
	close(socket);
out:
	if (good)
		pages_of(pages, maps, answer.slot);
	return good;
}

bool ds_host_ask(const CUuuid *uuid, uint64_t bytes, char *why, size_t room)
{
	struct ds_arena request = { .magic = DS_MAGIC_HOST, .version = DS_VERSION, .bytes = bytes };
	struct ds_attached answer = { 0 };
	unsigned int count = 0;
	int socket, fds[PAGES];
	bool given;

	memcpy(request.gpu_uuid, uuid->bytes, sizeof(request.gpu_uuid));
	socket = answered(&request, sizeof(request), ds_now_ns() + ARENA_PATIENCE_NS, true, &answer, fds, &count, why, room);
	if (socket < 0)
		return false;
	given = agrees(&answer, why, room);
	close_all(fds, count);
	close(socket);
	return given;
}

static int arena_of(const CUuuid *uuid, uint32_t magic, uint64_t *bytes, char *why, size_t room)
{
	struct ds_arena request = { .magic = magic, .version = DS_VERSION, .bytes = *bytes };
	uint64_t least = magic == DS_MAGIC_SOME ? 1 : *bytes;
	struct ds_attached answer = { 0 };
	int socket, fds[PAGES], arena = -1;
	unsigned int count = 0;
	struct stat stat;

	memcpy(request.gpu_uuid, uuid->bytes, sizeof(request.gpu_uuid));
	socket = answered(&request, sizeof(request), ds_now_ns() + ARENA_PATIENCE_NS, true, &answer, fds, &count, why, room);
	if (socket < 0)
		return -1;
	if (agrees(&answer, why, room)) {
		if (count != 1 || fstat(fds[0], &stat) || (uint64_t)stat.st_size < least)
			snprintf(why, room, "the daemon sent %u descriptors, or less memory than was asked for", count);
		else
			arena = fds[--count];
	}
	if (arena >= 0 && magic == DS_MAGIC_SOME && (uint64_t)stat.st_size < *bytes)
		*bytes = (uint64_t)stat.st_size;
	close_all(fds, count);
	close(socket);
	return arena;
}

int ds_arena_ask(const CUuuid *uuid, uint64_t bytes, char *why, size_t room)
{
	return arena_of(uuid, DS_MAGIC_ARENA, &bytes, why, room);
}

int ds_arena_ask_some(const CUuuid *uuid, uint64_t *bytes, char *why, size_t room)
{
	return arena_of(uuid, DS_MAGIC_SOME, bytes, why, room);
}
