/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gangs (rm/gang.h): tenants with turns that work on several GPUs, and have them on all of these at the same time. Each runq's scan tells what it
 * knows of its GPU and hears who has it; the scans of other GPUs for which something changed are asked for.
 *
 * Who has nobody beside it on a GPU is not looked at there, and takes turns where it has. On a machine where turns are on one GPU only nobody is
 * a gang, and a scan costs one lock more.
 */
#ifndef DETSHARE_GANGS_H
#define DETSHARE_GANGS_H

#include "rm/gang.h"

/* As rm_gang_step(), in a scan of that GPU. Where there is no memory for another tenant it is no gang. */
void ds_gangs_step(u32 gpu, struct rm_rota_tenant *tenants, unsigned int *count, bool closed, u64 now, struct rm_gang_word *word);
void ds_gangs_exit(void);

#endif
