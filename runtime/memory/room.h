/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocation that finds no room on the GPU waits, for as long as the daemon's policy page says: its policy makes room by parking somebody. Who
 * waits is outside of ds_home_enter(), and its own memory may leave meanwhile, so two that wait for each other do not lock each other up.
 */
#ifndef DS_ROOM_H
#define DS_ROOM_H

#include "device.h"

/* What the driver may need for code, stacks and graphs of its own, whose size it does not tell. */
#define DS_ROOM_OWN ((size_t)32 << 20)

/* Naps. false: it is not to wait, or not any longer, and the driver's answer counts. */
bool ds_room_wait(struct ds_room *room, struct ds_device *device, size_t bytes);
/* The call got its memory, or gave up. */
void ds_room_over(const struct ds_room *room, struct ds_device *device, size_t bytes);
/* Parked memory of this GPU is not to be brought back by the program's calls now: the room is another's. */
bool ds_room_stays(const struct ds_device *device);

/* The result of an allocation of that size; it is tried again while it is to wait. */
#define ds_room_for(device, bytes, call)                                                                       \
	({                                                                                                     \
		struct ds_room room_ = { 0 };                                                                  \
		CUresult room_result;                                                                          \
                                                                                                               \
		do                                                                                             \
			room_result = (call);                                                                  \
		while (ds_unlikely(room_result == CUDA_ERROR_OUT_OF_MEMORY) && ds_room_wait(&room_, device, bytes)); \
		ds_room_over(&room_, device, bytes);                                                           \
		room_result;                                                                                   \
	})

/* The result of a call for which the driver takes memory of its own: where it found none, of `again` while that is to wait. Does not nest. */
#define ds_room_own(device_of_it, result, again)                                                   \
	({                                                                                         \
		CUresult own_result = (result);                                                    \
		struct ds_device *own_device = NULL;                                               \
                                                                                                   \
		if (ds_unlikely(own_result == CUDA_ERROR_OUT_OF_MEMORY) && !ds_thread.waits)       \
			own_device = (device_of_it);                                               \
		if (ds_unlikely(own_device)) {                                                     \
			struct ds_room own_room = { .most_ms = DS_ROOM_OWN_MS };                   \
                                                                                                   \
			ds_thread.waits = true;                                                    \
			while (own_result == CUDA_ERROR_OUT_OF_MEMORY &&                           \
			       ds_room_wait(&own_room, own_device, DS_ROOM_OWN))                   \
				own_result = (again);                                              \
			ds_room_over(&own_room, own_device, DS_ROOM_OWN);                          \
			ds_thread.waits = false;                                                   \
		}                                                                                  \
		own_result;                                                                        \
	})

#endif
