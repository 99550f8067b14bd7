// SPDX-License-Identifier: Apache-2.0
/* What nvdoor does to doorbells. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "door.h"

#define PAGE 4096u

static __thread sigjmp_buf *escape;
static struct door *handling;

static void on_fault(int number)
{
	if (!escape)
		_exit(100 + number);
	siglongjmp(*escape, number);
}

static void on_signal(int number)
{
	(void)number;
	if (handling)
		__atomic_fetch_add(&handling->handled, 1, __ATOMIC_RELAXED);
}

void door_catch(void)
{
	struct sigaction fault = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	struct sigaction user = { .sa_handler = on_signal };

	sigaction(SIGBUS, &fault, NULL);
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGUSR1, &user, NULL);
}

bool door_ring(volatile u8 *page, int *signal)
{
	sigjmp_buf here;

	*signal = sigsetjmp(here, 1);
	if (*signal) {
		escape = NULL;
		return false;
	}
	escape = &here;
	__atomic_fetch_add((volatile u64 *)(page + SIM_USERMODE_KICKS), 1, __ATOMIC_SEQ_CST);
	escape = NULL;
	return true;
}

/*
 * From before one ring to after the next: never less than what lay between the two stores. A ring that is caught and then stopped for long
 * is caught again, once for each rest.
 */
bool door_ring_many(struct door_ask *ask, volatile u8 *page, u64 number, u64 rest_ns)
{
	u64 last = nv_now_ns(), before, after;

	for (u64 i = 0; i < number; i++) {
		before = nv_now_ns();
		if (!door_ring(page, &ask->answer.signal))
			return false;
		after = nv_now_ns();
		if (after - before > ask->answer.longest_ns)
			ask->answer.longest_ns = after - before;
		if (rest_ns)
			ask->answer.rests += (after - last) / rest_ns;
		last = before;
		ask->answer.result++;
	}
	return true;
}

struct door_slot *door_slot(struct door_ask *ask)
{
	return &ask->door->slots[ask->a % DOOR_SLOTS];
}

static s64 answer_of(s64 value)
{
	return value < 0 ? -errno : value;
}

/* ---- rings ---- */

static void do_kick(struct door_ask *ask)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	handling = ask->door;
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	door_ring_many(ask, door_slot(ask)->at, ask->b, ask->c * 1000000);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void do_queue(struct door_ask *ask)
{
	const struct nv_kernel kernel = { .ns = 1000, .sms = 1 };

	ask->answer.result = nv_queue(&ask->door->channel, &kernel) ? 0 : -ENOSPC;
}

static void do_ring(struct door_ask *ask)
{
	sigjmp_buf here;

	ask->answer.signal = sigsetjmp(here, 1);
	escape = ask->answer.signal ? NULL : &here;
	if (!ask->answer.signal)
		nv_kick((volatile u32 *)door_slot(ask)->at, ask->door->channel.token);
	escape = NULL;
}

static void do_page(struct door_ask *ask)
{
	door_ring_many(ask, door_slot(ask)->at + ask->b * PAGE, 1, 0);
}

struct spinner {
	struct door *door;
	volatile u8 *page;
};

static void *spin(void *arg)
{
	struct spinner *spinner = arg;
	u64 rung = 0;
	int signal;

	while (!spinner->door->halt && door_ring(spinner->page, &signal))
		rung++;
	free(spinner);
	return (void *)rung;
}

static void do_spin(struct door_ask *ask)
{
	struct door *door = ask->door;

	door->halt = false;
	door->spinning = 0;
	while (door->spinning < ask->b && door->spinning < DOOR_THREADS) {
		struct spinner *spinner = malloc(sizeof(*spinner));

		*spinner = (struct spinner){ door, door_slot(ask)->at };
		if (pthread_create(&door->spinners[door->spinning], NULL, spin, spinner))
			nv_die("no thread");
		door->spinning++;
	}
}

static void do_halt(struct door_ask *ask)
{
	struct door *door = ask->door;
	void *rung;

	door->halt = true;
	while (door->spinning) {
		pthread_join(door->spinners[--door->spinning], &rung);
		ask->answer.result += (u64)rung;
	}
}

/* ---- mappings ---- */

s64 door_arm(const struct nv *nv, u32 client, u32 parent, u32 object, u64 length, int fd)
{
	u8 block[128] = { 0 };
	int error;

	rm_put32(block, nv->abi->nvos33.hClient, client);
	rm_put32(block, nv->abi->nvos33.hDevice, parent);
	rm_put32(block, nv->abi->nvos33.hMemory, object);
	rm_put64(block, nv->abi->nvos33.length, length);
	rm_put32(block, nv->abi->nvos33.fd, (u32)fd);
	error = nv_ioctl(nv->ctl, NV_ESC_RM_MAP_MEMORY, block, nv->abi->nvos33.len);
	return error ?: (s64)rm_get32(block, nv->abi->nvos33.status);
}

static void arm(struct door_ask *ask, const struct nv *nv, u32 client, u32 parent, u32 object)
{
	struct door_slot *into = door_slot(ask);

	into->fd = nv_must_open_device(ask->door->program.gpu_device);
	ask->answer.result = door_arm(nv, client, parent, object, SIM_USERMODE_SIZE, into->fd);
}

static void do_arm(struct door_ask *ask)
{
	const struct nv_program *program = &ask->door->program;

	arm(ask, &program->nv, program->client, program->subdevice, program->usermode);
}

void door_map_fd(struct door_ask *ask, int fd)
{
	void *at = mmap(NULL, SIM_USERMODE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED) {
		ask->answer.result = -errno;
		return;
	}
	door_slot(ask)->at = at;
	door_slot(ask)->length = SIM_USERMODE_SIZE;
}

static void do_map(struct door_ask *ask)
{
	do_arm(ask);
	if (!ask->answer.result)
		door_map_fd(ask, door_slot(ask)->fd);
}

static void do_view(struct door_ask *ask)
{
	const struct nv_memory_request request = {
		.class = NV01_MEMORY_LOCAL_USER, .size = SIM_USERMODE_SIZE, .flags = 0x1c101
	};
	struct nv_program *program = &ask->door->program;
	u32 memory = nv_next_handle(&program->nv);

	ask->answer.result = nv_memory(&program->nv, program->client, program->device, &memory, &request, NULL);
	if (!ask->answer.result)
		arm(ask, &program->nv, program->client, program->device, memory);
	if (!ask->answer.result)
		door_map_fd(ask, door_slot(ask)->fd);
}

static void do_again(struct door_ask *ask)
{
	door_map_fd(ask, ask->door->slots[ask->b % DOOR_SLOTS].fd);
}

static void do_protect(struct door_ask *ask)
{
	struct door_slot *of = door_slot(ask);

	ask->answer.result = answer_of(mprotect((void *)(of->at + ask->b * PAGE), of->length - ask->b * PAGE, (int)ask->c));
}

static void do_move(struct door_ask *ask)
{
	struct door_slot *of = door_slot(ask);
	u64 length = of->length - ask->b * PAGE;
	void *to = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *at = mremap((void *)(of->at + ask->b * PAGE), length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	if (at == MAP_FAILED) {
		ask->answer.result = -errno;
		return;
	}
	of->at = at;
	of->length = length;
}

static void do_cut(struct door_ask *ask)
{
	struct door_slot *of = door_slot(ask);

	ask->answer.result = answer_of(munmap((void *)(of->at + ask->b * PAGE), of->length - ask->b * PAGE));
	of->length = ask->b * PAGE;
}

static void do_dup(struct door_ask *ask)
{
	struct nv_program *program = &ask->door->program;
	const struct rm_abi *abi = program->nv.abi;
	u32 client, device, subdevice, object;
	u8 params[256] = { 0 };
	u32 status;

	nv_must_open(&ask->door->other, NULL);
	device = nv_next_handle(&ask->door->other);
	subdevice = nv_next_handle(&ask->door->other);
	object = nv_next_handle(&ask->door->other);
	status = nv_root(&ask->door->other, &client);
	if (!status)
		status = nv_alloc(&ask->door->other, client, client, &device, NV01_DEVICE_0, params, abi->device.len);
	if (!status)
		status = nv_alloc(&ask->door->other, client, device, &subdevice, NV20_SUBDEVICE_0, params, 4);
	if (!status)
		status = nv_dup(&ask->door->other, client, subdevice, &object, program->client, program->usermode);
	ask->answer.result = status;
	if (status)
		return;
	arm(ask, &ask->door->other, client, subdevice, object);
	if (!ask->answer.result)
		door_map_fd(ask, door_slot(ask)->fd);
}

/* A descriptor that names now one file, now the other. */
struct swapper {
	int fd, other;
	volatile int device;
	volatile bool halt;
};

static void *swap_files(void *arg)
{
	struct swapper *swapper = arg;

	while (!swapper->halt) {
		dup2(swapper->device, swapper->fd);
		dup2(swapper->other, swapper->fd);
	}
	return NULL;
}

static void do_swap(struct door_ask *ask)
{
	const struct nv_memory_request memory = { .class = NV01_MEMORY_LOCAL_USER, .size = 2 << 20, .flags = 0x1c101 };
	const struct nv_program *program = &ask->door->program;
	u32 handle = nv_next_handle(&ask->door->program.nv);
	struct swapper swapper = { .other = memfd_create("other", 0) };
	pthread_t thread;
	u64 i;

	swapper.fd = dup(swapper.other);
	swapper.device = -1;
	if (nv_memory(&program->nv, program->client, program->device, &handle, &memory, NULL) || swapper.fd < 0 ||
	    pthread_create(&thread, NULL, swap_files, &swapper))
		nv_die("nothing to swap");
	for (i = 0; i < ask->a; i++) {
		swapper.device = nv_must_open_device(program->gpu_device);
		ask->answer.result += !door_arm(&program->nv, program->client, program->device, handle, PAGE, swapper.fd);
		close(swapper.device);
	}
	swapper.halt = true;
	pthread_join(thread, NULL);
	close(swapper.fd);
	close(swapper.other);
}

static void do_free(struct door_ask *ask)
{
	const struct nv_program *program = &ask->door->program;

	ask->answer.result = nv_free(&program->nv, program->client, program->client, program->client);
}

/* ---- system calls on the page ---- */

static void do_read(struct door_ask *ask)
{
	int ends[2];

	if (pipe(ends) || write(ends[1], &ask->door->channel.token, 4) != 4)
		nv_die("no pipe");
	ask->answer.result = answer_of(read(ends[0], (void *)(door_slot(ask)->at + SIM_USERMODE_DOORBELL), 4));
	close(ends[0]);
	close(ends[1]);
}

static void do_write(struct door_ask *ask)
{
	int ends[2];

	if (pipe(ends))
		nv_die("no pipe");
	ask->answer.result = answer_of(write(ends[1], (const void *)(door_slot(ask)->at + SIM_USERMODE_TIME_0), 4));
	close(ends[0]);
	close(ends[1]);
}

static void do_futex(struct door_ask *ask)
{
	static u32 here;
	volatile u8 *count = door_slot(ask)->at + SIM_USERMODE_KICKS;

	ask->answer.result = answer_of(syscall(SYS_futex, &here, FUTEX_WAKE_OP_PRIVATE, 1, 1, count,
					       FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)));
}

static void do_mem(struct door_ask *ask)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	off_t at = (off_t)(uintptr_t)(door_slot(ask)->at + SIM_USERMODE_DOORBELL);

	ask->answer.result = fd < 0 ? -errno : answer_of(pwrite(fd, &ask->door->channel.token, 4, at));
	close(fd);
}

/* The thread's time on a processor, or waiting for one, which a kernel may not count; neither is the calls' doing. */
static u64 own_ns(int schedstat)
{
	unsigned long long ran, waited;
	char text[64] = "";
	struct timespec cpu;

	if (schedstat < 0) {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
		return cpu.tv_sec * 1000000000ull + cpu.tv_nsec;
	}
	if (pread(schedstat, text, sizeof(text) - 1, 0) <= 0 || sscanf(text, "%llu %llu", &ran, &waited) != 2)
		nv_die("schedstat: %s", strerror(errno));
	return ran + waited;
}

/* The longest is what a call stood still for, not what a busy machine took for it. */
static void do_calls(struct door_ask *ask)
{
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	u64 before, own, took;
	void *at;

	for (; ask->answer.result < (s64)ask->a; ask->answer.result++) {
		own = own_ns(schedstat);
		before = nv_now_ns();
		at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED || mprotect(at, PAGE, PROT_READ) || munmap(at, 1 << 20))
			nv_die("mmap: %s", strerror(errno));
		took = nv_now_ns() - before;
		own = own_ns(schedstat) - own;
		if (took > own && took - own > ask->answer.longest_ns)
			ask->answer.longest_ns = took - own;
	}
	if (schedstat >= 0)
		close(schedstat);
}

static void do_handled(struct door_ask *ask)
{
	ask->answer.result = ask->door->handled;
}

static void do_exec(struct door_ask *ask)
{
	execl("/bin/sleep", "sleep", "1000", (char *)NULL);
	ask->answer.result = -errno;
}

static void do_abort(struct door_ask *ask)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	ask->answer.result = answer_of(setrlimit(RLIMIT_CORE, &all));
	abort();
}

static const struct {
	const char *verb;
	void (*act)(struct door_ask *ask);
} acts[] = {
	{ "queue", do_queue },	{ "ring", do_ring },	   { "kin", door_kin },	      { "swap", do_swap },
	{ "kick", do_kick },	{ "page", do_page },	   { "spin", do_spin },	      { "halt", do_halt },
	{ "map", do_map },	{ "arm", do_arm },	   { "again", do_again },     { "protect", do_protect },
	{ "move", do_move },	{ "cut", do_cut },	   { "child", door_child },     { "pass", door_pass },
	{ "dup", do_dup },	{ "free", do_free },	   { "vm", door_vm },	      { "poke", door_poke },
	{ "read", do_read },	{ "write", do_write },	   { "futex", do_futex },     { "mem", do_mem },
	{ "view", do_view },	{ "claim", door_claim },   { "handle", door_handle },
	{ "calls", do_calls },	{ "handled", do_handled }, { "exec", do_exec },	      { "abort", do_abort },
	{ "robust", door_robust },
};

bool door_do(struct door_ask *ask)
{
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		if (strcmp(acts[i].verb, ask->verb))
			continue;
		acts[i].act(ask);
		return true;
	}
	return door_way(ask);
}
