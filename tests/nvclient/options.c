// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>

#include "options.h"

#define MOST 24
#define HELP MOST

static void take(const struct nv_option *option, const char *what)
{
	u64 number;

	switch (option->kind) {
	case NV_FLAG:
		*(bool *)option->value = true;
		break;
	case NV_U32:
		number = nv_number(optarg, what);
		if (number > 0xffffffffu)
			nv_not_a_number(optarg, what);
		*(u32 *)option->value = (u32)number;
		break;
	case NV_U64:
		*(u64 *)option->value = nv_number(optarg, what);
		break;
	case NV_DECIMAL:
		*(double *)option->value = nv_decimal(optarg, what);
		break;
	case NV_TEXT:
		*(const char **)option->value = optarg;
	}
}

int nv_options(int argc, char **argv, const char *usage, const struct nv_option *list)
{
	struct option known[MOST + 2] = { 0 };
	char what[40];
	int c, count = 0;

	for (; list[count].name; count++) {
		if (count == MOST)
			nv_die("more than %d options", MOST);
		known[count] = (struct option){ list[count].name, list[count].kind != NV_FLAG, NULL, count };
	}
	known[count] = (struct option){ "help", no_argument, NULL, HELP };
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c >= count)
			nv_usage(usage, c == HELP ? 0 : 2);
		snprintf(what, sizeof(what), "--%s", list[c].name);
		take(&list[c], what);
	}
	return optind;
}
