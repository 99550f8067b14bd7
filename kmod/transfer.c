// SPDX-License-Identifier: GPL-2.0-only
#include "transfer.h"

void ds_pins_free(struct ds_pins *pins)
{
}
