// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of each kind, as told on stdin, a JSON line for each.
 *   device|array|virtual|pool|pinned|registered BYTES   asks for it (array: of 32-bit words, BYTES rounded down to lines of 4 KiB)
 *   streams N                                           that many streams with a kernel in each
 *   free                                                gives back what was asked for last, of those that can be
 *   end
 */
#include "cuda.h"

#define MOST 64
#define LINE 1024u	/* words of a line of an array */

struct location { int type, id; };
struct allocation { int type, handles; struct location location; void *win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };
struct array { size_t width, height; int format; unsigned int channels; };

static struct kept { const char *kind; uint64_t at, memory; size_t size; } kept[MOST];
static unsigned int count;

static int virtual(struct kept *one)
{
	struct allocation kind = { .type = 1, .location = { 1, 0 } };	/* pinned, on device 0 */
	struct access access = { { 1, 0 }, 3 };
	size_t each;
	int result;

	result = CALL(cuMemGetAllocationGranularity, (size_t *, const void *, int), &each, &kind, 0);
	one->size = result ? 0 : (one->size + each - 1) / each * each;
	if (!result)
		result = CALL(cuMemCreate, (uint64_t *, size_t, const void *, unsigned long long), &one->memory, one->size, &kind, 0);
	if (!result)
		result = CALL(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long), &one->at, one->size, 0, 0, 0);
	if (!result)
		result = CALL(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long), one->at, one->size, 0, one->memory, 0);
	if (!result)
		result = CALL(cuMemSetAccess, (uint64_t, size_t, const void *, size_t), one->at, one->size, &access, 1);
	return result;
}

static int pool(struct kept *one)
{
	int result = CALL(cuMemAllocAsync, (uint64_t *, size_t, void *), &one->at, one->size, cuda_stream);

	return result ? result : CALL(cuStreamSynchronize, (void *), cuda_stream);
}

static int make(const char *kind, struct kept *one)
{
	if (!strcmp(kind, "device"))
		return CALL(cuMemAlloc_v2, (uint64_t *, size_t), &one->at, one->size);
	if (!strcmp(kind, "array")) {
		struct array form = { LINE, one->size / LINE / 4, 3, 1 };	/* unsigned words of 32 bits */

		return CALL(cuArrayCreate_v2, (uint64_t *, const struct array *), &one->at, &form);
	}
	if (!strcmp(kind, "virtual"))
		return virtual(one);
	if (!strcmp(kind, "pool"))
		return pool(one);
	if (!strcmp(kind, "pinned"))
		return CALL(cuMemHostAlloc, (void **, size_t, unsigned int), (void **)&one->at, one->size, 2);
	if (!strcmp(kind, "registered")) {
		void *host = aligned_alloc(4096, one->size);

		memset(host, 1, one->size);
		one->at = (uint64_t)(uintptr_t)host;
		return CALL(cuMemHostRegister_v2, (void *, size_t, unsigned int), host, one->size, 2);
	}
	return -1;
}

static int unmake(const struct kept *one)
{
	int result;

	if (!strcmp(one->kind, "device"))
		return CALL(cuMemFree_v2, (uint64_t), one->at);
	if (!strcmp(one->kind, "array"))
		return CALL(cuArrayDestroy, (uint64_t), one->at);
	if (!strcmp(one->kind, "pinned"))
		return CALL(cuMemFreeHost, (void *), (void *)(uintptr_t)one->at);
	if (!strcmp(one->kind, "registered"))
		return CALL(cuMemHostUnregister, (void *), (void *)(uintptr_t)one->at);
	if (!strcmp(one->kind, "virtual")) {
		result = CALL(cuMemUnmap, (uint64_t, size_t), one->at, one->size);
		if (!result)
			result = CALL(cuMemRelease, (uint64_t), one->memory);
		return result ? result : CALL(cuMemAddressFree, (uint64_t, size_t), one->at, one->size);
	}
	result = CALL(cuMemFreeAsync, (uint64_t, void *), one->at, cuda_stream);
	return result ? result : CALL(cuStreamSynchronize, (void *), cuda_stream);	/* a pool gives back what nobody uses */
}

static int streams(unsigned long n)
{
	void *first = cuda_stream;

	for (unsigned long i = 0; i < n; i++) {
		MUST(cuStreamCreate, (void **, unsigned int), &cuda_stream, 1);
		cuda_seconds(1000);
	}
	cuda_stream = first;
	return 0;
}

static void tell(const char *kind, size_t bytes, int result)
{
	printf("{\"event\":\"kind\",\"kind\":\"%s\",\"bytes\":%zu,\"result\":%d,\"t\":%.6f}\n", kind, bytes, result, cuda_now());
	fflush(stdout);
}

int main(void)
{
	static const char *const kinds[] = { "device", "array", "virtual", "pool", "pinned", "registered" };
	char line[128], word[32];
	unsigned long bytes;

	cuda_open();
	cuda_begin();
	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f}\n", getpid(), cuda_now());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && strncmp(line, "end", 3)) {
		if (!strncmp(line, "free", 4) && count) {
			const struct kept *last = &kept[--count];

			tell(last->kind, last->size, unmake(last));
			continue;
		}
		if (sscanf(line, "%31s %lu", word, &bytes) != 2 || count == MOST)
			continue;
		if (!strcmp(word, "streams")) {
			tell("streams", bytes, streams(bytes));
			continue;
		}
		for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			struct kept one = { .kind = kinds[i], .size = bytes };
			int result;

			if (strcmp(word, kinds[i]))
				continue;
			result = make(word, &one);
			if (!result)
				kept[count++] = one;
			tell(word, one.size, result);
		}
	}
	return 0;
}
