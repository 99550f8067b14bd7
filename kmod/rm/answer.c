// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "answer.h"

/* More entries than any version has indices: no program asks for them. */
#define FB_LIST_MAX 256
#define KIB 10

void rm_payer_view(const struct rm_payer *payer, struct rm_view *view)
{
	unsigned int i;

	view->limit = RM_NO_LIMIT;
	view->room = RM_NO_LIMIT;
	for (i = 0; i < payer->n_accounts; i++) {
		view->limit = rm_min64(view->limit, rm_account_limit(payer->accounts[i]));
		view->room = rm_min64(view->room, rm_account_room(payer->accounts[i]));
	}
	view->room = rm_min64(view->room, view->limit);
}

static bool limited(const struct rm_view *view)
{
	return view->limit < RM_NO_LIMIT;
}

struct entry {
	struct rm_f32 index, data;
};

static struct entry entry_at(const struct rm_abi *abi, u32 i)
{
	u32 off = i * abi->fb_info.len;
	struct entry entry = { { (u16)(off + abi->fb_info.index.off) },
			       { (u16)(off + abi->fb_info.data.off) } };

	return entry;
}

static bool cut(void *list, struct rm_f32 data, u64 most)
{
	if (rm_get32(list, data) <= most)
		return false;
	rm_put32(list, data, (u32)most);
	return true;
}

/* The first entry with this index, or `otherwise`. */
static u64 find(const struct rm_abi *abi, const void *list, u32 n, u32 index, u64 otherwise)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (rm_get32(list, entry_at(abi, i).index) == index)
			return rm_get32(list, entry_at(abi, i).data);
	return otherwise;
}

/* Sizes first; then what must fit in with them. */
static bool cut_size(void *list, struct entry entry, u64 total, u64 room)
{
	switch (rm_get32(list, entry.index)) {
	case NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_MAPPABLE_HEAP_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE:
	case NV2080_CTRL_FB_INFO_INDEX_PROTECTED_MEM_SIZE_TOTAL_KB:
		return cut(list, entry.data, total);
	case NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE:
	case NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_SIZE_KB:
	case NV2080_CTRL_FB_INFO_INDEX_PROTECTED_MEM_SIZE_FREE_KB:
		return cut(list, entry.data, room);
	default:
		return false;
	}
}

bool rm_answer_fb_list(const struct rm_abi *abi, const struct rm_view *view,
		       void *list, u32 n)
{
	u64 total = view->limit >> KIB, room = view->room >> KIB, heap, largest;
	bool changed = false;
	u32 i;

	if (!limited(view) || n > FB_LIST_MAX)
		return false;
	for (i = 0; i < n; i++)
		changed |= cut_size(list, entry_at(abi, i), total, room);
	/* an index that the list lacks is as it would have been answered at most */
	heap = rm_min64(find(abi, list, n, NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE, 0), total);
	largest = find(abi, list, n, NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_SIZE_KB, room);
	largest = rm_min64(largest, room);
	for (i = 0; i < n; i++) {
		struct entry entry = entry_at(abi, i);

		switch (rm_get32(list, entry.index)) {
		case NV2080_CTRL_FB_INFO_INDEX_FB_TAX_SIZE_KB:
		case NV2080_CTRL_FB_INFO_INDEX_HEAP_BASE_KB:
			changed |= cut(list, entry.data, total - heap);
			break;
		case NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_BASE_KB:
			changed |= cut(list, entry.data, total - largest);
			break;
		default:
			break;
		}
	}
	return changed;
}

int rm_answer_fb_list_at(const struct rm_abi *abi, const void *params, u32 size,
			 u64 *address, u32 *n)
{
	*address = 0;
	*n = 0;
	if (size != abi->fb_get_info.len)
		return -EINVAL;
	*n = rm_get32(params, abi->fb_get_info.fbInfoListSize);
	*address = rm_get64(params, abi->fb_get_info.fbInfoList);
	return *n > FB_LIST_MAX ? -EINVAL : 0;
}

/* Regions of the frame buffer, cut off where their sum reaches the limit. */
static bool cut_regions(const struct rm_abi *abi, const struct rm_view *view, void *params)
{
	u32 n = rm_get32(params, abi->fb_get_region.numFBRegions), i;
	u64 left = view->limit;
	bool changed = false;

	if (n > abi->fb_get_region.fbRegion.size / abi->fb_region.len)
		return false;
	for (i = 0; i < n; i++) {
		u32 off = abi->fb_get_region.fbRegion.off + i * abi->fb_region.len;
		struct rm_f64 base = { (u16)(off + abi->fb_region.base.off) };
		struct rm_f64 limit = { (u16)(off + abi->fb_region.limit.off) };
		struct rm_f64 reserved = { (u16)(off + abi->fb_region.reserved.off) };
		u64 first = rm_get64(params, base), last = rm_get64(params, limit);

		if (last < first)
			continue;
		if (!left) {
			rm_put32(params, abi->fb_get_region.numFBRegions, i);
			return true;
		}
		if (last - first >= left) {
			rm_put64(params, limit, first + left - 1);
			changed = true;
		}
		if (rm_get64(params, reserved) > left) {
			rm_put64(params, reserved, left);
			changed = true;
		}
		left -= rm_min64(left, last - first == RM_U64_MAX ? left : last - first + 1);
	}
	return changed;
}

bool rm_answer_wanted(u32 cmd)
{
	return cmd == NV2080_CTRL_CMD_FB_GET_INFO || cmd == NV2080_CTRL_CMD_FB_GET_INFO_V2 ||
	       cmd == NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO;
}

bool rm_answer_control(const struct rm_abi *abi, const struct rm_view *view,
		       u32 cmd, void *params, u32 size)
{
	u32 n;

	if (!limited(view))
		return false;
	switch (cmd) {
	case NV2080_CTRL_CMD_FB_GET_INFO_V2:
		if (size != abi->fb_get_info_v2.len)
			return false;
		n = rm_get32(params, abi->fb_get_info_v2.fbInfoListSize);
		if (n > abi->fb_get_info_v2.fbInfoList.size / abi->fb_info.len)
			return false;
		return rm_answer_fb_list(abi, view,
					 (u8 *)params + abi->fb_get_info_v2.fbInfoList.off, n);
	case NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO:
		return size == abi->fb_get_region.len && cut_regions(abi, view, params);
	default:
		return false;
	}
}

static bool cut64(void *block, struct rm_f64 field, u64 most)
{
	if (rm_get64(block, field) <= most)
		return false;
	rm_put64(block, field, most);
	return true;
}

bool rm_answer_vid_heap(const struct rm_abi *abi, const struct rm_view *view,
			void *block, u32 size)
{
	/* whole KiB, as in the control from which the driver takes them */
	u64 total = view->limit >> KIB << KIB, room = view->room >> KIB << KIB;
	u64 all, largest;
	bool changed;

	if (!limited(view) || size != abi->nvos32.len ||
	    rm_get32(block, abi->nvos32.status) != NV_OK)
		return false;
	changed = cut64(block, abi->nvos32.total, total);
	changed |= cut64(block, abi->nvos32.free, room);
	if (rm_get32(block, abi->nvos32.function) != NVOS32_FUNCTION_INFO)
		return changed;
	changed |= cut64(block, abi->nvos32.data_Info_size, room);
	all = rm_get64(block, abi->nvos32.total);
	largest = rm_get64(block, abi->nvos32.data_Info_size);
	changed |= cut64(block, abi->nvos32.data_Info_offset, total - largest);
	changed |= cut64(block, abi->nvos32.data_Info_base, total - all);
	return changed;
}
