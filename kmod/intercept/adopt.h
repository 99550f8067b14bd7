/* SPDX-License-Identifier: GPL-2.0-only */
/* Clients that are older than this module. */
#ifndef DETSHARE_ADOPT_H
#define DETSHARE_ADOPT_H

#include "calls.h"

/*
 * The call names a client that is not known. If it is one of call->known's, it becomes known now, with all that the
 * driver tells of it. NULL: it is not.
 */
struct ds_client *ds_adopt(struct ds_call *call);

#endif
