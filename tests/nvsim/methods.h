/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What a client writes to make the simulated GPU work: USERD, doorbell, GPFIFO entries, pushbuffer
 * headers, host methods (as class c86f has them) and the methods of the simulated kernels. Shared
 * by engine and clients.
 */
#ifndef NVSIM_METHODS_H
#define NVSIM_METHODS_H

/* USERD of a channel (512 bytes of client memory) */
#define SIM_USERD_SIZE	 0x200
#define SIM_USERD_GP_GET 0x88
#define SIM_USERD_GP_PUT 0x8c

/* usermode region: 64 KiB of which the first page means something */
#define SIM_USERMODE_SIZE 0x10000
/* GPU time, ns; the same clock as CLOCK_MONOTONIC */
#define SIM_USERMODE_TIME_0 0x80 /* low word */
#define SIM_USERMODE_TIME_1 0x84 /* high word */
/*
 * Doorbell: a store of a work submit token. The word is polled: it reads 0 again once the token was
 * taken. A client compares and swaps 0 for its token and tries again while another token is still
 * there.
 */
#define SIM_USERMODE_DOORBELL 0x90
/*
 * Not on a GPU: u64 that a client adds one to after each store to the doorbell, so that stores can be
 * counted exactly however seldom the word is looked at. Optional.
 */
#define SIM_USERMODE_KICKS 0xf00

/* GPFIFO entry: two words; the segment's address in dwords << 2 and its length in dwords */
#define SIM_GP_ENTRY_SIZE 8
#define SIM_GP_ENTRY0(va) ((unsigned int)((va) & 0xfffffffc))
#define SIM_GP_ENTRY1(va, dwords)                                                                  \
	((unsigned int)(((va) >> 32) & 0xff) | ((unsigned int)(dwords) << 10))
#define SIM_GP_ENTRY1_LENGTH(e) (((e) >> 10) & 0x1fffff)

/* pushbuffer header */
#define SIM_PB_OP(h)	     ((h) >> 29)
#define SIM_PB_INC	     1 /* count methods, address grows */
#define SIM_PB_NON_INC	     3 /* count data words to one method */
#define SIM_PB_IMMD	     4 /* no data words, the count is the datum */
#define SIM_PB_ONE_INC	     5 /* address grows once */
#define SIM_PB_END_SEGMENT   7
#define SIM_PB_COUNT(h)	     (((h) >> 16) & 0x1fff)
#define SIM_PB_SUBCHANNEL(h) (((h) >> 13) & 7)
#define SIM_PB_METHOD(h)     (((h) & 0xfff) << 2)
#define SIM_PB_HEADER(op, count, subchannel, method)                                               \
	(((unsigned int)(op) << 29) | ((unsigned int)(count) << 16) |                              \
	 ((unsigned int)(subchannel) << 13) | ((unsigned int)(method) >> 2))

#define SIM_SUBCHANNEL_COMPUTE 1
#define SIM_SUBCHANNEL_COPY    4

/* host methods: below this number the channel itself acts, whatever the subchannel */
#define SIM_HOST_METHODS_END   0x100
#define SIM_SET_OBJECT	       0x00
#define SIM_NOP		       0x08
#define SIM_SEM_ADDR_LO	       0x5c
#define SIM_SEM_ADDR_HI	       0x60
#define SIM_SEM_PAYLOAD_LO     0x64
#define SIM_SEM_PAYLOAD_HI     0x68
#define SIM_SEM_EXECUTE	       0x6c
#define SIM_SEM_OPERATION(v)   ((v) & 7)
#define SIM_SEM_ACQUIRE	       0 /* wait until word == payload */
#define SIM_SEM_RELEASE	       1
#define SIM_SEM_ACQ_STRICT_GEQ 2 /* word >= payload, unsigned */
#define SIM_SEM_ACQ_CIRC_GEQ   3 /* (signed)(word - payload) >= 0 */
#define SIM_SEM_ACQ_AND	       4 /* word & payload != 0 */
#define SIM_SEM_ACQ_NOR	       5 /* ~(word | payload) != 0 */
#define SIM_SEM_PAYLOAD_64BIT  (1u << 24)
#define SIM_SEM_TIMESTAMP      (1u << 25) /* 16 bytes: payload (64 bit), GPU time in ns */
#define SIM_WFI		       0x78

/*
 * Simulated kernels, on any subchannel. Values stay set until set again; LAUNCH starts one kernel.
 * A channel is in order: what follows LAUNCH waits until that kernel has ended.
 */
#define SIM_KERNEL_NS	     0x3f00 /* duration on all the SMs it needs, ns, low word */
#define SIM_KERNEL_NS_HI     0x3f04 /* high word; both words all ones: endless */
#define SIM_KERNEL_SMS	     0x3f08 /* 0: one; more than there are: the duration grows */
#define SIM_KERNEL_UNTIL_LO  0x3f0c /* word that ends an endless kernel; 0: none */
#define SIM_KERNEL_UNTIL_HI  0x3f10
#define SIM_KERNEL_UNTIL_NOT 0x3f14 /* it runs while the word has this value */
#define SIM_KERNEL_COUNT_LO  0x3f18 /* where its run time goes, u64 ns; 0: nowhere */
#define SIM_KERNEL_COUNT_HI  0x3f1c
#define SIM_KERNEL_LAUNCH    0x3f20

#define SIM_KERNEL_ENDLESS 0xffffffffffffffffull

#endif
