// SPDX-License-Identifier: Apache-2.0
/* The programs of this folder in one file: which of them runs says the name by which it is started, or its first word. */
#include <sys/auxv.h>

#include "nvclient.h"

#define PROGRAMS(X)                                                                                           \
	X(alloc) X(attack) X(background) X(churn) X(door) X(flap) X(fuzz) X(keep) X(kick) X(latency) X(listen) \
	X(loop) X(raw) X(replay) X(steer) X(storm) X(stress)

#define DECLARE(name) int nv##name##_main(int argc, char **argv);
PROGRAMS(DECLARE)

static const struct {
	const char *name;
	int (*main)(int argc, char **argv);
} programs[] = {
#define ROW(name) { "nv" #name, nv##name##_main },
	PROGRAMS(ROW)
};

#define COUNT (sizeof(programs) / sizeof(programs[0]))

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void run_as(const char *name, int argc, char **argv)
{
	for (size_t i = 0; i < COUNT; i++) {
		if (strcmp(programs[i].name, name))
			continue;
		nv_program_name(argv[0]);
		exit(programs[i].main(argc, argv));
	}
}

int main(int argc, char **argv)
{
	const char *file = (const char *)getauxval(AT_EXECFN);
	bool help = argc == 2 && !strcmp(argv[1], "--help");

	if (file)
		run_as(base_name(file), argc, argv);
	if (argc)
		run_as(base_name(argv[0]), argc, argv);
	if (argc > 1)
		run_as(argv[1], argc - 1, argv + 1);
	fprintf(help ? stdout : stderr, "usage: nvclient PROGRAM [OPTION]..., or by its name; PROGRAM --help tells more\nPROGRAM:");
	for (size_t i = 0; i < COUNT; i++)
		fprintf(help ? stdout : stderr, " %s", programs[i].name);
	fprintf(help ? stdout : stderr, "\nexample: nvclient nvkick --kicks 1000\n");
	return help ? 0 : 2;
}
