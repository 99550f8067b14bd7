/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `dice_ipc SEED STEPS ROLES`: programs that share memory by handles and descriptors, one for each letter of ROLES, on FAKECUDA_DEVICES GPUs. p: under the
 * library with --park, l: without it, n: without the library. One after the other does what the dice say: what it answered goes to stdout. Under the
 * library daemons park them meanwhile. They end in all ways, and others begin in their places.
 */
#include "dice_ipc.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum kind { NONE, OWN, OPENED, MADE };

/* What a program has in a place; id: whose bytes they are. */
static struct place {
	enum kind kind;
	unsigned int id, gpu, times;
	size_t size;
} places[PROGRAMS][PLACES];

/* A handle or a descriptor that somebody gave. */
static struct name {
	bool valid;
	unsigned int id, gpu;
	size_t size;
	char role; /* of who gave it */
	int fd;
	CUipcMemHandle handle;
} names[NAMES];

static struct {
	pid_t pid;
	int socket;
	char role;
} programs[PROGRAMS];

static unsigned int dices, next_id, count, gpus;

static unsigned int dice(unsigned int sides)
{
	return (unsigned int)rand_r(&dices) % sides;
}

static void begins(unsigned int n)
{
	char words[2][16], role[2] = {programs[n].role, 0};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		exit(3);
	snprintf(words[0], sizeof(words[0]), "%d", pair[1]);
	snprintf(words[1], sizeof(words[1]), "%u", dice(1u << 30));
	programs[n].socket = pair[0];
	programs[n].pid = fork();
	if (programs[n].pid) {
		close(pair[1]);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fcntl(pair[1], F_SETFD, 0);
	setenv("DETSHARE_PARK", *role == 'l' ? "0" : "1", 1);
	if (*role == 'n')
		unsetenv("LD_PRELOAD");
	execl("/proc/self/exe", "dice_ipc", words[0], words[1], role, "", NULL);
	_exit(3);
}

static struct answer tells(unsigned int n, struct order order, int *fd)
{
	struct answer answer = {0};
	int none = -1;

	if (!ipc_message(programs[n].socket, &order, sizeof(order), order.what == IMPORT ? fd : &none, true) ||
	    (!ipc_message(programs[n].socket, &answer, sizeof(answer), order.what == EXPORT ? fd : &none, false) && order.what != END)) {
		printf("program %u is gone\n", n);
		fflush(stdout);
		exit(1);
	}
	printf(" %d/%u=%d %lx%s", (int)order.what, order.place, (int)answer.result, (unsigned long)answer.digest, answer.again ? " again" : "");
	return answer;
}

static void writes(unsigned int n, unsigned int at, size_t from, size_t bytes)
{
	struct place *place = &places[n][at];

	tells(n, (struct order){.what = WRITE, .place = at, .gpu = place->gpu, .from = from, .count = bytes, .value = dice(256)}, NULL);
}

static unsigned int users(unsigned int id)
{
	unsigned int sum = 0;

	for (unsigned int n = 0; n < count; n++)
		for (unsigned int at = 0; at < PLACES; at++)
			sum += places[n][at].kind == OPENED && places[n][at].id == id;
	return sum;
}

static void stale(unsigned int id)
{
	for (unsigned int n = 0; n < NAMES; n++)
		if (names[n].valid && names[n].fd < 0 && names[n].id == id)
			names[n].valid = false;
}

static void makes(unsigned int n, unsigned int at)
{
	static const size_t sizes[] = {64, 4 * KIB, MIB - 4, MIB, 3 * MIB + 4, 33 * MIB, 70 * MIB + 4};
	struct place *place = &places[n][at];
	bool own = dice(3);

	*place = (struct place){.kind = own ? OWN : MADE, .id = ++next_id, .gpu = dice(gpus), .size = sizes[dice(7)]};
	if (!own)
		place->size = (1 + dice(3)) * 2 * MIB;
	tells(n, (struct order){.what = own ? ALLOC : CREATE, .place = at, .gpu = place->gpu, .size = place->size}, NULL);
	writes(n, at, 0, place->size);
}

static void gives(unsigned int n, unsigned int at)
{
	struct name *name = &names[dice(NAMES)];
	struct place *place = &places[n][at];
	struct answer answer;
	int fd = -1;

	if (name->valid && name->fd >= 0)
		close(name->fd);
	answer = tells(n, (struct order){.what = place->kind == MADE ? EXPORT : NAME, .place = at, .gpu = place->gpu,
					 .from = dice(4) ? 0 : place->size / 2}, &fd);
	*name = (struct name){.valid = !answer.result, .id = place->id, .gpu = place->gpu, .size = place->size, .role = programs[n].role,
			      .fd = place->kind == MADE ? fd : -1, .handle = answer.handle};
}

static void takes(unsigned int n)
{
	struct name *name = &names[dice(NAMES)];
	struct order order = {.place = dice(PLACES), .gpu = dice(4) ? name->gpu : dice(gpus), .size = name->size, .handle = name->handle};
	struct place *place = &places[n][order.place];
	struct answer answer;

	/* who is not under the library opens no memory that can leave (docs/use/park.md) */
	if (!name->valid || (name->fd < 0 && programs[n].role == 'n' && name->role == 'p'))
		return;
	order.what = name->fd >= 0 ? IMPORT : OPEN;
	order.flags = dice(8) ? LAZY_PEERS : 0;
	for (unsigned int at = 0; at < PLACES && order.what == OPEN; at++)
		if (places[n][at].kind == OPENED && places[n][at].id == name->id && places[n][at].gpu == order.gpu) {
			order.place = at;
			place = &places[n][at];
		}
	if (place->kind && (order.what == IMPORT || place->kind != OPENED || place->id != name->id || place->gpu != order.gpu))
		return;
	answer = tells(n, order, &name->fd);
	if (answer.result)
		return;
	place->times++;
	place->kind = order.what == IMPORT ? MADE : OPENED;
	place->id = name->id;
	place->size = name->size;
	place->gpu = order.gpu;
}

static void lets_go(unsigned int n, unsigned int at)
{
	struct place *place = &places[n][at];
	struct order order = {.place = at, .gpu = place->gpu, .what = place->kind == MADE ? DROP : place->kind == OWN ? FREE : CLOSE};

	/* what others have open is not freed */
	if (order.what == FREE && users(place->id))
		return;
	if (place->kind == OWN)
		stale(place->id);
	if (order.what == CLOSE && !dice(4)) {
		order.from = 4;
		tells(n, order, NULL);
		order.from = 0;
	}
	tells(n, order, NULL);
	if (order.what == CLOSE && --place->times)
		return;
	*place = (struct place){0};
	/* once more than it was opened */
	if (order.what == CLOSE && dice(2))
		tells(n, order, NULL);
}

static void forget(unsigned int n, bool all, unsigned int gpu)
{
	for (unsigned int at = 0; at < PLACES; at++) {
		struct place *place = &places[n][at];

		if (!place->kind || (!all && (place->kind == MADE || place->gpu != gpu)))
			continue;
		if (place->kind == OWN && !all)
			stale(place->id);
		*place = (struct place){0};
	}
}

static void step(unsigned int number)
{
	unsigned int n = dice(count), at = dice(PLACES), what = dice(40), gpu = dice(gpus);
	struct place *place = &places[n][at];
	int status = 0;

	printf("\n%u program %u:", number, n);
	if (what == 0) {
		tells(n, (struct order){.what = END, .value = dice(4)}, NULL);
		waitpid(programs[n].pid, &status, 0);
		printf(" status %x", status);
		close(programs[n].socket);
		forget(n, true, 0);
		begins(n);
	} else if (what == 1) {
		tells(n, (struct order){.what = RESET, .gpu = gpu}, NULL);
		forget(n, false, gpu);
	} else if (what == 2) {
		tells(n, (struct order){.what = FORK}, NULL);
	} else if (what < 14) {
		takes(n);
	} else if (!place->kind) {
		makes(n, at);
	} else if (what < 19) {
		gives(n, at);
	} else if (what < 23) {
		lets_go(n, at);
	} else {
		size_t from = 4 * (size_t)dice((unsigned int)(place->size / 4)), room = place->size - from;
		struct order order = {.what = what < 26 ? ASK : READ, .place = at, .gpu = place->gpu, .size = place->size, .from = from,
				      .count = room < MIB ? room : 1 + dice(MIB)};

		if (what < 30 && what >= 26)
			writes(n, at, from, order.count);
		else
			tells(n, order, NULL);
	}
}

static int parent(unsigned int seed, unsigned int steps, const char *roles)
{
	int status;

	dices = seed;
	count = (unsigned int)strlen(roles);
	gpus = getenv("FAKECUDA_DEVICES") ? (unsigned int)atoi(getenv("FAKECUDA_DEVICES")) : 1;
	for (unsigned int n = 0; n < count; n++) {
		programs[n].role = roles[n];
		begins(n);
	}
	for (unsigned int n = 0; n < steps; n++)
		step(n);
	printf("\n");
	for (unsigned int n = 0; n < count; n++) {
		close(programs[n].socket);
		waitpid(programs[n].pid, &status, 0);
		printf("program %u ended with %x\n", n, status);
	}
	return 0;
}

int main(int words, char **word)
{
	if (words == 5)
		return ipc_program(atoi(word[1]), (unsigned int)atoi(word[2]), *word[3]);
	return words == 4 && strlen(word[3]) <= PROGRAMS ? parent((unsigned int)atoi(word[1]), (unsigned int)atoi(word[2]), word[3]) : 2;
}
