/* SPDX-License-Identifier: Apache-2.0 */
/* What daemons and their like do to their process, after they called CUDA, and what strangers do who share its network: `daemonly CASE`, with DETSHARE_PARK=1. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "outside.h"
#include "parked.h"

enum { OTHERS = 12 };
#define FILLED (8 * MIB)

static int to_child[2], to_parent[2];
static suseconds_t beats; /* the opener has a signal each so many microseconds, and its parent stands still meanwhile; 0: none */

static void beat(int number)
{
	(void)number;
}

static void begin_beats(void)
{
	struct itimerval timer = {{0, beats}, {0, beats}};
	struct sigaction action = {.sa_handler = beat, .sa_flags = SA_RESTART};

	EXPECT(!sigaction(SIGALRM, &action, NULL) && !setitimer(ITIMER_REAL, &timer, NULL));
}

static void parent_stands_still(void)
{
	pid_t parent = getppid();

	if (!fork()) {
		usleep(400000);
		_exit(kill(parent, SIGCONT));
	}
	EXPECT(!kill(parent, SIGSTOP));
	usleep(100000); /* until all its threads do */
}

/* The process that opens what it is told, and reads it. It begins before there is a context. */
static pid_t opener(void)
{
	CUipcMemHandle handle;
	CUdeviceptr at;
	pid_t child;

	EXPECT(!pipe(to_child) && !pipe(to_parent));
	child = fork();
	if (child)
		return child;
	close(to_child[1]);
	client_start(0);
	settled();
	while (read(to_child[0], &handle, sizeof(handle)) == sizeof(handle)) {
		if (beats) {
			parent_stands_still();
			begin_beats();
		}
		CHECK(cuIpcOpenMemHandle_v2(&at, handle, 1));
		EXPECT(filled(at, FILLED, 7));
		CHECK(cuIpcCloseMemHandle(at));
		EXPECT(write(to_parent[1], "x", 1) == 1);
	}
	_exit(0);
}

static void opened(const CUipcMemHandle *handle)
{
	char byte;

	close(to_parent[1]);
	EXPECT(write(to_child[1], handle, sizeof(*handle)) == sizeof(*handle));
	EXPECT(read(to_parent[0], &byte, 1) == 1);
}

static void ended(pid_t child)
{
	int status;

	close(to_child[1]);
	EXPECT(waitpid(child, &status, 0) == child && !status);
}

static bool is_librarys(int fd)
{
	struct sockaddr_un name = {0};
	socklen_t length = sizeof(name);
	char path[64], is[PATH_MAX] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, is, sizeof(is) - 1) > 0 && getenv("DETSHARE_LOG_FILE") && !strcmp(is, getenv("DETSHARE_LOG_FILE")))
		return true;
	return !getsockname(fd, (struct sockaddr *)&name, &length) && !strncmp(name.sun_path + 1, "detshare-ipc", 12);
}

/* As programs do that close what they do not know. The stand-ins for the driver and for the daemon are in this process only here. How many were closed. */
static unsigned int close_unknown(void)
{
	unsigned int count = 0;

	for (int fd = 3; fd < 1024; fd++)
		if (is_librarys(fd))
			count += !close(fd);
	return count;
}

static int socket_of(unsigned int n, bool listens)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "daemonly-%d-%u", (int)getpid(), n);
	EXPECT(!(listens ? bind : connect)(fd, (void *)&address, sizeof(address)));
	EXPECT(!listens || !listen(fd, 4));
	return fd;
}

/* Whoever comes to a socket of the program is the program's guest. */
static void guest(int listener, unsigned int n)
{
	int comes = socket_of(n, false), got;
	struct pollfd wait = {.fd = comes, .events = POLLIN};

	EXPECT(write(comes, "x", 1) == 1);
	for (unsigned int n = 0; n < 2000; n++) {
		EXPECT(poll(&wait, 1, 0) == 0);
		sched_yield();
	}
	got = accept(listener, NULL, NULL);
	EXPECT(got >= 0 && !close(got) && !close(comes));
}

/* It closes all descriptors after it named memory, and listens by itself: nobody takes its guests or its files, and the memory is opened still. */
static void closes(void)
{
	int listeners[OTHERS], status;
	CUipcMemHandle handle;
	pid_t child, forked;
	CUdeviceptr at;

	child = opener();
	client_start(0);
	settled();
	CHECK(cuMemAlloc_v2(&at, FILLED));
	fill(at, FILLED, 7);
	CHECK(cuIpcGetMemHandle(&handle, at));
	EXPECT(close_unknown());
	for (unsigned int n = 0; n < OTHERS; n++)
		listeners[n] = socket_of(n, true);
	for (unsigned int round = 0; round < 3; round++) {
		opened(&handle);
		for (unsigned int n = 0; n < OTHERS; n++)
			guest(listeners[n], n);
	}
	forked = fork();
	for (unsigned int n = 0; !forked && n < OTHERS; n++)
		if (fcntl(listeners[n], F_GETFD) < 0)
			_exit(1);
	if (!forked)
		_exit(0);
	EXPECT(waitpid(forked, &status, 0) == forked && !status);
	ended(child);
	CHECK(cuMemFree_v2(at));
}

/* It may have few files more than it has. */
static void few(void)
{
	pid_t child = opener();
	CUipcMemHandle handle;
	struct rlimit files;
	CUdeviceptr at;

	client_start(0);
	CHECK(cuMemAlloc_v2(&at, 1024 * MIB));
	fill(at, FILLED, 7);
	CHECK(cuIpcGetMemHandle(&handle, at));
	files.rlim_cur = files.rlim_max = (rlim_t)dup(0) + 8;
	EXPECT(!setrlimit(RLIMIT_NOFILE, &files));
	opened(&handle);
	ended(child);
}

/* The one who opens has signals all the while. */
static void signals(void)
{
	CUipcMemHandle handle;
	CUdeviceptr at;
	pid_t child;

	beats = 200;
	child = opener();
	client_start(0);
	CHECK(cuMemAlloc_v2(&at, FILLED));
	fill(at, FILLED, 7);
	CHECK(cuIpcGetMemHandle(&handle, at));
	opened(&handle);
	ended(child);
}

/* What a handle says, as far as strangers have it. */
struct ticket {
	char mark[8];
	uint64_t secret, id, size, name;
	int32_t pid;
};

static socklen_t address_of(struct sockaddr_un *address, int pid, uint64_t name)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "detshare-ipc-%d-%016llx", pid,
				    (unsigned long long)name));
}

/* What this process answers to who says that at its socket. */
static ssize_t said(uint64_t name, const void *message, size_t size)
{
	struct timeval patience = {.tv_sec = 20};
	struct sockaddr_un address;
	socklen_t length = address_of(&address, getpid(), name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	unsigned int count;
	ssize_t got;

	EXPECT(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	EXPECT(!connect(fd, (void *)&address, length) && send(fd, message, size, 0) == (ssize_t)size);
	got = recv(fd, &count, sizeof(count), 0);
	EXPECT(got >= 0 && !close(fd));
	return got;
}

/* Who shares its network sees its sockets' names in /proc/net/unix, and guesses the numbers of its allocations. */
static void listed(void)
{
	FILE *list;
	char line[512], wanted[64];
	unsigned long long name = 0;
	CUipcMemHandle handle;
	struct ticket ticket;
	CUdeviceptr at;

	client_start(0);
	CHECK(cuMemAlloc_v2(&at, FILLED));
	CHECK(cuIpcGetMemHandle(&handle, at));
	snprintf(wanted, sizeof(wanted), "@detshare-ipc-%d-", (int)getpid());
	list = fopen("/proc/net/unix", "r");
	while (fgets(line, sizeof(line), list))
		if (strstr(line, wanted))
			name = strtoull(strstr(line, wanted) + strlen(wanted), NULL, 16);
	fclose(list);
	EXPECT(name);
	memcpy(&ticket, &handle, sizeof(ticket));
	EXPECT(said(name, &handle, sizeof(handle)) == sizeof(unsigned int));
	ticket.secret = name;
	EXPECT(said(name, &ticket, sizeof(ticket)) == 0);
}

/* Sends twelve descriptors with a message that is none of ours, to each who asks. */
static void *lie(void *listener)
{
	union {
		char bytes[CMSG_SPACE(OTHERS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec vector = {.iov_base = "x", .iov_len = 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	*part = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(OTHERS * sizeof(int))};
	memset(CMSG_DATA(part), 0, OTHERS * sizeof(int));
	while (1) {
		int socket = accept(*(int *)listener, NULL, NULL);

		EXPECT(socket >= 0 && sendmsg(socket, &message, 0) == 1 && !close(socket));
	}
	return NULL;
}

/* It opens what a stranger named, who sends descriptors and no memory: it keeps none of them. */
static void lies(void)
{
	struct ticket ticket = {.mark = "detshIP", .secret = 1, .id = 1, .size = FILLED, .name = 1, .pid = 1};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct sockaddr_un address;
	socklen_t length = address_of(&address, ticket.pid, ticket.name);
	CUipcMemHandle handle = {0};
	unsigned int files;
	pthread_t thread;
	CUdeviceptr at;

	ticket.mark[7] = 'C';
	memcpy(&handle, &ticket, sizeof(ticket));
	client_start(0);
	EXPECT(!bind(listener, (void *)&address, length) && !listen(listener, 4));
	EXPECT(!pthread_create(&thread, NULL, lie, &listener));
	settled();
	files = open_files();
	EXPECT(cuIpcOpenMemHandle_v2(&at, handle, 1) == CUDA_ERROR_INVALID_HANDLE);
	EXPECT(open_files() <= files + 1); /* the thread may not have closed its own */
}

/* What it has by the number of the file that the library wrote to stays as it is. */
static void logs(void)
{
	char mine[] = "/tmp/daemonly-XXXXXX";
	int files[OTHERS];
	struct stat is;

	client_start(0);
	settled();
	EXPECT(close_unknown() == 1);
	for (unsigned int n = 0; n < OTHERS; n++)
		files[n] = n ? dup(files[0]) : mkstemp(mine);
	unlink(mine);
	/* it has nothing that could leave, and says so */
	daemon_arena(0);
	CHECK(cuMemAlloc_v2(&(CUdeviceptr){0}, 2 * MIB));
	EXPECT(park() == DS_PARK_ARENA);
	EXPECT(!fstat(files[0], &is) && is.st_size == 0);
	EXPECT(!stat(getenv("DETSHARE_LOG_FILE"), &is) && is.st_size > 0);
}

static void *little(void *unused)
{
	CUdeviceptr at;
	CUstream stream;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc_v2(&at, 70 * MIB));
	CHECK(cuMemsetD32Async(at, 5, 70 * MIB / 4, stream));
	EXPECT(park() == DS_PARK_OK && away());
	CHECK(client_mix(stream, at, 16, 3, 1));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemFree_v2(at));
	CHECK(cuStreamDestroy_v2(stream));
	return unused;
}

/* Threads have the least stack there is, its own and the library's. */
static void stacks(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	/* the stand-in's threads compute what the GPU would */
	CHECK(cuInit(0));
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
	EXPECT(!pthread_setattr_default_np(&attributes));
	client_start(0);
	EXPECT(!pthread_create(&thread, NULL, little, NULL));
	pthread_join(thread, NULL);
}

int main(int count, char **words)
{
	static const struct parked_case cases[] = {
		{"closes", closes}, {"few", few}, {"logs", logs}, {"stacks", stacks}, {"signals", signals}, {"listed", listed}, {"lies", lies},
	};

	for (unsigned int n = 0; count == 2 && n < sizeof(cases) / sizeof(cases[0]); n++)
		if (!strcmp(words[1], cases[n].name)) {
			cases[n].run();
			return 0;
		}
	return 2;
}
