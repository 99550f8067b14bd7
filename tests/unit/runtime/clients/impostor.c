/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose memory root opens: `impostor CASE UID`, as root, with DETSHARE_PARK=1. `steals`: a program of root's that shared memory ended, and UID has its
 * socket's name; but for root, the opener takes nothing and tells no secret. `shares`: the program is UID's itself.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "client.h"

#define BYTES (4UL << 20)

static int ready[2];
static unsigned int *told; /* of how many the impostor heard */

/* as in runtime/memory/share.c */
static socklen_t address_of(struct sockaddr_un *address, const CUipcMemHandle *handle)
{
	uint64_t words[6];

	memcpy(words, handle, sizeof(words));
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "detshare-ipc-%d-%016llx", (int)words[5],
				    (unsigned long long)words[4]));
}

static void shares(uid_t uid, bool stays)
{
	CUipcMemHandle handle;
	CUdeviceptr at;

	client_start(0);
	EXPECT(!setuid(uid) && !prctl(PR_SET_PDEATHSIG, SIGKILL));
	CHECK(cuMemAlloc_v2(&at, BYTES));
	CHECK(cuMemsetD32_v2(at, 0x42, 1));
	CHECK(cuIpcGetMemHandle(&handle, at));
	EXPECT(write(ready[1], &handle, sizeof(handle)) == sizeof(handle));
	while (stays)
		pause();
	_exit(0);
}

static void sends(int socket, int fd)
{
	unsigned int count = 1;
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec vector = {.iov_base = &count, .iov_len = sizeof(count)};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(part), &fd, sizeof(int));
	sendmsg(socket, &message, MSG_NOSIGNAL);
}

/* What the stand-in takes for memory of a GPU. */
static int memory(void)
{
	int fd = memfd_create("fakecuda-vmm:1:0:", MFD_CLOEXEC);
	uint32_t word = 0x42;

	EXPECT(fd >= 0 && !ftruncate(fd, BYTES) && write(fd, &word, sizeof(word)) == sizeof(word));
	return fd;
}

static void pretends(uid_t uid, const CUipcMemHandle *handle)
{
	struct sockaddr_un address;
	socklen_t length = address_of(&address, handle);
	int fd = memory(), listener;

	EXPECT(!setuid(uid) && !prctl(PR_SET_PDEATHSIG, SIGKILL));
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	EXPECT(!bind(listener, (struct sockaddr *)&address, length) && !listen(listener, 16));
	EXPECT(write(ready[1], "", 1) == 1);
	while (1) {
		int socket = accept(listener, NULL, NULL);
		char asked[64];

		if (recv(socket, asked, sizeof(asked), 0) > 0)
			__atomic_fetch_add(told, 1, __ATOMIC_SEQ_CST);
		sends(socket, fd);
		close(socket);
	}
}

int main(int count, char **words)
{
	bool steals = count > 2 && !strcmp(words[1], "steals");
	uid_t uid = (uid_t)atoi(count > 2 ? words[2] : "0");
	CUipcMemHandle handle;
	CUdeviceptr at;
	CUresult result;
	uint32_t word;
	pid_t pid;

	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(told != MAP_FAILED && !pipe(ready));
	pid = fork();
	if (!pid)
		shares(steals ? 0 : uid, !steals);
	EXPECT(read(ready[0], &handle, sizeof(handle)) == sizeof(handle));
	if (steals) {
		EXPECT(waitpid(pid, NULL, 0) == pid);
		pid = fork();
		if (!pid)
			pretends(uid, &handle);
		EXPECT(read(ready[0], &word, 1) == 1);
	}
	client_start(0);
	result = cuIpcOpenMemHandle_v2(&at, handle, 1);
	if (steals && uid) {
		EXPECT(result == CUDA_ERROR_INVALID_HANDLE && !*told);
	} else {
		CHECK(result);
		CHECK(cuMemcpyDtoH_v2(&word, at, sizeof(word)));
		EXPECT(word == 0x42 && *told == steals);
	}
	kill(pid, SIGKILL);
	EXPECT(waitpid(pid, NULL, 0) == pid);
	return 0;
}
