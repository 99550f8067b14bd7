/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which file a call is about. NV_ESC_REGISTER_FD binds a file, of a device or a control file, to a control file: once,
 * until it is closed. From then on the driver takes the control file in its place, whoever calls, one step and no
 * further: the clients that a call may name or make are those of the control file.
 */
#ifndef DETSHARE_BINDING_H
#define DETSHARE_BINDING_H

#include "calls.h"

/* Lets the driver bind the caller's file, and remembers to what. Sets call->ret. */
void ds_binding_register(struct ds_call *call);

/*
 * Sets call->known, held and locked: the file that the driver takes the call to be about. A negative errno: neither.
 * A file is locked only if it is the caller's own, or bound to it, or the driver has said that the caller may use the
 * client on it.
 */
long ds_binding_lock(struct ds_call *call);

/*
 * Is call->known, locked, a control file that is bound to another, of which nothing is known but that? Then clients
 * made through it would be on that other one.
 */
bool ds_binding_astray(struct ds_call *call);

#endif
