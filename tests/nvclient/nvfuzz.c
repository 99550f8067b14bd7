// SPDX-License-Identifier: Apache-2.0
/*
 * Random ioctls from a seed, part of them nearly right. Two runs with one seed say the same to the driver, so their hash
 * over (device, number, errno, status) must be the same too: with detshare.ko and without.
 */
#include <fcntl.h>
#include <getopt.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nvclient.h"

#define ARENA		0x20000000ul	/* all pointers that are not garbage point here */
#define ARENA_SIZE	0x10000
#define ROUND		4096		/* calls; then every file is closed and opened again */
#define CLIENTS		4
#define SHOWN		64		/* bytes of a block in a traced line */

static const char usage[] =
	"[--seed N] [--calls N] [--every N] [--trace FIRST:LAST] [--version V]\n"
	"Sends random ioctls to nvidiactl, nvidia0 (where it opens) and nvidia-uvm; prints a running hash as JSON lines.\n"
	"  --seed N   (1)\n"
	"  --calls N  (100000)\n"
	"  --every N  calls between two lines (100000)\n"
	"  --trace FIRST:LAST  also a line for each of these calls: device, number, begin of what was asked, errno, status\n"
	"example: nvfuzz --seed 7 --calls 1000000 | tail -1";

enum device { CTL, GPU, UVM, DEVICES };

static struct {
	const struct rm_abi *abi;
	int fd[DEVICES];
	u32 clients[CLIENTS], client_count;
	u64 state, hash, calls, errors, statuses, trace_first, trace_last;
	u8 asked[SHOWN];	/* of this call */
	u32 asked_size;
} fuzz;

/* xorshift64* */
static u64 next(void)
{
	fuzz.state ^= fuzz.state >> 12;
	fuzz.state ^= fuzz.state << 25;
	fuzz.state ^= fuzz.state >> 27;
	return fuzz.state * 0x2545f4914f6cdd1dull;
}

static u32 below(u32 n)
{
	return (u32)(next() >> 33) % n;
}

static void mix(u64 value)
{
	fuzz.hash = (fuzz.hash ^ value) * 0x100000001b3ull;
}

static bool traced(void)
{
	return fuzz.calls >= fuzz.trace_first && fuzz.calls < fuzz.trace_last;
}

/* What the driver is about to get: it may write its answer there. */
static void asks(const u8 *block, u32 size)
{
	fuzz.asked_size = size < SHOWN ? size : SHOWN;
	if (traced())
		memcpy(fuzz.asked, block, fuzz.asked_size);
}

static void show(enum device device, u32 nr, int error, u32 status)
{
	u32 i;

	printf("{\"call\": %llu, \"device\": %d, \"nr\": \"0x%x\", \"asked\": \"", (unsigned long long)fuzz.calls, device, nr);
	for (i = 0; i < fuzz.asked_size; i++)
		printf("%s%02x", i && i % 4 == 0 ? " " : "", fuzz.asked[i]);
	printf("\", \"errno\": %d, \"status\": \"0x%x\"}\n", error, status);
}

/* One answer into the hash; and onto the page, where somebody looks for the first one that differs. */
static void took(enum device device, u32 nr, int error, u32 status)
{
	/* which of the two is said of a client that there is not depends on the clients that the driver had before */
	if (status == NV_ERR_INVALID_OBJECT_HANDLE)
		status = NV_ERR_INVALID_OBJECT;
	mix((u64)device << 56 | (u64)nr << 32 | (u32)error);
	mix(status);
	fuzz.errors += error != 0;
	fuzz.statuses += !error && !status;
	if (traced())
		show(device, nr, error, status);
}

static u64 a_pointer(void)
{
	switch (below(8)) {
	case 0:
		return 0;
	case 1:
		return next() | 1ull << 63; /* no user address */
	case 2:
		return ARENA + ARENA_SIZE - below(64); /* runs over the end */
	default:
		return ARENA + 0x2000 + below(0x8000);
	}
}

static u32 a_handle(void)
{
	switch (below(6)) {
	case 0:
		return 0;
	case 1:
		return (u32)next();
	case 2:
		return fuzz.client_count ? fuzz.clients[below(fuzz.client_count)] : 0xc1dfff00;
	default:
		return NV_OBJECTS + below(24);
	}
}

static u32 a_class(void)
{
	static const u16 classes[] = { 0x0, 0x1, 0x41, 0x80, 0x2080, 0x90f1, 0xa06c, 0x9067, 0xc86f, 0xcbc0, 0xc8b5, 0xc661,
				       0x40, 0x3e, 0x3f, 0x42, 0x50a0, 0x70, 0x71, 0x81, 0x82, 0xc2, 0xf3, 0xf8, 0xfd, 0xfe,
				       0xe0, 0xde, 0x900e, 0x503b, 0x503c, 0x79, 0x5, 0x2, 0x2081, 0x2082, 0x83de, 0xcb33 };

	return below(8) ? classes[below(sizeof(classes) / sizeof(classes[0]))] : (u32)next();
}

static u32 a_command(void)
{
	static const u32 commands[] = { 0x0, 0x101, 0x201, 0x202, 0x205, 0x214, 0xd01, 0xd02, 0xd05, 0x13d, 0x3d05, 0x3d06, 0x3d0a,
					0x20801303, 0x20801301, 0x2080014a, 0x2080018d, 0x2080110b, 0x20801123, 0xa06c0101,
					0xa06c0103, 0xa06c0104, 0xa06c0107, 0xa06f0103, 0xc36f0108, 0x410110, 0x906f0101,
					0x90670102, 0x900101, 0x20808159 };

	return below(8) ? commands[below(sizeof(commands) / sizeof(commands[0]))] : (u32)next();
}

/* Single ones of the lower bits have a meaning; all at once would only be refused for the first of them. */
static u32 a_flags(void)
{
	switch (below(16)) {
	case 0:
		return (u32)next();
	case 1:
		return 1u << below(4);
	default:
		return 0;
	}
}

static u32 a_size(u32 right)
{
	switch (below(10)) {
	case 0:
		return below(512);
	case 1:
		return (u32)next() & 0x3fff;
	default:
		return right;
	}
}

static void random_bytes(u8 *at, u32 size)
{
	u32 i;

	for (i = 0; i < size; i += 8)
		memcpy(at + i, &(u64){ below(3) ? 0 : next() }, 8);
}

/* Memory requests stay small enough that one round cannot fill a heap; the order of refusals would depend on others. */
static void tame(u8 *params)
{
	u64 size = below(16) ? below(1 << 24) : next();

	rm_put64(params, fuzz.abi->memory.size, size);
}

struct escape {
	u32 nr, size, status;	/* offset of the status in the block */
	void (*fill)(u8 *block);
	enum device device;
};

static void fill_alloc21(u8 *block)
{
	u8 *params = (u8 *)ARENA + 0x4000;

	rm_put32(block, fuzz.abi->nvos21.hRoot, a_handle());
	rm_put32(block, fuzz.abi->nvos21.hObjectParent, a_handle());
	rm_put32(block, fuzz.abi->nvos21.hObjectNew, a_handle());
	rm_put32(block, fuzz.abi->nvos21.hClass, a_class());
	random_bytes(params, 0x400);
	tame(params);
	rm_put64(block, fuzz.abi->nvos21.pAllocParms, below(4) ? (uintptr_t)params : a_pointer());
	rm_put32(block, fuzz.abi->nvos21.paramsSize, below(3) ? 0 : a_size(128));
}

static void fill_alloc64(u8 *block)
{
	u8 *params = (u8 *)ARENA + 0x4000;

	rm_put32(block, fuzz.abi->nvos64.hRoot, a_handle());
	rm_put32(block, fuzz.abi->nvos64.hObjectParent, a_handle());
	rm_put32(block, fuzz.abi->nvos64.hObjectNew, a_handle());
	rm_put32(block, fuzz.abi->nvos64.hClass, a_class());
	random_bytes(params, 0x400);
	tame(params);
	rm_put64(block, fuzz.abi->nvos64.pAllocParms, below(4) ? (uintptr_t)params : a_pointer());
	rm_put32(block, fuzz.abi->nvos64.paramsSize, below(3) ? 0 : a_size(128));
	rm_put32(block, fuzz.abi->nvos64.flags, a_flags());
}

static void fill_control(u8 *block)
{
	random_bytes((u8 *)ARENA + 0x4000, 0x1000);
	rm_put32(block, fuzz.abi->nvos54.hClient, a_handle());
	rm_put32(block, fuzz.abi->nvos54.hObject, a_handle());
	rm_put32(block, fuzz.abi->nvos54.cmd, a_command());
	rm_put32(block, fuzz.abi->nvos54.flags, a_flags());
	rm_put64(block, fuzz.abi->nvos54.params, below(4) ? ARENA + 0x4000 : a_pointer());
	rm_put32(block, fuzz.abi->nvos54.paramsSize, a_size(1u << below(12)));
}

/*
 * The first words are handles, the others are not: a client's handle in a field of another meaning would make the answer
 * depend on how many clients the driver had before.
 */
static void fill_handles(u8 *block, u32 handles)
{
	u32 i;

	random_bytes(block, 64);
	for (i = 0; i < handles; i++)
		memcpy(block + 4 * i, &(u32){ a_handle() }, 4);
}

static void fill_three(u8 *block)
{
	fill_handles(block, 3);
}

static void fill_four(u8 *block)
{
	fill_handles(block, 4);
}

static void fill_five(u8 *block)
{
	fill_handles(block, 5);
}

static void fill_share(u8 *block)
{
	fill_handles(block, 3);
	memcpy(block + fuzz.abi->nvos57.sharePolicy_type.off, &(u16){ (u16)below(9) }, 2);
}

/* hRoot, hObjectParent, hObjectNew, hClass */
static void fill_classed(u8 *block)
{
	fill_handles(block, 3);
	memcpy(block + 12, &(u32){ a_class() }, 4);
}

static void fill_heap(u8 *block)
{
	rm_put32(block, fuzz.abi->nvos32.hRoot, a_handle());
	rm_put32(block, fuzz.abi->nvos32.hObjectParent, a_handle());
	rm_put32(block, fuzz.abi->nvos32.function, below(0x20));
	random_bytes(block + fuzz.abi->nvos32.data_AllocSize_hMemory.off, 0x60);
	rm_put32(block, fuzz.abi->nvos32.data_AllocSize_hMemory, a_handle());
	rm_put64(block, fuzz.abi->nvos32.data_AllocSize_size, below(1 << 24));
}

static void fill_map(u8 *block)
{
	fill_handles(block, 3);
	rm_put64(block, fuzz.abi->nvos33.offset, below(2) ? 0 : next() & 0xfffff);
	rm_put64(block, fuzz.abi->nvos33.length, below(2) ? 0x1000 : next() & 0xfffff);
	rm_put32(block, fuzz.abi->nvos33.fd, below(2) ? (u32)fuzz.fd[below(DEVICES)] : below(400));
}

static void fill_garbage(u8 *block)
{
	random_bytes(block, 256);
}

static void fill_pointer(u8 *block)
{
	memcpy(block, &(u64){ a_pointer() }, 8);
}

static void fill_version(u8 *block)
{
	rm_put32(block, fuzz.abi->version_str.cmd, below(4) ? '2' : (u32)next());
}

static void fill_descriptor(u8 *block)
{
	rm_put32(block, fuzz.abi->register_fd.ctl_fd, below(2) ? (u32)fuzz.fd[CTL] : below(400));
}

static u32 choose_escape(struct escape *e)
{
	const struct rm_abi *abi = fuzz.abi;
	const struct escape all[] = {
		{ NV_ESC_RM_ALLOC, abi->nvos64.len, abi->nvos64.status.off, fill_alloc64, CTL },
		{ NV_ESC_RM_ALLOC, abi->nvos64.len, abi->nvos64.status.off, fill_alloc64, CTL },
		{ NV_ESC_RM_ALLOC, abi->nvos21.len, abi->nvos21.status.off, fill_alloc21, CTL },
		{ NV_ESC_RM_CONTROL, abi->nvos54.len, abi->nvos54.status.off, fill_control, CTL },
		{ NV_ESC_RM_CONTROL, abi->nvos54.len, abi->nvos54.status.off, fill_control, CTL },
		{ NV_ESC_RM_FREE, abi->nvos00.len, abi->nvos00.status.off, fill_three, CTL },
		{ NV_ESC_RM_DUP_OBJECT, abi->nvos55.len, abi->nvos55.status.off, fill_five, CTL },
		{ NV_ESC_RM_SHARE, abi->nvos57.len, abi->nvos57.status.off, fill_share, CTL },
		{ NV_ESC_RM_VID_HEAP_CONTROL, abi->nvos32.len, abi->nvos32.status.off, fill_heap, CTL },
		{ NV_ESC_RM_MAP_MEMORY, abi->nvos33.len, abi->nvos33.status.off, fill_map, CTL },
		{ NV_ESC_RM_UNMAP_MEMORY, abi->nvos34.len, abi->nvos34.status.off, fill_three, CTL },
		{ NV_ESC_RM_MAP_MEMORY_DMA, abi->nvos46.len, abi->nvos46.status.off, fill_four, CTL },
		{ NV_ESC_RM_UNMAP_MEMORY_DMA, abi->nvos47.len, abi->nvos47.status.off, fill_four, CTL },
		{ NV_ESC_RM_ALLOC_CONTEXT_DMA2, abi->nvos39.len, abi->nvos39.status.off, fill_classed, CTL },
		{ NV_ESC_RM_ALLOC_OBJECT, abi->nvos05.len, abi->nvos05.status.off, fill_classed, CTL },
		{ NV_ESC_RM_ALLOC_MEMORY, abi->nvos02.len, abi->nvos02.status.off, fill_classed, GPU },
		{ NV_ESC_CHECK_VERSION_STR, abi->version_str.len, 4, fill_version, CTL },
		{ NV_ESC_REGISTER_FD, abi->register_fd.len, 0, fill_descriptor, GPU },
		{ NV_ESC_CARD_INFO, 72 * (1 + below(40)), 0, fill_garbage, CTL },
		{ NV_ESC_SYS_PARAMS, 8, 0, fill_garbage, CTL },
		{ NV_ESC_STATUS_CODE, 12, 8, fill_garbage, CTL },
		{ NV_ESC_RM_GET_EVENT_DATA, 16, 12, fill_pointer, CTL },
		{ below(256), 4 * below(64), 0, fill_garbage, below(2) },
	};
	u32 n = sizeof(all) / sizeof(all[0]);

	*e = all[below(n)];
	/* these would change the machine or wait, not answer */
	return e->nr == NV_ESC_SET_NUMA_STATUS || e->nr == NV_ESC_RM_IDLE_CHANNELS || e->nr == NV_ESC_RM_LOCKLESS_DIAGNOSTIC ||
	       e->nr == NV_ESC_ATTACH_GPUS_TO_FD || e->nr == NV_ESC_WAIT_OPEN_COMPLETE ||
	       e->nr == NV_ESC_RM_ACCESS_REGISTRY || e->nr == NV_ESC_RM_I2C_ACCESS;
}

static void remember_client(const struct escape *e, const u8 *block)
{
	u32 class = rm_get32(block, fuzz.abi->nvos64.hClass), handle = rm_get32(block, fuzz.abi->nvos64.hObjectNew);

	if (e->nr != NV_ESC_RM_ALLOC || (class != NV01_ROOT && class != NV01_ROOT_NON_PRIV && class != NV01_ROOT_CLIENT))
		return;
	if (fuzz.client_count < CLIENTS)
		fuzz.clients[fuzz.client_count++] = handle;
}

/* A client that is gone is not named again: its handle may be another program's by then. */
static void forget_client(const struct escape *e, const u8 *block)
{
	u32 old = rm_get32(block, fuzz.abi->nvos00.hObjectOld), i;

	if (e->nr != NV_ESC_RM_FREE)
		return;
	for (i = 0; i < fuzz.client_count; i++)
		if (fuzz.clients[i] == old)
			fuzz.clients[i--] = fuzz.clients[--fuzz.client_count];
}

static void one_escape(void)
{
	/* at the end of a page behind which nothing is mapped: what reads over the block's end is seen */
	u8 *block;
	struct escape e;
	u8 *wrapper = (u8 *)ARENA;
	u32 size, status = 0;
	bool skip = choose_escape(&e), xfer = !below(6);
	unsigned long request;
	int done;

	/* what an earlier answer left, handles above all, must not reach the driver: it may differ between runs */
	memset((void *)ARENA, 0, ARENA_SIZE);
	size = a_size(e.size);
	block = (u8 *)ARENA + 0x2000 - ((size + 7) & ~7u);
	if (size > 0x1000)
		block = (u8 *)ARENA + 0x8000;
	memset(block, 0, size);
	if (size >= 8 && size <= 0x1000) {
		u8 whole[0x1000] = { 0 };

		e.fill(whole);
		memcpy(block, whole, size);
	}
	request = _IOC(below(12) ? 3 : below(4), below(12) ? NV_IOCTL_MAGIC : below(256), e.nr, size);
	if (xfer) {
		rm_put32(wrapper, fuzz.abi->xfer.cmd, e.nr);
		rm_put32(wrapper, fuzz.abi->xfer.size, below(20) ? size : (u32)next());
		rm_put64(wrapper, fuzz.abi->xfer.ptr, below(20) ? (uintptr_t)block : a_pointer());
		request = _IOC(3, NV_IOCTL_MAGIC, NV_ESC_IOCTL_XFER_CMD, fuzz.abi->xfer.len);
	}
	if (skip || fuzz.fd[e.device] < 0)
		return;
	asks(block, size);
	done = ioctl(fuzz.fd[e.device], request, xfer ? wrapper : block) < 0 ? errno : 0;
	if (!done && e.status && e.status + 4 <= size)
		status = rm_get32(block, (struct rm_f32){ (u16)e.status });
	if (!done && !status && size == e.size)
		remember_client(&e, block);
	if (!done && size == e.size)
		forget_client(&e, block);
	took(e.device, e.nr, done, status);
}

static void one_uvm(void)
{
	static const u32 numbers[] = { UVM_INITIALIZE, UVM_DEINITIALIZE, 23, 24, 25, 26, 27, 28, 29, 30, 31, 33, 34, 37, 38, 39, 40, 41,
				       42, 43, 44, 45, 46, 47, 51, 53, 54, 55, 65, 66, 68, 69, 71, 72, 73, 74, 75, 78, 79, 80 };
	u32 nr = below(16) ? numbers[below(sizeof(numbers) / sizeof(numbers[0]))] : (u32)next();
	u8 *block = (u8 *)ARENA + 0x8000;
	int done;

	/* tests of the driver's own, of which some wait */
	if (nr >= 200 && nr < 1000)
		return;
	memset((void *)ARENA, 0, ARENA_SIZE);
	random_bytes(block, 64);
	if (below(2))
		memcpy(block, &(u64){ 0x7000000000 + ((u64)below(64) << 21) }, 8);
	if (below(2))
		memcpy(block + 8, &(u64){ (u64)(1 + below(4)) << 21 }, 8);
	if (nr == UVM_MM_INITIALIZE)
		memcpy(block, &(u32){ (u32)fuzz.fd[below(DEVICES)] }, 4);
	asks(block, SHOWN);
	done = ioctl(fuzz.fd[UVM], nr, block) < 0 ? errno : 0;
	took(UVM, nr, done, 0);
}

static void open_files(void)
{
	fuzz.fd[CTL] = nv_must_open_device("nvidiactl");
	fuzz.fd[UVM] = nv_must_open_device("nvidia-uvm");
	fuzz.fd[GPU] = nv_open_device("nvidia0");
	fuzz.client_count = 0;
}

static void close_files(void)
{
	int i;

	for (i = 0; i < DEVICES; i++)
		if (fuzz.fd[i] >= 0)
			close(fuzz.fd[i]);
}

static void say(void)
{
	printf("{\"event\":\"fuzz\",\"calls\":%llu,\"hash\":\"%016llx\",\"errno\":%llu,\"ok\":%llu}\n", (unsigned long long)fuzz.calls,
	       (unsigned long long)fuzz.hash, (unsigned long long)fuzz.errors, (unsigned long long)fuzz.statuses);
}

static void trace(char *range)
{
	char *last = strchr(range, ':');

	if (!last)
		nv_usage(usage, 2);
	*last++ = 0;
	fuzz.trace_first = nv_number(range, "--trace");
	fuzz.trace_last = nv_number(last, "--trace");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },  { "calls", required_argument, NULL, 'c' },
		{ "every", required_argument, NULL, 'e' }, { "version", required_argument, NULL, 'v' },
		{ "trace", required_argument, NULL, 't' }, { "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	u64 seed = 1, calls = 100000, every = 100000;
	const char *version = NULL;
	struct nv nv;
	int c;

	nv_program_name(argv[0]);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			seed = nv_number(optarg, "--seed");
		else if (c == 'c')
			calls = nv_number(optarg, "--calls");
		else if (c == 'e')
			every = nv_number(optarg, "--every");
		else if (c == 'v')
			version = optarg;
		else if (c == 't')
			trace(optarg);
		else
			nv_usage(usage, c == 'h' ? 0 : 2);
	}
	if (optind != argc || !every)
		nv_usage(usage, 2);
	if (mmap((void *)ARENA, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
	    (void *)ARENA)
		nv_die("cannot place the buffers at 0x%lx: %s", ARENA, strerror(errno));
	nv_must_open(&nv, version);
	fuzz.abi = nv.abi;
	nv_close(&nv);
	fuzz.state = seed * 0x9e3779b97f4a7c15ull + 1;
	fuzz.hash = 0xcbf29ce484222325ull;
	open_files();
	for (fuzz.calls = 0; fuzz.calls < calls; fuzz.calls++) {
		if (fuzz.calls && fuzz.calls % ROUND == 0) {
			close_files();
			open_files();
		}
		if (fuzz.calls && fuzz.calls % every == 0)
			say();
		if (below(4))
			one_escape();
		else
			one_uvm();
	}
	say();
	close_files();
	return 0;
}
