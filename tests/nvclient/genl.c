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

static const struct nlattr *next_attribute(const struct nlattr *attribute)
{
	return (const struct nlattr *)((const u8 *)attribute + NLA_ALIGN(attribute->nla_len));
}

/* Calls take() for each attribute of [begin, end). */
static void each_attribute(const void *begin, const void *end, void (*take)(const struct nlattr *attribute, void *data),
			   void *data)
{
	const struct nlattr *attribute;

	for (attribute = begin; (const void *)attribute < end && attribute->nla_len; attribute = next_attribute(attribute))
		take(attribute, data);
}

static const void *content(const struct nlattr *attribute)
{
	return (const u8 *)attribute + NLA_HDRLEN;
}

/* Sends it and reads until its acknowledgement; take() gets the attributes of answers. */
static void exchange(struct genl *genl, const struct message *message, const char *what,
		     void (*take)(const struct nlattr *attribute, void *data), void *data)
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

			if (head->nlmsg_seq != genl->sequence)
				continue;
			if (head->nlmsg_type == NLMSG_ERROR) {
				if (error->error)
					nv_die("%s: %s", what, strerror(-error->error));
				return;
			}
			if (take)
				each_attribute((const u8 *)NLMSG_DATA(head) + GENL_HDRLEN,
					       (const u8 *)head + head->nlmsg_len, take, data);
		}
	}
}

/* A multicast group: its name and number come in an attribute of their own. */
struct group {
	const char *name;
	u32 id;
	bool named;
};

static void take_part_of_group(const struct nlattr *attribute, void *data)
{
	struct group *group = data;

	if (attribute->nla_type == CTRL_ATTR_MCAST_GRP_NAME)
		group->named = !strcmp(content(attribute), group->name);
	else if (attribute->nla_type == CTRL_ATTR_MCAST_GRP_ID)
		memcpy(&group->id, content(attribute), sizeof(group->id));
}

static void take_group(const struct nlattr *attribute, void *data)
{
	struct group *wanted = data, found = { .name = wanted->name };

	each_attribute(content(attribute), next_attribute(attribute), take_part_of_group, &found);
	if (found.named)
		wanted->id = found.id;
}

struct family {
	u16 id;
	struct group group;
};

static void take_family(const struct nlattr *attribute, void *data)
{
	struct family *family = data;

	if (attribute->nla_type == CTRL_ATTR_FAMILY_ID)
		memcpy(&family->id, content(attribute), sizeof(family->id));
	else if ((attribute->nla_type & NLA_TYPE_MASK) == CTRL_ATTR_MCAST_GROUPS)
		each_attribute(content(attribute), next_attribute(attribute), take_group, &family->group);
}

void genl_must_open(struct genl *genl, const char *name, const char *group)
{
	struct family family = { .group.name = group ? group : "" };
	struct message message;

	memset(genl, 0, sizeof(*genl));
	genl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	if (genl->fd < 0)
		nv_die("netlink socket: %s", strerror(errno));
	begin(genl, &message, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
	put(&message, CTRL_ATTR_FAMILY_NAME, name, (u16)(strlen(name) + 1));
	exchange(genl, &message, name, take_family, &family);
	genl->family = family.id;
	if (!group)
		return;
	if (!family.group.id)
		nv_die("%s has no group %s", name, group);
	if (setsockopt(genl->fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &family.group.id, sizeof(family.group.id)))
		nv_die("join %s: %s", group, strerror(errno));
}

static void take_event(const struct nlattr *attribute, void *data)
{
	struct genl_event *event = data;

	if (attribute->nla_type < GENL_EVENT_VALUES && attribute->nla_len - NLA_HDRLEN <= (int)sizeof(u64))
		memcpy(&event->values[attribute->nla_type], content(attribute), attribute->nla_len - NLA_HDRLEN);
}

bool genl_next_event(struct genl *genl, struct genl_event *event)
{
	u8 room[ROOM] __attribute__((aligned(8)));
	const struct nlmsghdr *head = (const struct nlmsghdr *)room;
	const struct genlmsghdr *genl_head = NLMSG_DATA(head);

	/* one message each time: the kernel sends each event by itself */
	if (recv(genl->fd, room, sizeof(room), 0) < (ssize_t)NLMSG_LENGTH(GENL_HDRLEN)) {
		if (errno == ENOBUFS || errno == EINTR)
			return false;
		nv_die("receive an event: %s", strerror(errno));
	}
	event->received = nv_now_ns();
	memset(event->values, 0, sizeof(event->values));
	event->command = genl_head->cmd;
	each_attribute((const u8 *)genl_head + GENL_HDRLEN, (const u8 *)head + head->nlmsg_len, take_event, event);
	return true;
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
	exchange(genl, &message, command == HOLD_SET ? "hold-set" : "hold-del", NULL, NULL);
}

void genl_must_shut(struct genl *genl, int pid)
{
	say(genl, HOLD_SET, pid);
}

void genl_must_release(struct genl *genl, int pid)
{
	say(genl, HOLD_DEL, pid);
}
