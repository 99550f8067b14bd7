/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs about memory see and make of their surroundings: other programs' memory, their own descriptors. */
#ifndef OUTSIDE_H
#define OUTSIDE_H

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* So much of the GPU is other programs': FAKECUDA_TAKEN names the file that says so, and nobody sees it empty. */
static inline void others_have(size_t bytes)
{
	char draft[4096];
	FILE *file;

	snprintf(draft, sizeof(draft), "%s.new", getenv("FAKECUDA_TAKEN"));
	file = fopen(draft, "w");
	fprintf(file, "%zu", bytes);
	fclose(file);
	if (rename(draft, getenv("FAKECUDA_TAKEN"))) {
		perror(draft);
		exit(1);
	}
}

/* Descriptors, and a few more. */
static inline unsigned int open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned int count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

#endif
