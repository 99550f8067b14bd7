// SPDX-License-Identifier: Apache-2.0
/*
 * A process that does system calls on request: open, close, ioctl, fork, pidfd_getfd. A test is its puppeteer, over a UNIX socket
 * in the abstract namespace whose name is in PUPPET. So the test's programs are real ones, with descriptors of their own.
 * Its process has the number that is in PUPPET_PID, if that is given.
 *
 * A request is a header and two blocks. For an ioctl the first is the driver's outer block, the second what a pointer at
 * byte `at` of the first points to (at 0xffffffff: nothing). The answer is a header (result or -errno, lengths) and the
 * blocks as the driver left them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum op { OPEN, CLOSE, IOCTL, FORK, NAME, TAKE };

struct request {
	uint32_t op, fd, number, at, outer, nested;
};

struct answer {
	int32_t result;
	uint32_t outer, nested;
};

#define MOST	(1u << 20)

static int join(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(name);
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sock < 0 || length + 1 > sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path + 1, name, length);
	if (connect(sock, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + length))
		return -1;
	return sock;
}

static void read_all(int sock, void *data, size_t size)
{
	char *at = data;
	ssize_t got;

	for (; size; at += got, size -= (size_t)got) {
		got = read(sock, at, size);
		if (got <= 0)
			exit(0);	/* the puppeteer is gone */
	}
}

static void write_all(int sock, const void *data, size_t size)
{
	const char *at = data;
	ssize_t put;

	for (; size; at += put, size -= (size_t)put) {
		put = write(sock, at, size);
		if (put <= 0)
			exit(0);
	}
}

static int run(int *sock, const struct request *ask, char *outer, char *nested)
{
	uint64_t pointer = (uintptr_t)nested;
	pid_t pid;
	int done, pidfd;

	switch (ask->op) {
	case OPEN:
		done = open(outer, O_RDWR | O_CLOEXEC);
		return done < 0 ? -errno : done;
	case CLOSE:
		return close((int)ask->fd) ? -errno : 0;
	case IOCTL:
		if (ask->at != UINT32_MAX && ask->at + sizeof(pointer) <= ask->outer)
			memcpy(outer + ask->at, &pointer, sizeof(pointer));
		return ioctl((int)ask->fd, ask->number, outer) ? -errno : 0;
	case FORK:
		pid = fork();
		if (pid)
			return pid < 0 ? -errno : pid;
		close(*sock);
		*sock = join(outer);
		if (*sock < 0)
			exit(1);
		return 0;
	case NAME:
		return prctl(PR_SET_NAME, outer) ? -errno : 0;
	case TAKE:	/* descriptor `fd` of process `number` */
		pidfd = (int)syscall(SYS_pidfd_open, ask->number, 0);
		if (pidfd < 0)
			return -errno;
		done = (int)syscall(SYS_pidfd_getfd, pidfd, ask->fd, 0);
		if (done < 0)
			done = -errno;
		close(pidfd);
		return done;
	default:
		return -ENOSYS;
	}
}

/* Ends this process, whose place one with that number takes: the puppeteer's child, too. Needs root, and a free number. */
static void become(const char *number)
{
	pid_t pid = atoi(number);
	struct clone_args args = { .flags = CLONE_PARENT, .set_tid = (uintptr_t)&pid, .set_tid_size = 1 };
	long made = syscall(SYS_clone3, &args, sizeof(args));

	if (made < 0)
		fprintf(stderr, "ctl_puppet: no process with the number %s: %s\n", number, strerror(errno));
	if (made)
		_exit(made < 0);
}

int main(void)
{
	const char *name = getenv("PUPPET"), *number = getenv("PUPPET_PID");
	char *outer = calloc(1, MOST + 1), *nested = calloc(1, MOST);
	struct request ask;
	struct answer answer;
	int sock;

	if (!name || !outer || !nested) {
		fputs("ctl_puppet: started by a test only (PUPPET names its socket)\n", stderr);
		return 2;
	}
	if (number)
		become(number);
	sock = join(name);
	if (sock < 0) {
		perror("ctl_puppet: connect");
		return 1;
	}
	for (;;) {
		read_all(sock, &ask, sizeof(ask));
		if (ask.outer > MOST || ask.nested > MOST)
			return 1;
		read_all(sock, outer, ask.outer);
		outer[ask.outer] = 0;
		read_all(sock, nested, ask.nested);
		answer.result = run(&sock, &ask, outer, nested);
		answer.outer = ask.outer;
		answer.nested = ask.nested;
		write_all(sock, &answer, sizeof(answer));
		write_all(sock, outer, ask.outer);
		write_all(sock, nested, ask.nested);
	}
}
