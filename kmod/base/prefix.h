/* SPDX-License-Identifier: GPL-2.0-only */
/* Read before every file of the module (Kbuild): who speaks in the kernel log. */
#ifndef DETSHARE_PREFIX_H
#define DETSHARE_PREFIX_H

#define pr_fmt(fmt) "detshare: " fmt

#endif
