/* SPDX-License-Identifier: GPL-2.0-only */
/* RM_DUP_OBJECT: one client's object becomes another's too. */
#ifndef DETSHARE_DUP_H
#define DETSHARE_DUP_H

#include "calls.h"

/* As the handlers of alloc.h. */
void ds_dup(struct ds_call *call);

#endif
