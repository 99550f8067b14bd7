// SPDX-License-Identifier: Apache-2.0
/* Threads of the test shell that charge and share against each other, on accounts of their own. */
#include "shell.h"

#define ACCOUNTS 16

static struct rm_account accounts[ACCOUNTS];

struct racer {
	struct rm_account *accounts[RM_ACCOUNTS_MAX];
	unsigned int n;
	u64 unit, seed, granted, refused, over;
	u32 rounds;
	const bool *stop;
	pthread_t thread;
};

static u64 step(u64 *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

static void *race(void *data)
{
	struct racer *r = data;
	u64 held[8] = { 0 };
	u32 i;

	for (i = 0; i < r->rounds; i++) {
		u64 random = step(&r->seed), at = random % 8, bytes = (random >> 8) % r->unit + 1;

		if (held[at]) {
			rm_uncharge(r->accounts, r->n, held[at]);
			held[at] = 0;
		} else if (!rm_charge(r->accounts, r->n, bytes, NULL)) {
			held[at] = bytes;
			r->granted++;
		} else {
			r->refused++;
		}
	}
	for (i = 0; i < 8; i++)
		rm_uncharge(r->accounts, r->n, held[i]);
	return NULL;
}

/* Looks at the accounts all the time: none may ever be seen above its limit. */
static void *watch(void *data)
{
	struct racer *r = data;
	unsigned int i;

	while (!__atomic_load_n(r->stop, __ATOMIC_RELAXED))
		for (i = 0; i < r->n; i++)
			if (rm_account_used(r->accounts[i]) > rm_account_limit(r->accounts[i]) ||
			    rm_account_peak(r->accounts[i]) > rm_account_limit(r->accounts[i]))
				r->over++;
	return NULL;
}

/*
 * race THREADS ROUNDS LIMIT UNIT: account 0 is everybody's, the others are
 * each of one thread (modulo); all have this limit, charges are up to UNIT.
 */
static void do_race(void)
{
	u32 threads = (u32)num(), rounds = (u32)num(), i;
	u64 limit = num(), unit = num(), granted = 0, refused = 0, left = 0;
	struct racer racers[32], watcher = { 0 };
	bool stop = false;

	if (threads > 32)
		die("too many threads");
	for (i = 0; i < ACCOUNTS; i++)
		rm_account_init(&accounts[i], limit);
	for (i = 0; i < threads; i++) {
		memset(&racers[i], 0, sizeof(racers[i]));
		racers[i].accounts[0] = &accounts[1 + i % (ACCOUNTS - 1)];
		racers[i].accounts[1] = &accounts[0];
		racers[i].n = 2;
		racers[i].unit = unit;
		racers[i].rounds = rounds;
		racers[i].seed = 88172645463325252ull + i * 7919;
	}
	watcher.stop = &stop;
	watcher.n = RM_ACCOUNTS_MAX;
	for (i = 0; i < watcher.n; i++)
		watcher.accounts[i] = &accounts[i];
	pthread_create(&watcher.thread, NULL, watch, &watcher);
	for (i = 0; i < threads; i++)
		pthread_create(&racers[i].thread, NULL, race, &racers[i]);
	for (i = 0; i < threads; i++) {
		pthread_join(racers[i].thread, NULL);
		granted += racers[i].granted;
		refused += racers[i].refused;
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(watcher.thread, NULL);
	for (i = 0; i < ACCOUNTS; i++)
		left += rm_account_used(&accounts[i]) + (limit - rm_account_room(&accounts[i]));
	printf("ok granted=%lu refused=%lu over=%lu left=%lu peak=%lu\n", granted, refused,
	       watcher.over, left, rm_account_peak(&accounts[0]));
}

struct sharer {
	struct rm_memory *memory;
	struct rm_payer payer;
	u64 seed, refused;
	u32 rounds;
	pthread_t thread;
};

static void *share(void *data)
{
	struct sharer *s = data;
	u32 held = 0, i;

	for (i = 0; i < s->rounds; i++) {
		u64 random = step(&s->seed);

		if (random % 3 && held) {
			rm_memory_drop(s->memory, &s->payer);
			held--;
		} else if (!rm_memory_hold(s->memory, &s->payer, NULL)) {
			held++;
		} else {
			s->refused++;
		}
		if (!(random >> 8 & 63)) {
			struct rm_account *a = &accounts[2 + (random >> 16) % 4];

			/* the lock of its client: this thread is its only user */
			if (rm_payer_leave(&s->payer, a))
				rm_payer_join(&s->payer, a);
		}
	}
	while (held--)
		rm_memory_drop(s->memory, &s->payer);
	rm_payer_leave_all(&s->payer);
	return NULL;
}

/*
 * race-memory THREADS ROUNDS: threads hold and drop one memory of 1000 bytes;
 * account 0 is everybody's and pays once, account 1 has room for none. Every
 * second thread has account 1, so that its first hold is refused.
 */
static void do_race_memory(void)
{
	u32 threads = (u32)num(), rounds = (u32)num(), i;
	struct sharer sharers[16];
	struct rm_client owner;
	struct rm_payer payer = { 0 };
	struct rm_insert insert = { .handle = 1, .class = NV01_MEMORY_LOCAL_USER, .bytes = 1000 };
	struct rm_memory *memory;
	u64 refused = 0, left = 0;

	if (threads > 16 || rm_client_init(&owner, abi, 0xc1d0ffff, NULL) || rm_tree_reserve(&owner))
		die("too many threads, or no memory");
	for (i = 0; i < ACCOUNTS; i++)
		rm_account_init(&accounts[i], i == 1 ? 999 : 1000);
	owner.payer[0] = &payer;
	insert.parent = owner.handle;
	rm_payer_join(&payer, &accounts[0]);
	if (rm_payer_charge(&payer, 1000, NULL) ||
	    rm_memory_share(&owner, rm_tree_insert(&owner, &insert), &memory))
		die("nothing to share");
	for (i = 0; i < threads; i++) {
		memset(&sharers[i], 0, sizeof(sharers[i]));
		sharers[i].memory = memory;
		sharers[i].seed = 88172645463325252ull + i * 7919;
		sharers[i].rounds = rounds;
		rm_payer_join(&sharers[i].payer, &accounts[0]);
		if (i % 2)
			rm_payer_join(&sharers[i].payer, &accounts[1]);
	}
	for (i = 0; i < threads; i++)
		pthread_create(&sharers[i].thread, NULL, share, &sharers[i]);
	for (i = 0; i < threads; i++) {
		pthread_join(sharers[i].thread, NULL);
		refused += sharers[i].refused;
	}
	for (i = 1; i < ACCOUNTS; i++)
		left += rm_account_used(&accounts[i]);
	printf("ok common=%lu left=%lu refused=%lu peak=%lu\n", rm_account_used(&accounts[0]), left,
	       refused, rm_account_peak(&accounts[0]));
	rm_client_destroy(&owner);
	rm_payer_leave_all(&payer);
}

bool race_command(const char *name)
{
	if (!strcmp(name, "race"))
		do_race();
	else if (!strcmp(name, "race-memory"))
		do_race_memory();
	else
		return false;
	return true;
}
