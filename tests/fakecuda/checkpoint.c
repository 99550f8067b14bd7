// SPDX-License-Identifier: Apache-2.0
/*
 * cuCheckpointProcess*: another process, or this one, locked, its device memory taken into host memory, brought back, unlocked. With
 * FAKECUDA_CHECKPOINTS set each process serves them on an abstract socket; without, the driver has no such thing (801), as before 570.
 *
 * States and errors are those of the driver's reference. A locked process's calls wait, whichever thread makes them; those that need no cuInit
 * do not. Nothing is locked while a call is inside or work runs. What no recording confirms stands in README.md.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "api.h"

enum { GET_STATE, LOCK, CHECKPOINT, RESTORE, UNLOCK };

struct order {
	int what;
	unsigned int timeout_ms;
	unsigned int count;
	CUcheckpointGpuPair pairs[MAX_DEVICES];
};

struct answer {
	CUresult result;
	CUprocessState state;
};

/* bytes of a device's arena, taken away */
struct saved {
	int ordinal;
	off_t at;
	size_t size;
	char *bytes;
	struct saved *next;
};

static pthread_cond_t thaw = PTHREAD_COND_INITIALIZER;
static bool frozen;
static unsigned int inside;
static CUprocessState state;
static struct saved *taken;
static size_t held[MAX_DEVICES];

void checkpoint_enter(void)
{
	while (frozen)
		pthread_cond_wait(&thaw, &fake_lock);
	inside++;
}

void checkpoint_leave(void)
{
	inside--;
}

void checkpoint_child(void)
{
	frozen = false;
	inside = 0;
	state = CU_PROCESS_STATE_RUNNING;
}

static uint64_t ms_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void set_frozen(bool on)
{
	frozen = on;
	if (!on)
		pthread_cond_broadcast(&thaw);
}

static CUresult lock_all(unsigned int timeout_ms)
{
	uint64_t end = ms_now() + timeout_ms;

	if (state != CU_PROCESS_STATE_RUNNING)
		return CUDA_ERROR_ILLEGAL_STATE;
	set_frozen(true);
	while (inside || !idle_all(NULL)) {
		if (timeout_ms && ms_now() >= end) {
			set_frozen(false);
			return CUDA_ERROR_NOT_READY;
		}
		pthread_mutex_unlock(&fake_lock);
		usleep(500);
		pthread_mutex_lock(&fake_lock);
	}
	state = CU_PROCESS_STATE_LOCKED;
	return CUDA_SUCCESS;
}

/* All that is written in the arena, and the arena is empty. */
static void take(struct device *device)
{
	off_t at = 0, end;

	while ((at = lseek(device->arena_fd, at, SEEK_DATA)) >= 0) {
		struct saved *saved = xalloc(sizeof(*saved));

		end = lseek(device->arena_fd, at, SEEK_HOLE);
		saved->ordinal = device->ordinal;
		saved->at = at;
		saved->size = (size_t)(end - at);
		saved->bytes = xalloc(saved->size);
		memcpy(saved->bytes, device->arena + at, saved->size);
		saved->next = taken;
		taken = saved;
		at = end;
	}
	fallocate(device->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(2 * device->memory));
	held[device->ordinal] = device->used;
	memory_give(device, device->used);
}

static bool refused(void)
{
	const char *refuse = getenv("FAKECUDA_CHECKPOINT_REFUSE");

	return (refuse && access(refuse, F_OK) == 0) || memory_shared() || vmm_imported();
}

static CUresult checkpoint(void)
{
	if (state != CU_PROCESS_STATE_LOCKED)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (refused())
		return CUDA_ERROR_NOT_SUPPORTED;
	take_time("FAKECUDA_CHECKPOINT_US");
	for (int i = 0; i < device_count; i++)
		take(&devices[i]);
	state = CU_PROCESS_STATE_CHECKPOINTED;
	return CUDA_SUCCESS;
}

/* The GPU that each device is afterwards: every one of them is named, once, before and after. */
static bool places(const struct order *order, int *place)
{
	unsigned int named = 0;

	for (int i = 0; i < device_count; i++)
		place[i] = devices[i].place;
	for (unsigned int n = 0; n < order->count; n++) {
		int old = order->pairs[n].oldUuid.bytes[15], new = order->pairs[n].newUuid.bytes[15];

		if (new < 0 || new >= device_count || named & 1U << new)
			return false;
		named |= 1U << new;
		for (int i = 0; i < device_count; i++)
			if (devices[i].place == old)
				place[i] = new;
	}
	return !order->count || named == (1U << device_count) - 1;
}

static CUresult restore(const struct order *order)
{
	int place[MAX_DEVICES], before[MAX_DEVICES];
	const char *keep = getenv("FAKECUDA_CHECKPOINT_RESERVATIONS");
	struct saved *next;
	int i;

	if (state != CU_PROCESS_STATE_CHECKPOINTED)
		return CUDA_ERROR_ILLEGAL_STATE;
	/* measured on an H100, driver 580.159.04: checkpointed, and lost (park-deep) */
	if (vmm_on_host())
		return CUDA_ERROR_UNKNOWN;
	if (!places(order, place))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < device_count; i++) {
		before[i] = devices[i].place;
		devices[i].place = place[i];
	}
	for (i = 0; i < device_count; i++)
		if (!memory_take(&devices[i], held[i]))
			break;
	if (i < device_count) {
		while (i--)
			memory_give(&devices[i], held[i]);
		for (i = 0; i < device_count; i++)
			devices[i].place = before[i];
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	take_time("FAKECUDA_CHECKPOINT_US");
	for (; taken; taken = next) {
		next = taken->next;
		memcpy(devices[taken->ordinal].arena + taken->at, taken->bytes, taken->size);
		free(taken->bytes);
		free(taken);
	}
	if (keep && !strcmp(keep, "0"))
		vmm_forget_empty();
	state = CU_PROCESS_STATE_LOCKED;
	return CUDA_SUCCESS;
}

static CUresult unlock_all(void)
{
	if (state != CU_PROCESS_STATE_LOCKED)
		return CUDA_ERROR_ILLEGAL_STATE;
	state = CU_PROCESS_STATE_RUNNING;
	set_frozen(false);
	return CUDA_SUCCESS;
}

static CUresult obey(const struct order *order)
{
	switch (order->what) {
	case LOCK:
		return lock_all(order->timeout_ms);
	case CHECKPOINT:
		return checkpoint();
	case RESTORE:
		return restore(order);
	case UNLOCK:
		return unlock_all();
	}
	return CUDA_SUCCESS;
}

/* ---- between processes ---- */

static socklen_t name_of(struct sockaddr_un *address, int pid)
{
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "fakecuda-checkpoint-%d", pid));
}

static void *serve(void *arg)
{
	int listener = (int)(intptr_t)arg;

	while (1) {
		int link = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		struct answer answer;
		struct order order;

		if (link < 0)
			continue;
		if (recv(link, &order, sizeof(order), 0) == sizeof(order)) {
			pthread_mutex_lock(&fake_lock);
			answer.result = obey(&order);
			answer.state = state;
			pthread_mutex_unlock(&fake_lock);
			send(link, &answer, sizeof(answer), MSG_NOSIGNAL);
		}
		close(link);
	}
	return NULL;
}

void checkpoint_start(void)
{
	struct sockaddr_un address;
	socklen_t length = name_of(&address, getpid());
	pthread_t thread;
	int listener;

	if (!getenv("FAKECUDA_CHECKPOINTS"))
		return;
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 8) ||
	    pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener)) {
		perror("fakecuda: checkpoints");
		abort();
	}
	pthread_setname_np(thread, "fakecuda-cp");
	pthread_detach(thread);
}

/* Without fake_lock: it takes long, and may be about this process. */
static CUresult tell(int pid, struct order order, CUprocessState *there)
{
	struct sockaddr_un address;
	socklen_t length = name_of(&address, pid);
	struct answer answer;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	int link;

	if (!getenv("FAKECUDA_CHECKPOINTS"))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (!connect(link, (struct sockaddr *)&address, length) &&
	    send(link, &order, sizeof(order), MSG_NOSIGNAL) == sizeof(order) &&
	    recv(link, &answer, sizeof(answer), 0) == sizeof(answer)) {
		result = answer.result;
		if (there)
			*there = answer.state;
	}
	close(link);
	return result;
}

static CUresult ask(int pid, int what, unsigned int timeout_ms, CUprocessState *there)
{
	return tell(pid, (struct order){ .what = what, .timeout_ms = timeout_ms }, there);
}

EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *there)
{
	return there ? ask(pid, GET_STATE, 0, there) : CUDA_ERROR_INVALID_VALUE;
}

static bool clean(const void *bytes, size_t size)
{
	const char *at = bytes;

	while (size--)
		if (*at++)
			return false;
	return true;
}

EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	if (args && (args->reserved0 || !clean(args->reserved1, sizeof(args->reserved1))))
		return CUDA_ERROR_INVALID_VALUE;
	return ask(pid, LOCK, args ? args->timeoutMs : 0, NULL);
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	return args && !clean(args, sizeof(*args)) ? CUDA_ERROR_INVALID_VALUE : ask(pid, CHECKPOINT, 0, NULL);
}

EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	struct order order = { .what = RESTORE };

	if (getenv("CUDA_VISIBLE_DEVICES") || (args && !clean(args->reserved, sizeof(args->reserved))))
		return CUDA_ERROR_INVALID_VALUE;
	if (args && args->gpuPairsCount > MAX_DEVICES)
		return CUDA_ERROR_INVALID_VALUE;
	if (args && args->gpuPairsCount) {
		order.count = args->gpuPairsCount;
		memcpy(order.pairs, args->gpuPairs, order.count * sizeof(*order.pairs));
	}
	return tell(pid, order, NULL);
}

EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	return args && !clean(args, sizeof(*args)) ? CUDA_ERROR_INVALID_VALUE : ask(pid, UNLOCK, 0, NULL);
}
