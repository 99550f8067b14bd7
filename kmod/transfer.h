/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory that file descriptors keep: objects exported to them. */
#ifndef DETSHARE_TRANSFER_H
#define DETSHARE_TRANSFER_H

struct ds_pins;

void ds_pins_free(struct ds_pins *pins);

#endif
