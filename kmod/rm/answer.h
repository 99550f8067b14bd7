/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The driver's answers about total and free memory, cut down to what a payer
 * may have: total = min(total, limit), free = min(free, room). Within one
 * answer all members agree: free <= total, the largest free region <= free
 * and lies within the total.
 *
 * Each function returns true if it changed something, and touches nothing if
 * the view has no limit, the status is not NV_OK or the size is wrong.
 */
#ifndef DETSHARE_RM_ANSWER_H
#define DETSHARE_RM_ANSWER_H

#include "decode.h"
#include "quota.h"

/* n entries { u32 index, u32 data }, data in KiB where it is a size. */
bool rm_answer_fb_list(const struct rm_abi *abi, const struct rm_view *view,
		       void *list, u32 n);

/*
 * The parameters of one of the controls that rm_answer_wanted() names, after
 * the call. For NV2080_CTRL_CMD_FB_GET_INFO the list lies behind a pointer:
 * rm_answer_fb_list_at() says where; this function does nothing for it.
 */
bool rm_answer_control(const struct rm_abi *abi, const struct rm_view *view,
		       u32 cmd, void *params, u32 size);

/* Is this a control whose answer needs rewriting? */
bool rm_answer_wanted(u32 cmd);

/*
 * FB_GET_INFO's list: user address and number of entries. -EINVAL: wrong size,
 * or more entries than there are indices.
 */
int rm_answer_fb_list_at(const struct rm_abi *abi, const void *params, u32 size,
			 u64 *address, u32 *n);

/* A VID_HEAP block after the call: INFO, and the totals of allocations. */
bool rm_answer_vid_heap(const struct rm_abi *abi, const struct rm_view *view,
			void *block, u32 size);

#endif /* DETSHARE_RM_ANSWER_H */
