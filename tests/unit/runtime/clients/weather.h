/* SPDX-License-Identifier: Apache-2.0 */
/* The other side of a program under dice: the daemon parks, fetches, changes its mind and its tiers, the GPU fills, the driver's checkpoint takes the rest. */
#ifndef WEATHER_H
#define WEATHER_H

#include <pthread.h>

/* Held by who must find nothing of others on the GPUs. */
extern pthread_mutex_t weather_calm;
extern unsigned int weather_deeps; /* how often the driver's checkpoint had it all */

/* FAKECUDA_TAKEN names a file; with FAKECUDA_CHECKPOINTS=1 a program of one GPU is parked deeply now and then. */
void weather_begin(unsigned int seed);
void weather_end(void); /* the memory may be away still */

#endif
