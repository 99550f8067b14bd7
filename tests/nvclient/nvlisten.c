// SPDX-License-Identifier: Apache-2.0
/* Hears the module's events, and says of each when it came: for tests and measurements of how soon that is. */
#include <signal.h>
#include <sys/time.h>

#include "genl.h"
#include "options.h"

/* Numbers of kmod/detshare.yaml. */
enum { KICK = 34, QUIET, GATED, OPENED, PAUSED, RESUMED, LEASE_ENDED, DENIED };
enum { A_SEQ = 2, A_TIME = 3, A_VCTX = 4, A_PID = 5, A_GPU = 7, A_IDLE_NS = 18, A_BY = 19, A_REASONS = 20 };

static const char usage[] =
	"[--group NAME] [--seconds S]\n"
	"Joins a multicast group of detshare.ko and prints JSON lines: ready, then one for each event, with its number, its\n"
	"time and the time at which it was received (ns of CLOCK_MONOTONIC), until SIGTERM or the time is over.\n"
	"  --group NAME  activity: launches after silence, and silence; or events (activity)\n"
	"  --seconds S   end after so long (0: never)\n"
	"example: nvlisten --seconds 5";

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static const char *name_of(u8 command)
{
	static const char *const names[] = {
		[KICK] = "kick",     [QUIET] = "quiet",	    [GATED] = "gated",	 [OPENED] = "opened",
		[PAUSED] = "paused", [RESUMED] = "resumed", [DENIED] = "denied", [LEASE_ENDED] = "lease-ended",
	};

	return command < sizeof(names) / sizeof(names[0]) && names[command] ? names[command] : "other";
}

static void print(const struct genl_event *event)
{
	const u64 *values = event->values;

	printf("{\"event\":\"%s\",\"seq\":%lu,\"time\":%lu,\"received\":%lu,\"vctx\":%lu,\"pid\":%lu,\"gpu\":%lu,"
	       "\"idle_ns\":%lu,\"by\":%lu,\"reasons\":%lu}\n",
	       name_of(event->command), values[A_SEQ], values[A_TIME], event->received,
	       values[A_VCTX], values[A_PID], values[A_GPU],
	       values[A_IDLE_NS], values[A_BY], values[A_REASONS]);
	fflush(stdout);
}

int nvlisten_main(int argc, char **argv)
{
	/* without SA_RESTART: a signal ends the wait for an event */
	struct sigaction action = { .sa_handler = stop };
	const char *group = "activity";
	struct genl_event event;
	double seconds = 0;
	struct genl genl;
	const struct nv_option options[] = {
		NV_OPTION("group", &group),
		NV_OPTION("seconds", &seconds),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc)
		nv_usage(usage, 2);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &(struct itimerval){
		.it_value = { (time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6) } }, NULL);
	genl_must_open(&genl, "detshare", group);
	printf("{\"event\":\"ready\",\"group\":\"%s\",\"time\":%lu}\n", group, nv_now_ns());
	fflush(stdout);
	while (!stopped)
		if (genl_next_event(&genl, &event))
			print(&event);
	return 0;
}
