/* SPDX-License-Identifier: Apache-2.0 */
/* As much of generic netlink as it takes to shut and open one's own gate. */
#ifndef GENL_H
#define GENL_H

#include "nvclient.h"

struct genl {
	int fd;
	u16 family;
	u32 sequence;
};

void genl_must_open(struct genl *genl, const char *family);
/* detshare's hold-set (shut, until opened or for a minute) and hold-del, for this process. Returns when it is so. */
void genl_must_shut(struct genl *genl, int pid);
void genl_must_release(struct genl *genl, int pid);

#endif
