// SPDX-License-Identifier: GPL-2.0-only
#include "eventbuf.h"

struct record {
	u16 type, subtype;
	u32 vardata;
	u8 tag, vmid;
	u16 seq;
	u32 context;
	u32 pid;
	u16 reserved;
	u8 instance, compute; /* of MIG, from version 2 on; else 0 and a part of the pid */
	u64 when;
};

static void show(struct eventbuf *buf)
{
	buf->write(buf, true, 0, &buf->header, sizeof(buf->header));
}

void eventbuf_init(struct eventbuf *buf, u32 size, u32 count)
{
	buf->size = size;
	buf->count = count;
	show(buf);
}

void eventbuf_add(struct eventbuf *buf, unsigned int version, const struct eventbuf_switch *event)
{
	u8 no_mig = version > 1 ? 0xff : 0;
	struct record record = {
		.type = version > 1 ? EVENTBUF_FECS_V2 : EVENTBUF_FECS,
		.tag = event->tag,
		.seq = buf->seq++,
		.context = event->context,
		.pid = event->pid,
		.instance = no_mig,
		.compute = no_mig,
		.when = event->when,
	};
	u32 next = (buf->header.put + 1) % buf->count;

	if (!buf->enabled)
		return;
	if (!buf->newest && next == buf->header.get) {
		buf->header.dropped++;
	} else {
		buf->write(buf, false, (u64)buf->header.put * buf->size, &record, sizeof(record));
		buf->header.put = next;
	}
	show(buf);
}

void eventbuf_lost(struct eventbuf *buf, u32 records)
{
	buf->seq += records;
}

bool eventbuf_get(struct eventbuf *buf, u32 get)
{
	struct eventbuf_header *header = &buf->header;

	if (get >= buf->count)
		return false;
	header->get = get;
	header->records = get <= header->put ? header->put - get : header->put + (buf->count - get);
	header->dropped = 0;
	header->dropped_vardata = 0;
	show(buf);
	return true;
}
