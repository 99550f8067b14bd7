// SPDX-License-Identifier: Apache-2.0
/*
 * Ways by which a program's own address is written to without a plain store of it: the kernel copies, pins or maps there for a system call,
 * or when a thread begins, gets a signal or ends. B 1: on plain shared memory, where each must work.
 */
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "door.h"

#define PAGE  4096u
#define STACK 65536u

static s64 outcome(s64 value)
{
	return value < 0 ? -errno : value;
}

/* ---- the kernel copies ---------------------------------------------------------- */

static int file_with(u32 word)
{
	int fd = memfd_create("word", 0);

	if (fd < 0 || write(fd, &word, 4) != 4)
		nv_die("no file");
	return fd;
}

static s64 way_pread(void *to, u32 word)
{
	int fd = file_with(word);
	s64 done = outcome(pread(fd, to, 4, 0));

	close(fd);
	return done;
}

static s64 way_recv(void *to, u32 word)
{
	int ends[2];
	s64 done;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) || send(ends[0], &word, 4, 0) != 4)
		nv_die("no sockets");
	done = outcome(recv(ends[1], to, 4, 0));
	close(ends[0]);
	close(ends[1]);
	return done;
}

static s64 way_vmsplice_in(void *to, u32 word)
{
	struct iovec into = { to, 4 };
	int ends[2];
	s64 done;

	if (pipe(ends) || write(ends[1], &word, 4) != 4)
		nv_die("no pipe");
	done = outcome(vmsplice(ends[0], &into, 1, 0));
	close(ends[0]);
	close(ends[1]);
	return done;
}

static s64 way_aio(void *to, u32 word)
{
	int fd = file_with(word);
	struct iocb ask = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (u32)fd, .aio_buf = (uintptr_t)to, .aio_nbytes = 4 };
	struct iocb *asks[] = { &ask };
	struct io_event told = { 0 };
	aio_context_t context = 0;
	s64 done;

	if (syscall(SYS_io_setup, 1, &context))
		nv_die("no aio");
	done = outcome(syscall(SYS_io_submit, context, 1, asks));
	if (done == 1)
		done = outcome(syscall(SYS_io_getevents, context, 1, 1, &told, NULL)) == 1 ? (s64)told.res : -EIO;
	syscall(SYS_io_destroy, context);
	close(fd);
	return done;
}

/* One request through a ring of its own. */
static s64 through_ring(const struct io_uring_sqe *ask, const struct iovec *fixed)
{
	struct io_uring_params params = { 0 };
	struct io_uring_sqe *asks;
	int ring = (int)syscall(SYS_io_uring_setup, 1, &params);
	u8 *at;
	s64 done;

	if (ring < 0)
		nv_die("no ring: %d", errno);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	asks = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	if (at == MAP_FAILED || asks == MAP_FAILED)
		nv_die("no ring's memory");
	done = fixed ? outcome(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, fixed, 1)) : 0;
	if (!done) {
		*asks = *ask;
		*(u32 *)(at + params.sq_off.array) = 0;
		__atomic_store_n((u32 *)(at + params.sq_off.tail), 1, __ATOMIC_RELEASE);
		done = outcome(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
		if (done == 1)
			done = ((struct io_uring_cqe *)(at + params.cq_off.cqes))->res;
	}
	munmap(at, PAGE);
	munmap(asks, PAGE);
	close(ring);
	return done;
}

static s64 ring_read(void *to, u32 word, u8 opcode, u8 flags, const struct iovec *fixed)
{
	int fd = file_with(word);
	const struct io_uring_sqe ask = { .opcode = opcode, .flags = flags, .fd = fd, .addr = (uintptr_t)to, .len = 4 };
	s64 done = through_ring(&ask, fixed);

	close(fd);
	return done;
}

static s64 way_ring(void *to, u32 word)
{
	return ring_read(to, word, IORING_OP_READ, 0, NULL);
}

/* A worker of the kernel copies. */
static s64 way_ring_worker(void *to, u32 word)
{
	return ring_read(to, word, IORING_OP_READ, IOSQE_ASYNC, NULL);
}

/* ---- the kernel pins or maps: never, on memory of a device ------------------------ */

static s64 way_ring_fixed(void *to, u32 word)
{
	const struct iovec fixed = { to, 4 };

	return ring_read(to, word, IORING_OP_READ_FIXED, 0, &fixed);
}

static void *page_of(void *to)
{
	return (void *)((uintptr_t)to & ~(uintptr_t)(PAGE - 1));
}

static s64 way_direct(void *to, u32 word)
{
	int fd = open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC);
	s64 done;

	(void)word;
	if (fd < 0)
		nv_die("no block device");
	done = outcome(pread(fd, page_of(to), PAGE, 0));
	close(fd);
	return done;
}

static s64 way_vmsplice(void *to, u32 word)
{
	struct iovec from = { page_of(to), PAGE };
	int ends[2];
	s64 done;

	(void)word;
	if (pipe(ends))
		nv_die("no pipe");
	done = outcome(vmsplice(ends[1], &from, 1, SPLICE_F_GIFT));
	close(ends[0]);
	close(ends[1]);
	return done;
}

static s64 way_userfault(void *to, u32 word)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register all = { .range = { (uintptr_t)page_of(to), PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	s64 done;

	(void)word;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		nv_die("no userfaultfd");
	done = outcome(ioctl(fd, UFFDIO_REGISTER, &all));
	close(fd);
	return done;
}

static s64 way_mremap(void *to, u32 word)
{
	void *again = mremap(page_of(to), 0, PAGE, MREMAP_MAYMOVE);

	if (again == MAP_FAILED)
		return -errno;
	*(volatile u32 *)((u8 *)again + ((uintptr_t)to & (PAGE - 1))) = word;
	munmap(again, PAGE);
	return 0;
}

/* remap_file_pages() makes the mapping anew, from another place of the file. */
static s64 way_remap(void *to, u32 word)
{
	(void)word;
	return outcome(syscall(SYS_remap_file_pages, page_of(to), PAGE, 0, 1, 0));
}

static s64 way_populate(void *to, u32 word)
{
	(void)word;
	return outcome(madvise(page_of(to), PAGE, MADV_POPULATE_WRITE));
}

/* ---- the kernel writes by itself --------------------------------------------------- */

static int end_at_once(void *nothing)
{
	(void)nothing;
	return 0;
}

static s64 clone_with(void *to, int flags)
{
	u8 *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int child = clone(end_at_once, stack + STACK, CLONE_VM | SIGCHLD | flags, NULL, NULL, NULL, to), status;
	s64 done = child < 0 ? -errno : waitpid(child, &status, 0) == child ? 0 : -errno;

	munmap(stack, STACK);
	return done;
}

static s64 way_settid(void *to, u32 word)
{
	(void)word;
	return clone_with(to, CLONE_CHILD_SETTID);
}

static s64 way_cleartid(void *to, u32 word)
{
	(void)word;
	return clone_with(to, CLONE_CHILD_CLEARTID);
}

/* What a child came to: 0, or the signal that ended it as -EFAULT. */
static s64 child_end(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child)
		return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EFAULT;
}

static void do_nothing(int number)
{
	(void)number;
}

/* The frame of a signal lies in the page. */
static s64 way_altstack(void *to, u32 word)
{
	struct sigaction action = { .sa_handler = do_nothing, .sa_flags = SA_ONSTACK };
	stack_t stack = { .ss_sp = page_of(to), .ss_size = PAGE };
	pid_t child = fork();

	(void)word;
	if (child)
		return child_end(child);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	if (sigaltstack(&stack, NULL) || sigaction(SIGUSR2, &action, NULL))
		_exit(1);
	raise(SIGUSR2);
	_exit(0);
}

/* Which processor a thread is on, told whenever it returns from the kernel. */
static s64 way_rseq(void *to, u32 word)
{
	void *old = (u8 *)__builtin_thread_pointer() + __rseq_offset;
	pid_t child = fork();

	(void)word;
	if (child)
		return child_end(child);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	if (__rseq_size && syscall(SYS_rseq, old, 32, RSEQ_FLAG_UNREGISTER, RSEQ_SIG))
		_exit(1);
	_exit(syscall(SYS_rseq, to, 32, 0, RSEQ_SIG) != 0);
}

/* ---- stores of other kinds ----------------------------------------------------------- */

static s64 way_sse(void *to, u32 word)
{
	_mm_stream_si128(to, _mm_set1_epi32((int)word));
	_mm_sfence();
	return 0;
}

__attribute__((target("avx"))) static s64 way_avx(void *to, u32 word)
{
	_mm256_maskstore_ps(to, _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, -1), _mm256_castsi256_ps(_mm256_set1_epi32((int)word)));
	return 0;
}

struct store {
	volatile u32 *to;
	u32 word;
};

static int store(void *arg)
{
	const struct store *it = arg;

	*it->to = it->word;
	return 0;
}

/* A process of its own in the same memory. */
static s64 way_process(void *to, u32 word)
{
	struct store it = { to, word };
	u8 *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int child = clone(store, stack + STACK, CLONE_VM | SIGCHLD, &it);
	s64 done = child_end(child);

	munmap(stack, STACK);
	return done;
}

static const struct {
	const char *verb;
	s64 (*way)(void *to, u32 word);
	bool counts; /* it writes what it likes: where rings are counted */
} ways[] = {
	{ "pread", way_pread, false },	       { "recv", way_recv, false },	    { "splicein", way_vmsplice_in, false },
	{ "aio", way_aio, false },	       { "uring", way_ring, false },	    { "uringworker", way_ring_worker, false },
	{ "uringfixed", way_ring_fixed, false }, { "direct", way_direct, true },	    { "vmsplice", way_vmsplice, false },
	{ "userfault", way_userfault, false }, { "mremap", way_mremap, false },	    { "remap", way_remap, false },
	{ "populate", way_populate, false },   { "settid", way_settid, true },	    { "cleartid", way_cleartid, true },
	{ "altstack", way_altstack, true },    { "rseq", way_rseq, true },	    { "sse", way_sse, false },
	{ "avx", way_avx, false },	       { "process", way_process, false },
};

static void *plain(void)
{
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		nv_die("no memory");
	return at;
}

bool door_way(struct door_ask *ask)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		u8 *page = ask->b ? plain() : (u8 *)door_slot(ask)->at;

		if (strcmp(ways[i].verb, ask->verb))
			continue;
		ask->answer.result = ways[i].way(page + (ways[i].counts ? SIM_USERMODE_KICKS : SIM_USERMODE_DOORBELL),
						 ask->door->channel.token);
		return true;
	}
	return false;
}

/* ---- a robust mutex that its owner dies with ------------------------------------------- */

struct robust {
	struct door *door;
	u8 *at;
};

static void *own_and_end(void *arg)
{
	static struct robust_list_head head;
	struct robust robust = *(struct robust *)arg;
	volatile u32 *word = (volatile u32 *)(robust.at + SIM_USERMODE_KICKS);

	/* the page is the list's one entry's lock; the entry itself is ours */
	static struct robust_list entry;

	entry.next = &head.list;
	head.list.next = &entry;
	head.futex_offset = (long)((uintptr_t)word - (uintptr_t)&entry);
	*word = (u32)syscall(SYS_gettid);
	if (syscall(SYS_set_robust_list, &head, sizeof(head)))
		nv_die("no robust list");
	robust.door->halt = false;
	while (!robust.door->halt)
		nv_sleep(1e-3);
	/* glibc's own end would set its list again */
	syscall(SYS_exit, 0);
	return NULL;
}

void door_robust(struct door_ask *ask)
{
	static pthread_t thread;
	static struct robust robust;

	robust = (struct robust){ ask->door, (u8 *)door_slot(ask)->at };
	ask->door->halt = true;
	if (pthread_create(&thread, NULL, own_and_end, &robust))
		nv_die("no thread");
	while (ask->door->halt)
		nv_sleep(1e-3);
}
