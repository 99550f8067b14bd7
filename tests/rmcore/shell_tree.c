// SPDX-License-Identifier: Apache-2.0
/*
 * Clients, accounts and memory of the test shell. Clients are known by their
 * handle, accounts by number, memory that the shell itself holds by number.
 */
#include "shell.h"

#define CLIENTS 16
#define ACCOUNTS 16
#define HOLDS 64

struct member {
	struct rm_client client;
	struct rm_payer payers[RM_GPUS + 1];
	bool used;
};

static struct member members[CLIENTS];
static struct rm_account accounts[ACCOUNTS];

/* Holds without an object: as of a UVM range or an exported file. */
static struct {
	struct rm_memory *memory;
	struct rm_payer *payer;
} holds[HOLDS];

static u32 died[1 << 16];
static u32 n_died;
static s64 fail_in = -1;

static bool fail(size_t size)
{
	(void)size;
	return fail_in >= 0 && fail_in-- == 0;
}

static void dying(struct rm_client *client, struct rm_object *object)
{
	(void)client;
	if (n_died < sizeof(died) / sizeof(died[0]))
		died[n_died++] = object->handle;
}

static struct member *member(void)
{
	u32 handle = (u32)num(), i;

	for (i = 0; i < CLIENTS; i++)
		if (members[i].used && members[i].client.handle == handle)
			return &members[i];
	die("there is no client %#x", handle);
}

static struct rm_account *account(void)
{
	u64 n = num();

	if (n >= ACCOUNTS)
		die("there is no account %lu", n);
	return &accounts[n];
}

/* GPU "-": none */
static u32 gpu_number(void)
{
	const char *text = word();
	u64 gpu = strcmp(text, "-") ? value(text) : RM_GPU_NONE;

	if (gpu > RM_GPU_NONE && gpu != RM_GPU_INHERIT)
		die("there is no GPU %lu", gpu);
	return (u32)gpu;
}

static struct rm_payer *payer(void)
{
	struct member *m = member();
	u32 gpu = gpu_number();

	if (gpu > RM_GPU_NONE)
		die("a payer has a GPU or none");
	return &m->payers[gpu];
}

static struct rm_object *object(struct member *m)
{
	u32 handle = (u32)num();
	struct rm_object *found = rm_tree_find(&m->client, handle);

	if (!found)
		die("there is no object %#x", handle);
	return found;
}

/* client HANDLE */
static void do_client(void)
{
	u32 handle = (u32)num(), i, gpu;
	int error;

	for (i = 0; i < CLIENTS && members[i].used; i++)
		;
	if (i == CLIENTS)
		die("too many clients");
	memset(&members[i], 0, sizeof(members[i]));
	error = rm_client_init(&members[i].client, abi, handle, dying);
	members[i].used = !error;
	for (gpu = 0; gpu <= RM_GPU_NONE && !error; gpu++)
		members[i].client.payer[gpu] = &members[i].payers[gpu];
	done(error);
}

static void end_member(struct member *m)
{
	u32 gpu;

	rm_client_destroy(&m->client);
	for (gpu = 0; gpu <= RM_GPU_NONE; gpu++) {
		if (m->payers[gpu].objects || m->payers[gpu].own)
			die("a payer has %u objects and %lu bytes left", m->payers[gpu].objects,
			    m->payers[gpu].own);
		rm_payer_leave_all(&m->payers[gpu]);
	}
	m->used = false;
}

static void put_died(const char *head)
{
	u32 i;

	printf("ok %s died=", head);
	for (i = 0; i < n_died; i++)
		printf("%s%u", i ? "," : "", died[i]);
	printf("\n");
}

/* destroy CLIENT */
static void do_destroy(void)
{
	n_died = 0;
	end_member(member());
	put_died("end=1");
}

/* account N LIMIT */
static void do_account(void)
{
	struct rm_account *a = account();

	rm_account_init(a, num());
	done(0);
}

/* limit N LIMIT */
static void do_limit(void)
{
	struct rm_account *a = account();

	rm_account_set_limit(a, num());
	done(0);
}

/* usage N */
static void do_usage(void)
{
	const struct rm_account *a = account();

	printf("ok limit=%lu used=%lu peak=%lu refused=%lu room=%lu\n", rm_account_limit(a),
	       rm_account_used(a), rm_account_peak(a), rm_account_refused(a), rm_account_room(a));
}

/* join CLIENT GPU N, leave CLIENT GPU N */
static void do_join(void)
{
	struct rm_payer *p = payer();

	done(rm_payer_join(p, account()));
}

static void do_leave(void)
{
	struct rm_payer *p = payer();

	done(rm_payer_leave(p, account()));
}

/* charge CLIENT GPU BYTES, force ..., uncharge ... */
static void do_charge(void)
{
	struct rm_payer *p = payer();
	struct rm_account *refuser = NULL;
	int error = rm_payer_charge(p, num(), &refuser);

	if (error)
		printf("error %d refuser=%ld\n", -error, refuser ? (long)(refuser - accounts) : -1L);
	else
		done(0);
}

static void do_force(void)
{
	struct rm_payer *p = payer();

	rm_payer_force(p, num());
	done(0);
}

static void do_uncharge(void)
{
	struct rm_payer *p = payer();

	rm_payer_uncharge(p, num());
	done(0);
}

/* charge-accounts BYTES N...: without a payer; what is granted is given back at once */
static void do_charge_accounts(void)
{
	struct rm_account *list[RM_ACCOUNTS_MAX], *refuser = NULL;
	unsigned int n = 0;
	u64 amount = num();
	char *next;
	int error;

	while (n < RM_ACCOUNTS_MAX && more(&next))
		list[n++] = &accounts[value(next) % ACCOUNTS];
	error = rm_charge(list, n, amount, &refuser);
	if (error) {
		printf("error %d refuser=%ld\n", -error, refuser ? (long)(refuser - accounts) : -1L);
		return;
	}
	rm_uncharge(list, n, amount);
	done(0);
}

/* settle CLIENT GPU CHARGED ACTUAL */
static void do_settle(void)
{
	struct rm_payer *p = payer();
	u64 charged = num();

	rm_payer_settle(p, charged, num());
	done(0);
}

/* payer CLIENT GPU */
static void do_payer(void)
{
	const struct rm_payer *p = payer();
	u32 kind;

	printf("ok own=%lu bytes=%lu kept=%lu objects=%u counts=", p->own, rm_payer_bytes(p),
	       rm_payer_kept(p), p->objects);
	for (kind = 0; kind < RM_KINDS; kind++)
		printf("%s%u", kind ? "," : "", p->count[kind]);
	printf("\n");
}

/* view CLIENT GPU */
static void do_view(void)
{
	struct rm_view view;

	rm_payer_view(payer(), &view);
	printf("ok limit=%lu room=%lu\n", view.limit, view.room);
}

/* reserve CLIENT, unreserve CLIENT */
static void do_reserve(void)
{
	done(rm_tree_reserve(&member()->client));
}

static void do_unreserve(void)
{
	rm_tree_unreserve(&member()->client);
	done(0);
}

/* insert CLIENT HANDLE PARENT CLASS GPU BYTES|mN ENGINE [DEP...]: mN is the shell's hold N, taken over */
static void do_insert(void)
{
	struct member *m = member();
	struct rm_insert insert = { 0 };
	u32 deps[RM_DEPS_MAX];
	const char *text;
	char *dep;

	insert.handle = (u32)num();
	insert.parent = (u32)num();
	insert.class = (u32)num();
	insert.gpu = gpu_number();
	text = word();
	if (*text == 'm') {
		u64 n = value(text + 1);

		insert.memory = holds[n].memory;
		insert.flags = RM_OBJECT_DUP;
		holds[n].memory = NULL;
	} else {
		insert.bytes = value(text);
	}
	insert.engine = (u32)num();
	insert.deps = deps;
	while (insert.n_deps < RM_DEPS_MAX && more(&dep))
		deps[insert.n_deps++] = (u32)value(dep);
	n_died = 0;
	put_died(rm_tree_insert(&m->client, &insert) ? "made=1" : "made=0");
}

/* free CLIENT HANDLE */
static void do_free(void)
{
	struct member *m = member();
	char head[32];

	n_died = 0;
	snprintf(head, sizeof(head), "count=%u", rm_tree_free(&m->client, (u32)num()));
	put_died(head);
}

/* dump CLIENT: handle:parent:class:gpu:bytes:kind:flags:engine,... by index */
static void do_dump(void)
{
	const struct rm_client *client = &member()->client;
	const struct rm_object *o = NULL, *parent;
	u32 kind, n = 0;

	printf("ok objects=%u counts=", client->objects);
	for (kind = 0; kind < RM_KINDS; kind++)
		printf("%s%u", kind ? "," : "", client->count[kind]);
	printf(" tree=");
	while ((o = rm_tree_next(client, o))) {
		if (rm_tree_find(client, o->handle) != o)
			die("%#x is not found", o->handle);
		parent = rm_tree_parent(client, o);
		printf("%s%u:%u:%u:%u:%lu:%u:%u:%u", n++ ? "," : "", o->handle,
		       parent ? parent->handle : 0, o->class, o->gpu, rm_object_bytes(o), o->kind,
		       o->flags, o->engine);
	}
	printf("\n");
}

/* children CLIENT HANDLE */
static void do_children(void)
{
	struct member *m = member();
	const struct rm_object *o = object(m), *child;
	bool first = true;

	printf("ok computes=%d children=", rm_tree_computes(&m->client, o));
	for (child = rm_tree_child(&m->client, o); child; child = rm_tree_sibling(&m->client, child)) {
		printf("%s%u", first ? "" : ",", child->handle);
		first = false;
	}
	printf("\n");
}

/* hold CLIENT HANDLE PAYER-CLIENT GPU N [force]: the shell's hold N of that object's memory */
static void do_hold(void)
{
	struct member *m = member();
	struct rm_object *o = object(m);
	struct rm_payer *p = payer();
	u64 n = num();
	struct rm_account *refuser = NULL;
	struct rm_memory *memory;
	char *force;
	int error;

	if (n >= HOLDS || holds[n].memory)
		die("hold %lu is taken", n);
	error = rm_memory_share(&m->client, o, &memory);
	if (!error)
		error = more(&force) ? rm_memory_hold_force(memory, p) :
				       rm_memory_hold(memory, p, &refuser);
	if (!error) {
		holds[n].memory = memory;
		holds[n].payer = p;
	}
	if (error)
		printf("error %d refuser=%ld\n", -error, refuser ? (long)(refuser - accounts) : -1L);
	else
		done(0);
}

/* drop N */
static void do_drop(void)
{
	u64 n = num();

	rm_memory_drop(holds[n].memory, holds[n].payer);
	holds[n].memory = NULL;
	done(0);
}

/* fail N: the allocation after N more fails, once */
static void do_fail(void)
{
	rm_fail_alloc = fail;
	fail_in = (s64)num();
	done(0);
}

bool tree_command(const char *name)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} commands[] = {
		{ "client", do_client },     { "destroy", do_destroy },	  { "account", do_account },
		{ "limit", do_limit },	     { "usage", do_usage },	  { "join", do_join },
		{ "leave", do_leave },	     { "charge", do_charge },	  { "force", do_force },
		{ "uncharge", do_uncharge }, { "settle", do_settle },	  { "payer", do_payer },
		{ "view", do_view },	     { "reserve", do_reserve },	  { "unreserve", do_unreserve },
		{ "insert", do_insert },     { "free", do_free },
		{ "dump", do_dump },	     { "children", do_children }, { "hold", do_hold },
		{ "drop", do_drop },	     { "fail", do_fail },
		{ "charge-accounts", do_charge_accounts },
	};
	unsigned int i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(name, commands[i].name)) {
			commands[i].run();
			return true;
		}
	return false;
}

void tree_end(void)
{
	u32 i;

	for (i = 0; i < HOLDS; i++)
		if (holds[i].memory)
			rm_memory_drop(holds[i].memory, holds[i].payer);
	for (i = 0; i < CLIENTS; i++)
		if (members[i].used) {
			/* charges without an object are the caller's to give back */
			u32 gpu;

			for (gpu = 0; gpu <= RM_GPU_NONE; gpu++) {
				struct rm_object *o = NULL;
				u64 objects = 0;

				while ((o = rm_tree_next(&members[i].client, o)))
					if (o->gpu == gpu && !o->memory)
						objects += o->bytes;
				rm_payer_uncharge(&members[i].payers[gpu],
						  members[i].payers[gpu].own - objects);
			}
			end_member(&members[i]);
		}
	for (i = 0; i < ACCOUNTS; i++)
		if (rm_account_used(&accounts[i]))
			die("account %u has %lu bytes left", i, rm_account_used(&accounts[i]));
}
