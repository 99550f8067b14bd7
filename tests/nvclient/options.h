/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVCLIENT_OPTIONS_H
#define NVCLIENT_OPTIONS_H

#include "nvclient.h"

/* An option --name and where its value goes; a list ends with { 0 }. */
struct nv_option {
	const char *name;
	enum { NV_FLAG, NV_U32, NV_U64, NV_DECIMAL, NV_TEXT } kind;
	void *value;
};

#define NV_OPTION(name, value)                                                                            \
	{                                                                                                 \
		name, _Generic((value), bool *: NV_FLAG, u32 *: NV_U32, u64 *: NV_U64, double *: NV_DECIMAL, \
			       const char **: NV_TEXT), value                                             \
	}

/*
 * Takes the options out of the words, which it puts in front, and returns the index of the first word that is none. --help
 * prints `usage` and ends the program; what is not known, or no number, ends it with exit code 2.
 */
int nv_options(int argc, char **argv, const char *usage, const struct nv_option *list);

#endif
