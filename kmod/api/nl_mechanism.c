// SPDX-License-Identifier: GPL-2.0-only
/* What the module can do with this driver and this kernel, for doctor. */
#include "driver.h"
#include "netlink.h"

#define SAYS 160

/* What hangs on one function of the driver. */
static const struct mechanism {
	const char *name, *function, *without;
} mechanisms[] = {
	{ "doorbell gate", "nvidia_fault", "doorbells cannot be shut" },
	{ "doorbell gate, new mappings", "nvidia_mmap", "a mapping made while the doorbell is shut can be used" },
	{ "doorbell gate, debuggers", "nvidia_vma_access", "who traces a program can ring its shut doorbell" },
	{ "side doors", "os_lookup_user_io_memory", "programs can give the GPU a doorbell as memory" },
};

struct search {
	const char *function;
	bool found;
};

/* name: "module:function", and " (missing)" behind it for one that is not hooked. */
static int look_at(const char *name, void *data)
{
	struct search *search = data;
	const char *function = strchr(name, ':');

	search->found |= function && !strcmp(function + 1, search->function);
	return 0;
}

static int say(struct sk_buff *skb, const char *name, const char *why_not)
{
	char text[SAYS];

	if (why_not)
		snprintf(text, sizeof(text), "%s: no (%s)", name, why_not);
	else
		snprintf(text, sizeof(text), "%s: yes", name);
	return nla_put_string(skb, DETSHARE_A_STATUS_MECHANISM, text);
}

int ds_nl_put_mechanisms(struct sk_buff *skb, enum detshare_mode mode)
{
	const char *observed = mode == DETSHARE_MODE_ENFORCE ? NULL : "the driver can only be observed";
	const struct mechanism *each;
	struct search search;
	int err = 0;

	if (mode == DETSHARE_MODE_DOWN)
		return 0;
	for (each = mechanisms; !err && each < mechanisms + ARRAY_SIZE(mechanisms); each++) {
		search = (struct search){ .function = each->function };
		ds_driver_each_hook(look_at, &search);
		err = say(skb, each->name, observed ?: search.found ? NULL : each->without);
	}
	if (!err)
		err = say(skb, "sampling", IS_ENABLED(CONFIG_MAPPING_DIRTY_HELPERS) ? NULL :
			  "this kernel cannot tell writes to mappings, so activity costs a fault each time");
	return err ?: say(skb, "pause, slices, levels", observed);
}
