/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Claiming: the agent announces its own sockets. When one of them is established
 * its sequence numbers are noted; the server's end is taken only if its numbers
 * mirror them. The same addresses in somebody else's network namespace do not.
 */
#ifndef TAUTLINE_CLAIM_H
#define TAUTLINE_CLAIM_H

#include "count.h"

#define EBUSY 16
#define EINVAL 22
#define E2BIG 7
#define ENOMEM 12
#define EOPNOTSUPP 95

static __always_inline void put_v4(__u8 *to, __u32 addr)
{
	__u32 *w = (__u32 *)to;

	w[0] = 0;
	w[1] = 0;
	w[2] = from_net32(0x0000ffff);
	w[3] = addr;
}

/* The key as the server sees it; at_server tells whose end ops is. */
static __always_inline int key_of(struct conn_key *k, struct bpf_sock_ops *ops, int at_server)
{
	__u8 *local = at_server ? k->server_addr : k->agent_addr;
	__u8 *remote = at_server ? k->agent_addr : k->server_addr;
	__u32 *l = (__u32 *)local, *r = (__u32 *)remote;
	__u16 local_port = ops->local_port;
	__u16 remote_port = from_net32(ops->remote_port);

	if (ops->family == AF_INET) {
		put_v4(local, ops->local_ip4);
		put_v4(remote, ops->remote_ip4);
	} else if (ops->family == AF_INET6) {
		l[0] = ops->local_ip6[0];
		l[1] = ops->local_ip6[1];
		l[2] = ops->local_ip6[2];
		l[3] = ops->local_ip6[3];
		r[0] = ops->remote_ip6[0];
		r[1] = ops->remote_ip6[1];
		r[2] = ops->remote_ip6[2];
		r[3] = ops->remote_ip6[3];
	} else {
		return -1;
	}
	k->server_port = at_server ? local_port : remote_port;
	k->agent_port = at_server ? remote_port : local_port;
	return 0;
}

/* The agent's end is established. */
static __always_inline void note_agent_end(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct announcement *a;
	struct conn_key key = {};
	struct flow flow = {};

	if (!sk)
		return;
	a = bpf_sk_storage_get(&announced, sk, 0, 0);
	if (!a || key_of(&key, ops, 0))
		return;
	flow.state = FLOW_ANNOUNCED;
	flow.backend = a->backend;
	flow.agent_cookie = bpf_get_socket_cookie(ops);
	flow.snd_nxt = ops->snd_nxt;
	flow.rcv_nxt = ops->rcv_nxt;
	if (bpf_map_update_elem(&flows, &key, &flow, BPF_ANY)) {
		count(CLAIM_FULL, 0);
		return;
	}
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* The agent's end is closed by its owner: no message may be redirected any more.
 * (The agent forgets a flow itself before it closes; this is for sockets that it
 * never came to know, and for its sudden death.) */
static __always_inline void forget_agent_end(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct conn_key key = {};
	struct flow *flow;

	if (!sk || !bpf_sk_storage_get(&announced, sk, 0, 0))
		return;
	if (key_of(&key, ops, 0))
		return;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow || flow->agent_cookie != bpf_get_socket_cookie(ops))
		return;
	bpf_map_delete_elem(&flows, &key);
	bpf_map_delete_elem(&arms, &key);
}

static __always_inline enum reason claim_error(long err)
{
	switch (err) {
	case -EBUSY:
		return CLAIM_BUSY;
	case -EOPNOTSUPP:
	case -EINVAL:
		return CLAIM_UNSUPPORTED;
	case -E2BIG:
	case -ENOMEM:
		return CLAIM_FULL;
	}
	return CLAIM_FAILED;
}

/* A server's end is established, anybody's: most calls leave at the lookup. */
static __always_inline void claim_server_end(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct conn_key key = {};
	struct flow *flow;
	struct claim *claim;
	long err;

	if (!sk || key_of(&key, ops, 1))
		return;
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		return;
	if (ops->snd_nxt != flow->rcv_nxt || ops->rcv_nxt != flow->snd_nxt ||
	    flow->state != FLOW_ANNOUNCED) {
		count(CLAIM_MISMATCH, 0);
		return;
	}
	claim = bpf_sk_storage_get(&claims, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!claim) {
		flow->state = FLOW_REFUSED;
		count(CLAIM_FULL, 0);
		return;
	}
	claim->key = key;
	claim->base = ops->snd_nxt;
	claim->cookie = bpf_get_socket_cookie(ops);
	flow->server_cookie = claim->cookie;
	flow->server_netns = bpf_get_netns_cookie(ops);

	err = bpf_sock_hash_update(ops, &server_socks, &key, BPF_ANY);
	if (err) {
		flow->state = FLOW_REFUSED;
		bpf_sk_storage_delete(&claims, sk);
		count(claim_error(err), 0);
		return;
	}
	flow->state = FLOW_PASSING;
	count(CLAIM_TAKEN, 0);
}

#endif
