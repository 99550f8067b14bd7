/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocation that finds no room on the GPU waits, for as long as the daemon's policy page says: its policy makes room by parking somebody. Who
 * waits is outside of ds_home_enter(), and its own memory may leave meanwhile, so two that wait for each other do not lock each other up.
 */
#ifndef DS_ROOM_H
#define DS_ROOM_H

#include "device.h"

struct ds_room {
	uint64_t began; /* 0: it did not wait */
	uint64_t nap;
};

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

#endif
