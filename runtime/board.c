// SPDX-License-Identifier: Apache-2.0
/*
 * Asking the daemon for the boards of a device, once per context and off the launch path. Whatever goes wrong: one line, and the program runs
 * without us. Nobody waits longer than a second.
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
#include <time.h>
#include <unistd.h>

#include "gate.h"

#define PATIENCE_NS 1000000000ULL
#define PAGES 3

enum { POLICY, COUNTERS, ACTIVITY };

struct page {
	const char *name;
	uint32_t magic;
	int protection;
};

static const struct page pages[PAGES] = {
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
			snprintf(why, room, "the %s board is shorter than a page", pages[n].name);
			break;
		}
		maps[n] = mmap(NULL, DS_PAGE_BYTES, pages[n].protection, MAP_SHARED, fds[n], 0);
		if (maps[n] == MAP_FAILED) {
			snprintf(why, room, "the %s board cannot be mapped: %s", pages[n].name, strerror(errno));
			break;
		}
		head = maps[n];
		if (head->magic != pages[n].magic || head->version != DS_VERSION) {
			snprintf(why, room,
				 "the %s board has magic %#x and version %u, expected %#x and %u; use one version of DetShare for daemon and programs",
				 pages[n].name, head->magic, head->version, pages[n].magic, DS_VERSION);
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
	while (n)
		if (maps[--n] != MAP_FAILED)
			munmap(maps[n], DS_PAGE_BYTES);
	return false;
}

static void unmap(struct ds_board *board)
{
	munmap((void *)board->policy, DS_PAGE_BYTES);
	munmap(board->counters, DS_PAGE_BYTES);
	munmap(board->activity, DS_PAGE_BYTES);
	munmap(board->profiles, sizeof(*board->profiles) << DS_PROFILE_BITS);
}

/* Boards of contexts that ended, newest first; under device->lock */
static struct ds_board *left_boards[DS_MAX_DEVICES];

/*
 * Pages of earlier contexts go when nobody can look at them any more: both helpers ended, and no thread is in a launch there. The newest one is
 * spared: a thread may have read device->board and not begun its launch.
 */
static void reap(struct ds_device *device)
{
	struct ds_board **link = &left_boards[device->ordinal], *board;
	bool inside;

	if (*link)
		link = &(*link)->older;
	if (*link)
		ds_barrier();
	while ((board = *link)) {
		ds_launches(board, &inside);
		if (inside || atomic_load(&board->helpers)) {
			link = &board->older;
			continue;
		}
		*link = board->older;
		unmap(board);
	}
}

/* Asks and maps; *slot is the daemon's choice. */
static bool ask(struct ds_device *device, void **maps, unsigned int *slot, char *why, size_t room)
{
	const char *path = secure_getenv("DETSHARE_SOCKET"), *tenant = getenv("DETSHARE_TENANT");
	uint64_t end = ds_now_ns() + PATIENCE_NS;
	struct ds_attach request = {
		.magic = DS_MAGIC_ATTACH,
		.version = DS_VERSION,
		.pid = (uint32_t)getpid(),
		.sms = device->sms,
		.sm_step = device->sm_step,
	};
	struct ds_attached answer = { 0 };
	unsigned int count = 0;
	int socket, fds[PAGES];
	bool good = false;
	size_t memory = 0;

	if (!path || !*path) {
		snprintf(why, room, "DETSHARE_SOCKET is not set; start programs by detshare run");
		return false;
	}
	memcpy(request.gpu_uuid, device->uuid.bytes, sizeof(request.gpu_uuid));
	if (!real->cuDeviceTotalMem_v2(&memory, device->ordinal))
		request.memory_total = memory;
	strncpy(request.tenant, tenant ? tenant : "", sizeof(request.tenant) - 1);
	socket = call(path, end);
	if (socket < 0) {
		snprintf(why, room, "no daemon at %s: %s; is detshared running?", path, strerror(errno));
		return false;
	}
	if (!wait_for(socket, POLLOUT, end) || send(socket, &request, sizeof(request), MSG_NOSIGNAL) != (ssize_t)sizeof(request) ||
	    !wait_for(socket, POLLIN, end) || answer_of(socket, &answer, fds, &count)) {
		snprintf(why, room, "the daemon at %s did not answer as expected: %s", path, strerror(errno));
	} else if (answer.magic != DS_MAGIC_ATTACHED) {
		snprintf(why, room, "what answers at %s is no DetShare daemon", path);
	} else if (answer.version != DS_VERSION) {
		snprintf(why, room, "the daemon speaks version %u of the boards, this library %u; use one version of DetShare",
			 answer.version, DS_VERSION);
	} else if (answer.status) {
		answer.message[sizeof(answer.message) - 1] = '\0';
		snprintf(why, room, "the daemon refused: %s (%s)", answer.message, strerror(answer.status));
	} else if (count != PAGES || answer.slot >= DS_SLOTS) {
		snprintf(why, room, "the daemon sent %u descriptors and slot %u", count, answer.slot);
	} else {
		good = map_pages(fds, &device->uuid, maps, why, room);
	}
	*slot = answer.slot;
	close_all(fds, count);
	close(socket);
	return good;
}

static void leave(struct ds_board *board)
{
	/* first, so that a launch that begins now does not set them again */
	atomic_store(&board->stopping, 1);
	__atomic_store_n(&board->slot->state, DS_SLOT_LEAVING, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&board->edge);
	atomic_store(&board->active, 1); /* nobody takes the slow turn any more */
	__atomic_store_n(&board->slot->active, 0, __ATOMIC_SEQ_CST);
	ds_bits_clear(board);
	pthread_mutex_unlock(&board->edge);
	ds_upkeep(board, ds_now_ns());
	ds_wake(board);
}

/*
 * At exit: the driver may wait for what is queued behind a closed gate, and the ticker must be out of it before it ends. It is never inside for long,
 * unless the driver hangs: then the program's end shall not.
 */
static void leave_all(void)
{
	struct timespec until;
	unsigned int n;

	for (n = 0; n < DS_MAX_DEVICES; n++) {
		struct ds_board *board = ds_devices[n].board;

		if (!board)
			continue;
		leave(board);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		if (!pthread_mutex_timedlock(&board->driver, &until))
			pthread_mutex_unlock(&board->driver);
	}
}

bool ds_board_attach(struct ds_device *device)
{
	static _Atomic(bool) at_exit;
	struct ds_board *board = NULL;
	struct ds_profile *profiles;
	void *maps[PAGES];
	unsigned int slot, n;
	char why[400] = "";

	reap(device);
	if (!ask(device, maps, &slot, why, sizeof(why))) {
		ds_info("this program runs without DetShare: %s", why);
		return false;
	}
	profiles = mmap(NULL, sizeof(*profiles) << DS_PROFILE_BITS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (profiles != MAP_FAILED && !posix_memalign((void **)&board, 64, sizeof(*board))) {
		memset(board, 0, sizeof(*board));
		board->device = device;
		board->policy = maps[POLICY];
		board->counters = maps[COUNTERS];
		board->activity = maps[ACTIVITY];
		board->slot = &board->activity->slots[slot];
		board->index = slot;
		board->word = (_Atomic(uint32_t) *)&board->slot->word;
		board->plan = (const _Atomic(uint64_t) *)&board->policy->plan;
		board->profiles = profiles;
		board->generation = atomic_load(&device->generation);
		board->rck = ds_rck_wanted();
		atomic_init(&board->ahead_ns, UINT32_MAX);
		atomic_init(&board->epoch, 1); /* odd: no page ever shows it at rest */
		atomic_init(&board->awake[DS_KEEPER], 1);
		atomic_init(&board->awake[DS_TICKER], 1);
		for (n = 0; n < DS_SAMPLES; n++)
			atomic_init(&board->samples[n].state, DS_SAMPLE_NO_EVENTS);
		pthread_mutex_init(&board->edge, NULL);
		pthread_mutex_init(&board->driver, NULL);
		ds_barrier_register();
		device->board = board; /* ds_pool_wish() reads it */
		ds_policy_refresh(board);
		ds_upkeep(board, ds_now_ns());
		if (ds_keeper_start(board)) {
			if (ds_ticker_start(board)) {
				if (!atomic_exchange(&at_exit, true) && atexit(leave_all))
					ds_debug("no exit handler: gates open when the process is gone");
				ds_debug("slot %u of the boards, policy %u", slot, atomic_load(&board->epoch));
				return true;
			}
			/* the keeper ends by itself; memory that it reads stays */
			leave(board);
			device->board = NULL;
			ds_info("this program runs without DetShare: a helper thread cannot be started: %s", strerror(errno));
			return false;
		}
		device->board = NULL;
		free(board);
	}
	if (profiles != MAP_FAILED)
		munmap(profiles, sizeof(*profiles) << DS_PROFILE_BITS);
	for (n = 0; n < PAGES; n++)
		munmap(maps[n], DS_PAGE_BYTES);
	ds_info("this program runs without DetShare: no memory or no thread for its boards: %s", strerror(errno));
	return false;
}

void ds_board_detach(struct ds_device *device)
{
	struct ds_board *board = device->board;

	if (!board)
		return;
	leave(board);
	device->board = NULL;
	/* the ticker is out of the driver, and does not enter it again */
	pthread_mutex_lock(&board->driver);
	pthread_mutex_unlock(&board->driver);
	pthread_mutex_lock(&device->lock);
	board->older = left_boards[device->ordinal];
	left_boards[device->ordinal] = board;
	pthread_mutex_unlock(&device->lock);
}

void ds_board_unregister(struct ds_device *device)
{
	struct ds_board *board = left_boards[device->ordinal];

	/* 1: it could not be registered */
	if (!board || board->host_word <= 1)
		return;
	if (real->cuMemHostUnregister(board->activity))
		ds_debug("the page of words stays registered");
	board->host_word = 1;
}

/* In a forked child: the pages belong to the parent's vCtx. */
void ds_board_child(void)
{
	unsigned int n;

	ds_thread.tally = NULL;
	for (n = 0; n < DS_MAX_DEVICES; n++) {
		struct ds_board *board = ds_devices[n].board;

		if (!board)
			continue;
		ds_devices[n].board = NULL;
		unmap(board);
	}
	/* what the parent left is left */
	memset(left_boards, 0, sizeof(left_boards));
}

/* ---- for others ---- */

struct ds_tier ds_board_tier_at(struct ds_device *device, unsigned int tier)
{
	struct ds_tier none = { .kind = DS_TIER_FULL };

	if (!device->board || tier >= DS_TIERS)
		return none;
	return device->board->policy->tiers[tier];
}

void ds_board_remap(struct ds_device *device)
{
	if (device->board)
		__atomic_fetch_add(&device->board->counters->remaps, 1, __ATOMIC_RELAXED);
}

void ds_board_full_run(struct ds_device *device, unsigned int reason)
{
	if (device->board)
		__atomic_fetch_add(&device->board->counters->full_runs[reason < DS_FULL_REASONS ? reason : DS_FULL_OTHER], 1,
				   __ATOMIC_RELAXED);
}

void ds_board_pool(struct ds_device *device, uint64_t bytes, uint64_t create_ns)
{
	if (!device->board)
		return;
	__atomic_store_n(&device->board->counters->pool_bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&device->board->counters->pool_create_ns, create_ns, __ATOMIC_RELAXED);
}
