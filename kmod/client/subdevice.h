/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Subdevices: what the driver is asked through about a GPU. A program may have freed its own; its device can then get one of ours for the
 * time of a question. A device has one at most.
 */
#ifndef DETSHARE_SUBDEVICE_H
#define DETSHARE_SUBDEVICE_H

#include "client.h"

/* Handles of the client's on a GPU, 0: none is known. Under client->tree. */
u32 ds_subdevice_of(const struct ds_client *client, u32 gpu);
u32 ds_device_of(const struct ds_client *client, u32 gpu);

struct ds_subdevice {
	u32 client, handle;	/* handle 0: there is none */
	bool ours;
};

/* One of ours below that device, or the one that it has unknown to us. An NV_STATUS, or DS_RM_GONE; as rmcall.h says. */
u32 ds_subdevice_make(u32 client, u32 device, struct ds_subdevice *subdevice);
/* Ours is freed; it may be none. */
void ds_subdevice_done(struct ds_subdevice *subdevice);

#endif
