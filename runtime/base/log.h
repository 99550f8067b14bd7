/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for people, on stderr or in $DETSHARE_LOG_FILE; level by $DETSHARE_LOG=off|info|debug. */
#ifndef DS_LOG_H
#define DS_LOG_H

#include "cuda.h"

void ds_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ds_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *ds_error_name(CUresult error);

#endif
