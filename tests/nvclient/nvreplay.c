// SPDX-License-Identifier: Apache-2.0
/* Replay a converted trace and say where the driver's answers differ from the record. */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "options.h"
#include "replay.h"

static const char usage[] =
	"SCRIPT [--touch] [--keep]\n"
	"Prints JSON lines: mismatch (seq, name, what, expected, got), then replayed. Exit code 1 if anything differs.\n"
	"  --touch for recorded drivers of tests/nvfwd: look at each page of each mapping, write to it, poll the files\n"
	"  --keep  leave everything open until SIGTERM\n"
	"Scripts are made by: python -m detshare.tools.replay TRACE --script SCRIPT\n"
	"example: nvreplay h100-580-runtime-greenctx.nvr";

static void report(u32 seq, const char *name, const char *what, s64 expected, s64 got)
{
	printf("{\"event\":\"mismatch\",\"seq\":%d,\"name\":\"%s\",\"what\":\"%s\",\"expected\":%lld,\"got\":%lld}\n",
	       (int)seq, name, what, (long long)expected, (long long)got);
}

/* Pages of a recording begin with a number of their own; its complement behind it says that somebody wrote. */
#define MARK(page) (0x6e76667764000000ull | (page))
#define PAGE_BYTES 4096

static void touch(const struct replay_script *script)
{
	unsigned int maps = 0, pages = 0, wrong = 0, ready = 0;
	u32 i;

	for (i = 0; i < script->map_count; i++) {
		volatile u64 *at = script->maps[i].at;
		u64 page, count = script->maps[i].length / PAGE_BYTES;

		maps += at != NULL;
		for (page = 0; at && page < count; page++, at += PAGE_BYTES / sizeof(*at)) {
			pages++;
			wrong += at[0] != MARK(page);
			if (!script->maps[i].read_only)
				at[1] = ~MARK(page);
		}
	}
	for (i = 0; i < script->file_count; i++) {
		struct pollfd asked = { .fd = script->files[i], .events = POLLIN | POLLPRI };

		if (script->files[i] >= 0 && poll(&asked, 1, 200) > 0)
			ready++;
	}
	printf("{\"event\":\"touched\",\"maps\":%u,\"pages\":%u,\"wrong\":%u,\"ready\":%u}\n", maps, pages, wrong, ready);
}

static void keep(void)
{
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f}\n", getpid(), nv_now());
	sigwait(&set, &number);
}

int nvreplay_main(int argc, char **argv)
{
	static struct replay_script script;
	struct replay_result result;
	bool wait = false, touched = false;
	int first;
	const struct nv_option options[] = {
		NV_OPTION("keep", &wait),
		NV_OPTION("touch", &touched),
		{ 0 },
	};

	first = nv_options(argc, argv, usage, options);
	if (first + 1 != argc)
		nv_usage(usage, 2);
	replay_fix_addresses(argv);
	replay_must_run(&script, argv[first], report, &result);
	printf("{\"event\":\"replayed\",\"trace\":\"%s\",\"calls\":%u,\"accepted\":%u,\"mappings\":%u,\"checks\":%u,\"mismatches\":%u}\n",
	       script.source, result.calls, result.accepted, result.maps, result.checks,
	       result.mismatches);
	if (touched)
		touch(&script);
	if (wait)
		keep();
	return result.mismatches != 0;
}
