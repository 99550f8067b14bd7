/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs of this process. */
#include "device.h"

struct ds_device ds_devices[DS_MAX_DEVICES] = {
	[0 ... DS_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = 1},
};
