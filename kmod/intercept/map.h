/* SPDX-License-Identifier: GPL-2.0-only */
/* RM_MAP_MEMORY: what a program maps of doorbells and of its channels' words. */
#ifndef DETSHARE_MAP_H
#define DETSHARE_MAP_H

#include "calls.h"

/* Lets the driver do it. The caller (dispatch.c) holds call->known->order; call->client may be NULL. */
void ds_map(struct ds_call *call);
/* The driver takes this file for the one to be armed (shadow->claim is set). false: the call is to fail. */
bool ds_map_take(struct ds_shadow *shadow, const struct file *file);
/* The client has been found by ds_adopt(): files that the current process has mapped and that look like doors become doors. */
void ds_map_adopt(struct ds_client *client);

#endif
