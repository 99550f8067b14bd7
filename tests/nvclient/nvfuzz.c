// SPDX-License-Identifier: Apache-2.0
/*
 * Random ioctls from a seed, part of them nearly right. Two runs with one seed say the same to the driver, so their hash
 * over (device, number, errno, status) must be the same too: with detshare.ko and without.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "options.h"

#define ROUND		4096		/* calls; then every file is closed and opened again */

static const char usage[] =
	"[--seed N] [--calls N] [--every N] [--trace FIRST:LAST] [--version V]\n"
	"Sends random ioctls to nvidiactl, nvidia0 (where it opens) and nvidia-uvm; prints a running hash as JSON lines.\n"
	"  --seed N   (1)\n"
	"  --calls N  (100000)\n"
	"  --every N  calls between two lines (100000)\n"
	"  --trace FIRST:LAST  also a line for each of these calls: device, number, begin of what was asked, errno, status\n"
	"example: nvfuzz --seed 7 --calls 1000000 | tail -1";

struct fuzz fuzz;

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
	bool skip = fuzz_escape(&e), xfer = !fuzz_below(6);
	unsigned long request;
	int done;

	/* what an earlier answer left, handles above all, must not reach the driver: it may differ between runs */
	memset((void *)ARENA, 0, ARENA_SIZE);
	size = fuzz_size(e.size);
	block = (u8 *)ARENA + 0x2000 - ((size + 7) & ~7u);
	if (size > 0x1000)
		block = (u8 *)ARENA + 0x8000;
	memset(block, 0, size);
	if (size >= 8 && size <= 0x1000) {
		u8 whole[0x1000] = { 0 };

		e.fill(whole);
		memcpy(block, whole, size);
	}
	request = _IOC(fuzz_below(12) ? 3 : fuzz_below(4), fuzz_below(12) ? NV_IOCTL_MAGIC : fuzz_below(256), e.nr, size);
	if (xfer) {
		rm_put32(wrapper, fuzz.abi->xfer.cmd, e.nr);
		rm_put32(wrapper, fuzz.abi->xfer.size, fuzz_below(20) ? size : (u32)fuzz_next());
		rm_put64(wrapper, fuzz.abi->xfer.ptr, fuzz_below(20) ? (uintptr_t)block : fuzz_pointer());
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
	u32 nr = fuzz_below(16) ? numbers[fuzz_below(sizeof(numbers) / sizeof(numbers[0]))] : (u32)fuzz_next();
	u8 *block = (u8 *)ARENA + 0x8000;
	int done;

	/* tests of the driver's own, of which some wait */
	if (nr >= 200 && nr < 1000)
		return;
	memset((void *)ARENA, 0, ARENA_SIZE);
	fuzz_bytes(block, 64);
	if (fuzz_below(2))
		memcpy(block, &(u64){ 0x7000000000 + ((u64)fuzz_below(64) << 21) }, 8);
	if (fuzz_below(2))
		memcpy(block + 8, &(u64){ (u64)(1 + fuzz_below(4)) << 21 }, 8);
	if (nr == UVM_MM_INITIALIZE)
		memcpy(block, &(u32){ (u32)fuzz.fd[fuzz_below(DEVICES)] }, 4);
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

static void trace(const char *range)
{
	char first[24];

	if (sscanf(range, "%23[^:]:", first) != 1 || !strchr(range, ':'))
		nv_usage(usage, 2);
	fuzz.trace_first = nv_number(first, "--trace");
	fuzz.trace_last = nv_number(strchr(range, ':') + 1, "--trace");
}

int nvfuzz_main(int argc, char **argv)
{
	u64 seed = 1, calls = 100000, every = 100000;
	const char *version = NULL, *range = NULL;
	struct nv nv;
	const struct nv_option options[] = {
		NV_OPTION("seed", &seed),
		NV_OPTION("calls", &calls),
		NV_OPTION("every", &every),
		NV_OPTION("version", &version),
		NV_OPTION("trace", &range),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc || !every)
		nv_usage(usage, 2);
	if (range)
		trace(range);
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
		if (fuzz_below(4))
			one_escape();
		else
			one_uvm();
	}
	say();
	close_files();
	return 0;
}
