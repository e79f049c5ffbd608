/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One line a map: what it holds, who writes it, what happens when it is full. */
#ifndef TAUTLINE_MAPS_H
#define TAUTLINE_MAPS_H

#include "abi.h"

#define MAX_CONNS 65536
#define MAX_BACKENDS 1024
/* A power of two and whole pages of any size; room for 10,922 first tokens. */
#define FIRST_TOKENS_BYTES 262144
/* Likewise; room for 1,023 ends of messages. */
#define USAGES_BYTES 1048576

/* Servers' ends, with the sk_msg program. Kernel writes. Full: not claimed. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, MAX_CONNS);
	__uint(key_size, sizeof(struct conn_key));
	__uint(value_size, sizeof(__u64));
} server_socks SEC(".maps");

/* Clients' ends by socket cookie, targets only. Agent writes. Full: not armed. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, MAX_CONNS);
	__uint(key_size, sizeof(__u64));
	__uint(value_size, sizeof(__u64));
} client_socks SEC(".maps");

/* Clients' ends for a moment, with a program of its own kind: a socket that another
 * owner holds is refused (EBUSY). Agent writes and deletes. Not pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, MAX_CONNS);
	__uint(key_size, sizeof(__u64));
	__uint(value_size, sizeof(__u64));
} trial_socks SEC(".maps");

/* State of each backend connection. Kernel writes. Full: not claimed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CONNS);
	__type(key, struct conn_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* Arms not taken yet. Agent writes, kernel deletes. Full: not armed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CONNS);
	__type(key, struct conn_key);
	__type(value, struct arm);
} arms SEC(".maps");

/* The routing table, for operators. Agent writes. Full: the row is missing. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_BACKENDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

/* Chunk gaps of each backend. Agent makes rows, kernel counts. Full: no row. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_BACKENDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct latency);
} latency SEC(".maps");

/* One counter a reason. Kernel counts. Never full. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASON_COUNT);
	__type(key, enum reason);
	__type(value, struct counter);
} counters SEC(".maps");

/* Version of this layout. Agent writes once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct meta);
} meta SEC(".maps");

/* First tokens that the agent has not seen pass. Kernel writes, and wakes nobody:
 * the agent reads when it wants to know. Full: counted; the agent learns of the token
 * from the end of the response. Not pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FIRST_TOKENS_BYTES);
} first_tokens SEC(".maps");

/* Ends of redirected messages that may tell the usage, for the agent to read when it
 * is awake. Kernel writes, and wakes nobody. Full: such a message is passed, counted.
 * Not pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, USAGES_BYTES);
} usages SEC(".maps");

/* Marks on the agent's sockets. Agent writes; gone with the socket. Not pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct announcement);
} announced SEC(".maps");

/* Marks on servers' sockets. Kernel writes; gone with the socket. Not pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct claim);
} claims SEC(".maps");

#endif
