/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "calls.h"
#include "daemon.h"
#include "outside.h"
#include "weather.h"

#define MIB (1UL << 20)

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args);
CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args);
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args);
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args);

unsigned int weather_deeps;
pthread_mutex_t weather_calm = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(bool) over;
static pthread_t thread;
static unsigned int seed;

static unsigned int dice(unsigned int sides)
{
	return (unsigned int)rand_r(&seed) % sides;
}

static void changes(void)
{
	struct ds_policy *policy = daemon_policy();

	policy->epoch++;
	policy->flags = dice(1u << 30) & (DS_FLAG_LAZY | DS_FLAG_WHOLE | DS_FLAG_LEAVES | DS_FLAG_COMES);
	/* the driver's checkpoint loses memory for a lazy way back, and is not made then */
	if (getenv("FAKECUDA_CHECKPOINTS"))
		policy->flags &= ~DS_FLAG_LAZY;
	policy->memory_limit = dice(2) ? 0 : 40UL << 30;
	if (!dice(8))
		policy->returns++;
	__atomic_store_n(&policy->epoch, policy->epoch + 1, __ATOMIC_SEQ_CST);
	daemon_arena(dice(3) ? UINT64_MAX : (uint64_t)dice(40) * 2 * MIB);
	daemon_tier(dice(4));
	if (!dice(3))
		others_have((80UL << 30) - (size_t)dice(40) * 4 * MIB);
}

/* true: what was waited for is so */
static bool soon(bool (*is)(void))
{
	for (unsigned int n = 0; n < 100 && !is() && !atomic_load(&over); n++)
		usleep(500);
	return is();
}

static bool acknowledged(void)
{
	return __atomic_load_n(&daemon_counters()->park_ack, __ATOMIC_ACQUIRE) == daemon_policy()->park;
}

static bool shut(void)
{
	return __atomic_load_n(&daemon_counters()->deep, __ATOMIC_ACQUIRE) == daemon_policy()->deep;
}

static bool wanted(void)
{
	return __atomic_load_n(&daemon_counters()->wants_back, __ATOMIC_ACQUIRE);
}

static void ask_deep(uint32_t value)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	__atomic_store_n(&daemon_policy()->lease_ns, (uint64_t)(now.tv_sec + 3600) * 1000000000ULL, __ATOMIC_SEQ_CST);
	__atomic_store_n(&daemon_policy()->deep, value, __ATOMIC_SEQ_CST);
}

/* As the daemon does it: nobody is lost, whatever is refused. */
static void deep(void)
{
	static uint32_t asked;
	CUcheckpointLockArgs patience = {.timeoutMs = 200};

	if (daemon_counters()->park_state != DS_PARK_AWAY || daemon_counters()->lent_bytes || daemon_counters()->shares)
		return;
	ask_deep(++asked);
	if (soon(shut) && !cuCheckpointProcessLock(getpid(), &patience)) {
		if (!cuCheckpointProcessCheckpoint(getpid(), NULL)) {
			weather_deeps++;
			soon(wanted);
			while (cuCheckpointProcessRestore(getpid(), NULL) == CUDA_ERROR_OUT_OF_MEMORY)
				others_have(0);
		}
		cuCheckpointProcessUnlock(getpid(), NULL);
	}
	ask_deep(0);
}

static void *blows(void *unused)
{
	pthread_setname_np(pthread_self(), "ds-daemon-dice");
	while (!atomic_load(&over)) {
		if (!daemon_attached()) {
			usleep(1000);
			continue;
		}
		pthread_mutex_lock(&weather_calm);
		changes();
		daemon_park(dice(3) != 0);
		if (soon(acknowledged) && getenv("FAKECUDA_CHECKPOINTS"))
			deep();
		others_have(0);
		pthread_mutex_unlock(&weather_calm);
		usleep(dice(6000));
	}
	return unused;
}

void weather_begin(unsigned int from)
{
	seed = from;
	pthread_create(&thread, NULL, blows, NULL);
}

void weather_end(void)
{
	atomic_store(&over, true);
	pthread_join(thread, NULL);
}
