/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The controls that are judged, and how: verdict.c carries the rules out. */
#ifndef DETSHARE_RM_CONTROLS_H
#define DETSHARE_RM_CONTROLS_H

#include "port.h"

/* How parameters are looked at. */
enum rm_look {
	NOTHING,
	KEEPING,	/* not at all: what they keep is charged to nobody, so they are not for who has a limit */
	FOREIGN,	/* not at all: who is named there nobody can tell, so only the trusted may */
	IDLE_TIME,	/* to shorten it, see rm_verdict_shorten() */
	DISABLE_LIST,
	GROUP_IDS,
	CHANNEL_IDS,
	CHANNEL_INFO,
	MODE,
	MODE_BIND,
	REG_OPS,	/* this and the following name one client, 0: nobody */
	ZCULL_MODE,
	TLB,
	CHANNEL_STATE,
	REGISTER_PID,
	ZCULL_BIND,
	PM_BIND,
	SETUP_BIND,
	MIGRATABLE_OPS,
	ACCESS_RIGHTS,
};

struct rm_rule {
	u32 cmd;
	u8 managed;	/* enum rm_verdict for who is managed */
	u8 look;
	const char *trick;
};

/* NULL: everybody may make it. */
const struct rm_rule *rm_control_rule(u32 cmd);
/* Is it a raw command that CUDA makes? */
bool rm_control_known_raw(u32 cmd);

#endif
