/* SPDX-License-Identifier: Apache-2.0 */
/* Of `dice_ipc`: one of the programs. */
#include "dice_ipc.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "weather.h"

CUresult cuIpcCloseMemHandle(CUdeviceptr at);
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags);

static struct {
	CUdeviceptr at;
	CUmemGenericAllocationHandle handle;
	size_t size;
} mine[PLACES];

static CUcontext contexts[2];
static bool own; /* they are made by cuCtxCreate */

/* A GPU that others have filled for a while is no answer. */
#define PATIENT(call)                                                           \
	({                                                                      \
		CUresult patient_result;                                        \
		while ((patient_result = (call)) == CUDA_ERROR_OUT_OF_MEMORY)   \
			usleep(1000);                                           \
		patient_result;                                                 \
	})

static uint64_t digest(const unsigned char *bytes, size_t count)
{
	uint64_t sum = 14695981039346656037ULL;

	for (size_t n = 0; n < count; n++)
		sum = (sum ^ bytes[n]) * 1099511628211ULL;
	return sum;
}

static CUresult enters(unsigned int gpu)
{
	CUresult result = CUDA_SUCCESS;

	if (!contexts[gpu])
		result = own ? cuCtxCreate_v2(&contexts[gpu], 0, (CUdevice)gpu) : PATIENT(cuDevicePrimaryCtxRetain(&contexts[gpu], (CUdevice)gpu));
	return result ? result : cuCtxSetCurrent(contexts[gpu]);
}

static CUresult resets(unsigned int gpu)
{
	CUcontext gone = contexts[gpu];
	CUresult result;

	contexts[gpu] = NULL;
	if (own)
		return cuCtxDestroy_v2(gone);
	result = cuDevicePrimaryCtxReset_v2((CUdevice)gpu);
	return result ? result : cuDevicePrimaryCtxRelease_v2((CUdevice)gpu);
}

static CUresult mapped(unsigned int place, size_t size, unsigned int gpu)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, (int)gpu}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	mine[place].size = size;
	CHECK(PATIENT(cuMemAddressReserve(&mine[place].at, size, 0, 0, 0)));
	CHECK(PATIENT(cuMemMap(mine[place].at, size, 0, mine[place].handle, 0)));
	return PATIENT(cuMemSetAccess(mine[place].at, size, &access, 1));
}

static CUresult dropped(unsigned int place)
{
	CHECK(cuMemUnmap(mine[place].at, mine[place].size));
	CHECK(cuMemAddressFree(mine[place].at, mine[place].size));
	return cuMemRelease(mine[place].handle);
}

static void forks(struct answer *answer)
{
	pid_t child = fork();
	int status = 0;

	if (!child)
		_exit(cuMemAlloc_v2(&(CUdeviceptr){0}, 2 * MIB) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	waitpid(child, &status, 0);
	answer->digest = (uint64_t)status;
}

static void asked(const struct order *order, struct answer *answer)
{
	CUdeviceptr at = mine[order->place].at, base = 0;
	unsigned int type = 0, legacy = 9;
	CUcontext whose = NULL;
	size_t size = 0;

	answer->result = cuMemGetAddressRange_v2(&base, &size, at + order->from);
	answer->digest = base == at ? size : 1;
	answer->digest = answer->digest * 31 + (uint64_t)cuPointerGetAttribute(&type, 2, at + order->from) * 7 + type;
	answer->digest = answer->digest * 31 + (uint64_t)cuPointerGetAttribute(&whose, 1, at + order->from) * 7 + (whose == contexts[order->gpu]);
	answer->digest = answer->digest * 31 + (uint64_t)cuPointerGetAttribute(&legacy, 13, at) * 7;
	answer->digest = answer->digest * 31 + (uint64_t)(cuMemFree_v2(at + 4) + 3 * cuMemFree_v2(at + order->size / 2));
}

static void ends(unsigned int how)
{
	if (how == 0)
		exit(0);
	if (how == 1)
		_exit(0);
	kill(getpid(), how == 2 ? SIGTERM : SIGKILL);
}

static CUresult read_part(const struct order *order, struct answer *answer)
{
	unsigned char *bytes = malloc(order->count);
	CUresult result = cuMemcpyDtoH_v2(bytes, mine[order->place].at + order->from, order->count);

	answer->digest = digest(bytes, order->count);
	free(bytes);
	return result;
}

static CUresult does(const struct order *order, int *fd, struct answer *answer)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = POSIX_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)order->gpu}};
	unsigned int place = order->place;
	CUdeviceptr before = mine[place].at;
	CUresult result;

	switch (order->what) {
	case ALLOC:
		return PATIENT(cuMemAlloc_v2(&mine[place].at, order->size));
	case FREE:
		return cuMemFree_v2(mine[place].at);
	case NAME:
		return cuIpcGetMemHandle(&answer->handle, mine[place].at + order->from);
	case OPEN:
		result = PATIENT(cuIpcOpenMemHandle_v2(&mine[place].at, order->handle, order->flags));
		answer->again = !result && before == mine[place].at;
		return result;
	case CLOSE:
		return cuIpcCloseMemHandle(mine[place].at + order->from);
	case WRITE:
		result = cuMemsetD8Async(mine[place].at + order->from, (unsigned char)order->value, order->count, CU_STREAM_LEGACY);
		return result ? result : cuCtxSynchronize();
	case READ:
		return read_part(order, answer);
	case ASK:
		asked(order, answer);
		return answer->result;
	case CREATE:
		CHECK(PATIENT(cuMemCreate(&mine[place].handle, order->size, &prop, 0)));
		return mapped(place, order->size, order->gpu);
	case EXPORT:
		return cuMemExportToShareableHandle(fd, mine[place].handle, POSIX_DESCRIPTOR, 0);
	case IMPORT:
		result = cuMemImportFromShareableHandle(&mine[place].handle, (void *)(intptr_t)*fd, POSIX_DESCRIPTOR);
		return result ? result : mapped(place, order->size, order->gpu);
	case DROP:
		return dropped(place);
	case RESET:
		return resets(order->gpu);
	case FORK:
		forks(answer);
		return CUDA_SUCCESS;
	default:
		ends(order->value);
		return CUDA_ERROR_UNKNOWN;
	}
}

bool ipc_message(int socket, void *data, size_t size, int *fd, bool sends)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec vector = {.iov_base = data, .iov_len = size};
	struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *part = CMSG_FIRSTHDR(&header);
	ssize_t done;

	if (sends && *fd < 0)
		header.msg_controllen = 0;
	if (sends && *fd >= 0) {
		part->cmsg_level = SOL_SOCKET;
		part->cmsg_type = SCM_RIGHTS;
		part->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(part), fd, sizeof(int));
	}
	do
		done = sends ? sendmsg(socket, &header, MSG_NOSIGNAL) : recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	while (done < 0 && errno == EINTR);
	part = CMSG_FIRSTHDR(&header);
	if (!sends)
		*fd = -1;
	if (!sends && done > 0 && part)
		memcpy(fd, CMSG_DATA(part), sizeof(int));
	return done == (ssize_t)size;
}

int ipc_program(int socket, unsigned int seed, char role)
{
	bool parks = role == 'p';

	struct order order;
	int fd, given;

	char taken[64];

	/* in this stand-in each has GPUs of its own; and a daemon */
	snprintf(taken, sizeof(taken), "%s/taken-%d", getenv("TMPDIR"), (int)getpid());
	setenv("FAKECUDA_TAKEN", taken, 1);
	own = role == 'o';
	if (role != 'd')
		daemon_start();
	CHECK(cuInit(0));
	if (parks)
		weather_begin(seed);
	while (ipc_message(socket, &order, sizeof(order), &given, false)) {
		struct answer answer = {0};

		answer.result = enters(order.gpu);
		fd = given;
		if (!answer.result)
			answer.result = does(&order, &fd, &answer);
		if (order.what == EXPORT && answer.result)
			fd = -1;
		if (given >= 0)
			close(given);
		if (given == fd)
			fd = -1;
		if (!ipc_message(socket, &answer, sizeof(answer), &fd, true))
			return 1;
		if (fd >= 0)
			close(fd);
	}
	if (parks)
		weather_end();
	return 0;
}
