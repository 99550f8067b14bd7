// SPDX-License-Identifier: GPL-2.0-only
/* See ring.h and methods.h. */
#include "methods.h"
#include "ring.h"

/* what a launch costs at least: keeps a ring of empty kernels from standing still in time */
#define SHORTEST_KERNEL 1000

void ring_init(struct ring *ring, const struct ring_memory *memory, void *vas, u64 gpfifo,
	       u32 entries)
{
	*ring = (struct ring){ .memory = memory, .vas = vas, .gpfifo = gpfifo, .entries = entries };
	ring->kernel.sms = 1;
}

bool ring_put(struct ring *ring, u32 put)
{
	if (put >= ring->entries)
		return false;
	ring->put = put;
	return true;
}

bool ring_pending(const struct ring *ring)
{
	return ring->open || ring->get != ring->put;
}

void ring_rewind(struct ring *ring)
{
	ring->put = ring->get;
}

static void set_low(u64 *word, u32 value)
{
	*word = (*word & 0xffffffff00000000ull) | value;
}

static void set_high(u64 *word, u32 value)
{
	*word = (*word & 0xffffffffull) | (u64)value << 32;
}

static enum ring_result fault(struct ring *ring, u64 va)
{
	ring->fault = va;
	return RING_FAULT;
}

static enum ring_result release(struct ring *ring, u32 how, u64 now)
{
	struct {
		u64 payload, time;
	} report = { ring->sem_payload, now };
	u32 word = (u32)ring->sem_payload;
	const void *bytes = &word;
	size_t n = sizeof(word);

	if (how & SIM_SEM_TIMESTAMP) {
		if (!(how & SIM_SEM_PAYLOAD_64BIT))
			report.payload = word;
		/* the time first: who sees the payload may read it */
		if (ring->memory->write(ring->vas, ring->sem_addr + 8, &report.time, 8))
			return fault(ring, ring->sem_addr + 8);
		bytes = &report.payload;
		n = 8;
	} else if (how & SIM_SEM_PAYLOAD_64BIT) {
		bytes = &ring->sem_payload;
		n = 8;
	}
	if (ring->memory->write(ring->vas, ring->sem_addr, bytes, n))
		return fault(ring, ring->sem_addr);
	return RING_IDLE;
}

static enum ring_result acquire(struct ring *ring)
{
	bool wide = ring->acquire & SIM_SEM_PAYLOAD_64BIT;
	u64 value = 0, want = ring->sem_payload, mask = wide ? ~0ull : 0xffffffffull;
	u64 behind;
	bool met;

	if (ring->memory->read(ring->vas, ring->sem_addr, &value, wide ? 8 : 4))
		return fault(ring, ring->sem_addr);
	want &= mask;
	switch (SIM_SEM_OPERATION(ring->acquire)) {
	case SIM_SEM_ACQUIRE:
		met = value == want;
		break;
	case SIM_SEM_ACQ_STRICT_GEQ:
		met = value >= want;
		break;
	case SIM_SEM_ACQ_CIRC_GEQ:
		behind = (value - want) & mask;
		met = behind <= mask >> 1;
		break;
	case SIM_SEM_ACQ_AND:
		met = value & want;
		break;
	default:
		met = ~(value | want) & mask;
		break;
	}
	ring->acquiring = !met;
	return met ? RING_IDLE : RING_ACQUIRE;
}

bool ring_ready(struct ring *ring)
{
	return !ring->acquiring || acquire(ring) != RING_ACQUIRE;
}

static enum ring_result host_method(struct ring *ring, u32 method, u32 data, u64 now)
{
	switch (method) {
	case SIM_SEM_ADDR_LO:
		set_low(&ring->sem_addr, data & ~3u);
		return RING_IDLE;
	case SIM_SEM_ADDR_HI:
		set_high(&ring->sem_addr, data);
		return RING_IDLE;
	case SIM_SEM_PAYLOAD_LO:
		set_low(&ring->sem_payload, data);
		return RING_IDLE;
	case SIM_SEM_PAYLOAD_HI:
		set_high(&ring->sem_payload, data);
		return RING_IDLE;
	case SIM_SEM_EXECUTE:
		if (SIM_SEM_OPERATION(data) == SIM_SEM_RELEASE)
			return release(ring, data, now);
		if (SIM_SEM_OPERATION(data) > SIM_SEM_ACQ_NOR)
			return fault(ring, method);
		ring->acquire = data;
		return acquire(ring);
	default:
		/*
		 * SET_OBJECT, NOP, WFI, memory operations: a channel in order and a memory without
		 * caches need none
		 */
		return RING_IDLE;
	}
}

static enum ring_result launch(struct ring *ring)
{
	struct ring_kernel *kernel = &ring->kernel;

	if (ring->only_copies)
		return fault(ring, SIM_KERNEL_LAUNCH);
	if (!kernel->sms)
		kernel->sms = 1;
	if (kernel->ns < SHORTEST_KERNEL)
		kernel->ns = SHORTEST_KERNEL;
	return RING_KERNEL;
}

static enum ring_result kernel_method(struct ring *ring, u32 method, u32 data)
{
	struct ring_kernel *kernel = &ring->kernel;

	switch (method) {
	case SIM_KERNEL_NS:
		set_low(&kernel->ns, data);
		break;
	case SIM_KERNEL_NS_HI:
		set_high(&kernel->ns, data);
		break;
	case SIM_KERNEL_SMS:
		kernel->sms = data;
		break;
	case SIM_KERNEL_UNTIL_LO:
		set_low(&kernel->until, data & ~3u);
		break;
	case SIM_KERNEL_UNTIL_HI:
		set_high(&kernel->until, data);
		break;
	case SIM_KERNEL_UNTIL_NOT:
		kernel->until_not = data;
		break;
	case SIM_KERNEL_COUNT_LO:
		set_low(&kernel->count, data & ~7u);
		break;
	case SIM_KERNEL_COUNT_HI:
		set_high(&kernel->count, data);
		break;
	case SIM_KERNEL_LAUNCH:
		return launch(ring);
	default:
		break; /* of a real engine: without effect here */
	}
	return RING_IDLE;
}

static enum ring_result one_method(struct ring *ring, u32 method, u32 data, u64 now)
{
	if (method < SIM_HOST_METHODS_END)
		return host_method(ring, method, data, now);
	return kernel_method(ring, method, data);
}

/* The header that was just read begins: IMMD acts at once, the others wait for their data. */
static enum ring_result header(struct ring *ring, u32 word, u64 now)
{
	ring->op = SIM_PB_OP(word);
	ring->method = SIM_PB_METHOD(word);
	ring->count = SIM_PB_COUNT(word);
	switch (ring->op) {
	case 0: /* with nothing in it: a gap between segments */
		if (word)
			return fault(ring, ring->segment);
		return RING_IDLE;
	case SIM_PB_INC:
	case SIM_PB_NON_INC:
	case SIM_PB_ONE_INC:
		return RING_IDLE;
	case SIM_PB_IMMD:
		word = ring->count;
		ring->count = 0;
		return one_method(ring, ring->method, word, now);
	case SIM_PB_END_SEGMENT:
		ring->count = 0;
		ring->left = 0;
		ring->taken = ring->fetched;
		return RING_IDLE;
	default:
		return fault(ring, ring->segment);
	}
}

static enum ring_result datum(struct ring *ring, u32 word, u64 now)
{
	u32 method = ring->method;

	ring->count--;
	if (ring->op != SIM_PB_NON_INC)
		ring->method += 4;
	if (ring->op == SIM_PB_ONE_INC)
		ring->op = SIM_PB_NON_INC;
	return one_method(ring, method, word, now);
}

static enum ring_result open_entry(struct ring *ring)
{
	u64 at = ring->gpfifo + (u64)ring->get * SIM_GP_ENTRY_SIZE;
	u32 entry[2];

	if (ring->memory->read(ring->vas, at, entry, sizeof(entry)))
		return fault(ring, at);
	ring->segment = (entry[0] & ~3u) | (u64)(entry[1] & 0xff) << 32;
	ring->left = SIM_GP_ENTRY1_LENGTH(entry[1]); /* 0: a control entry, nothing to do here */
	ring->fetched = 0;
	ring->taken = 0;
	ring->count = 0;
	ring->open = true;
	ring->get = (ring->get + 1) % ring->entries;
	return RING_IDLE;
}

static enum ring_result refill(struct ring *ring)
{
	u32 n = ring->left < RING_FETCH ? ring->left : RING_FETCH;

	if (ring->memory->read(ring->vas, ring->segment, ring->fetch, n * sizeof(u32)))
		return fault(ring, ring->segment);
	ring->segment += n * sizeof(u32);
	ring->left -= n;
	ring->fetched = n;
	ring->taken = 0;
	return RING_IDLE;
}

enum ring_result ring_step(struct ring *ring, u64 now, u32 budget)
{
	enum ring_result result = RING_IDLE;
	u32 word;

	if (ring->acquiring)
		result = acquire(ring);
	while (result == RING_IDLE && ring_pending(ring)) {
		if (!budget--)
			return RING_MORE;
		if (!ring->open) {
			result = open_entry(ring);
		} else if (ring->taken == ring->fetched && !ring->left) {
			ring->open = false;
		} else if (ring->taken == ring->fetched) {
			result = refill(ring);
		} else {
			word = ring->fetch[ring->taken++];
			result = ring->count ? datum(ring, word, now) : header(ring, word, now);
		}
	}
	return result;
}
