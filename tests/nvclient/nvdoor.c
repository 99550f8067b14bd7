// SPDX-License-Identifier: Apache-2.0
/* A program whose doorbell mappings can be handled by the line: what a kernel that takes doorbells away must get right. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "door.h"

static const char usage[] =
	"Reads commands from standard input, ID VERB [NUMBER]..., carries each out in a thread of its own and answers with a\n"
	"JSON line when it is done. Slot 0 is the doorbell as CUDA maps it; a ring is counted where the simulated GPU counts.\n"
	"  kick SLOT N MS     ring N times; SIGUSR1 is handled meanwhile; tells how often MS passed between two rings\n"
	"  page SLOT P        write to page P of the mapping\n"
	"  spin SLOT THREADS  ring in that many threads until...\n"
	"  halt               ...now: how often in all\n"
	"  queue, ring SLOT   work for the channel, and the doorbell's word for it\n"
	"  map SLOT           arm a file for the usermode object and map it\n"
	"  arm SLOT           arm only\n"
	"  view SLOT          arm a file for video memory and map it\n"
	"  claim SLOT MS      try for so long to arm its file for the usermode object too: how often it was refused\n"
	"  handle SLOT MS     for so long here and in a child: other mappings of its file made, written to, split, moved, taken down\n"
	"  again SLOT FROM    map the file of another slot\n"
	"  protect SLOT P PROT   from page P on: 0 nothing, 1 read, 3 read and write\n"
	"  move SLOT P        to another address, from page P on\n"
	"  cut SLOT P         unmap from page P on\n"
	"  child SLOT N       a child rings its inherited mapping N times\n"
	"  kin SLOT MS        a child with a client of its own rings its inherited mapping, every ms for so long\n"
	"  pass SLOT N        a child maps the inherited file and rings it N times\n"
	"  swap N             arm N files for memory through a descriptor that another thread swaps: how many it were\n"
	"  dup SLOT           the doorbell of a duplicate, in another client\n"
	"  read SLOT, write SLOT, futex SLOT   the kernel writes, reads, adds on the page for a system call\n"
	"  mem SLOT, poke SLOT, vm SLOT        /proc/self/mem, ptrace, process_vm_writev\n"
	"  pread, recv, splicein, aio, uring, uringworker, uringfixed, direct, vmsplice, userfault, mremap, remap, populate, settid,\n"
	"  cleartid, altstack, rseq, sse, avx, process   SLOT B: written to by that way; B 1: plain memory instead\n"
	"  robust SLOT        a thread holds a robust mutex there; it ends with halt\n"
	"  calls N            so many other system calls on the address space: the longest that one stood still\n"
	"  handled            signals so far\n"
	"  exec               replaces the program by sleep(1)\n"
	"  abort              ends it with a core dump\n"
	"  free               frees the client; mappings stay\n"
	"example: printf '1 kick 0 1000\\n' | nvdoor";

static pthread_mutex_t out = PTHREAD_MUTEX_INITIALIZER;

static void *carry_out(void *arg)
{
	struct door_ask *ask = arg;
	u64 begin = nv_now_ns();
	bool known;

	pthread_mutex_lock(&out);
	printf("{\"id\":%llu,\"event\":\"begin\",\"tid\":%d}\n", (unsigned long long)ask->id, (int)syscall(SYS_gettid));
	fflush(stdout);
	pthread_mutex_unlock(&out);
	known = door_do(ask);
	pthread_mutex_lock(&out);
	printf("{\"id\":%llu,\"event\":\"end\",\"known\":%s,\"result\":%lld,\"signal\":%d,\"ns\":%llu,\"longest_ns\":%llu,\"rests\":%llu}\n",
	       (unsigned long long)ask->id, known ? "true" : "false", (long long)ask->answer.result, ask->answer.signal,
	       (unsigned long long)(nv_now_ns() - begin), (unsigned long long)ask->answer.longest_ns,
	       (unsigned long long)ask->answer.rests);
	fflush(stdout);
	pthread_mutex_unlock(&out);
	free(ask);
	return NULL;
}

int nvdoor_main(int argc, char **argv)
{
	static struct door door;
	char line[128];
	pthread_t thread;
	sigset_t set;

	if (argc > 1)
		nv_usage(usage, !strcmp(argv[1], "--help") ? 0 : 2);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	door_catch();
	for (u32 i = 0; i < DOOR_SLOTS; i++)
		door.slots[i].fd = -1;
	nv_must_program(&door.program, 0, NULL);
	nv_must_channel(&door.channel, &door.program);
	door.slots[0].at = (volatile u8 *)door.program.doorbell;
	door.slots[0].length = 0x10000;
	printf("{\"event\":\"ready\",\"pid\":%d,\"client\":%u}\n", getpid(), door.program.client);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		struct door_ask *ask = calloc(1, sizeof(*ask));
		unsigned long long id = 0, a = 0, b = 0, c = 0;

		if (!ask)
			nv_die("no memory");
		ask->door = &door;
		if (sscanf(line, "%llu %15s %llu %llu %llu", &id, ask->verb, &a, &b, &c) < 2 || a >= 100000)
			nv_die("not a command: %s", line);
		ask->id = id;
		ask->a = a;
		ask->b = b;
		ask->c = c;
		if (pthread_create(&thread, NULL, carry_out, ask))
			nv_die("no thread");
		pthread_detach(thread);
	}
	_exit(0);
}
