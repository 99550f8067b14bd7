// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include "genl.h"

#define ROOM	 8192
#define LEASE_MS 60000

/* Numbers of kmod/detshare.yaml. */
enum { HOLD_SET = 29, HOLD_DEL = 30 };
enum { A_KIND = 2, A_PID = 3, A_GATE = 6, A_PAUSE = 7, A_LEASE_MS = 8 };
enum { KIND_PID = 0 };

struct message {
	struct nlmsghdr head;
	struct genlmsghdr genl;
	u8 attributes[256];
};

static void begin(struct genl *genl, struct message *message, u16 family, u8 command)
{
	memset(message, 0, sizeof(*message));
	message->head.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	message->head.nlmsg_type = family;
	message->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	message->head.nlmsg_seq = ++genl->sequence;
	message->genl.cmd = command;
	message->genl.version = 1;
}

static void put(struct message *message, u16 type, const void *data, u16 size)
{
	struct nlattr *attribute = (struct nlattr *)((u8 *)message + NLMSG_ALIGN(message->head.nlmsg_len));

	attribute->nla_type = type;
	attribute->nla_len = NLA_HDRLEN + size;
	memcpy((u8 *)attribute + NLA_HDRLEN, data, size);
	message->head.nlmsg_len = NLMSG_ALIGN(message->head.nlmsg_len) + NLA_ALIGN(attribute->nla_len);
}

/* Sends it and reads until its acknowledgement; *id takes the family's number from an answer. */
static void exchange(struct genl *genl, const struct message *message, const char *what, u16 *id)
{
	u8 room[ROOM] __attribute__((aligned(8)));

	if (send(genl->fd, message, message->head.nlmsg_len, 0) < 0)
		nv_die("%s: send: %s", what, strerror(errno));
	for (;;) {
		ssize_t got = recv(genl->fd, room, sizeof(room), 0);
		struct nlmsghdr *head = (struct nlmsghdr *)room;

		if (got < 0)
			nv_die("%s: receive: %s", what, strerror(errno));
		for (; NLMSG_OK(head, got); head = NLMSG_NEXT(head, got)) {
			const struct nlmsgerr *error = NLMSG_DATA(head);
			const struct nlattr *attribute;

			if (head->nlmsg_seq != genl->sequence)
				continue;
			if (head->nlmsg_type == NLMSG_ERROR) {
				if (error->error)
					nv_die("%s: %s", what, strerror(-error->error));
				return;
			}
			attribute = (const struct nlattr *)((const u8 *)NLMSG_DATA(head) + GENL_HDRLEN);
			while (id && (const u8 *)attribute < (const u8 *)head + head->nlmsg_len && attribute->nla_len) {
				if (attribute->nla_type == CTRL_ATTR_FAMILY_ID)
					memcpy(id, (const u8 *)attribute + NLA_HDRLEN, sizeof(*id));
				attribute = (const struct nlattr *)((const u8 *)attribute + NLA_ALIGN(attribute->nla_len));
			}
		}
	}
}

void genl_must_open(struct genl *genl, const char *family)
{
	struct message message;

	memset(genl, 0, sizeof(*genl));
	genl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	if (genl->fd < 0)
		nv_die("netlink socket: %s", strerror(errno));
	begin(genl, &message, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
	put(&message, CTRL_ATTR_FAMILY_NAME, family, (u16)(strlen(family) + 1));
	exchange(genl, &message, family, &genl->family);
}

static void say(struct genl *genl, u8 command, int pid)
{
	struct message message;
	u32 kind = KIND_PID, number = (u32)pid, lease = LEASE_MS;

	begin(genl, &message, genl->family, command);
	put(&message, A_KIND, &kind, sizeof(kind));
	put(&message, A_PID, &number, sizeof(number));
	if (command == HOLD_SET) {
		put(&message, A_GATE, &(u8){ 1 }, 1);
		put(&message, A_PAUSE, &(u8){ 0 }, 1);
		put(&message, A_LEASE_MS, &lease, sizeof(lease));
	}
	exchange(genl, &message, command == HOLD_SET ? "hold-set" : "hold-del", NULL);
}

void genl_must_shut(struct genl *genl, int pid)
{
	say(genl, HOLD_SET, pid);
}

void genl_must_release(struct genl *genl, int pid)
{
	say(genl, HOLD_DEL, pid);
}
