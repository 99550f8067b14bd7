/* SPDX-License-Identifier: Apache-2.0 */
/* As much of generic netlink as it takes to shut and open one's own gate, and to hear events. */
#ifndef GENL_H
#define GENL_H

#include "nvclient.h"

struct genl {
	int fd;
	u16 family;
	u32 sequence;
};

/* group: to be joined; NULL: none. */
void genl_must_open(struct genl *genl, const char *name, const char *group);

/* Attributes of an event that are numbers, by their numbers in kmod/detshare.yaml. */
#define GENL_EVENT_VALUES 40

struct genl_event {
	u8 command;
	u64 received;	/* CLOCK_MONOTONIC, ns */
	u64 values[GENL_EVENT_VALUES];
};

/* Waits for the next one. false: there was none, events were lost or a signal came. */
bool genl_next_event(struct genl *genl, struct genl_event *event);
/* detshare's hold-set (shut, until opened or for a minute) and hold-del, for this process. Returns when it is so. */
void genl_must_shut(struct genl *genl, int pid);
void genl_must_release(struct genl *genl, int pid);

#endif
