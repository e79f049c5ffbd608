/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Everything that the kernel side and Go share. Go gets its types from here by
 * generation; a change of a layout or of a meaning raises the version in
 * bpf/spec.go, and with it the directory of the pins.
 */
#ifndef TAUTLINE_ABI_H
#define TAUTLINE_ABI_H

#include <linux/types.h>

/* A backend connection as its server sees it. IPv4 is written ::ffff:a.b.c.d,
 * ports are in host byte order. */
struct conn_key {
	__u8 server_addr[16];
	__u8 agent_addr[16];
	__u16 server_port;
	__u16 agent_port;
} __attribute__((aligned(4)));

enum flow_state {
	FLOW_ANNOUNCED, /* the agent's end is established, no server's end was seen */
	FLOW_REFUSED,   /* the server's end was seen and could not be taken */
	FLOW_PASSING,   /* the server's end is taken; everything goes to the agent */
	FLOW_SPLICED,   /* whole chunks go to the client */
};

/* A connection between the agent and a backend. Written by the kernel only. */
struct flow {
	__u64 agent_cookie;
	__u64 server_cookie;
	__u64 server_netns;
	__u64 client_cookie;   /* of the last arm that was taken */
	__u64 response;        /* likewise */
	__u64 redirected;      /* bytes, over the life of the connection */
	__u64 chunks;          /* messages redirected, likewise */
	__u64 arms;            /* arms taken, likewise */
	__u64 last_ns;         /* monotonic time of the last message */
	__u32 snd_nxt;         /* of the agent's end when it was established */
	__u32 rcv_nxt;
	__u32 credit;          /* bytes left */
	__u32 backend;
	enum flow_state state;
	__u32 position;        /* of the last arm that was taken */
	__u32 mode;            /* its enum arm_mode */
	__u32 usage;           /* likewise */
};

enum arm_mode {
	ARM_CHUNKS, /* whole chunks */
	ARM_DELTAS, /* a chunk a message, each one event without ids: see event.h */
	ARM_FIRST,  /* whole chunks, of which the first one shows the first token */
};

/* The agent's word that everything up to a position has reached the client. */
struct arm {
	__u64 server_cookie;   /* the arm is for this socket and no other */
	__u64 client_cookie;
	__u64 response;        /* the agent's number of the response, for what it is told */
	__u32 position;        /* bytes the server has sent to the agent, mod 2^32 */
	__u32 credit;          /* bytes */
	enum arm_mode mode;
	__u32 usage;           /* not 0: the end of what may tell the usage goes to usages */
};

/* Under ARM_FIRST: the first token of a response has been redirected. */
struct first_token {
	__u64 response;
	__u64 ns;              /* monotonic time */
};

/* Of a message's end so much is kept; with the headers of record and ring it is 1 KiB. */
#define USAGE_BYTES 1000

/* A message that may tell the usage has been redirected, or will be: its end as it was
 * sent, chunk framing included. */
struct usage_end {
	__u64 response;
	__u32 size;            /* bytes, at most USAGE_BYTES */
	__u32 pad;
	__u64 words[USAGE_BYTES / 8];
};

/* Put on the agent's own socket before connect: this connection is ours. */
struct announcement {
	__u32 backend;
};

/* Put on the server's socket when it is taken. */
struct claim {
	struct conn_key key;
	__u32 base;            /* write_seq when the connection was established */
	__u64 cookie;
};

/* Why a socket was taken or not, what became of each arm and, from REDIRECTED on, of
 * each message. */
enum reason {
	CLAIM_TAKEN,
	CLAIM_MISMATCH,        /* same addresses, other sequence numbers: not ours */
	CLAIM_BUSY,            /* another sockmap owner has the socket (EBUSY) */
	CLAIM_UNSUPPORTED,     /* EOPNOTSUPP, EINVAL: MPTCP, TLS, a wrong state */
	CLAIM_FULL,            /* a table of ours is full */
	CLAIM_FAILED,          /* any other error */
	ARM_TAKEN,
	ARM_MISSED,            /* bytes were under way: the position is another */
	FIRST_LOST,            /* the ring of first tokens is full: the agent is not told */
	REDIRECTED,
	PASS_IDLE,             /* not spliced: nothing wrong */
	PASS_LAST,             /* holds the terminating chunk */
	PASS_CREDIT,           /* larger than the credit that is left */
	PASS_WINDOW,           /* larger than what can be read directly */
	PASS_PARTIAL,          /* does not end on a chunk boundary */
	PASS_FRAMING,          /* not chunked framing, or not a kind we follow */
	PASS_EVENT,            /* not an event that the arm lets pass */
	PASS_USAGE,            /* may tell the usage, and the ring of usages is full */
	PASS_TARGET,           /* the client's socket is gone */
	PASS_STALE,            /* a socket whose flow is gone */
	PASS_BYPASSED,         /* bytes went to the agent past this program */
	REASON_COUNT,
};

struct counter {
	__u64 events;
	__u64 bytes;
};

#define GAP_BUCKETS 40

/* Per backend and CPU. gaps[i] counts gaps of [2^i, 2^(i+1)) ns before a
 * redirected message, since the message before it on the same connection. The
 * prefill before a first token is none. */
struct latency {
	__u64 chunks;
	__u64 bytes;
	__u64 gap_ns;          /* sum */
	__u64 gaps[GAP_BUCKETS];
};

/* What the agent believes of a backend; for operators. Written by the agent. */
struct backend {
	char name[64];
	char address[64];
	__u64 inflight_tokens; /* uncached prompt tokens under way */
	__u64 inflight_requests;
	__u64 tau;             /* tokens */
	__u64 picks;
	__u32 queue;           /* windowed worst depth */
	__u8 admitted;
	__u8 measured;         /* 0: queue means nothing */
	__u8 pad[2];
};

struct meta {
	__u32 version;
	__u32 pad;
	__u64 digest;          /* of names, types and sizes of the maps */
};

#endif
