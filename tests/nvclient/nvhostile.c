// SPDX-License-Identifier: Apache-2.0
/* A hostile tenant without a C library: it plays the tricks of hostile/ that it is told to, one line each. */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "hostile/hostile.h"

static const char usage[] =
	"usage: nvhostile --list | VERSION [GPU] | --run VERSION\n"
	"Plays tricks, each named by a line of standard input, and answers each by a line of JSON.\n"
	"  --list           the tricks: name, goal, what it does\n"
	"  VERSION          the driver's\n"
	"  --run VERSION    only: a program with an endless kernel, for a second\n"
	"Lines besides the tricks' names:\n"
	"  neighbour CLIENT TSG CHANNEL   against whom the tricks against others go\n"
	"  endless                        an endless kernel into its channel\n"
	"  groups N, programs N           N more channel groups, or children, each with an endless kernel\n"
	"example: echo own-slice | nvhostile 580.159.04\n";

static const struct trick *const tables[] = { order_tricks, run_tricks, ring_tricks, door_tricks, neighbour_tricks };

u8 *fresh_params(void)
{
	static u8 params[PARAMS];

	memset(params, 0, sizeof(params));
	return params;
}

void put_word(u8 *params, u32 at, u32 value)
{
	rm_put32(params, (struct rm_f32){ (u16)at }, value);
}

u32 control(struct hostile *h, u32 object, u32 cmd, void *params, u32 size)
{
	return nv_control(&h->program.nv, h->program.client, object, cmd, params, size);
}

u32 in_child(struct hostile *h, u32 (*play)(struct hostile *h), u32 ms)
{
	u32 *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int child, code;
	u32 status;

	*told = NV_ERRNO(ETIME);
	child = fork_process();
	if (!child) {
		*told = play(h);
		/* what it has begun goes on until it has been looked at */
		rest(ms);
		leave(0);
	}
	code = wait_for(child, ms);
	if (code < 0)
		kill_process(child);
	status = code > 0 ? NV_ERRNO(EFAULT) : *told;
	munmap(told, 4096);
	return status;
}

static void list(void)
{
	u32 i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct trick *trick = tables[i]; trick->name; trick++)
			say(1, "{\"name\":\"%s\",\"goal\":\"%s\",\"about\":\"%s\"}\n", trick->name, trick->goal,
			    trick->about);
}

static const struct trick *find(const char *name)
{
	u32 i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct trick *trick = tables[i]; trick->name; trick++)
			if (!strcmp(trick->name, name))
				return trick;
	return NULL;
}

static bool set_up(struct hostile *h, const char *version, u32 gpu)
{
	const char *step = "a table for this driver";
	enum rm_abi_match how;
	struct nv *nv = &h->program.nv;
	u32 status = NV_ERRNO(ENOENT);

	memset(h, 0, sizeof(*h));
	snprintf(nv->version, sizeof(nv->version), "%s", version);
	nv->abi = rm_abi_lookup(version, &how);
	nv->next = NV_OBJECTS;
	h->program.gpu_number = gpu;
	if (nv->abi) {
		step = "open nvidiactl";
		nv->ctl = nv_open_device("nvidiactl");
		status = nv->ctl < 0 ? NV_ERRNO(-nv->ctl) : nv_program_base(&h->program, &step);
	}
	if (!status)
		status = nv_program_context(&h->program, &step);
	if (!status)
		status = nv_channel_open(&h->channel, &h->program, h->program.tsg, h->program.ctxshare,
					 NV2080_ENGINE_TYPE_GR0, &step);
	if (!status) {
		step = "GPFIFO_SCHEDULE";
		status = nv_schedule(&h->program, h->program.tsg, true);
	}
	if (status) {
		say(2, "nvhostile: %s: status 0x%x\n", step, status);
		return false;
	}
	h->raw = nv_next_handle(nv);
	if (nv_alloc(nv, h->program.client, h->program.subdevice, &h->raw, NV2081_BINAPI, fresh_params(), 4))
		h->raw = 0;
	return true;
}

static void more_programs(struct hostile *h, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (fork_process())
			continue;
		run_new_program(h);
		for (;;)
			rest(1000);
	}
}

static void more_groups(struct hostile *h, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		run_new_group(h);
}

static void answer(const char *name, u32 status)
{
	say(1, "{\"event\":\"played\",\"name\":\"%s\",\"status\":%u}\n", name, status);
}

static void obey(struct hostile *h, char *line)
{
	char *rest_of_line = line, *name = next_word(&rest_of_line), *word;
	const struct trick *trick = name ? find(name) : NULL;
	u64 numbers[3] = { 0 };
	u32 i;

	for (i = 0; i < 3 && (word = next_word(&rest_of_line)); i++)
		numbers[i] = to_number(word);
	if (!name)
		return;
	if (trick) {
		answer(name, trick->play(h));
		return;
	}
	if (!strcmp(name, "neighbour")) {
		h->other_client = (u32)numbers[0];
		h->other_tsg = (u32)numbers[1];
		h->other_channel = (u32)numbers[2];
	} else if (!strcmp(name, "endless")) {
		submit_endless(&h->channel);
	} else if (!strcmp(name, "groups")) {
		more_groups(h, (u32)numbers[0]);
	} else if (!strcmp(name, "programs")) {
		more_programs(h, (u32)numbers[0]);
	} else {
		say(2, "nvhostile: %s is no trick; see --list\n", name);
		leave(2);
	}
	answer(name, 0);
}

int hostile_main(int argc, char **argv)
{
	static struct hostile hostile;
	static char line[256];

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		list();
		return 0;
	}
	if (argc == 3 && !strcmp(argv[1], "--run")) {
		if (!set_up(&hostile, argv[2], 0))
			return 1;
		submit_endless(&hostile.channel);
		rest(1000);
		return 0;
	}
	if (argc < 2 || argc > 3 || argv[1][0] == '-') {
		say(argc == 2 && !strcmp(argv[1], "--help") ? 1 : 2, "%s", usage);
		return argc == 2 && !strcmp(argv[1], "--help") ? 0 : 2;
	}
	if (!set_up(&hostile, argv[1], argc == 3 ? (u32)to_number(argv[2]) : 0))
		return 1;
	say(1, "{\"event\":\"ready\",\"pid\":%d,\"client\":%u,\"tsg\":%u,\"channel\":%u,\"usermode\":%u}\n",
	    (int)sys(SYS_getpid, 0, 0, 0, 0, 0, 0), hostile.program.client, hostile.program.tsg, hostile.channel.handle,
	    hostile.program.usermode);
	while (next_line(line, sizeof(line)))
		obey(&hostile, line);
	return 0;
}
