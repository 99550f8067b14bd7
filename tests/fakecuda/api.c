// SPDX-License-Identifier: Apache-2.0
/* Entry and exit of every exported function, start of the library, fork. */
#include <dlfcn.h>
#include <stdio.h>

#include "api.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
bool initialised;
__thread struct thread self;

static bool forked;

static void before_fork(void)
{
	pthread_mutex_lock(&fake_lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&fake_lock);
}

/* As the driver: what was initialised before the fork is of no use in the child. */
static void in_child(void)
{
	pthread_mutex_init(&fake_lock, NULL);
	if (!initialised)
		return;
	checkpoint_child();
	forked = true;
}

/* calls before cuInit() take the lock too */
static __attribute__((constructor)) void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

static void api_leave_how(unsigned int how)
{
	if (!(how & ENTER_UNINITIALISED))
		checkpoint_leave();
	pthread_mutex_unlock(&fake_lock);
}

CUresult api_enter(unsigned int how)
{
	pthread_mutex_lock(&fake_lock);
	if (!(how & ENTER_UNINITIALISED))
		checkpoint_enter();
	if (forked || (!initialised && !(how & ENTER_UNINITIALISED))) {
		api_leave_how(how);
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	if (self.in_callback && !(how & ENTER_IN_CALLBACK)) {
		violation("a host function or callback calls CUDA");
		api_leave_how(how);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	return CUDA_SUCCESS;
}

CUresult api_leave(unsigned int how, CUresult result)
{
	api_leave_how(how);
	return result;
}

static void load_plugins(void)
{
	const char *list = getenv("FAKECUDA_PLUGINS");
	char *copy, *rest = NULL;

	if (!list || !*list)
		return;
	copy = xdup(list);
	for (char *path = strtok_r(copy, ":", &rest); path; path = strtok_r(NULL, ":", &rest)) {
		void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		void (*enter)(void) = NULL;

		if (plugin)
			*(void **)&enter = dlsym(plugin, "fakecuda_plugin");
		if (enter)
			enter();
		else
			fprintf(stderr, "fakecuda: plugin %s: %s\n", path, dlerror());
	}
	free(copy);
}

unsigned int helpers_inside;

void take_time(const char *variable)
{
	const char *text = getenv(variable);
	long us = text ? atol(text) : 0;

	if (us <= 0)
		return;
	helpers_inside += helper_thread();
	pthread_mutex_unlock(&fake_lock);
	nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
	pthread_mutex_lock(&fake_lock);
	helpers_inside -= helper_thread();
}

EXPORT CUresult cuInit(unsigned int flags)
{
	const char *refuse = getenv("FAKECUDA_INIT");
	bool first;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	if (forked || (refuse && atoi(refuse))) {
		CUresult result = forked ? CUDA_ERROR_NOT_INITIALIZED : (CUresult)atoi(refuse);

		pthread_mutex_unlock(&fake_lock);
		return result;
	}
	first = !initialised;
	if (first) {
		initialised = true;
		report_start();
		devices_start();
		engine_start();
	}
	pthread_mutex_unlock(&fake_lock);
	if (first) {
		checkpoint_start();
		load_plugins();
	}
	return CUDA_SUCCESS;
}

API_HOW(cuDriverGetVersion, ENTER_UNINITIALISED | ENTER_IN_CALLBACK, int *, version)
{
	const char *text = getenv("FAKECUDA_VERSION");

	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = text ? atoi(text) : 13000;
	return CUDA_SUCCESS;
}
