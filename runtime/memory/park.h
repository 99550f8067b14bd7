/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DS_PARK_H
#define DS_PARK_H

#include <stdbool.h>

/* Where the program's memory is away and nobody brings it back now, the driver sleeps from now on (ds_driver_sleeps()). Waits for nobody. */
bool ds_park_shuts(void (*wait)(void));

#endif
