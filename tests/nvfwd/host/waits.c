// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sys/epoll.h>

#include "helper.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { bool used; s32 handle; int fd; u64 cookie; } waits[WAITS];
static u32 count;
static int set = -1;
static void (*answer)(u64 cookie, s64 value);

/* Whoever takes a wait answers it: once. */
static bool take(u32 i, s32 handle, u64 *cookie)
{
	bool mine;

	pthread_mutex_lock(&lock);
	mine = waits[i].used && (handle < 0 || waits[i].handle == handle);
	if (mine) {
		*cookie = waits[i].cookie;
		waits[i].used = false;
		count--;
		epoll_ctl(set, EPOLL_CTL_DEL, waits[i].fd, NULL);
	}
	pthread_mutex_unlock(&lock);
	return mine;
}

int wait_begin(s32 handle, int fd, u32 events, u64 cookie)
{
	struct epoll_event wanted = { .events = (events & (EPOLLIN | EPOLLPRI | EPOLLRDNORM)) | EPOLLONESHOT };
	int error = -EBUSY;

	pthread_mutex_lock(&lock);
	for (u32 i = 0; i < WAITS && error == -EBUSY; i++) {
		if (waits[i].used)
			continue;
		wanted.data.u32 = i;
		error = epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) ? -errno : 0;
		if (error)
			break;
		waits[i].used = true;
		waits[i].handle = handle;
		waits[i].fd = fd;
		waits[i].cookie = cookie;
		count++;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

void waits_cancel(s32 handle)
{
	u64 cookie;

	for (u32 i = 0; i < WAITS; i++)
		if (take(i, handle, &cookie))
			answer(cookie, -ECANCELED);
}

u32 waits_count(void)
{
	return __atomic_load_n(&count, __ATOMIC_ACQUIRE);
}

static void *look(void *unused)
{
	struct epoll_event event;
	u64 cookie;

	(void)unused;
	for (;;)
		if (epoll_wait(set, &event, 1, -1) == 1 && take(event.data.u32, -1, &cookie))
			answer(cookie, event.events);
	return NULL;
}

int waits_start(void (*with)(u64 cookie, s64 value))
{
	pthread_t thread;

	answer = with;
	set = epoll_create1(EPOLL_CLOEXEC);
	return set < 0 || pthread_create(&thread, NULL, look, NULL) ? -1 : 0;
}
