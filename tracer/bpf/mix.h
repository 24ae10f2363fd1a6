/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Hashing of words. */
#ifndef PG_MIX_H
#define PG_MIX_H

static __always_inline u64 mix(u64 h, u64 v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdULL;
	return h ^ (h >> 32);
}

#endif
