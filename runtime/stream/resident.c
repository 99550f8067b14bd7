/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three kinds of launches wait for blocks of their own and hang where these have no room: cooperative grids, clusters
 * that no GPC of the tier can hold, and kernels that meet their peers on other GPUs, which only their names tell.
 *
 * What is known of a function is one word, found without a lock: address << 16 | age << 8 | facts. Unloading code makes
 * all words old, for another function can come to stand at the same address.
 */

#include "resident.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "lifecycle.h"
#include "pool.h"

enum {
	FACT_NAME = 1,		/* its name is one of `patterns` */
	FACT_CLUSTER = 2,	/* compiled for clusters of a fixed shape */
};

#define FUNCTIONS 4096
#define SHAPES 64
#define OLDEST 0xff /* the age in a word is the low byte */

static const char *const patterns[] = {"nccl*", "nvshmem*", "*nvshmemi_*", NULL};

static _Atomic(uint64_t) functions[FUNCTIONS];
static _Atomic(unsigned int) age;

struct shape {
	CUcontext context;	/* of the tier */
	void *function;
	unsigned int block[3], shared, cluster[3];
	unsigned int age;
	uint64_t blocks;	/* that fit at once */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shape shapes[SHAPES];
static char *own_patterns; /* $DETSHARE_RESIDENT_NAMES, split by NUL, ended by an empty one */
static bool own_patterns_read;

static uint64_t word_of(const void *function, unsigned int now, unsigned int facts)
{
	return (uint64_t)(uintptr_t)function << 16 | (uint64_t)(now & OLDEST) << 8 | facts;
}

static size_t slot_of(const void *function)
{
	return (size_t)(((uint64_t)(uintptr_t)function >> 4) * 0x9e3779b97f4a7c15ull >> 52) % FUNCTIONS;
}

/* A handle of either kind as a function of the current context. */
static CUfunction as_function(void *handle)
{
	const char *name;
	CUfunction function = NULL;

	/* The driver refuses the name of a function for the handle of a kernel. */
	if (!ds_has(cuFuncGetName) || real->cuFuncGetName(&name, handle) == CUDA_SUCCESS)
		return handle;
	return real->cuKernelGetFunction(&function, handle) == CUDA_SUCCESS ? function : handle;
}

static void read_own_patterns(void)
{
	const char *given = getenv("DETSHARE_RESIDENT_NAMES");
	char *at;

	own_patterns_read = true;
	if (!given || !*given)
		return;
	own_patterns = calloc(1, strlen(given) + 2);
	if (!own_patterns)
		return;
	strcpy(own_patterns, given);
	for (at = own_patterns; *at; at++)
		if (*at == ',')
			*at = '\0';
}

/* The first identifier of a name that a C++ compiler made: the driver says _Z13ncclDevKernel24... of ncclDevKernel(). */
static bool identifier(const char *name, char *into, size_t size)
{
	size_t length;

	if (strncmp(name, "_Z", 2))
		return false;
	name += 2;
	name += strspn(name, "NL"); /* in a namespace; static */
	length = strtoul(name, (char **)&name, 10);
	if (!length || length >= size || length > strlen(name))
		return false;
	memcpy(into, name, length);
	into[length] = '\0';
	return true;
}

static bool matches(const char *pattern, const char *name)
{
	char own[256];

	return !fnmatch(pattern, name, 0) || (identifier(name, own, sizeof(own)) && !fnmatch(pattern, own, 0));
}

static bool named(const char *name)
{
	const char *const *pattern;
	const char *own;

	for (pattern = patterns; *pattern; pattern++)
		if (matches(*pattern, name))
			return true;
	pthread_mutex_lock(&lock);
	if (!own_patterns_read)
		read_own_patterns();
	pthread_mutex_unlock(&lock);
	for (own = own_patterns; own && *own; own += strlen(own) + 1)
		if (matches(own, name))
			return true;
	return false;
}

static unsigned int learn(void *handle, unsigned int now)
{
	const int required_cluster_width = 11;
	const char *name = NULL;
	CUfunction function;
	unsigned int facts = 0;
	int width = 0;

	if (ds_has(cuFuncGetName) && real->cuFuncGetName(&name, handle) != CUDA_SUCCESS)
		name = NULL;
	if (!name && ds_has(cuKernelGetName) && real->cuKernelGetName(&name, handle) != CUDA_SUCCESS)
		name = NULL;
	if (name && named(name))
		facts |= FACT_NAME;
	function = as_function(handle);
	if (real->cuFuncGetAttribute(&width, required_cluster_width, function) == CUDA_SUCCESS && width > 0)
		facts |= FACT_CLUSTER;
	atomic_store_explicit(&functions[slot_of(handle)], word_of(handle, now, facts), memory_order_relaxed);
	return facts;
}

static unsigned int facts_of(void *handle)
{
	unsigned int now = atomic_load_explicit(&age, memory_order_acquire);
	uint64_t word = atomic_load_explicit(&functions[slot_of(handle)], memory_order_relaxed);

	if (ds_likely(word >> 8 == word_of(handle, now, 0) >> 8))
		return word & 0xff;
	return learn(handle, now);
}

static const CUlaunchAttributeValue *attribute(const CUlaunchConfig *config, CUlaunchAttributeID id)
{
	unsigned int index;

	for (index = 0; config && index < config->numAttrs; index++)
		if (config->attrs[index].id == id)
			return &config->attrs[index].value;
	return NULL;
}

/* The shape of the clusters; false: the launch has none. */
static bool clusters(const struct ds_launch *launch, unsigned int facts, unsigned int *shape)
{
	const CUlaunchAttributeValue *value = attribute(launch->config, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
	CUfunction function;
	int index, size;

	shape[0] = shape[1] = shape[2] = 0;
	if (value && value->clusterDim.x) {
		shape[0] = value->clusterDim.x;
		shape[1] = value->clusterDim.y ? value->clusterDim.y : 1;
		shape[2] = value->clusterDim.z ? value->clusterDim.z : 1;
		return shape[0] * shape[1] * shape[2] > 1;
	}
	if (!(facts & FACT_CLUSTER))
		return false;
	function = as_function(launch->function);
	for (index = 0; index < 3; index++) {
		if (real->cuFuncGetAttribute(&size, 11 + index, function) != CUDA_SUCCESS || size < 1)
			size = 1;
		shape[index] = size;
	}
	return shape[0] * shape[1] * shape[2] > 1;
}

/* Blocks of the launch that the tier holds at once; 0 also where the driver does not say. */
static uint64_t ask(struct ds_device *device, unsigned int tier, const struct ds_launch *launch, const unsigned int *cluster)
{
	unsigned int threads = launch->block[0] * launch->block[1] * launch->block[2];
	unsigned int size = cluster[0] * cluster[1] * cluster[2];
	CUfunction function = as_function(launch->function);
	CUlaunchAttribute shape = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {
		launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
		launch->shared, NULL, &shape, 1,
	};
	int count = 0;
	CUresult result;

	if (size <= 1) {
		result = real->cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, threads, launch->shared);
		return result == CUDA_SUCCESS && count > 0 ? (uint64_t)count * ds_pool_sms(device, tier) : 0;
	}
	if (!ds_has(cuOccupancyMaxActiveClusters))
		return 0;
	shape.value.clusterDim.x = cluster[0];
	shape.value.clusterDim.y = cluster[1];
	shape.value.clusterDim.z = cluster[2];
	/* With a null stream the driver answers for the context that is current. */
	if (real->cuCtxPushCurrent_v2(ds_pool_ctx(device, tier)) != CUDA_SUCCESS)
		return 0;
	result = real->cuOccupancyMaxActiveClusters(&count, function, &config);
	real->cuCtxPopCurrent_v2(&(CUcontext){NULL});
	return result == CUDA_SUCCESS && count > 0 ? (uint64_t)count * size : 0;
}

static size_t place_of(const struct shape *shape)
{
	uint64_t words[offsetof(struct shape, blocks) / sizeof(uint64_t)], hash = 0;
	size_t index;

	memcpy(words, shape, sizeof(words));
	for (index = 0; index < sizeof(words) / sizeof(words[0]); index++)
		hash = (hash ^ words[index]) * 0x9e3779b97f4a7c15ull;
	return (hash >> 58) % SHAPES;
}

static uint64_t room(struct ds_device *device, unsigned int tier, const struct ds_launch *launch, const unsigned int *cluster)
{
	struct shape wanted = {
		.context = ds_pool_ctx(device, tier),
		.function = launch->function,
		.block = {launch->block[0], launch->block[1], launch->block[2]},
		.shared = launch->shared,
		.cluster = {cluster[0], cluster[1], cluster[2]},
		.age = atomic_load_explicit(&age, memory_order_acquire),
	};
	struct shape *known = &shapes[place_of(&wanted)];
	uint64_t blocks;

	pthread_mutex_lock(&lock);
	if (known->context && !memcmp(known, &wanted, offsetof(struct shape, blocks))) {
		blocks = known->blocks;
		pthread_mutex_unlock(&lock);
		return blocks;
	}
	pthread_mutex_unlock(&lock);
	blocks = ask(device, tier, launch, cluster);
	pthread_mutex_lock(&lock);
	*known = wanted;
	known->blocks = blocks;
	pthread_mutex_unlock(&lock);
	return blocks;
}

int ds_resident_check(struct ds_device *device, unsigned int tier, const struct ds_launch *launch)
{
	const CUlaunchAttributeValue *value;
	unsigned int cluster[3];
	unsigned int facts;
	bool cooperative, clustered;
	uint64_t blocks;

	if (!tier || launch->kind == DS_LAUNCH_GRAPH)
		return -1;
	facts = facts_of(launch->function);
	cooperative = launch->kind == DS_LAUNCH_COOPERATIVE;
	if (ds_likely(!facts && !cooperative && (!launch->config || !launch->config->numAttrs)))
		return -1;
	if (facts & FACT_NAME)
		return DS_FULL_NAME;
	value = attribute(launch->config, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
	cooperative |= value && value->cooperative;
	clustered = clusters(launch, facts, cluster);
	if (!cooperative && !clustered)
		return -1;
	blocks = room(device, tier, launch, cluster);
	if (clustered && !blocks)
		return DS_FULL_CLUSTER;
	if (cooperative && blocks < (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2])
		return DS_FULL_COOPERATIVE;
	return -1;
}

bool ds_resident_fits(struct ds_device *device, unsigned int tier, const struct ds_launch *launch)
{
	int reason = ds_resident_check(device, tier, launch);

	if (ds_likely(reason < 0))
		return true;
	ds_pages_full_run(device->pages, reason);
	return false;
}

bool ds_resident_meets(const struct ds_launch *launch)
{
	return launch->kind == DS_LAUNCH_GRAPH || (facts_of(launch->function) & FACT_NAME);
}

void ds_resident_forget(void)
{
	unsigned int index;

	/* The age comes round: words that old are taken away before they could be believed again. */
	if ((atomic_fetch_add_explicit(&age, 1, memory_order_acq_rel) & OLDEST) == OLDEST)
		for (index = 0; index < FUNCTIONS; index++)
			atomic_store_explicit(&functions[index], 0, memory_order_relaxed);
}

static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(shapes, 0, sizeof(shapes));
	ds_resident_forget();
}

static const struct ds_lifecycle life = { .child = child };
DS_LIST_ADD(ds_lifecycles, life);
