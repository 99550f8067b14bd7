/* SPDX-License-Identifier: Apache-2.0 */
/* What the handle of shared memory says, and how its two sides speak. */
#ifndef DS_TICKET_H
#define DS_TICKET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cuda.h"

#define DS_TICKET_PATIENCE_MS 5000
#define DS_TICKET_BATCH 64 /* most descriptors in one message */

/* The name of the socket can be read by who shares the network (/proc/net/unix), so it is not the secret. */
struct ds_ticket {
	char mark[8];
	uint64_t secret, id, size, name;
	int32_t pid;
	uint32_t uid; /* who named it */
};
_Static_assert(sizeof(struct ds_ticket) <= sizeof(CUipcMemHandle), "a ticket fits into a handle");
static const char ds_ticket_mark[8] = "detshIPC";

static inline socklen_t ds_ticket_address(struct sockaddr_un *address, const struct ds_ticket *ticket)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	/* an abstract name: the first byte is 0 */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "detshare-ipc-%d-%016llx", ticket->pid,
				    (unsigned long long)ticket->name));
}

#endif
