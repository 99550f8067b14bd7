// SPDX-License-Identifier: Apache-2.0
/* The driver's checkpoint of a process: its states, whose calls wait, what leaves the GPU and comes back. */
#include <signal.h>

#include "check.h"

#define MIB (1UL << 20)

static int orders[2], answers[2];
static pid_t child;

/* What the child was told; it has 4 words at *p, and 2 MiB of addresses. */
static void obey(CUdeviceptr p, CUdeviceptr addresses)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemGenericAllocationHandle handle;
	CUipcMemHandle ticket;
	unsigned int said;
	char what;

	while (read(orders[0], &what, 1) == 1) {
		said = 0;
		switch (what) {
		case 'w':
			said = word_at(p);
			break;
		case 's':
			OK(spin(NULL, 2000000000));
			break;
		case 'i':
			OK(cuIpcGetMemHandle(&ticket, p));
			break;
		case 'h':
			prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
			OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
			break;
		case 'n':
			prop.location = (CUmemLocation){ CU_MEM_LOCATION_TYPE_HOST_NUMA, 0 };
			OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
			break;
		case 'm':
			OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
			said = cuMemMap(addresses, 2 * MIB, 0, handle, 0);
			break;
		}
		if (write(answers[1], &said, sizeof(said)) != sizeof(said))
			_exit(1);
	}
	_exit(0);
}

static void tell(char what)
{
	CHECK(write(orders[1], &what, 1) == 1);
}

static unsigned int heard(void)
{
	unsigned int said;

	CHECK(read(answers[0], &said, sizeof(said)) == sizeof(said));
	return said;
}

static void begin(void)
{
	setenv("FAKECUDA_CHECKPOINTS", "1", 1);
	setenv("FAKECUDA_CONTEXT", "300", 1);
	CHECK(!pipe(orders) && !pipe(answers));
	child = fork();
	if (!child) {
		CUdeviceptr p, addresses;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		start();
		p = words(4);
		OK(cuMemAddressReserve(&addresses, 2 * MIB, 0, 0, 0));
		OK(put(NULL, p, 4711));
		OK(cuCtxSynchronize());
		tell(' ');
		obey(p, addresses);
	}
	heard();
	OK(cuInit(0));
}

static CUprocessState stands(void)
{
	CUprocessState state;

	OK(cuCheckpointProcessGetState(child, &state));
	return state;
}

static CUresult lock(unsigned int ms)
{
	CUcheckpointLockArgs args = { .timeoutMs = ms };

	return cuCheckpointProcessLock(child, &args);
}

TEST(each_call_has_its_state)
{
	CUcheckpointLockArgs wrong = { .reserved0 = 1 };
	CUprocessState state;

	begin();
	CHECK(stands() == CU_PROCESS_STATE_RUNNING);
	IS(cuCheckpointProcessCheckpoint(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	IS(cuCheckpointProcessRestore(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	IS(cuCheckpointProcessUnlock(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	IS(cuCheckpointProcessLock(child, &wrong), CUDA_ERROR_INVALID_VALUE);
	IS(cuCheckpointProcessGetState(1, &state), CUDA_ERROR_INVALID_VALUE);
	OK(lock(1000));
	IS(lock(1000), CUDA_ERROR_ILLEGAL_STATE);
	OK(cuCheckpointProcessCheckpoint(child, NULL));
	CHECK(stands() == CU_PROCESS_STATE_CHECKPOINTED);
	IS(cuCheckpointProcessUnlock(child, NULL), CUDA_ERROR_ILLEGAL_STATE);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	IS(cuCheckpointProcessRestore(child, NULL), CUDA_ERROR_INVALID_VALUE);
	unsetenv("CUDA_VISIBLE_DEVICES");
	OK(cuCheckpointProcessRestore(child, NULL));
	CHECK(stands() == CU_PROCESS_STATE_LOCKED);
	OK(cuCheckpointProcessUnlock(child, NULL));
	CHECK(stands() == CU_PROCESS_STATE_RUNNING);
}

TEST(a_call_waits_until_the_unlock_and_finds_its_bytes)
{
	struct timespec nap = { .tv_nsec = 20000000 };

	begin();
	OK(lock(1000));
	tell('w');
	OK(cuCheckpointProcessCheckpoint(child, NULL));
	nanosleep(&nap, NULL);
	CHECK(stands() == CU_PROCESS_STATE_CHECKPOINTED);
	OK(cuCheckpointProcessRestore(child, NULL));
	OK(cuCheckpointProcessUnlock(child, NULL));
	CHECK(heard() == 4711);
}

TEST(work_that_runs_ends_first)
{
	begin();
	tell('s');
	heard();
	IS(lock(20), CUDA_ERROR_NOT_READY);
	CHECK(stands() == CU_PROCESS_STATE_RUNNING);
	OK(lock(0));
}

TEST(all_memory_leaves_and_needs_room_to_come_back)
{
	size_t before, away, total, all = 80UL << 30;
	char path[] = "/tmp/fakecuda-shared-XXXXXX";
	CUcontext context;

	close(mkstemp(path));
	setenv("FAKECUDA_SHARED", path, 1);
	begin();
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuMemGetInfo_v2(&before, &total));
	OK(lock(1000));
	OK(cuCheckpointProcessCheckpoint(child, NULL));
	OK(cuMemGetInfo_v2(&away, &total));
	CHECK(away - before == 300 * MIB + 16);
	CHECK(away == all - 300 * MIB);
	{
		CUdeviceptr p;

		OK(cuMemAlloc_v2(&p, away));
		IS(cuCheckpointProcessRestore(child, NULL), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(stands() == CU_PROCESS_STATE_CHECKPOINTED);
		OK(cuMemFree_v2(p));
	}
	OK(cuCheckpointProcessRestore(child, NULL));
	OK(cuMemGetInfo_v2(&away, &total));
	CHECK(away == before);
	unlink(path);
}

/* measured on an H100, driver 580.159.04 (park-deep); who imported it may not see it any more: nobody has tried */
TEST(what_another_process_could_have_is_not_refused)
{
	begin();
	tell('h');
	heard();
	OK(lock(1000));
	OK(cuCheckpointProcessCheckpoint(child, NULL));
	OK(cuCheckpointProcessRestore(child, NULL));
	OK(cuCheckpointProcessUnlock(child, NULL));
}

TEST(what_was_named_to_another_process_is_refused)
{
	begin();
	tell('i');
	heard();
	OK(lock(1000));
	IS(cuCheckpointProcessCheckpoint(child, NULL), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuCheckpointProcessUnlock(child, NULL));
}

static unsigned int mapped_afterwards(void)
{
	begin();
	OK(lock(1000));
	OK(cuCheckpointProcessCheckpoint(child, NULL));
	OK(cuCheckpointProcessRestore(child, NULL));
	OK(cuCheckpointProcessUnlock(child, NULL));
	tell('m');
	return heard();
}

TEST(reservations_outlive_it)
{
	CHECK(mapped_afterwards() == CUDA_SUCCESS);
}

TEST(reservations_do_not_outlive_it_where_that_is_said)
{
	setenv("FAKECUDA_CHECKPOINT_RESERVATIONS", "0", 1);
	CHECK(mapped_afterwards() == CUDA_ERROR_INVALID_VALUE);
}

TEST(memory_of_the_host_with_a_handle_does_not_outlive_it)
{
	begin();
	tell('n');
	heard();
	OK(lock(1000));
	OK(cuCheckpointProcessCheckpoint(child, NULL));
	IS(cuCheckpointProcessRestore(child, NULL), CUDA_ERROR_UNKNOWN);
}

TEST(without_the_variable_there_is_none)
{
	OK(cuInit(0));
	IS(cuCheckpointProcessLock(getpid(), NULL), CUDA_ERROR_NOT_SUPPORTED);
}
