/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#ifndef TAUTLINE_COUNT_H
#define TAUTLINE_COUNT_H

#include "maps.h"

static __always_inline void count(enum reason reason, __u32 bytes)
{
	struct counter *c = bpf_map_lookup_elem(&counters, &reason);

	if (c) {
		c->events++;
		c->bytes += bytes;
	}
}

/* The index of the highest set bit, 0 for 0; BPF has no instruction for it. */
static __always_inline __u32 log2_of(__u64 v)
{
	__u32 r = 0;

	if (v >> 32) {
		v >>= 32;
		r += 32;
	}
	if (v >> 16) {
		v >>= 16;
		r += 16;
	}
	if (v >> 8) {
		v >>= 8;
		r += 8;
	}
	if (v >> 4) {
		v >>= 4;
		r += 4;
	}
	if (v >> 2) {
		v >>= 2;
		r += 2;
	}
	return r + (v >> 1 ? 1 : 0);
}

/* Counts a redirected message. gap_ns 0: there is no gap before it. */
static __always_inline void count_chunk(__u32 backend, __u32 bytes, __u64 gap_ns)
{
	struct latency *l = bpf_map_lookup_elem(&latency, &backend);
	__u32 i = log2_of(gap_ns);

	if (!l)
		return;
	l->chunks++;
	l->bytes += bytes;
	if (!gap_ns)
		return;
	l->gap_ns += gap_ns;
	if (i >= GAP_BUCKETS)
		i = GAP_BUCKETS - 1;
	l->gaps[i]++;
}

#endif
