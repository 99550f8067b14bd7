/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Which calls a program may make itself. The driver lets each program set its own time slice, switch channels on that were switched
 * off, and name channels of others; who is managed may not undo what is ordered for it, and nobody may name what is another's.
 *
 * Judged is what the driver will get: the shadow call, never its memory. Nothing here takes memory, sleeps or keeps state.
 */
#ifndef DETSHARE_RM_VERDICT_H
#define DETSHARE_RM_VERDICT_H

#include "abi.h"

enum rm_verdict {
	RM_PASS,
	RM_SWALLOW,	/* answer NV_OK in the driver's stead and do nothing: CUDA's libraries make this call */
	RM_REFUSE,
	RM_WAIT,	/* passes, but not as long as the caller is paused */
};

/* In the order of enum detshare_denial. */
enum rm_denial {
	RM_DENIAL_ORDER,	/* would change what is ordered for the caller, or for all */
	RM_DENIAL_FOREIGN,	/* names a client of another process */
	RM_DENIAL_RAW,		/* goes to the firmware unread */
	RM_DENIAL_QUERY,	/* asks for what identifies others */
	RM_DENIAL_DOORBELL,	/* would make a doorbell that no gate can shut */
};

struct rm_ruling {
	enum rm_verdict verdict;
	/* of RM_SWALLOW and RM_REFUSE: */
	enum rm_denial reason;
	u32 status;		/* NV_STATUS for the caller */
	const char *trick;	/* what was tried: "sets its own time slice" */
};

struct rm_asker {
	bool trusted;		/* an administrator that nobody manages: everything passes */
	bool managed;
	bool limited;		/* somebody limits the caller's or the owner's memory; see rm_verdict_keeps() */
	/* Is this client one of the caller's process? Asked only for lists and raw commands. May sleep. */
	bool (*owns)(void *data, u32 client);
	void *data;
};

/* A control, from its block, and what it says behind it. */
struct rm_asked {
	u32 client, cmd, flags;
	bool raw;		/* the object hands everything to the firmware: RM_KIND_BINAPI */
	const u8 *params;	/* NULL: not read, or the caller has none */
	u32 params_size;
};

/* Must this control be judged at all? Also for atomic context. raw: as in struct rm_asked. */
bool rm_verdict_wanted(u32 cmd, u32 flags, bool raw);
/* Does the driver wait for channels to be idle? */
bool rm_verdict_idles(u32 cmd, bool raw);
/* Does its verdict depend on rm_asker.limited? */
bool rm_verdict_keeps(u32 cmd, bool raw);
/*
 * Bytes of parameters that the judgement reads, 0: none. They are judged if the caller gives just as many; of another size the driver
 * refuses the control by itself.
 */
u32 rm_verdict_params(const struct rm_abi *abi, u32 cmd, u32 flags, bool raw);
void rm_verdict_control(const struct rm_abi *abi, const struct rm_asked *asked, const struct rm_asker *asker,
			struct rm_ruling *ruling);

/*
 * How long the driver may wait for channels to be idle: it holds its GPU lock as long. Of RM_IDLE_CHANNELS, of which 0 is some seconds, and of
 * the parameters, of the size that rm_verdict_params() said, of a control of an asker who is not trusted.
 */
#define RM_IDLE_MOST_US 10000
u32 rm_verdict_idle_us(u32 us);
void rm_verdict_shorten(const struct rm_abi *abi, u32 cmd, bool raw, u8 *params);

/* Most clients that one RM_IDLE_CHANNELS names. */
#define RM_IDLE_MAX 4096

/* RM_IDLE_CHANNELS: the clients of its list, `count` of them; 0: it names its own only. */
void rm_verdict_idle(const u8 *clients, u32 count, const struct rm_asker *asker, struct rm_ruling *ruling);

/* Memory of this kind is to be made reachable for the GPU: RM_MAP_MEMORY_DMA, nvidia-uvm, a context DMA. */
void rm_verdict_gpu_map(enum rm_kind kind, const struct rm_asker *asker, struct rm_ruling *ruling);
/*
 * An object of this kind is to be made, or mapped for the CPU. named: it will have the handle that the caller asked for. A channel: one
 * below a device that may compute; the driver makes it a channel group that has no handle, so nobody could set its slice, nor count it for
 * asker->limited.
 */
void rm_verdict_object(enum rm_kind kind, bool named, const struct rm_asker *asker, struct rm_ruling *ruling);

#endif
