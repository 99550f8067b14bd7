// SPDX-License-Identifier: Apache-2.0
/*
 * What one decision of the RM core costs in user space, at a given number of
 * living objects: `bench [PAIRS [REPEATS [OBJECTS...]]]`. Prints one line of
 * JSON, in nanoseconds of CPU time, per repeat and number of objects; the
 * numbers take turns within a repeat because machines drift. `detshare bench rm-core` runs
 * it and takes the medians.
 *
 * A pair is an allocation of GPU memory (decode the block and its parameters,
 * find the parent, reserve, charge three accounts, decode the answer, settle,
 * insert) and the free of another object picked at random (decode, find,
 * unlink, give back): two decisions. A control is decode and find of an object
 * picked at random.
 */
#include "../../kmod/rm/decode.h"
#include "../../kmod/rm/quota.h"
#include "../../kmod/rm/tree.h"

#include <sched.h>
#include <time.h>

#define CLIENT 0xc1d00001u
#define DEVICE 0x5c000001u
#define SIZES_MAX 16

struct world {
	const struct rm_abi *abi;
	struct rm_client client;
	struct rm_payer payer;
	struct rm_account accounts[3];
	u32 *handles;
	u32 live;
	u32 next_handle;
	u64 random;
	u8 block[64], params[256];
};

static void die(const char *what)
{
	fprintf(stderr, "bench: %s\n", what);
	exit(1);
}

/* CPU time of this thread, ns: what others do on this machine meanwhile is not the core's cost. */
static u64 now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec;
}

static u32 pick(struct world *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (u32)(((w->random >> 32) * w->live) >> 32);
}

/* The core's part of one RM_ALLOC, as the module does it; the driver's part is that it answers. */
static u32 allocate(struct world *w, u64 bytes)
{
	const struct rm_abi *abi = w->abi;
	struct rm_call call;
	struct rm_alloc asked, answer;
	struct rm_insert insert = { 0 };
	u64 charged, actual;

	rm_put32(w->block, abi->nvos64.hObjectNew, w->next_handle++);
	rm_put64(w->params, abi->memory.size, bytes);
	if (rm_decode(abi, NV_ESC_RM_ALLOC, w->block, abi->nvos64.len, &call) ||
	    rm_decode_alloc(abi, call.class, w->params, abi->memory.len, &asked))
		die("an allocation was not decoded");
	if (!rm_tree_find(&w->client, call.parent) || rm_tree_reserve(&w->client))
		die("no parent, or no memory");
	charged = rm_round_up_request(&asked);
	if (rm_payer_charge(&w->payer, charged, NULL))
		die("a charge was refused");
	rm_put64(w->params, abi->memory.size, charged);
	if (rm_decode_alloc(abi, call.class, w->params, abi->memory.len, &answer))
		die("an answer was not decoded");
	actual = rm_payer_settle(&w->payer, charged, rm_answer_bytes(&asked, &answer));
	insert.handle = call.object;
	insert.parent = call.parent;
	insert.class = call.class;
	insert.gpu = RM_GPU_INHERIT;
	insert.bytes = actual;
	if (!rm_tree_insert(&w->client, &insert))
		die("an object was not inserted");
	return call.object;
}

static void release(struct world *w, u32 handle)
{
	u8 block[16] = { 0 };
	struct rm_call call;

	rm_put32(block, w->abi->nvos00.hRoot, CLIENT);
	rm_put32(block, w->abi->nvos00.hObjectOld, handle);
	if (rm_decode(w->abi, NV_ESC_RM_FREE, block, w->abi->nvos00.len, &call) ||
	    rm_tree_free(&w->client, call.object) != 1)
		die("a free did not free one object");
}

static u32 control(struct world *w, u32 handle)
{
	u8 block[32] = { 0 };
	struct rm_call call;
	const struct rm_object *object;

	rm_put32(block, w->abi->nvos54.hClient, CLIENT);
	rm_put32(block, w->abi->nvos54.hObject, handle);
	if (rm_decode(w->abi, NV_ESC_RM_CONTROL, block, w->abi->nvos54.len, &call))
		die("a control was not decoded");
	object = rm_tree_find(&w->client, call.object);
	if (!object)
		die("an object was not found");
	return object->class;
}

static struct world *build(u32 objects)
{
	struct world *w = calloc(1, sizeof(*w));
	enum rm_abi_match how;
	struct rm_insert device = { .handle = DEVICE, .parent = CLIENT, .class = NV01_DEVICE_0 };
	u32 i;

	if (!w)
		die("no memory");
	w->abi = rm_abi_lookup("580.142", &how);
	w->random = 88172645463325252ull;
	w->next_handle = DEVICE + 1;
	w->handles = calloc(objects, sizeof(*w->handles));
	if (!w->handles || rm_client_init(&w->client, w->abi, CLIENT, NULL) ||
	    rm_tree_reserve(&w->client))
		die("no memory");
	w->client.payer[0] = &w->payer;
	for (i = 0; i < 3; i++) {
		rm_account_init(&w->accounts[i], 1ull << 50);
		rm_payer_join(&w->payer, &w->accounts[i]);
	}
	rm_tree_insert(&w->client, &device);
	rm_put32(w->block, w->abi->nvos64.hRoot, CLIENT);
	rm_put32(w->block, w->abi->nvos64.hObjectParent, DEVICE);
	rm_put32(w->block, w->abi->nvos64.hClass, NV01_MEMORY_LOCAL_USER);
	/* the client and its device are objects too */
	w->live = objects > 3 ? objects - 2 : 1;
	for (i = 0; i < w->live; i++)
		w->handles[i] = allocate(w, 4 << 20);
	/* old objects are not to lie in the order of their handles' ages */
	for (i = w->live - 1; i > 0; i--) {
		u32 live = w->live, other, swap = w->handles[i];

		w->live = i + 1;
		other = pick(w);
		w->live = live;
		w->handles[i] = w->handles[other];
		w->handles[other] = swap;
	}
	return w;
}

/* Nanoseconds per decision. */
static double measure_pairs(struct world *w, u32 pairs)
{
	u32 i, at = pick(w);
	u64 start = now();

	for (i = 0; i < pairs; i++) {
		u32 next = pick(w), old = w->handles[at];

		/* the handle comes with the call: fetching it is not the core's */
		__builtin_prefetch(&w->handles[next]);
		w->handles[at] = allocate(w, (u64)(1 + (next & 7)) << 20);
		release(w, old);
		at = next;
	}
	return (double)(now() - start) / pairs / 2;
}

static double measure_controls(struct world *w, u32 calls)
{
	u32 i, at = pick(w), sum = 0;
	u64 start = now();

	for (i = 0; i < calls; i++) {
		u32 next = pick(w);

		__builtin_prefetch(&w->handles[next]);
		sum += control(w, w->handles[at]);
		at = next;
	}
	if (sum != calls * (u32)NV01_MEMORY_LOCAL_USER)
		die("an object has another class than it was made with");
	return (double)(now() - start) / calls;
}

static u32 number(const char *text, u32 max)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || !value || value > max) {
		fprintf(stderr, "bench: %s is no number from 1 to %u; usage: bench [PAIRS [REPEATS [OBJECTS...]]]\n",
			text, max);
		exit(2);
	}
	return (u32)value;
}

int main(int argc, char **argv)
{
	static const u32 usual[] = { 10, 100, 1000, 10000, 100000 };
	struct world *worlds[SIZES_MAX];
	u32 pairs = argc > 1 ? number(argv[1], 100000000) : 30000;
	u32 repeats = argc > 2 ? number(argv[2], 10000) : 31;
	struct sched_param priority = { .sched_priority = 1 };
	u32 sizes[SIZES_MAX], n = 0, i, r;
	bool fifo;

	for (i = 3; i < (u32)argc && n < SIZES_MAX; i++)
		sizes[n++] = number(argv[i], 1000000);
	for (i = 0; argc <= 3 && i < sizeof(usual) / sizeof(usual[0]); i++)
		sizes[n++] = usual[i];
	fifo = !sched_setscheduler(0, SCHED_FIFO, &priority);
	for (i = 0; i < n; i++)
		worlds[i] = build(sizes[i]);
	for (r = 0; r < repeats; r++) {
		for (i = 0; i < n; i++) {
			/* bring the world back into the caches, uncounted */
			measure_pairs(worlds[i], pairs / 2 + 1);
			printf("{\"repeat\": %u, \"objects\": %u, \"decision_ns\": %.2f, ", r,
			       worlds[i]->client.objects, measure_pairs(worlds[i], pairs));
			printf("\"control_ns\": %.2f, \"fifo\": %s}\n",
			       measure_controls(worlds[i], pairs), fifo ? "true" : "false");
		}
	}
	for (i = 0; i < n; i++) {
		rm_client_destroy(&worlds[i]->client);
		if (rm_payer_bytes(&worlds[i]->payer) || rm_account_used(&worlds[i]->accounts[0]))
			die("bytes are left over");
		free(worlds[i]->handles);
		free(worlds[i]);
	}
	return 0;
}
