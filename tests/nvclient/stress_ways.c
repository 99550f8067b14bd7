// SPDX-License-Identifier: Apache-2.0
/* What nvstress does between launches. Each way leaves one usable doorbell mapping behind. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "stress.h"

#define MEMORY_LEAST (64ull << 10)
#define MEMORY_MOST  (8ull << 20)
#define RINGS	     64

u64 stress_random(struct stress *stress, u64 below)
{
	stress->random ^= stress->random << 13;
	stress->random ^= stress->random >> 7;
	stress->random ^= stress->random << 17;
	return (stress->random * 0x2545f4914f6cdd1dull >> 11) % below;
}

struct nv_kernel stress_kernel(struct stress *stress)
{
	return (struct nv_kernel){ .ns = 1000 + stress_random(stress, stress->most_ns),
				   .sms = 1 + (u32)stress_random(stress, 132) };
}

static struct nv_channel *any_channel(struct stress *stress)
{
	return &stress->channels[stress_random(stress, stress->channel_count)];
}

static void *map_doorbell(struct stress *stress)
{
	struct nv_program *program = &stress->program;
	u32 status;
	void *at = nv_map(&program->nv, program->gpu_device, program->client, program->subdevice, program->usermode, 0,
			  SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE, NULL, &status);

	if (!at)
		nv_die("map the doorbell again: status 0x%x %s", status, nv_status_name(status));
	return at;
}

static void launch(struct stress *stress)
{
	u64 number = 1 + stress_random(stress, 8);

	while (number--) {
		struct nv_kernel kernel = stress_kernel(stress);

		nv_submit(any_channel(stress), &kernel);
	}
	stress_settle(stress);
}

static void pause_a_moment(struct stress *stress)
{
	nv_sleep((double)stress_random(stress, 20000) * 1e-6);
}

/* `ring` decides who rings: the child, through the mapping that it inherited, or the parent while the child lives. */
static void forked(struct stress *stress, bool child_rings)
{
	struct nv_kernel kernel = stress_kernel(stress);
	struct nv_channel *channel = any_channel(stress);
	pid_t parent = getpid(), pid;
	int status;

	if (!nv_queue(channel, &kernel))
		return;
	pid = fork();
	if (pid < 0)
		nv_die("fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		if (child_rings)
			nv_ring(&stress->program, channel->token);
		else
			nv_sleep((double)stress_random(stress, 5000) * 1e-6);
		_exit(0);
	}
	if (!child_rings)
		nv_ring(&stress->program, channel->token);
	if (waitpid(pid, &status, 0) != pid || status)
		nv_die("the child that rings: wait status 0x%x", status);
	stress_settle(stress);
}

static void child(struct stress *stress)
{
	forked(stress, true);
}

static void parent(struct stress *stress)
{
	forked(stress, false);
}

/* The mapping goes elsewhere; nothing is mapped anew, so whoever only watches mmap does not see it. */
static void move(struct stress *stress)
{
	void *to = mmap(NULL, SIM_USERMODE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *at;

	if (to == MAP_FAILED)
		nv_die("reserve addresses: %s", strerror(errno));
	at = mremap((void *)stress->program.doorbell, SIM_USERMODE_SIZE, SIM_USERMODE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (at == MAP_FAILED) {
		munmap(to, SIM_USERMODE_SIZE);
		return;
	}
	stress->program.doorbell = at;
	launch(stress);
}

static void again(struct stress *stress)
{
	munmap((void *)stress->program.doorbell, SIM_USERMODE_SIZE);
	stress->program.doorbell = map_doorbell(stress);
	launch(stress);
}

static void second(struct stress *stress)
{
	volatile u32 *first = stress->program.doorbell;

	stress->program.doorbell = map_doorbell(stress);
	launch(stress);
	munmap((void *)stress->program.doorbell, SIM_USERMODE_SIZE);
	stress->program.doorbell = first;
	launch(stress);
}

/* Two mappings out of one: the doorbell's page and the rest. */
static void split(struct stress *stress)
{
	u8 *at = (u8 *)stress->program.doorbell;

	munmap(at + 4096, SIM_USERMODE_SIZE - 4096);
	launch(stress);
	munmap(at, 4096);
	stress->program.doorbell = map_doorbell(stress);
}

static void protect(struct stress *stress)
{
	void *at = (void *)stress->program.doorbell;

	if (mprotect(at, SIM_USERMODE_SIZE, PROT_NONE) || mprotect(at, SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE))
		return;
	launch(stress);
}

static void *ring_often(void *data)
{
	struct stress *stress = data;
	u32 i;

	for (i = 0; i < RINGS; i++)
		nv_ring(&stress->program, stress->channels[0].token);
	return NULL;
}

/* Another thread rings for nothing meanwhile. */
static void thread(struct stress *stress)
{
	pthread_t other;

	if (pthread_create(&other, NULL, ring_often, stress))
		nv_die("start a thread");
	launch(stress);
	pthread_join(other, NULL);
}

static void memory(struct stress *stress)
{
	u32 slot = (u32)stress_random(stress, STRESS_MEMORIES), status;
	struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER,
					 .size = MEMORY_LEAST + stress_random(stress, MEMORY_MOST) };
	struct nv_program *program = &stress->program;

	if (stress->memories[slot]) {
		nv_free(&program->nv, program->client, program->device, stress->memories[slot]);
		stress->memories[slot] = 0;
		return;
	}
	stress->memories[slot] = nv_next_handle(&program->nv);
	status = nv_memory(&program->nv, program->client, program->device, &stress->memories[slot], &ask, NULL);
	if (status && status != NV_ERR_NO_MEMORY)
		nv_die("allocate: status 0x%x %s", status, nv_status_name(status));
	if (status) {
		stress->memories[slot] = 0;
		stress->refused++;
	}
}

static void channel(struct stress *stress)
{
	struct nv_program *program = &stress->program;

	if (stress->channel_count == STRESS_CHANNELS)
		return;
	nv_must_channel(&stress->channels[stress->channel_count++], program);
	launch(stress);
}

struct stress_way stress_ways[] = {
	{ .name = "launch", .share = 40, .go = launch }, { .name = "pause", .share = 10, .go = pause_a_moment },
	{ .name = "memory", .share = 20, .go = memory }, { .name = "child", .share = 4, .go = child },
	{ .name = "parent", .share = 4, .go = parent },	 { .name = "move", .share = 4, .go = move },
	{ .name = "again", .share = 4, .go = again },	 { .name = "second", .share = 4, .go = second },
	{ .name = "split", .share = 4, .go = split },	 { .name = "protect", .share = 4, .go = protect },
	{ .name = "thread", .share = 3, .go = thread },	 { .name = "channel", .share = 1, .go = channel },
	{ .name = NULL }
};
