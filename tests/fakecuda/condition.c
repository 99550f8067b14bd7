// SPDX-License-Identifier: Apache-2.0
/* Values of conditional nodes. */
#include "api.h"

static struct {
	unsigned int value, initial, flags;
} *conditions;
static size_t count;

CUgraphConditionalHandle condition_new(unsigned int value, unsigned int flags)
{
	conditions = xrealloc(conditions, (count + 1) * sizeof(*conditions));
	conditions[count].value = conditions[count].initial = value;
	conditions[count].flags = flags;
	return ++count;
}

unsigned int condition_value(CUgraphConditionalHandle handle)
{
	return handle && handle <= count ? conditions[handle - 1].value : 0;
}

bool condition_set(CUgraphConditionalHandle handle, unsigned int value)
{
	if (!handle || handle > count)
		return false;
	conditions[handle - 1].value = value;
	return true;
}

void condition_reset(CUgraphConditionalHandle handle)
{
	if (handle && handle <= count && conditions[handle - 1].flags & CU_GRAPH_COND_ASSIGN_DEFAULT)
		conditions[handle - 1].value = conditions[handle - 1].initial;
}
