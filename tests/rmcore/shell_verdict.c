// SPDX-License-Identifier: Apache-2.0
/* Judgements of the filter: who asks is "trusted", "managed", "limited" or "free"; whom he owns a list "1,2" or "-". */
#include "shell.h"

#define OWNED_MAX 64

static u32 owned[OWNED_MAX];
static unsigned int n_owned;

static bool owns(void *data, u32 client)
{
	unsigned int i;

	(void)data;
	for (i = 0; i < n_owned; i++)
		if (owned[i] == client)
			return true;
	return false;
}

static struct rm_asker read_asker(void)
{
	const char *who = word();
	char *list = word(), *at, *rest;
	struct rm_asker asker = { .owns = owns };

	asker.trusted = !strcmp(who, "trusted");
	asker.managed = !strcmp(who, "managed");
	asker.limited = !strcmp(who, "limited");
	if (!asker.trusted && !asker.managed && !asker.limited && strcmp(who, "free"))
		die("%s is nobody", who);
	n_owned = 0;
	for (at = strtok_r(list, ",", &rest); at && strcmp(at, "-") && n_owned < OWNED_MAX; at = strtok_r(NULL, ",", &rest))
		owned[n_owned++] = (u32)value(at);
	return asker;
}

static void put_ruling(const struct rm_ruling *ruling)
{
	static const char *const verdicts[] = { "pass", "swallow", "refuse", "wait" };
	static const char *const reasons[] = { "order", "foreign", "raw", "query", "doorbell" };
	bool denied = ruling->verdict == RM_SWALLOW || ruling->verdict == RM_REFUSE;

	printf(" verdict=%s", verdicts[ruling->verdict]);
	if (denied && (!ruling->trick || !*ruling->trick))
		die("a denial without a name");
	if (denied)
		printf(" reason=%s status=%u", reasons[ruling->reason], ruling->status);
	printf("\n");
}

/* verdict WHO OWNS CLIENT CMD FLAGS RAW PARAMS */
static void do_verdict(void)
{
	struct rm_asker asker = read_asker();
	struct rm_asked asked = { 0 };
	struct rm_ruling ruling;
	u8 *params;

	asked.client = (u32)num();
	asked.cmd = (u32)num();
	asked.flags = (u32)num();
	asked.raw = num();
	params = bytes(&asked.params_size);
	asked.params = asked.params_size ? params : NULL;
	rm_verdict_control(abi, &asked, &asker, &ruling);
	printf("ok wanted=%u size=%u", rm_verdict_wanted(asked.cmd, asked.flags, asked.raw),
	       rm_verdict_params(abi, asked.cmd, asked.flags, asked.raw));
	put_ruling(&ruling);
	free(params);
}

/* verdict_idle WHO OWNS LIST */
static void do_idle(void)
{
	struct rm_asker asker = read_asker();
	struct rm_ruling ruling;
	u32 size;
	u8 *list = bytes(&size);

	rm_verdict_idle(list, size / 4, &asker, &ruling);
	printf("ok");
	put_ruling(&ruling);
	free(list);
}

/* verdict_shorten CMD RAW PARAMS */
static void do_shorten(void)
{
	u32 cmd = (u32)num(), size;
	bool raw = num();
	u8 *params = bytes(&size);

	rm_verdict_shorten(abi, cmd, raw, params);
	printf("ok ");
	put_hex("params", params, size);
	printf("\n");
	free(params);
}

/* verdict_map WHO OWNS KIND, verdict_object WHO OWNS KIND NAMED */
static void do_kind(bool map)
{
	struct rm_asker asker = read_asker();
	enum rm_kind kind = (enum rm_kind)num();
	struct rm_ruling ruling;

	if (map)
		rm_verdict_gpu_map(kind, &asker, &ruling);
	else
		rm_verdict_object(kind, num(), &asker, &ruling);
	printf("ok");
	put_ruling(&ruling);
}

bool verdict_command(const char *name)
{
	if (!strcmp(name, "verdict"))
		do_verdict();
	else if (!strcmp(name, "verdict_idle"))
		do_idle();
	else if (!strcmp(name, "verdict_shorten"))
		do_shorten();
	else if (!strcmp(name, "verdict_map"))
		do_kind(true);
	else if (!strcmp(name, "verdict_object"))
		do_kind(false);
	else
		return false;
	return true;
}
