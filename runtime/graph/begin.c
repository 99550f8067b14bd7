/* SPDX-License-Identifier: Apache-2.0 */
#include "begin.h"

void ds_launch_begin(struct ds_launch *launch)
{
	ds_begin(launch);
}

void ds_launch_end(struct ds_launch *launch, CUresult result)
{
	ds_end(launch, result);
}
