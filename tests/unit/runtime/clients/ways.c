/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way to a driver function ends in the library. argv: "linked" (this program is linked against libcuda) or "loaded" (it is not: compiled with
 * -DLOADED). Asks for each name of stdin by dlsym and by cuGetProcAddress; prints where each answer lies.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *where(void *address)
{
	Dl_info info;
	const char *name;

	if (!address)
		return "absent";
	if (!dladdr(address, &info))
		return "nowhere";
	name = strrchr(info.dli_fname, '/');
	return name ? name + 1 : info.dli_fname;
}

int main(void)
{
	typedef int (*get)(const char *, void **, int, unsigned long long, int *);
	void *library, *found;
	char name[128];
	get get_proc;
	int status;

	/* natively nobody has it while the driver is not loaded */
	printf("before %s\n", where(dlsym(RTLD_DEFAULT, "cuLaunchKernel")));
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	get_proc = (get)dlsym(library, "cuGetProcAddress_v2");
	while (scanf("%127s", name) == 1) {
		printf("%s %s", name, where(dlsym(library, name)));
		printf(" %s", where(dlsym(RTLD_DEFAULT, name)));
		printf(" %s", where(dlsym(RTLD_NEXT, name)));
		for (unsigned long long flags = 0; flags < 3; flags++) {
			found = NULL;
			if (get_proc(name, &found, 13000, flags, &status))
				found = NULL;
			printf(" %s", where(found));
		}
		printf("\n");
	}
	/* other people's names are not touched */
	printf("malloc %s\n", where(dlsym(RTLD_NEXT, "malloc")));
	printf("nobody %s\n", where(dlsym(RTLD_DEFAULT, "cuNobodyHasThis")));
	return 0;
}
