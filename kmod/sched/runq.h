/* SPDX-License-Identifier: GPL-2.0-only */
/* How runs begin and end, and how all of them are let go. */
#ifndef DETSHARE_RUNQ_H
#define DETSHARE_RUNQ_H

#include "rotation.h"
#include "entity.h"

/*
 * The entity of this client on a GPU, made if need be; lent as long as the client has it. The caller holds the order of the
 * client's file, and not client->tree. NULL: no memory, or the client has no vCtx there.
 */
struct ds_entity *ds_entity_of(struct ds_client *client, u32 gpu);
/* May it have an entity there, or has it one? To be asked before the driver makes what needs one. As above. */
bool ds_entity_room(struct ds_client *client, u32 gpu);
/* The vCtx goes: the entity is dropped with what it holds. No lock but ds_file.order. */
void ds_entity_drop(struct ds_vctx *vctx);

/*
 * Everybody is let go and stays so, until it is taken back: the machine is being suspended, or the module goes. Waits until gates are
 * open and the driver has put channels back.
 */
void ds_entities_let_go(void);
void ds_entities_take_back(void);
/* The module goes, nobody calls any more: what was to be tried again is not. */
void ds_entities_forget(void);

/* What the turns of a GPU below RM_GPUS are at. Sleeps. */
void ds_runq_tell(u32 gpu, struct ds_rotation_info *info);

int ds_runq_init(void);
void ds_runq_exit(void);

#endif
