/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon.h"

static struct ds_policy *policy;
static struct ds_counters *_Atomic counters; /* of the GPU that asked last */
static struct ds_activity *_Atomic activity;
static int policy_file;
/* Each GPU's pages; one policy serves all. */
static struct {
	struct ds_counters *counters;
	struct ds_activity *activity;
	int files[2];
} boards[8];
static _Atomic(unsigned int) attached, tier_now, arenas;
static _Atomic(uint64_t) arena_most = UINT64_MAX;
static _Atomic(bool) silent;
static _Atomic(int) refused = -1;
static _Atomic(unsigned int) unheard;

static void *page(const char *name, int *file, uint32_t magic)
{
	uint32_t *words;

	*file = memfd_create(name, MFD_CLOEXEC);
	if (*file < 0 || ftruncate(*file, DS_PAGE_BYTES)) {
		perror(name);
		exit(3);
	}
	words = mmap(NULL, DS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
	words[0] = magic;
	words[1] = DS_VERSION;
	return words;
}

/* With status: a refusal, and nothing comes along. */
static void send_answer(int connection, int status, const int *given, unsigned int count)
{
	struct ds_attached answer = {.magic = DS_MAGIC_ATTACHED, .version = DS_VERSION, .status = status, .message = "the arena is full"};
	struct iovec vector = {.iov_base = &answer, .iov_len = sizeof(answer)};
	union {
		char bytes[CMSG_SPACE(3 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	struct cmsghdr *part;

	if (count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		part = CMSG_FIRSTHDR(&message);
		part->cmsg_level = SOL_SOCKET;
		part->cmsg_type = SCM_RIGHTS;
		part->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(part), given, count * sizeof(int));
	}
	if (sendmsg(connection, &message, MSG_NOSIGNAL) < 0)
		perror("sendmsg");
}

static void give_arena(int connection, const struct ds_arena *request)
{
	uint64_t most = atomic_load(&arena_most), bytes = request->bytes;
	int fd;

	if (request->magic == DS_MAGIC_SOME && bytes > most)
		bytes = most;
	if (!bytes || bytes > most) {
		send_answer(connection, ENOSPC, NULL, 0);
		return;
	}
	fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		perror("arena");
	atomic_fetch_add(&arenas, 1);
	send_answer(connection, 0, &fd, 1);
	close(fd);
}

static void board_new(unsigned int n)
{
	boards[n].counters = page("counters", &boards[n].files[0], DS_MAGIC_COUNTERS);
	boards[n].activity = page("activity", &boards[n].files[1], DS_MAGIC_ACTIVITY);
}

/* The GPU's pages are those of now. */
static void board_of(const uint8_t *uuid, int *files)
{
	static unsigned int known;
	unsigned int n = 0;

	while (n < known && memcmp(boards[n].activity->gpu_uuid, uuid, sizeof(boards[n].activity->gpu_uuid)))
		n++;
	if (n == known) {
		if (n)
			board_new(n);
		known++;
		memcpy(boards[n].activity->gpu_uuid, uuid, sizeof(boards[n].activity->gpu_uuid));
	}
	boards[n].counters->memory_used = 0; /* a context begins with nothing */
	atomic_store(&counters, boards[n].counters);
	atomic_store(&activity, boards[n].activity);
	files[0] = policy_file;
	memcpy(files + 1, boards[n].files, sizeof(boards[n].files));
}

static void *serve(void *data)
{
	int listener = (int)(intptr_t)data;

	pthread_setname_np(pthread_self(), "ds-daemon");
	while (1) {
		int connection = accept(listener, NULL, NULL);
		union {
			struct ds_attach attach;
			struct ds_arena arena;
		} given;
		struct ds_attach request;
		uint32_t taken = 0;
		ssize_t size;

		if (connection < 0)
			continue;
		size = recv(connection, &given, sizeof(given), 0);
		request = given.attach;
		if (atomic_load(&silent)) {
			/* it stays open, as those of a daemon that was stopped */
			atomic_fetch_add(&unheard, 1);
			continue;
		}
		if (size == sizeof(given.arena) && given.arena.magic == DS_MAGIC_HOST) {
			send_answer(connection, given.arena.bytes > atomic_load(&arena_most) ? ENOSPC : 0, NULL, 0);
		} else if (size == sizeof(given.arena) && (given.arena.magic == DS_MAGIC_ARENA || given.arena.magic == DS_MAGIC_SOME)) {
			give_arena(connection, &given.arena);
		} else if (size == sizeof(request) && request.gpu_uuid[15] == atomic_load(&refused)) {
			send_answer(connection, EPERM, NULL, 0);
		} else if (size == sizeof(request)) {
			int files[3];

			board_of(request.gpu_uuid, files);
			activity->slots[0].state = DS_SLOT_LIVE;
			activity->slots[0].class_ = DS_CLASS_NORMAL;
			activity->slots[0].word = 0;
			/* before the answer: the program looks at it as soon as it is through */
			atomic_fetch_add(&attached, 1);
			send_answer(connection, 0, files, 3);
			if (request.ahead && (recv(connection, &taken, sizeof(taken), 0) != sizeof(taken) || taken != DS_MAGIC_TAKEN))
				atomic_fetch_sub(&attached, 1);
		}
		close(connection);
	}
	return NULL;
}

void daemon_tier(unsigned int tier)
{
	atomic_store(&tier_now, tier);
	if (!policy)
		return;
	__atomic_store_n(&policy->plan, (uint64_t)tier | (uint64_t)tier << 8 | (uint64_t)policy->epoch << 32, __ATOMIC_SEQ_CST);
}

void daemon_start(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char path[sizeof(address.sun_path)];
	const char *folder = getenv("TMPDIR");
	pthread_t thread;

	policy = page("policy", &policy_file, DS_MAGIC_POLICY);
	board_new(0);
	atomic_store(&counters, boards[0].counters);
	atomic_store(&activity, boards[0].activity);
	policy->class_ = DS_CLASS_NORMAL;
	policy->epoch = 2;
	policy->tiers[1] = (struct ds_tier){.kind = DS_TIER_FIRST, .sms = 32};
	policy->tiers[2] = (struct ds_tier){.kind = DS_TIER_REST, .sms = 32};
	policy->tiers[3] = (struct ds_tier){.kind = DS_TIER_FIRST, .sms = 64};
	policy->tiers[4] = (struct ds_tier){.kind = DS_TIER_FIRST, .sms = 8};
	daemon_tier(atomic_load(&tier_now));
	snprintf(path, sizeof(path), "%s/boards-%d.sock", folder ? folder : "/tmp", (int)getpid());
	unlink(path);
	strcpy(address.sun_path, path);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 8)) {
		perror(path);
		exit(3);
	}
	setenv("DETSHARE_SOCKET", path, 1);
	if (getenv("DAEMON_LAZY"))
		policy->flags |= DS_FLAG_LAZY;
	pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener);
	pthread_detach(thread);
}

struct ds_policy *daemon_policy(void)
{
	return policy;
}

struct ds_counters *daemon_counters(void)
{
	return atomic_load(&counters);
}

struct ds_activity *daemon_activity(void)
{
	return atomic_load(&activity);
}

void daemon_park(bool wanted)
{
	policy->epoch++;
	policy->park = ((policy->park | DS_PARK_WANTED) + 1) | (wanted ? DS_PARK_WANTED : 0);
	__atomic_store_n(&policy->epoch, policy->epoch + 1, __ATOMIC_SEQ_CST);
}

uint32_t daemon_park_wait(void)
{
	while (__atomic_load_n(&daemon_counters()->park_ack, __ATOMIC_ACQUIRE) != policy->park)
		usleep(200);
	return daemon_counters()->park_reason;
}

void daemon_arena(uint64_t most)
{
	atomic_store(&arena_most, most);
}

void daemon_refuses(int gpu)
{
	atomic_store(&refused, gpu);
}

void daemon_silent(bool on)
{
	atomic_store(&silent, on);
}

unsigned int daemon_unheard(void)
{
	return atomic_load(&unheard);
}

unsigned int daemon_arenas(void)
{
	return atomic_load(&arenas);
}

unsigned int daemon_attached(void)
{
	return atomic_load(&attached);
}
