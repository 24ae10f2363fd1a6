/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Copies of user stacks, and what names them. */
#ifndef PG_USER_STACK_H
#define PG_USER_STACK_H

#include "mix.h"

/* Copy up to `size` bytes from `sp` upwards: the whole, or up to the first page that is not there. */
static __always_inline u32 copy_stack(u8 *to, u64 sp, u32 size)
{
	if (!bpf_probe_read_user(to, size, (void *)sp))
		return size;
	u32 done = 0;
	for (u32 at = 0; at < size; at += 512) {
		if (bpf_probe_read_user(to + at, 512, (void *)(sp + at)))
			break;
		done = at + 512;
	}
	/* The stack often ends within the last piece. */
	if (done < size) {
		u32 rest = (4096 - ((sp + done) & 4095)) & 511;
		if (rest && !bpf_probe_read_user(to + (done & 0x3fff), rest & 511, (void *)(sp + done)))
			done += rest;
	}
	return done;
}

#define BREAKPOINT 0xcc

/* A thread in the trap of a probe that the kernel has not dealt with yet stands behind the breakpoint: to unwind its
 * stack it must stand where it was. */
static __always_inline void put_back(struct regs *r)
{
	u8 before;
	if (!bpf_probe_read_user(&before, sizeof(before), (void *)(r->ip - 1)) && before == BREAKPOINT)
		r->ip--;
}

static __always_inline u64 stack_key(u32 tid, u64 ip, u64 sp)
{
	return mix(mix(tid, ip), sp) | 1;
}

#endif
