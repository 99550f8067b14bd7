// SPDX-License-Identifier: Apache-2.0
/* Replay a converted trace and say where the driver's answers differ from the record. */
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#include "replay.h"

static const char usage[] =
	"SCRIPT [--keep]\n"
	"Prints JSON lines: mismatch (seq, name, what, expected, got), then replayed. Exit code 1 if anything differs.\n"
	"  --keep  leave everything open until SIGTERM\n"
	"Scripts are made by: python -m detshare.tools.replay TRACE --script SCRIPT\n"
	"example: nvreplay h100-580-runtime-greenctx.nvr";

static void report(u32 seq, const char *name, const char *what, s64 expected, s64 got)
{
	printf("{\"event\":\"mismatch\",\"seq\":%d,\"name\":\"%s\",\"what\":\"%s\",\"expected\":%lld,\"got\":%lld}\n",
	       (int)seq, name, what, (long long)expected, (long long)got);
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

int main(int argc, char **argv)
{
	static const struct option options[] = { { "keep", no_argument, NULL, 'k' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	static struct replay_script script;
	struct replay_result result;
	bool wait = false;
	int c;

	nv_program_name(argv[0]);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'k')
			wait = true;
		else
			nv_usage(usage, c == 'h' ? 0 : 2);
	}
	if (optind + 1 != argc)
		nv_usage(usage, 2);
	replay_fix_addresses(argv);
	replay_must_run(&script, argv[optind], report, &result);
	printf("{\"event\":\"replayed\",\"trace\":\"%s\",\"calls\":%u,\"accepted\":%u,\"mappings\":%u,\"checks\":%u,\"mismatches\":%u}\n",
	       script.source, result.calls, result.accepted, result.maps, result.checks,
	       result.mismatches);
	if (wait)
		keep();
	return result.mismatches != 0;
}
