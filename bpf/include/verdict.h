/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The verdict on one message of a claimed server, in the server's own system
 * call. PASS sends it to the agent as if nobody were here; a redirect puts it
 * behind everything that the client's socket was given before.
 */
#ifndef TAUTLINE_VERDICT_H
#define TAUTLINE_VERDICT_H

#include "count.h"
#include "event.h"
#include "frame.h"

/* Credit pays for kernel memory, not only for bytes: a message of a few bytes may
 * cost the client's socket a segment of its own, some 1300 bytes. With this charge
 * a credit's worth of the smallest messages holds at most five times the credit. */
#define MESSAGE_COST 256

struct walk {
	struct sk_msg_md *msg;
	__u32 off;
	__u32 size;
	enum framing framing;
};

static long walk_chunk(__u32 i, void *ctx)
{
	struct walk *w = ctx;
	const __u8 *data = w->msg->data;
	const __u8 *end = w->msg->data_end;
	__u32 off = w->off;

	(void)i;
	w->framing = frame_step(data, end, w->size, &off);
	w->off = off;
	return w->framing != FRAME_MORE;
}

struct line_walk {
	struct sk_msg_md *msg;
	__u32 size;
	__u32 from;
	__u32 at;
};

static long walk_line(__u32 i, void *ctx)
{
	struct line_walk *w = ctx;
	const __u8 *data = w->msg->data;
	const __u8 *end = w->msg->data_end;

	return event_line(data, end, w->size, w->from, i, &w->at);
}

/* Whether a message of whole chunks is one event without ids. Without a line's end
 * at is 0, and no line ends there. */
static __always_inline int is_delta(struct sk_msg_md *msg)
{
	const __u8 *data = msg->data;
	const __u8 *end = msg->data_end;
	struct line_walk w = { .msg = msg, .size = msg->size };

	w.from = event_name(data, end, w.size);
	if (!w.from)
		return 0;
	bpf_loop(EVENT_NAME_STEPS, walk_line, &w, 0);
	data = msg->data;
	end = msg->data_end;
	w.from = event_text(data, end, w.from, w.at);
	if (!w.from)
		return 0;
	w.at = 0;
	bpf_loop(EVENT_LINE_STEPS, walk_line, &w, 0);
	data = msg->data;
	end = msg->data_end;
	return event_ends(data, end, w.size, w.from, w.at);
}

struct end_walk {
	struct sk_msg_md *msg;
	struct usage_end *usage;
	__u32 size;
};

static long walk_end(__u32 i, void *ctx)
{
	struct end_walk *w = ctx;
	const __u8 *data = w->msg->data;
	const __u8 *end = w->msg->data_end;

	return event_keep(data, end, w->size, i, w->usage->words);
}

/* Copies a message's end. (A function of its own so that its argument's type is in the
 * object, for Go.) */
static __attribute__((noinline)) void keep_end(struct sk_msg_md *msg, struct usage_end *usage)
{
	struct end_walk w = { .msg = msg, .usage = usage, .size = msg->size };

	usage->size = event_kept(w.size);
	bpf_loop(USAGE_BYTES / 8, walk_end, &w, 0);
}

/* Gives the agent, when it looks, the end of a message that may tell the usage; 0 if
 * there is no room. What is reserved is this message's alone: a program that is
 * preempted here shares nothing with the one that runs meanwhile. */
static __always_inline int tell_usage(struct sk_msg_md *msg, __u64 response)
{
	struct usage_end *usage = bpf_ringbuf_reserve(&usages, sizeof(*usage), 0);

	if (!usage)
		return 0;
	usage->response = response;
	usage->pad = 0;
	keep_end(msg, usage);
	bpf_ringbuf_submit(usage, BPF_RB_NO_WAKEUP);
	return 1;
}

/* Whether a flow is this socket's. The memory of an entry that the agent deletes may be
 * another connection's at once, also while a program looks at it: one that is preempted
 * meanwhile, for instance. So what is read of an entry counts if it is this socket's
 * still behind that, and it must be when something is written. */
static __always_inline int ours(struct flow *flow, struct claim *claim)
{
	barrier();
	return flow->server_cookie == claim->cookie;
}

/* Bytes the server has sent to the agent; redirected ones are not among them. */
static __always_inline int position_of(struct sk_msg_md *msg, struct claim *claim, __u32 *position)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(msg->sk);

	if (!tp)
		return 0;
	*position = tp->write_seq - claim->base;
	return 1;
}

/* Takes an arm that fits the server's position. */
static __always_inline int take_arm(struct sk_msg_md *msg, struct claim *claim, struct flow *flow)
{
	struct arm *entry = bpf_map_lookup_elem(&arms, &claim->key);
	struct arm arm;
	__u32 position;

	if (!entry)
		return 0;
	arm = *entry; /* which may change at any time, as a flow may: see ours */
	barrier();
	if (arm.server_cookie != claim->cookie || entry->server_cookie != claim->cookie)
		return 0;
	if (!position_of(msg, claim, &position))
		return 0;
	if (position != arm.position) {
		count(ARM_MISSED, 0);
		return 0;
	}
	if (!ours(flow, claim))
		return 0;
	flow->client_cookie = arm.client_cookie;
	flow->response = arm.response;
	flow->usage = arm.usage;
	flow->credit = arm.credit;
	flow->position = position;
	flow->mode = arm.mode;
	flow->arms++;
	flow->state = FLOW_SPLICED;
	bpf_map_delete_elem(&arms, &claim->key);
	count(ARM_TAKEN, 0);
	return 1;
}

/* Why this message of a spliced flow must be passed; REDIRECTED if it need not. */
static __always_inline enum reason judge(struct sk_msg_md *msg, struct claim *claim, struct flow *flow)
{
	struct walk w = { .msg = msg, .size = msg->size };
	__u32 direct = (long)msg->data_end - (long)msg->data;
	__u64 client = flow->client_cookie, response = flow->response;
	__u32 mode = flow->mode, usage = flow->usage;
	__u32 credit = flow->credit, taken = flow->position;
	__u32 position;

	if (!ours(flow, claim))
		return PASS_STALE;
	/* What is written past this program (a redirect of somebody else into this
	 * socket) is on its way to the agent: this message must not overtake it. */
	if (!position_of(msg, claim, &position) || position != taken)
		return PASS_BYPASSED;
	if (w.size > FRAME_WINDOW)
		return PASS_WINDOW;
	if (w.size + MESSAGE_COST > credit)
		return PASS_CREDIT;
	if (direct < w.size && bpf_msg_pull_data(msg, 0, w.size, 0))
		return PASS_WINDOW;

	bpf_loop(FRAME_MAX_CHUNKS, walk_chunk, &w, 0);
	switch (w.framing) {
	case FRAME_WHOLE:
		break;
	case FRAME_LAST:
		return PASS_LAST;
	case FRAME_FOREIGN:
		return PASS_FRAMING;
	default:
		return PASS_PARTIAL;
	}

	if (mode == ARM_DELTAS && !is_delta(msg))
		return PASS_EVENT;
	if (mode == ARM_FIRST && !event_token(msg->data, msg->data_end))
		return PASS_EVENT;
	/* Before the redirect, which cannot be taken back. Where that fails the agent
	 * has both the message and its end. */
	if (usage && event_usage(msg->data, msg->data_end, msg->size) &&
	    !tell_usage(msg, response))
		return PASS_USAGE;
	if (bpf_msg_redirect_hash(msg, &client_socks, &client, 0) != SK_PASS)
		return PASS_TARGET;
	return REDIRECTED;
}

/* Tells the agent, when it looks, of a first token. (A function of its own so that
 * its argument's type is in the object, for Go.) */
static __attribute__((noinline)) long tell_first(struct first_token *first)
{
	return bpf_ringbuf_output(&first_tokens, first, sizeof(*first), BPF_RB_NO_WAKEUP);
}

static __always_inline void decide(struct sk_msg_md *msg)
{
	struct claim *claim = bpf_sk_storage_get(&claims, msg->sk, 0, 0);
	struct flow *flow;
	enum reason reason;
	__u32 size = msg->size;
	__u64 now, last;

	if (!claim) {
		count(PASS_STALE, size);
		return;
	}
	flow = bpf_map_lookup_elem(&flows, &claim->key);
	if (!flow || !ours(flow, claim)) {
		count(PASS_STALE, size);
		return;
	}
	now = bpf_ktime_get_ns();
	last = flow->last_ns;
	flow->last_ns = now;
	if (flow->state != FLOW_SPLICED && !take_arm(msg, claim, flow)) {
		count(PASS_IDLE, size);
		return;
	}
	reason = judge(msg, claim, flow);
	count(reason, size);
	if (!ours(flow, claim))
		return;
	if (reason != REDIRECTED) {
		flow->state = FLOW_PASSING;
		return;
	}
	flow->credit -= size + MESSAGE_COST;
	flow->redirected += size;
	flow->chunks++;
	if (flow->mode == ARM_FIRST) {
		struct first_token first = { .response = flow->response, .ns = now };

		flow->mode = ARM_CHUNKS;
		if (tell_first(&first))
			count(FIRST_LOST, 0);
		last = now; /* before it was the prefill, which is no gap */
	}
	count_chunk(flow->backend, size, now - last);
}

#endif
